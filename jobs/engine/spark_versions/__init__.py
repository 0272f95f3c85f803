"""Differences between the releases of Spark that are supported: a module for each, and no question of a release elsewhere."""
