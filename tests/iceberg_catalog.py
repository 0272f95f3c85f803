"""A catalog of Iceberg tables, as a user configures one for PyIceberg."""

from __future__ import annotations

from pathlib import Path

import pyiceberg.catalog
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.utils.config import Config


def lake(monkeypatch: pytest.MonkeyPatch, folder: Path, warehouse: str, **others: str) -> Catalog:
    """The catalog ``lake`` with a namespace ``sales``, kept in a folder.

    Parameters
    ----------
    warehouse : address of the folder that tables lie in.
    others : further settings, as variables end that give them.
    """
    settings = {"TYPE": "sql", "URI": f"sqlite:///{folder}/lake.db", "WAREHOUSE": warehouse, **others}
    for name, setting in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", setting)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # which is read once a process
    found = load_catalog("lake")
    found.create_namespace("sales")
    return found
