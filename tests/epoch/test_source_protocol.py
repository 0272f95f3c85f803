"""A source of another kind than those there are: only what the protocol asks for."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import ClassVar

import pytest
from pyspark.sql import DataFrame, SparkSession

from relstate_dagster.jobs.catalog.entries import SourceEntry
from relstate_dagster.jobs.sources import registry
from relstate_dagster.jobs.sources.pins import ChangeRange, Pin
from relstate_dagster.jobs.sources.protocol import Source
from relstate_dagster.state_lib.lake.log import TableFacts
from tests.epoch.scripts import Script

_COLUMNS = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("n", "v")]
_SCHEMA = json.dumps({"type": "struct", "fields": _COLUMNS})


class Multiples(Source):
    """The numbers below 12 with their product with the version; no files, no log."""

    newest: ClassVar[int] = 1

    def facts(self, version: int | None = None) -> TableFacts:
        return TableFacts(self.newest if version is None else version, "multiples", _SCHEMA, {}, ())

    def pin(self, previous: Pin | None, until: int | None = None) -> Pin:
        return Pin(self.newest if until is None else min(until, self.newest), "multiples", _SCHEMA)

    def check_range(self, since: Pin, until: Pin, *, append_only: bool) -> ChangeRange:
        changed = 0 if since.is_same(until) else 11
        return ChangeRange(changed, changed, 100 * changed, (), not changed, True)

    def all_rows(self, spark: SparkSession, pin: Pin, generated_columns: Collection[str] = ()) -> DataFrame:
        return spark.range(12).selectExpr("id AS n", f"id * {pin.version} AS v", "1L AS _weight")

    def changes(
        self,
        spark: SparkSession,
        since: Pin,
        until: Pin,
        found: ChangeRange,
        generated_columns: Collection[str] = (),
        columns: Collection[str] | None = None,
    ) -> DataFrame | None:
        gone = self.all_rows(spark, since).selectExpr("n", "v", "-1L AS _weight")
        return self.all_rows(spark, until).union(gone).where("n > 0")


def test_views_follow_it(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    script.run("CREATE TABLE t (k BIGINT, g INT, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 1), (5, 1), (7, 2), (50, 3)")
    delta = registry.KINDS["delta"]
    monkeypatch.setitem(registry.KINDS, "delta", lambda name, *rest: (Multiples if name == "multiples" else delta)(name, *rest))
    script.session._registry.add_source(SourceEntry("multiples", "multiples", primary_key=("n",)))
    script.run("""
        CREATE MATERIALIZED VIEW sums AS SELECT n % 3 AS g, sum(v) AS s, max(v) AS most FROM multiples GROUP BY n % 3;
        CREATE MATERIALIZED VIEW joined AS SELECT t.g, m.v FROM t LEFT JOIN multiples m ON t.k = m.n;
        CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n, sum(s) AS s FROM sums;
        VERIFY
    """)
    for version in (2, 3, 3, 5):
        monkeypatch.setattr(Multiples, "newest", version)
        script.run("REFRESH; VERIFY")
        assert script.rows("SELECT s FROM over") == [(66 * version,)]
        assert script.rows("SELECT v FROM joined WHERE g = 2") == [(7 * version,)]
    ((text,),) = script.rows("EXPLAIN MATERIALIZED VIEW sums")
    assert "nothing to do" in text
