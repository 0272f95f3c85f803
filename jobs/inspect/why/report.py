"""Report on one row of a view: its source rows, and what changed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.names import as_declared
from relstate_dagster.jobs.engine.workloads import Workload
from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.inspect.view_diff import visible_key
from relstate_dagster.jobs.inspect.why.changes import SourceCommit, changes_between, commits_of, netted, of_rows
from relstate_dagster.jobs.inspect.why.lineage import Contributions, Lineage, Path
from relstate_dagster.jobs.inspect.why.plan_rows import identity_names, rows_of, source_identity
from relstate_dagster.jobs.inspect.why.view_at import Past, ViewAt
from relstate_dagster.jobs.inspect.why.wanted import Wanted, same_rows
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import FullQuery, Scan, walk
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.view_epoch.plan import run_limits
from relstate_dagster.jobs.view_epoch.shown_values import shown_row
from relstate_dagster.state_lib.constants import COMMIT_VERSION, ROW_ID, VIEW_KEY, WEIGHT
from relstate_dagster.state_lib.errors import DeclarationError, EpochError, SourceError
from relstate_dagster.state_lib.key_text import check_value, parse_pairs
from relstate_dagster.state_lib.literals import literal
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
class SourceChange:
    """A source row that a commit inserted or deleted; an update does both."""

    inserted: bool
    version: int
    row: Mapping[str, Any]
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Input:
    """The rows of a source, or of a view in between, that make the row.

    Parameters
    ----------
    version : of a source, the one that the epoch has read; ``epoch``: of a view, the one that it was read at.
    rows : how many; ``shown`` are the first of them, with the columns that are read.
    frame : all of them, with all columns of the table; ``None`` in what is only to be shown.
    inserted, deleted : how many rows of those that make the row, or made it before, the epoch has brought and taken.
    changes : the first of these; ``commits`` are those that made them.
    inputs : of a view, what makes its rows.
    """

    name: str
    is_view: bool
    version: int | None
    epoch: int | None
    rows: int
    shown: tuple[Mapping[str, Any], ...]
    frame: DataFrame | None = field(repr=False)
    inserted: int = 0
    deleted: int = 0
    changes: tuple[SourceChange, ...] = ()
    commits: tuple[SourceCommit, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: tuple[Input, ...] = ()

    def for_show(self, *, as_json: bool) -> Input:
        """As :meth:`Why.for_show`."""
        shown = tuple(shown_row(row, as_json=as_json) for row in self.shown)
        changes = (replace(change, row=shown_row(change.row, as_json=as_json)) for change in self.changes)
        inputs = (item.for_show(as_json=as_json) for item in self.inputs)
        return replace(self, shown=shown, frame=None, changes=tuple(changes), inputs=tuple(inputs))


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
        inputs = _Inputs(self.now, self.before, of_new, of_old, kept_new, kept_old, self.limit, is_now=new.row is not None)
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
                rows = view.rows().where(reduce(Column.__and__, conditions)).localCheckpoint()
                if not rows.isEmpty():
                    return rows.count(), rows.orderBy(quoted(VIEW_KEY)).limit(1).localCheckpoint()
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
        rows = rows.select(*columns_of([*self.columns, VIEW_KEY])).localCheckpoint()
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


@dataclass
class _Inputs:
    """Inputs of a row, as a tree.

    Parameters
    ----------
    of_new, of_old : what makes the row now, and made it before.
    kept_new, kept_old : what keeps a row from it now, and kept it before.
    is_now : whether the row is there now; otherwise what made it is shown.
    """

    now: ViewAt
    before: ViewAt | None
    of_new: Contributions
    of_old: Contributions
    kept_new: Contributions
    kept_old: Contributions
    limit: int
    is_now: bool

    def below(self, path: Path) -> tuple[Input, ...]:
        """The inputs of the view at the end of a path."""
        everywhere = (self.of_new, self.of_old, self.kept_new, self.kept_old)
        paths = dict.fromkeys(p for c in everywhere for p in (*c.found, *c.notes) if p[:-1] == path)
        found = [self._input(p) for p in paths]
        return tuple(f for f in found if f.rows or f.inserted or f.deleted or f.notes or f.inputs)

    def _reader(self, root: ViewAt, path: Path) -> ViewAt:
        """The view that reads the relation at the end of a path."""
        for name in path[1:-1]:
            root = root.upstream(name)
        return root

    def _input(self, path: Path) -> Input:
        shown_in, view = (self.of_new, self.now) if self.is_now or self.before is None else (self.of_old, self.before)
        reader, name = self._reader(view, path), path[-1]
        notes = list(shown_in.notes.get(path, {}))
        if reader.is_view(name):
            upstream = reader.upstream(name)
            rows = _rows_of_view(upstream, shown_in, path)
            shown = _collected(rows.select(*columns_of([o.name for o in upstream.entry.plan.output])), self.limit)
            epoch = upstream.epoch.epoch
            return Input(name, True, None, epoch, rows.count(), shown, rows, notes=tuple(notes), inputs=self.below(path))
        rows = _rows_of_source(reader, shown_in, path)
        columns = _columns_read(reader, name)
        ordered = rows.orderBy(*(F.expr(sql) for sql in source_identity(reader, name, rows)))
        shown = _collected(ordered.select(*columns_of(columns)), self.limit)
        changes, problem = self._changes(path, columns)
        if problem is not None:
            notes.append(problem)
        inserted = deleted = 0
        of_source: tuple[SourceChange, ...] = ()
        if changes is not None:
            inserted, deleted = _counts(changes)
            of_source = _shown_changes(changes, columns, self.limit)
        commits = commits_of(self.now.past.state.sources[name].path, (change.version for change in of_source))
        version = reader.pin(name).version
        return Input(name, False, version, None, rows.count(), shown, rows, inserted, deleted, of_source, commits, tuple(notes))

    def _changes(self, path: Path, columns: Sequence[str]) -> tuple[DataFrame | None, str | None]:
        """Changes of a source that concern the row, between two epochs.

        Or the reason why they cannot be read.
        """
        if self.before is None:
            return None, None
        readers = [self._reader(root, path) for root in (self.now, self.before)]
        try:
            changes = changes_between(readers[1], readers[0], path[-1])
        except SourceError as error:
            return None, f"what commits have changed cannot be read: {error}"
        if changes is None:
            return None, None
        there = [name for name in columns if name in changes.columns]
        # What has changed in no column that is read has not changed the row.
        changes = netted(changes, there)
        parts = []
        kinds = ((readers[0], (self.of_new, self.kept_new), True), (readers[1], (self.of_old, self.kept_old), False))
        for reader, contributions, inserted in kinds:
            having = [c for c in contributions if path in c.found]
            if not having:
                continue
            rows: DataFrame | None = None
            if all(c.found[path].wanted is not None for c in having):
                table = columns_of(reader.table_columns(path[-1]))
                rows = reduce(DataFrame.union, (_rows_of_source(reader, c, path).select(*table) for c in having))
            parts.append(of_rows(changes, rows, there, inserted=inserted))
        return (reduce(DataFrame.union, parts).localCheckpoint() if parts else None), None


def _rows_of_source(reader: ViewAt, contributions: Contributions, path: Path) -> DataFrame:
    """The rows of a source that contribute, with all columns of its table."""
    source = path[-1]
    all_rows = reader.source_rows(source)
    rows = all_rows.select(*columns_of(reader.table_columns(source)))
    found = contributions.found.get(path)
    if found is None:
        return rows.where(F.lit(False))
    wanted = found.united()
    if wanted is None:
        return rows
    texts = source_identity(reader, source, rows)
    return same_rows(rows, texts, wanted, identity_names(len(texts)))


def _rows_of_view(upstream: ViewAt, contributions: Contributions, path: Path) -> DataFrame:
    """Rows of an intermediate view: as published if its key is visible, else as computed."""
    published = upstream.rows().select(*columns_of([o.name for o in upstream.entry.plan.output]))
    found = contributions.found.get(path)
    if found is None:
        return published.where(F.lit(False))
    wanted = found.united()
    if wanted is None:
        return published
    plan = upstream.entry.plan
    rows = rows_of(upstream).of(plan)
    mine = same_rows(rows.frame, rows.identity, wanted)
    key = visible_key(upstream.entry)
    if not key:
        return mine.select(*(F.col(quoted(o.column)).alias(o.name) for o in plan.output))
    column = {o.name: o.column for o in plan.output}
    names = [f"__why_k{n}" for n in range(len(key))]
    keys = Wanted.of(mine.select(*(F.col(quoted(column[k])).alias(n) for k, n in zip(key, names, strict=True))))
    return same_rows(published, columns_of(key), keys, names)


def _columns_read(reader: ViewAt, source: str) -> list[str]:
    """The columns of a source that a view reads, and its key."""
    columns = reader.table_columns(source)
    used = used_columns(reader.entry.plan).get(source)
    wanted = None if used is None else used | set(reader.past.state.sources[source].primary_key)
    return [name for name in columns if wanted is None or name in wanted] or columns


def _collected(rows: DataFrame, limit: int) -> tuple[Mapping[str, Any], ...]:
    return tuple(row.asDict(recursive=True) for row in rows.limit(limit).collect())


def _counts(changes: DataFrame) -> tuple[int, int]:
    """Numbers of inserted and deleted rows."""
    weight = F.col(WEIGHT)
    zero = F.lit(0).cast("bigint")
    row = changes.agg(F.sum(F.greatest(weight, zero)).alias("plus"), F.sum(F.greatest(-weight, zero)).alias("minus")).first()
    assert row is not None
    return int(row["plus"] or 0), int(row["minus"] or 0)


def _shown_changes(changes: DataFrame, columns: Sequence[str], limit: int) -> tuple[SourceChange, ...]:
    """The first changes, by commit; what a commit took before what it brought."""
    there = [name for name in columns if name in changes.columns]
    rows = changes.orderBy(COMMIT_VERSION, WEIGHT).limit(limit).collect()
    shown = []
    for row in rows:
        values = row.asDict(recursive=True)
        copies = int(values[WEIGHT])
        picked = {name: values[name] for name in there}
        shown.append(SourceChange(copies > 0, int(values[COMMIT_VERSION]), picked, abs(copies)))
    return tuple(shown)
