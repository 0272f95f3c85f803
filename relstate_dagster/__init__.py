"""Incrementally maintained materialized views for Spark, Delta Lake and Dagster."""
