"""Targets: the tables that views are published to."""
