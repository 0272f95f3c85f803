"""Runs: epochs begin, views are computed, epochs complete, and what is left is repaired."""
