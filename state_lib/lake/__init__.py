"""The lake: the only code that touches Delta tables and files outside of Spark. Nothing here knows of views or state."""
