"""Relational state: tables of ``table_id | vnode | key`` rows kept in Delta, as of an epoch."""
