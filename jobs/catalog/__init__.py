"""The catalog in one Delta table: views, plans, table ids, epochs, and progress."""
