"""Commits of a source that changed the rows behind a view's row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from relstate_dagster.jobs.inspect.comparable import comparable
from relstate_dagster.jobs.inspect.why.view_at import ViewAt
from relstate_dagster.state_lib.constants import COMMIT_VERSION, WEIGHT
from relstate_dagster.state_lib.errors import SourceError
from relstate_dagster.state_lib.lake.log import DeltaLog, commit_info
from relstate_dagster.state_lib.sql_text import quoted


@dataclass(frozen=True, slots=True)
class SourceCommit:
    """A commit of a source by its log; missing parts are ``None``.

    Parameters
    ----------
    user : the user's name or id; only some platforms write one.
    engine : what has written it.
    """

    version: int
    operation: str | None = None
    user: str | None = None
    engine: str | None = None
    time: dt.datetime | None = None


def commits_of(path: str, versions: Iterable[int]) -> tuple[SourceCommit, ...]:
    """Some commits of a table, from its log."""
    log = DeltaLog(path)
    return tuple(_commit(log, version) for version in sorted(set(versions)))


def _commit(log: DeltaLog, version: int) -> SourceCommit:
    try:
        info = commit_info(log.commit(version))
    except SourceError:
        return SourceCommit(version)
    at = info.get("timestamp")
    return SourceCommit(
        version,
        info.get("operation"),
        info.get("userName") or info.get("userId"),
        info.get("engineInfo") or info.get("clientVersion"),
        None if at is None else dt.datetime.fromtimestamp(int(at) / 1000, dt.timezone.utc),
    )


def changes_between(before: ViewAt, now: ViewAt, source: str) -> DataFrame | None:
    """Changes of a source between two epochs of a view; ``None`` without any.

    Returns
    -------
    The columns of the table, ``_weight`` and ``_commit_version``.

    Raises
    ------
    SourceError : they cannot be read, or not any more.
    """
    since, until = before.pin(source), now.pin(source)
    if since.is_same(until):
        return None
    reader = now.inputs.source(source).source
    found = reader.check_range(since, until, append_only=False)
    return reader.changes_by_commit(now.session, since, until, found)


def of_rows(changes: DataFrame, rows: DataFrame | None, columns: Sequence[str], *, inserted: bool) -> DataFrame:
    """The changes that are insertions, or deletions, of some rows of a source.

    Parameters
    ----------
    rows : with the same columns; ``None`` for all rows.
    """
    of_kind = changes.where(F.col(WEIGHT) > 0 if inserted else F.col(WEIGHT) < 0)
    if rows is None:
        return of_kind
    common = [name for name in columns if name in rows.columns]
    types = {field.name: field.dataType for field in of_kind.schema.fields}
    ours = [F.expr(comparable(quoted(name), types[name])) for name in common]
    theirs = rows.select(
        *(F.expr(comparable(quoted(name), rows.schema[name].dataType)).alias(f"__why_c{n}") for n, name in enumerate(common))
    ).distinct()
    condition = F.lit(True)
    for n, column in enumerate(ours):
        condition = condition & column.eqNullSafe(F.col(f"__why_c{n}"))
    return of_kind.join(theirs, condition, "left_semi")


def netted(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Changes of some columns, by commit.

    Those that change none of these columns are left out.

    Returns
    -------
    ``columns``, ``_weight`` and ``_commit_version``.
    """
    types = {field.name: field.dataType for field in changes.schema.fields}
    groups = [F.expr(comparable(quoted(name), types[name])).alias(f"__why_g{n}") for n, name in enumerate(columns)]
    values = [F.first(F.col(quoted(name))).alias(f"__why_v{n}") for n, name in enumerate(columns)]
    names = [f"__why_g{n}" for n in range(len(columns))]
    grouped = changes.select("*", *groups).groupBy(*names, COMMIT_VERSION)
    summed = grouped.agg(F.sum(WEIGHT).alias(WEIGHT), *values).where(f"{WEIGHT} != 0")
    named = [F.col(f"__why_v{n}").alias(name) for n, name in enumerate(columns)]
    return summed.select(*named, WEIGHT, COMMIT_VERSION)
