"""The catalog: views, plans, table ids, epochs and how far each view has come, in one Delta table."""
