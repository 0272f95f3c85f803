"""Registration of declarations: sources and views planned, and known to a warehouse."""
