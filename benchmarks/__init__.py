"""Benchmarks: TPC-H views kept up to date against the same queries run in full. ``python -m benchmarks --help``."""
