"""TPC-DS data."""
from __future__ import annotations
def rows(relations): raise NotImplementedError
