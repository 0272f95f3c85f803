"""Which Parquet files hold the tables of a Delta state table at a version: read from its log, without a Spark job.

Spark plans a Delta table by running jobs over its log, once a snapshot and once a scan. State is planned for every table
of every view in every epoch, so its files are listed here from the log by delta-rs (milliseconds) and read by Spark as
plain Parquet. A state table has no deletion vectors and no column mapping, so its files are its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from state_lib.constants import TABLE_ID, VNODE
from state_lib.within import Within

_FACTS: Final = ("path", "size_bytes", "num_records")


@dataclass(frozen=True, slots=True)
class StateFile:
    """A data file of a Delta state table.

    Parameters
    ----------
    path : relative to the table.
    bytes, rows : its size.
    table_id, vnode : its partition.
    lower, upper : the least and greatest value of each column that has statistics.
    """

    path: str
    bytes: int
    rows: int
    table_id: int
    vnode: int
    lower: dict[str, Any]
    upper: dict[str, Any]


class StateFiles:
    """The files of one Delta state table, a version's list kept once it was read."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        self._by_version: dict[int, tuple[StateFile, ...]] = {}

    def latest(self) -> DeltaTable:
        """The table's newest version, opened."""
        return DeltaTable(self.path)

    def at(self, version: int | None) -> tuple[StateFile, ...]:
        """All files of a version (the newest without one)."""
        if version is not None and version in self._by_version:
            return self._by_version[version]
        table = DeltaTable(self.path, version=version)
        files = _listed(table)
        self._by_version[table.version()] = files
        return files

    def of(
        self, version: int | None, table_ids: frozenset[int], within: Within | None = None, slot: str | None = None
    ) -> tuple[StateFile, ...]:
        """The files of some state tables at a version; only those that can have one of some values in a slot."""
        found = tuple(f for f in self.at(version) if f.table_id in table_ids)
        if within is None or slot is None:
            return found
        return tuple(f for f in found if within.may_be_in(f.lower, f.upper, slot))

    def total_bytes(self, version: int | None = None) -> int:
        """Bytes of all files of a version."""
        return sum(f.bytes for f in self.at(version))


def _listed(table: DeltaTable) -> tuple[StateFile, ...]:
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = {name: actions.column(name).to_pylist() for name in actions.column_names}
    bounds = {kind: [name for name in columns if name.startswith(f"{kind}.")] for kind in ("min", "max")}
    found = []
    for row in range(actions.num_rows):
        path, size, records = (columns[name][row] for name in _FACTS)
        lower, upper = (
            {name[len(kind) + 1 :]: columns[name][row] for name in names if columns[name][row] is not None}
            for kind, names in bounds.items()
        )
        table_id, vnode = columns[f"partition.{TABLE_ID}"][row], columns[f"partition.{VNODE}"][row]
        found.append(StateFile(path, size, records or 0, table_id, vnode, lower, upper))
    return tuple(sorted(found, key=lambda f: (f.table_id, f.vnode, f.path)))
