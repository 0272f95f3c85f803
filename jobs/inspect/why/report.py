"""Report on one row of a view: its source rows, and what changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import ViewEntry, changed_date
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.inspect.view_diff import visible_key
from relstate_dagster.jobs.inspect.why.inputs import Input, Inputs
from relstate_dagster.jobs.inspect.why.lineage import Contributions, Lineage
from relstate_dagster.jobs.inspect.why.view_at import Past, ViewAt
from relstate_dagster.jobs.inspect.why.wanted import Wanted, same_rows
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import FullQuery, Scan, walk
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.jobs.view_epoch.shown_values import shown_row
from relstate_dagster.state_lib.constants import ROW_ID, VIEW_KEY
from relstate_dagster.state_lib.errors import DeclarationError, EpochError, SourceError
from relstate_dagster.state_lib.key_text import check_value, parse_pairs
from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.row_encoding import encode_storage_key, parts_of
from relstate_dagster.state_lib.row_width import memory_bytes
from relstate_dagster.state_lib.sql_text import quoted

#: What has become of the row in the epoch.
ADDED: Final = "added"
REMOVED: Final = "removed"
CHANGED: Final = "changed"
UNCHANGED: Final = "unchanged"

_FLOATING: Final = (T.FloatType, T.DoubleType)
#: Of a value in memory, about.
_VALUE_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Why:
    """Provenance and history of one row.

    Parameters
    ----------
    epoch : the one asked for; ``before`` is the view's epoch before it, if there is one to compare with.
    matched : how many rows of the view the key has; the first of them is explained.
    change : ``added``, ``removed``, ``changed`` or ``unchanged`` in the epoch; ``None`` where there is no epoch before.
    row : the row; where it was removed, as it was before.
    old : the row as of the epoch before.
    differing : the columns in which the two differ.
    copies : how often the row is there, and was: other than once only in a view without a key.
    inputs : what makes the row; where it was removed, what made it.
    """

    view: str
    epoch: int
    before: int | None
    matched: int
    change: str | None
    row: Mapping[str, Any]
    old: Mapping[str, Any] | None
    differing: tuple[str, ...]
    copies: tuple[int, int]
    inputs: tuple[Input, ...]
    notes: tuple[str, ...] = ()

    def for_show(self, *, as_json: bool) -> Why:
        """With the values of rows as people, or programs, read them, and without frames."""
        row, old = shown_row(self.row, as_json=as_json), shown_row(self.old, as_json=as_json)
        return replace(self, row=row, old=old, inputs=tuple(item.for_show(as_json=as_json) for item in self.inputs))


def why(
    spark: SparkSession,
    warehouse: Warehouse,
    view: str,
    key: Mapping[str, Any] | str,
    *,
    epoch: int | None = None,
    limit: int = 10,
) -> Why:
    """Find the source rows of a view's row, and what changed it in an epoch.

    Parameters
    ----------
    key : values of some columns of the view by name, or as text (``carrier='UA', day=2013-01-02``).
    epoch : one that the catalog retains; by default the last.
    limit : how many rows of each source and view are returned. All are counted.

    Raises
    ------
    DeclarationError : there is no such view, column or row, or a value is not of its column's type.
    EpochError : the view has not reached the epoch, or what it read then is gone.
    """
    state = warehouse.read()
    entry = state.view(view)
    values = _values(entry, key)
    at = _epoch(entry, epoch)
    past = Past(spark, warehouse, state)
    now = past.view_at(entry.name, at)
    if memory_bytes(now.check_readable()) // _VALUE_BYTES <= run_limits().interpreted_values:
        past.workload = Workload.SMALL
    before, notes = _before(past, entry, at)
    changed = None if before is None else changed_date(entry, before.epoch.instant, now.epoch.instant)
    if changed is not None:
        notes.append(f"{changed}: all rows of {entry.name} were computed")
    return _Explained(now, before, limit, notes).result(values)


def _values(entry: ViewEntry, key: Mapping[str, Any] | str) -> dict[str, Any]:
    plan = entry.plan
    types = {o.name: plan.field_named(o.column).data_type for o in plan.output}
    if isinstance(key, str):
        found = parse_pairs(key, types, f"view {entry.name}")
    else:
        key = {as_declared(name, types): value for name, value in key.items()}
        unknown = [name for name in key if name not in types]
        if unknown:
            raise DeclarationError(f"view {entry.name} has no column {', '.join(unknown)}; it has {', '.join(types)}")
        found = dict(key)
        for name, value in found.items():
            check_value(name, value, types[name])
    if not found:
        raise DeclarationError(f"which row of {entry.name}? give values of some of its columns: {', '.join(types)}")
    return found


def _epoch(entry: ViewEntry, epoch: int | None) -> int:
    if entry.last_epoch is None:
        raise EpochError(f"view {entry.name} has not been built yet: relstate run")
    if epoch is not None and epoch not in entry.epochs:
        there = ", ".join(map(str, entry.epochs))
        raise EpochError(f"view {entry.name} has not reached epoch {epoch}, or that is forgotten; there are {there}")
    return entry.last_epoch if epoch is None else epoch


def _before(past: Past, entry: ViewEntry, epoch: int) -> tuple[ViewAt | None, list[str]]:
    """The view as of the epoch before, and remarks if it cannot be compared."""
    earlier = [e for e in entry.epochs if e < epoch]
    if not earlier:
        return None, [f"epoch {epoch} is the first of this view that the catalog remembers: there is none to compare with"]
    try:
        found = past.view_at(entry.name, earlier[-1])
        found.check_readable()
    except (EpochError, SourceError) as error:
        return None, [f"what changed in epoch {epoch} cannot be found: {error}"]
    return found, []


@dataclass
class _Explained:
    """One row of a view at an epoch and at the one before."""

    now: ViewAt
    before: ViewAt | None
    limit: int
    notes: list[str]

    @property
    def entry(self) -> ViewEntry:
        return self.now.entry

    @property
    def columns(self) -> list[str]:
        return [o.name for o in self.entry.plan.output]

    def result(self, values: Mapping[str, Any]) -> Why:
        matched, picked = self._picked(values)
        new, old = (self._like(view, picked) for view in (self.now, self.before))
        of_new, of_old, kept_new, kept_old = (Contributions() for _ in range(4))
        if new.row is not None:
            self._trace(Lineage(self.now, self.before, (self.entry.name,), of_new, kept_old, old.row is None), new)
        if old.row is not None and self.before is not None:
            self._trace(Lineage(self.before, self.now, (self.entry.name,), of_old, kept_new, new.row is None), old)
        change, differing = self._change(new, old)
        inputs = Inputs(self.now, self.before, of_new, of_old, kept_new, kept_old, self.limit, is_now=new.row is not None)
        row = new.row or old.row
        assert row is not None
        return Why(
            self.entry.name,
            self.now.epoch.epoch,
            None if self.before is None else self.before.epoch.epoch,
            matched,
            change,
            row,
            old.row,
            differing,
            (new.copies, old.copies),
            inputs.below((self.entry.name,)),
            tuple(dict.fromkeys(self.notes)),
        )

    def _picked(self, values: Mapping[str, Any]) -> tuple[int, DataFrame]:
        """Number of view rows with some values, and the first.

        At the epoch, else at the one before.
        """
        plan = self.entry.plan
        types = {o.name: plan.field_named(o.column).data_type for o in plan.output}
        conditions = []
        for name, value in values.items():
            found = literal(value, types[name])
            if found is None:
                raise DeclarationError(f"column {name} of view {self.entry.name} is of type {types[name]}: name other columns")
            conditions.append(F.col(quoted(name)).eqNullSafe(found))
        for view in (self.now, self.before):
            if view is not None:
                rows = local_checkpoint(view.rows().where(reduce(Column.__and__, conditions)))
                if not rows.isEmpty():
                    return rows.count(), local_checkpoint(rows.orderBy(quoted(VIEW_KEY)).limit(1))
        shown = ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in values.items())
        earlier = "" if self.before is None else f", nor at epoch {self.before.epoch.epoch}, the one before"
        raise DeclarationError(f"view {self.entry.name} has no row with {shown} at epoch {self.now.epoch.epoch}{earlier}")

    def _like(self, view: ViewAt | None, picked: DataFrame) -> _Version:
        """The view's row, at one of the two epochs, with the picked row's key."""
        if view is None:
            return _Version(None, 0, None)
        key = visible_key(self.entry)
        if self.entry.plan.stream_key == ():
            rows = view.rows()
        else:
            names = [VIEW_KEY] if key == () else list(key or self.columns)
            rows = _with_values_of(view.rows(), names, picked)
        rows = local_checkpoint(rows.select(*columns_of([*self.columns, VIEW_KEY])))
        found = rows.limit(1).collect()
        if not found:
            return _Version(None, 0, None)
        row = found[0].asDict(recursive=True)
        return _Version({name: row[name] for name in self.columns}, rows.count(), rows.limit(1))

    def _trace(self, lineage: Lineage, version: _Version) -> None:
        plan = self.entry.plan
        if any(isinstance(node, FullQuery) for node in walk(plan)):
            self.notes.append(
                f"view {self.entry.name} is recomputed in full ({self.entry.reason}), so its plan shows no lineage of a row: "
                "all rows of its inputs are shown"
            )
            lineage.trace(plan, None)
            return
        wanted = self._of_plan(lineage, version)
        if wanted.is_empty:
            self.notes.append(
                f"the plan of view {self.entry.name}, run again, does not return this row, because it depends on an order of "
                "rows that the query does not fix: all rows of its inputs are shown"
            )
            lineage.trace(plan, None)
            return
        lineage.trace(plan, wanted)

    def _of_plan(self, lineage: Lineage, version: _Version) -> Wanted:
        """The rows of the plan that are a row of the view, by their identity."""
        plan, rows = self.entry.plan, lineage.rows.of(self.entry.plan)
        shown = {o.name: o.column for o in plan.output}
        assert version.frame is not None
        names = list(visible_key(self.entry) or ())
        if not names and plan.stream_key != ():
            # What is computed of floating-point numbers may come out otherwise in the last digit.
            types = {field.name: field.dataType for field in version.frame.schema.fields}
            names = [n for n in self.columns if not any(isinstance(t, _FLOATING) for t in parts_of(types[n]))]
        if not names:
            return Wanted.of(rows.frame.select(*rows.identity))
        columns = {name: shown[name] for name in names}
        like_it = _with_values_of(rows.frame, names, version.frame, columns)
        if visible_key(self.entry) == () and plan.stream_key and not _has_row_ids(lineage.view):
            schema = self.entry.tables[-1].schema
            with_key = like_it.withColumn(VIEW_KEY, encode_storage_key(schema.columns, schema.storage_key))
            exact = Wanted.of(_with_values_of(with_key, [VIEW_KEY], version.frame).select(*rows.identity))
            if not exact.is_empty:
                return exact
        return Wanted.of(like_it.select(*rows.identity))

    def _change(self, new: _Version, old: _Version) -> tuple[str | None, tuple[str, ...]]:
        """Change of the row in the epoch, and its differing columns."""
        if self.before is None:
            return None, ()
        if new.frame is None or old.frame is None:
            return (REMOVED if new.frame is None else ADDED), ()
        types = [(name, new.frame.schema[name].dataType) for name in self.columns]
        sides = [
            frame.selectExpr(*(f"{comparable(quoted(name), t)} AS {side}{n}" for n, (name, t) in enumerate(types)))
            for side, frame in (("new", new.frame), ("old", old.frame))
        ]
        same = sides[0].crossJoin(sides[1]).selectExpr(*(f"new{n} <=> old{n} AS c{n}" for n in range(len(types)))).first()
        assert same is not None
        differing = tuple(name for name, is_same in zip(self.columns, same, strict=True) if not is_same)
        return (CHANGED if differing or new.copies != old.copies else UNCHANGED), differing


def _has_row_ids(view: ViewAt) -> bool:
    """Whether rows have ids in the order of arrival.

    Reading all rows at once does not give those again.
    """
    scans = [node for node in walk(view.entry.plan) if isinstance(node, Scan)]
    return any(
        _has_row_ids(view.upstream(scan.relation)) if view.is_view(scan.relation) else ROW_ID in scan.column_names
        for scan in scans
    )


@dataclass(frozen=True)
class _Version:
    """A row of the view as of an epoch, with its count and frame.

    ``None`` if it is not there.
    """

    row: Mapping[str, Any] | None
    copies: int
    frame: DataFrame | None


def _with_values_of(
    rows: DataFrame, names: Sequence[str], picked: DataFrame, columns: Mapping[str, str] | None = None
) -> DataFrame:
    """Rows with the values of another frame's one row.

    ``columns`` are their names here.
    """
    types = {field.name: field.dataType for field in picked.schema.fields}
    theirs = [f"__why_k{n}" for n in range(len(names))]
    asked = Wanted.of(
        picked.selectExpr(*(f"{comparable(quoted(n), types[n])} AS {k}" for n, k in zip(names, theirs, strict=True)))
    )
    ours = [comparable(quoted(name if columns is None else columns[name]), types[name]) for name in names]
    return same_rows(rows, ours, asked, theirs)
