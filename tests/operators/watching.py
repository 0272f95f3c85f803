"""Looking on while operators choose."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame

from relstate_dagster.jobs.operators import join, row_set


def watch_joins(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A list that grows: for each inner join of an epoch, whether one change set was found to make all of its pairs."""
    alone: list[bool] = []
    has_all = join._has_all

    def watched(*args: object) -> object:
        found = has_all(*args)  # type: ignore[arg-type]
        alone.append(found is not None)
        return found

    monkeypatch.setattr(join, "_has_all", watched)
    return alone


def watch_steps(monkeypatch: pytest.MonkeyPatch) -> list[DataFrame]:
    """A list that grows: the frames that operators compute, each by a job of its own, before what an epoch writes."""
    found: list[DataFrame] = []
    collected = row_set.collected

    def noted(df: DataFrame, most_bytes: int) -> object:
        found.append(df)
        return collected(df, most_bytes)

    monkeypatch.setattr(row_set, "collected", noted)
    return found
