"""The epochs of a suite as Parquet files: for every epoch the change sets, and what the tables then hold."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.state_lib.constants import WEIGHT
from relstate_dagster.state_lib.lookup_keys import LookupKeys
from tests.suites.changes import Changes, Row

_TYPES = {"int": pa.int32(), "bigint": pa.int64(), "string": pa.string(), "date": pa.date32()}


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """Where the files of a suite's epochs lie; ``write_epochs`` makes them."""

    folder: Path
    epochs: int

    def change(self, epoch: int, table: str) -> Path | None:
        """The change set of a table, with its weights; ``None`` where nothing changed."""
        path = self.folder / f"change-{epoch}" / f"{table}.parquet"
        return path if path.is_file() else None

    def full(self, epoch: int, table: str) -> Path:
        """What a table holds after an epoch."""
        found = (self.folder / f"full-{n}" / f"{table}.parquet" for n in range(epoch, 0, -1))
        return next(path for path in found if path.is_file())

    def provably_absent_before(self, epoch: int, table: str, lookup_keys: LookupKeys) -> bool:
        """Whether no row that a table holds after an epoch has one of some values."""
        held = pq.read_table(self.full(epoch, table), columns=[lookup_keys.column]).column(0)
        return not pc.any(pc.is_in(held, value_set=pa.array(lookup_keys.values, held.type))).as_py()

    def row_count(self, epoch: int, table: str) -> int:
        """How many rows a table holds after an epoch."""
        return int(pq.read_metadata(self.full(epoch, table)).num_rows)


def write_epochs(folder: Path, relations: Mapping[str, Relation], make: Callable[[], Sequence[Changes]]) -> EpochFiles:
    """Write the files of the epochs that ``make`` gives; a folder that has them all is left as it is."""
    done = folder / "_DONE"
    if not done.is_file():
        shutil.rmtree(folder, ignore_errors=True)
        epochs = make()
        held: dict[str, dict[Row, Row]] = {name: {} for name in relations}
        for number, changes in enumerate(epochs, start=1):
            for name in relations if number == 1 else changes:
                _write_epoch(folder, relations[name], number, changes.get(name, []), held[name])
        done.write_text(str(len(epochs)))
    return EpochFiles(folder, int(done.read_text()))


def _write_epoch(folder: Path, relation: Relation, epoch: int, net: list[tuple[Row, int]], held: dict[Row, Row]) -> None:
    names = [c.name for c in relation.columns]
    key = [names.index(k) for k in relation.key or ()]
    for row, weight in net:
        if weight < 0:
            del held[tuple(row[n] for n in key)]
    for row, weight in net:
        if weight > 0:
            held[tuple(row[n] for n in key)] = row
    weighted = [*relation.columns, Field(WEIGHT, "bigint")]
    _write(folder / f"change-{epoch}" / f"{relation.name}.parquet", weighted, [(*row, weight) for row, weight in net])
    _write(folder / f"full-{epoch}" / f"{relation.name}.parquet", relation.columns, list(held.values()))


def _write(path: Path, fields: Sequence[Field], rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([(f.name, arrow_type(f.data_type)) for f in fields])
    columns = [pa.array([row[n] for row in rows], type=f.type) for n, f in enumerate(schema)]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path)


def arrow_type(data_type: str) -> pa.DataType:
    """The Arrow type of a base table's column type."""
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", data_type)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[data_type]
