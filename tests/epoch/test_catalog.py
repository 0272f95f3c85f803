"""The catalog's commits are the lock."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from relstate_dagster.jobs.catalog import store as catalog_store
from relstate_dagster.jobs.catalog.entries import EpochEntry, PlainViewEntry, SourceEntry, ViewEntry, ViewVersions
from relstate_dagster.jobs.catalog.plans import Planned
from relstate_dagster.jobs.catalog.state import CatalogState, ConcurrentCatalogChange
from relstate_dagster.jobs.catalog.store import CatalogStore
from relstate_dagster.jobs.plan.nodes import Field, Materialize, OutputColumn, Scan
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.state_lib.errors import WarehouseError


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    state = CatalogState(next_table_id=7, next_epoch=3).with_source(SourceEntry("t", "/t", ("k",), True, True))
    state = state.with_plain_view(PlainViewEntry("p", "SELECT 1"))
    entry = EpochEntry(2, {"t": Pin(4, "uuid", "{}", 9)}, ("v",), "run", {"v": ViewVersions(1, None)})
    state = state.with_epoch(entry)
    written = store.write(state)
    assert store.read() == written == replace(state, version=0)


def test_of_two_writers_from_one_version_the_second_fails(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    start = store.write(CatalogState())
    store.write(replace(start, next_epoch=5))
    with pytest.raises(ConcurrentCatalogChange, match="another run changed the catalog"):
        store.write(replace(start, next_epoch=6))
    assert store.read().next_epoch == 5


def test_two_first_writers(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    store.write(CatalogState(next_epoch=2))
    with pytest.raises(ConcurrentCatalogChange):
        store.write(CatalogState(next_epoch=3))
    assert store.read().next_epoch == 2


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    store.write(CatalogState(format_version=99))
    with pytest.raises(WarehouseError, match="format version 99"):
        store.read()


def test_many_commits_stay_readable(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    state = store.write(CatalogState())
    for number in range(1, 105):
        state = store.write(replace(state, next_epoch=number))
    assert store.read().next_epoch == 104
    assert json.loads((tmp_path / "_relstate/catalog/_delta_log/_last_checkpoint").read_text())["version"] == 100


def _view(name: str, planned: Planned, **facts: Any) -> ViewEntry:
    return ViewEntry(name, f"SELECT '{name}'", "incremental", None, planned, ("t",), {}, generation="g1", **facts)


def _planned(name: str = "v") -> Planned:
    rows = Scan("t", (Field(f"c_{name}", "int", True),), (f"c_{name}",), False)
    return Planned.of(StatefulPlan.allocate(Materialize(rows, (OutputColumn(name, f"c_{name}"),)), 1))


def _files(folder: Path) -> int:
    return len(DeltaTable(str(folder / "_relstate/catalog")).file_uris())


@pytest.mark.parametrize(("first", "growth", "most_files"), [(32, 8, 2), (3, 2, 6)], ids=["two levels", "many levels"])
@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.booleans()), min_size=30, max_size=60))
def test_two_writers_in_turn_are_read_as_one_state(
    first: int, growth: int, most_files: int, steps: list[tuple[int, int, bool]]
) -> None:
    """Entries written, changed and dropped in any order, over several levels, from two processes that read one another."""
    levels = {"_FIRST_LEVEL_ROWS": first, "_LEVEL_GROWTH": growth}
    with TemporaryDirectory() as folder, patch.multiple("relstate_dagster.jobs.catalog.store", **levels):
        stores = [CatalogStore(folder), CatalogStore(folder)]
        expected: dict[str, PlainViewEntry] = {}
        for number, (writer, name, is_there) in enumerate(steps):
            key = f"p{name}"

            def change(state: CatalogState, key: str = key, number: int = number, is_there: bool = is_there) -> CatalogState:
                return state.with_plain_view(PlainViewEntry(key, f"SELECT {number}")) if is_there else state.without(key)

            stores[writer].update(change)
            if is_there:
                expected[key] = PlainViewEntry(key, f"SELECT {number}")
            else:
                expected.pop(key, None)
        for store in (*stores, CatalogStore(folder)):
            assert store.read().plain_views == expected
        assert _files(Path(folder)) <= most_files


def test_changes_of_different_entries_are_put_together_and_of_the_same_refused(tmp_path: Path) -> None:
    ours, theirs = CatalogStore(str(tmp_path)), CatalogStore(str(tmp_path))
    base = ours.write(CatalogState().with_plain_view(PlainViewEntry("p", "SELECT 1")))
    theirs.update(lambda state: replace(state.with_plain_view(PlainViewEntry("q", "SELECT 2")), next_epoch=7))
    ours.commit(base, replace(base.with_plain_view(PlainViewEntry("r", "SELECT 3")), next_table_id=9))
    state = theirs.read()
    assert (set(state.plain_views), state.next_epoch, state.next_table_id) == ({"p", "q", "r"}, 7, 9)
    for change in (base.with_plain_view(PlainViewEntry("q", "SELECT 4")), replace(base, next_epoch=8)):
        with pytest.raises(ConcurrentCatalogChange, match="nothing was written"):
            ours.commit(base, change)
    assert ours.read() == theirs.read() == state


def test_writers_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        store = CatalogStore(str(tmp_path))
        for number in range(15):
            store.update(
                lambda state, n=number: replace(
                    state.with_plain_view(PlainViewEntry(f"p{writer}_{n}", "SELECT 1")), next_epoch=state.next_epoch + 1
                )
            )

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    state = CatalogStore(str(tmp_path)).read()
    assert (len(state.plain_views), state.next_epoch) == (45, 46)


def test_a_writer_right_behind_another_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more commits follow each, before its writer has looked at the table again."""
    store, faster = CatalogStore(str(tmp_path)), CatalogStore(str(tmp_path))
    names = iter(range(1000))

    def add(by: CatalogStore) -> None:
        name = f"p{next(names)}"
        by.update(lambda state: state.with_plain_view(PlainViewEntry(name, "SELECT 1")))

    def followed(*args: object, **options: object) -> None:
        write_deltalake(*args, **options)
        with monkeypatch.context() as patch:
            patch.setattr(catalog_store, "write_deltalake", write_deltalake)
            add(faster)
            add(faster)

    monkeypatch.setattr(catalog_store, "write_deltalake", followed)
    for number in range(1, 25):
        add(store)
        expected = {f"p{name}" for name in range(3 * number)}
        assert {*store.read().plain_views} == {*faster.read().plain_views} == expected
        assert {*CatalogStore(str(tmp_path)).read().plain_views} == expected


