"""Other systems over the same change stream: DuckDB in full, PostgreSQL with pg_ivm, Pathway."""
