"""Turns declared views and sources into Dagster assets, checks and lineage; holds the example views."""
