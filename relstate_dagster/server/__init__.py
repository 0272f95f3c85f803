"""The warm server: one process of a warehouse that keeps Spark, and runs epochs and scripts for others."""
