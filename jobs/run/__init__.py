"""Runs: epochs begin, views are computed, epochs complete or are repaired."""
