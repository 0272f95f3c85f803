"""The warm server: keeps Spark for a warehouse, and runs epochs and scripts."""
