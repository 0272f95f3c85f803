"""The lake: Delta tables and files outside of Spark.

Nothing else touches them, and nothing here knows of views or state.
"""
