"""Differences between supported releases of Spark, a module for each.

No other module asks for a release.
"""