def test_a_catalog_that_cannot_be_written_says_so_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = CatalogStore(str(tmp_path)), []
    store.write(CatalogState())

    def full(*_: object, **__: object) -> None:
        calls.append(None)
        raise OSError("No space left on device")

    monkeypatch.setattr("relstate_dagster.jobs.catalog.store.write_deltalake", full)
    with pytest.raises(WarehouseError, match="cannot be written: No space left on device"):
        store.update(lambda state: replace(state, next_epoch=5))
    assert len(calls) == 1


def test_a_commit_writes_what_it_changes_and_reads_no_plans(tmp_path: Path) -> None:
    store = CatalogStore(str(tmp_path))
    state = CatalogState()
    for number in range(300):
        state = state.with_view(_view(f"v{number}", _planned(f"v{number}")))
    state = store.write(state)
    plans = list((tmp_path / "_relstate/plans").iterdir())
    assert len(plans) == 300
    before = _files(tmp_path)
    for number in range(5):
        state = store.update(lambda s, n=number: s.with_view(replace(s.views["v7"], epochs=(n,))))
    assert _files(tmp_path) == before + 1
    newest = max(DeltaTable(str(tmp_path / "_relstate/catalog")).file_uris(), key=lambda path: Path(path).stat().st_mtime)
    assert pq.read_table(newest).num_rows == 2, "the view, and the row about the warehouse"
    for plan in plans:
        plan.unlink()
    read = CatalogStore(str(tmp_path)).read()
    assert read == state
    with pytest.raises(WarehouseError, match=r"the plan .* cannot be read"):
        _ = read.views["v7"].plan


def test_a_plan_is_read_back_as_it_was(tmp_path: Path) -> None:
    planned = _planned()
    CatalogStore(str(tmp_path)).write(CatalogState().with_view(_view("v", planned)))
    view = CatalogStore(str(tmp_path)).read().views["v"]
    assert (view.plan, view.tables) == (planned.plan, planned.tables)
    assert replace(view, vnode_counts={"1": 4}) != view
