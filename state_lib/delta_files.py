"""The data files of a Delta table at a version, with what the log says of each: read by delta-rs, without a Spark job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

_FACTS: Final = ("path", "size_bytes", "num_records")
_PARTITION: Final = "partition."


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a Delta table.

    Parameters
    ----------
    path : as the log has it.
    bytes, rows : its size; rows are -1 where its writer left statistics out.
    partition : its partition values by column.
    lower, upper : the least and greatest value of each column that has statistics.
    """

    path: str
    bytes: int
    rows: int
    partition: Mapping[str, Any]
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]


def data_files(table: DeltaTable) -> tuple[DataFile, ...]:
    """All files of an opened version of a table, in the order of their paths."""
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = {name: actions.column(name).to_pylist() for name in actions.column_names}
    partitions = [name for name in columns if name.startswith(_PARTITION)]
    bounds = {kind: [name for name in columns if name.startswith(f"{kind}.")] for kind in ("min", "max")}
    found = []
    for row in range(actions.num_rows):
        path, size, records = (columns[name][row] for name in _FACTS)
        lower, upper = (
            {name[len(kind) + 1 :]: columns[name][row] for name in names if columns[name][row] is not None}
            for kind, names in bounds.items()
        )
        partition = {name[len(_PARTITION) :]: columns[name][row] for name in partitions}
        found.append(DataFile(path, size, -1 if records is None else int(records), partition, lower, upper))
    return tuple(sorted(found, key=lambda f: f.path))


def row_count(files: Iterable[DataFile]) -> int | None:
    """Rows of some files together; ``None`` where a writer left the statistics of one out."""
    counts = [file.rows for file in files]
    return sum(counts) if min(counts, default=0) >= 0 else None
