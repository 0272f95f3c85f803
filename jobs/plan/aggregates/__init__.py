"""Aggregate kinds: one file a kind, their contract in ``kind.py``, all of them in ``registry.py``.

A kind gives names, types and SQL text. It needs no Spark session and knows no frame; operators make those.
"""
