"""Benchmarks: incremental TPC-H views against full queries. ``python -m benchmarks --help``."""
