"""The catalog's commits are the lock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.catalog.entries import CatalogState, EpochEntry, PlainView, SourceEntry, ViewVersions
from jobs.catalog.store import CatalogStore, ConcurrentCatalogChange
from jobs.sources.delta_source import Pin
from state_lib.errors import WarehouseError


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path / "catalog"))
    state = CatalogState(next_table_id=7, next_epoch=3).with_source(SourceEntry("t", "/t", ("k",), True, True))
    state = state.with_plain_view(PlainView("p", "SELECT 1"))
    entry = EpochEntry(2, {"t": Pin(4, "uuid", "{}", 9)}, ("v",), "run", True, {"v": ViewVersions(1, None)})
    state = state.with_epoch(entry)
    written = store.write(state)
    assert store.read() == written == replace(state, version=0)


def test_of_two_writers_from_one_version_the_second_fails(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path / "catalog"))
    start = store.write(CatalogState())
    store.write(replace(start, next_epoch=5))
    with pytest.raises(ConcurrentCatalogChange, match="another run changed the catalog"):
        store.write(replace(start, next_epoch=6))
    assert store.read().next_epoch == 5


def test_two_first_writers(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path / "catalog"))
    store.write(CatalogState(next_epoch=2))
    with pytest.raises(ConcurrentCatalogChange):
        store.write(CatalogState(next_epoch=3))
    assert store.read().next_epoch == 2


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path / "catalog"))
    store.write(CatalogState(format_version=99))
    with pytest.raises(WarehouseError, match="format version 99"):
        store.read()


def test_many_commits_stay_readable(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path / "catalog"))
    state = store.write(CatalogState())
    for number in range(1, 105):
        state = store.write(replace(state, next_epoch=number))
    assert store.read().next_epoch == 104
    assert json.loads((tmp_path / "catalog/_delta_log/_last_checkpoint").read_text())["version"] == 100
