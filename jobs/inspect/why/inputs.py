"""Inputs of a row as a tree, and what an epoch has changed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.inspect.view_diff import visible_key
from relstate_dagster.jobs.inspect.why.changes import SourceCommit, changes_between, commits_of, netted, of_rows
from relstate_dagster.jobs.inspect.why.lineage import Contributions, Path
from relstate_dagster.jobs.inspect.why.plan_rows import identity_names, rows_of, source_identity
from relstate_dagster.jobs.inspect.why.view_at import ViewAt
from relstate_dagster.jobs.inspect.why.wanted import Wanted, same_rows
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.used_columns import used_columns
from relstate_dagster.jobs.view_epoch.shown_values import shown_row
from relstate_dagster.state_lib.constants import COMMIT_VERSION, WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.local_checkpoint import local_checkpoint
from relstate_dagster.state_lib.sql_text import quoted


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


@dataclass
class Inputs:
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
        return (local_checkpoint(reduce(DataFrame.union, parts)) if parts else None), None


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
