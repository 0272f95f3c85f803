"""A warehouse to which random things happen, and the two promises that hold all the same: never wrong, never stuck.

* Never wrong: after each run, every view equals its query as of its own epoch; and one that was not left behind equals its
  query on the tables as they are now.
* Never stuck: a view is only left behind after something that cannot be followed (a table replaced, damaged or changed by
  hand), says how to repair it, and that does.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from relstate_dagster.jobs.api import CatalogState, EpochRunner
from relstate_dagster.jobs.catalog.relations import topological
from relstate_dagster.jobs.declare import ViewDeclaration
from relstate_dagster.jobs.inspect.verify import bag_difference, published_rows
from relstate_dagster.state_lib.errors import RelstateError
from tests.epoch.scripts import Script

_SOURCES = {
    "t": "CREATE TABLE t (k INT, g INT, v INT, PRIMARY KEY (k))",
    "m": "CREATE TABLE m (g INT, s STRING)",
}
#: For each view, queries that it may have, and what it reads.
_VIEWS: dict[str, list[str]] = {
    "sums": [
        "SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g",
        "SELECT g, avg(v) AS s, count(*) AS n FROM t GROUP BY g",
        "SELECT g, max(v) AS s, count(DISTINCT v) AS n FROM t GROUP BY g",
    ],
    "joined": ["SELECT t.k, m.s FROM t LEFT JOIN m ON t.g = m.g", "SELECT t.k, m.s FROM t JOIN m ON t.g = m.g AND t.v > 2"],
    "words": ["SELECT s, count(*) AS n FROM m GROUP BY s", "SELECT DISTINCT s, g AS n FROM m"],
    "over": ["SELECT s FROM sums WHERE n > 1", "SELECT sums.n, words.s FROM sums JOIN words ON sums.n = words.n"],
    "top": ["SELECT k, v FROM t ORDER BY v DESC, k LIMIT 3", "SELECT k, row_number() OVER (ORDER BY v, k) AS v FROM t"],
}
_READS = {"sums": ["t"], "joined": ["t", "m"], "words": ["m"], "over": ["sums", "words"], "top": ["t"]}


class World:
    """One warehouse, and the hands that change it."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.spark, self.folder, self.seed = spark, folder, seed
        self.random = random.Random(seed)
        self.done: list[str] = []
        #: Whether something happened since the last run that views cannot follow.
        self.is_excused = False
        self.script = Script(spark, folder / "warehouse")
        for declaration in _SOURCES.values():
            self.script.run(declaration)
        self._insert()
        for name in ("sums", "words"):
            self._create(name)

    def steps(self, count: int) -> None:
        """Let some things happen, a run after each few of them."""
        for _ in range(count):
            happening = self.random.choices(list(self._happenings), weights=list(self._happenings.values()))[0]
            self.done.append(happening.__name__.removeprefix("_"))
            try:
                happening(self)
                if self.random.random() < 0.6:
                    self.run_and_check()
            except Exception as error:
                raise AssertionError(
                    f"seed {self.seed}, after {' → '.join(self.done)}: {type(error).__name__}: {error}"
                ) from error
        self.run_and_check()

    # -- runs, and what holds after them --------------------------------------------------------------------------

    def run_and_check(self) -> None:
        """Bring all views up to date, repaired as they say if they had to be, and compare."""
        self.done.append("run")
        problems = self._run()
        self._compare(problems)
        if problems:
            assert self.is_excused, f"left behind for no reason: {problems}"
            own = [name for name, problem in problems.items() if not problem.startswith("waits for")]
            assert all("--full-refresh" in problems[name] for name in own), problems
            self.done.append(f"full refresh of {', '.join(own)}")
            problems = self._run(own)
            assert not problems, f"not repaired: {problems}"
            self._compare({})
        self.is_excused = False

    def _run(self, full_refresh: list[str] | None = None) -> dict[str, str]:
        problems: dict[str, str] = {}
        try:
            for report in EpochRunner(self.spark, self.script.warehouse).run(full_refresh=full_refresh or ()):
                problems.pop(report.view, None)
                if report.problem is not None:
                    problems[report.view] = report.problem
        except RelstateError:
            if not problems:
                raise
        return problems

    def _compare(self, problems: dict[str, str]) -> None:
        state = self.script.warehouse.read()
        now = self.spark.newSession()
        for source in state.sources.values():
            now.read.format("delta").load(source.path).createOrReplaceTempView(source.name)
        for name in topological(state):
            view = state.views[name]
            if name in problems or view.last_epoch is None:
                continue
            expected = now.sql(view.query)
            found = bag_difference(expected, published_rows(now, self.script.warehouse, state, view))
            assert found == (0, 0), f"{name} misses {found[0]} rows and has {found[1]} too many: {view.query}"
            expected.createOrReplaceTempView(name)
        if not self.is_excused:  # what was pinned can be read as long as nobody replaced it
            wrong = [r for r in EpochRunner(self.spark, self.script.warehouse).verify() if not r.equal]
            assert not wrong, wrong

    # -- declarations ---------------------------------------------------------------------------------------------

    def _state(self) -> CatalogState:
        return self.script.warehouse.read()

    def _create(self, name: str) -> None:
        query = self.random.choice(_VIEWS[name])
        self.script.run(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def _create_view(self) -> None:
        state = self._state()
        able = [n for n in _VIEWS if n not in state.views and all(r in {*state.views, *state.sources} for r in _READS[n])]
        if able:
            try:
                self._create(self.random.choice(able))
            except RelstateError:
                # Over a view that is left behind, or a table that was replaced since.
                assert self.is_excused

    def _drop_view(self) -> None:
        state = self._state()
        able = [name for name in state.views if not state.working.dependents(name)]
        if able:
            self.script.run(f"DROP MATERIALIZED VIEW {self.random.choice(able)}")

    def _edit_view(self) -> None:
        state = self._state()
        if state.views:
            name = self.random.choice(list(state.views))
            self.script.session._registry.declare([ViewDeclaration(name, self.random.choice(_VIEWS[name]))])

    def _drop_and_create_source(self) -> None:
        """Only where nothing reads it, so whatever reads it goes first."""
        for name in reversed(topological(self._state().working)):
            if "m" in self._state().views[name].reads or any(r in ("words",) for r in self._state().views[name].reads):
                self.script.run(f"DROP MATERIALIZED VIEW {name}")
        self.script.run("DROP TABLE m")
        self.script.run(_SOURCES["m"])
        self.script.run("INSERT INTO m (g, s) VALUES (1, 'new'), (2, 'new')")
        self._create("words")

    # -- changes of sources ---------------------------------------------------------------------------------------

    def _path(self, source: str) -> str:
        return self.script.warehouse.source_path(source)

    def _insert(self) -> None:
        first = 1 + max([0, *(row[0] for row in self.script.rows("SELECT max(k) FROM t") if row[0] is not None)])
        rows = ", ".join(f"({first + n}, {self.random.randint(1, 3)}, {self.random.randint(1, 6)})" for n in range(3))
        self.script.run(f"INSERT INTO t VALUES {rows}")
        self.script.run(f"INSERT INTO m (g, s) VALUES ({self.random.randint(1, 3)}, '{self.random.choice('ab')}')")

    def _change(self) -> None:
        k = self.random.randint(1, 4)
        self.script.run(f"UPDATE t SET v = v + 1, g = {self.random.randint(1, 3)} WHERE k % 4 = {k % 4}")
        self.script.run(f"DELETE FROM m WHERE g = {self.random.randint(1, 3)} AND s = '{self.random.choice('ab')}'")

    def _append_by_another_writer(self) -> None:
        write_deltalake(self._path("m"), self._rows_of_m([self.random.randint(1, 3)], ["a\u2028b"]), mode="append")

    def _rows_of_m(self, g: list[int], s: list[str]) -> pa.Table:
        rows = pa.table({"g": pa.array(g, pa.int32()), "s": s})
        if "extra" in {f.name for f in DeltaTable(self._path("m")).schema().fields}:
            rows = rows.append_column("extra", pa.nulls(len(g), pa.int32()))
        return rows

    def _overwrite(self) -> None:
        if self.random.random() < 0.5:
            write_deltalake(self._path("m"), self._rows_of_m([1, 2, 2], ["a", "b", "b"]), mode="overwrite")
        else:
            self.script.run("INSERT OVERWRITE m (g, s) VALUES (3, 'c'), (3, 'c')")

    def _optimize_source(self) -> None:
        self.spark.sql(f"OPTIMIZE delta.`{self._path(self.random.choice(['t', 'm']))}`").collect()

    def _restore(self) -> None:
        path = self._path(self.random.choice(["t", "m"]))
        version = DeltaTable(path).version()
        if version > 1:
            self.spark.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {self.random.randint(1, version - 1)}").collect()

    def _add_column(self) -> None:
        columns = {f.name for f in DeltaTable(self._path("m")).schema().fields}
        if "extra" not in columns:
            self.spark.sql(f"ALTER TABLE delta.`{self._path('m')}` ADD COLUMN extra INT")

    # -- what cannot be followed ----------------------------------------------------------------------------------

    def _write_again(self) -> None:
        """Deleted, and written again up to the same version number."""
        self.is_excused = True
        path = self._path("m")
        version = DeltaTable(path).version()
        shutil.rmtree(path)
        for n in range(version + 1):
            rows = pa.table({"g": pa.array([n % 3 + 1], pa.int32()), "s": ["again"]})
            write_deltalake(path, rows, mode="append", configuration={"delta.enableChangeDataFeed": "true"} if not n else None)
        self._reopen()

    def _put_back_and_change(self) -> None:
        """Put back from a copy of its folder, then changed in another way than before."""
        self.is_excused = True
        path, copy = Path(self._path("t")), self.folder / f"copy{len(self.done)}"
        shutil.copytree(path, copy)
        self._change()
        self.run_quietly()
        shutil.rmtree(path)
        shutil.copytree(copy, path)
        self._reopen()
        self.script.run("UPDATE t SET v = v * 2 WHERE k % 2 = 0")

    def _edit_published_by_hand(self) -> None:
        name = self._a_built_view()
        if name is not None:
            self.is_excused = True
            self.spark.sql(f"DELETE FROM delta.`{self.script.warehouse.target(name).path}`").collect()
            self._change()

    def _cut_off_a_log(self) -> None:
        name = self._a_built_view()
        if name is not None:
            self.is_excused = True
            warehouse = self.script.warehouse
            path = self.random.choice([warehouse.target(name).path, warehouse.state_path(warehouse.read().views[name])])
            max(Path(path, "_delta_log").glob("*.json")).write_text("")
            self._change()

    def _put_the_catalog_back(self) -> None:
        """As it was some changes and runs ago; views and sources are those of today."""
        catalog, copy = Path(self.script.warehouse.catalog.path), self.folder / f"catalog{len(self.done)}"
        shutil.copytree(catalog, copy)
        self._change()
        self.run_quietly()
        self._insert()
        self.run_quietly()
        shutil.rmtree(catalog)
        shutil.copytree(copy, catalog)
        self._reopen()

    def _lose_the_catalog(self) -> None:
        state = self._state()
        shutil.rmtree(self.script.warehouse.catalog.path)
        self._reopen()
        for name in ("t", "m"):
            key = "(PRIMARY KEY (k)) " if name == "t" else ""
            self.script.run(f"CREATE TABLE {name} {key}USING delta LOCATION '{self._path(name)}'")
        for name in topological(state):
            self.script.run(f"CREATE MATERIALIZED VIEW {name} AS {state.views[name].query}")

    # -- upkeep, and processes ------------------------------------------------------------------------------------

    def _optimize_our_own(self) -> None:
        name = self._a_built_view()
        if name is not None:
            warehouse = self.script.warehouse
            for path in (warehouse.target(name).path, warehouse.state_path(warehouse.read().views[name])):
                self.spark.sql(f"OPTIMIZE delta.`{path}`").collect()

    def _compact_and_vacuum(self) -> None:
        runner = EpochRunner(self.spark, self.script.warehouse)
        list(runner.compact())
        list(runner.vacuum())

    def _reopen(self) -> None:
        """As a new process does."""
        self.script = Script(self.spark, self.folder / "warehouse")

    def run_quietly(self) -> None:
        """A run of which nothing is asked."""
        self._run()

    def _a_built_view(self) -> str | None:
        built = [name for name, view in self._state().views.items() if view.last_epoch is not None]
        return self.random.choice(built) if built else None

    _happenings: dict[Callable[[World], None], int] = {  # noqa: RUF012 - read only
        _create_view: 4,
        _drop_view: 2,
        _edit_view: 3,
        _drop_and_create_source: 1,
        _insert: 3,
        _change: 5,
        _append_by_another_writer: 2,
        _overwrite: 2,
        _optimize_source: 1,
        _restore: 2,
        _add_column: 1,
        _write_again: 1,
        _put_back_and_change: 1,
        _edit_published_by_hand: 1,
        _cut_off_a_log: 1,
        _put_the_catalog_back: 1,
        _lose_the_catalog: 1,
        _optimize_our_own: 1,
        _compact_and_vacuum: 1,
        _reopen: 2,
    }
