"""Relational state: rows of state tables in Delta, as of an epoch.

A row is ``table_id | vnode | key`` and its columns.
"""
