"""Runs queries of a suite as views over its epochs, one after the other in one Spark session, and keeps what came out."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.plan.aggregates.registry import kinds_of
from relstate_dagster.jobs.plan.nodes import Aggregate, Join, Materialize, Project, Scan, walk
from relstate_dagster.jobs.plan.state_tables import infer_state_tables
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from relstate_dagster.jobs.planner.planning import lowered
from relstate_dagster.jobs.planner.text_check import check_texts
from tests.suites import tpcds_data, tpch_data
from tests.suites.changes import Changes, history
from tests.suites.files import EpochFiles, write_epochs
from tests.suites.suite import Suite
from tests.suites.view_lab import EpochResult, ViewLab

_SEED = 20
#: A new number makes the files of the epochs again.
_DATA_VERSION = 2
_TPCH_SCALE = 0.01


@dataclass(slots=True)
class QueryReport:
    """What is known of one query.

    Parameters
    ----------
    suite, query : which one.
    incremental : whether every node of its plan is maintained incrementally.
    reason : the reason code of the node that is not.
    nodes : how many nodes of each kind and strategy the plan has.
    state_tables : how many state tables they need, the view's own included.
    epochs : what came out of each epoch.
    error : what ended the run before its last epoch.
    """

    suite: str
    query: str
    incremental: bool = True
    reason: str = ""
    nodes: dict[str, int] = field(default_factory=dict)
    state_tables: int = 0
    epochs: list[EpochResult] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether the view equalled its query in every epoch."""
        return not self.error and bool(self.epochs) and all(e.missing == e.unexpected == 0 for e in self.epochs)

    @property
    def changed(self) -> int:
        """In how many epochs after the first the result changed."""
        return sum(e.changed_rows > 0 for e in self.epochs[1:])


def epoch_files(suite: Suite) -> EpochFiles:
    """The files of a suite's epochs, made on the first call on a machine."""
    folder = cache_folder() / "suites" / f"{suite.name}-{_DATA_VERSION}"
    return write_epochs(folder, suite.tables, lambda: _epochs(suite))


def _epochs(suite: Suite) -> list[Changes]:
    if suite.name == "tpch":
        return history(suite.tables, tpch_data.rows(suite.tables, _TPCH_SCALE), seed=_SEED, churn=0.02)
    return history(suite.tables, tpcds_data.rows(suite.tables), seed=_SEED, churn=0.06, fixed=tpcds_data.FIXED)


class SuiteRunner:
    """Plans and runs the queries of one suite."""

    def __init__(self, spark: SparkSession, suite: Suite) -> None:
        self._spark = spark
        self.suite = suite
        self._catalyst = Catalyst(spark, suite.tables, {})
        self._planning = threading.Lock()

    def plan(self, query: str) -> Materialize:
        """The plan of a query as a materialized view.

        Raises
        ------
        PlanError : as ``plan_view`` does.
        """
        plan = lowered(self._catalyst, self.suite.tables, self.suite.definition(query, self._catalyst))
        check_texts(self._catalyst.session, plan)
        return plan

    def run(self, query: str, files: EpochFiles, epochs: int) -> QueryReport:
        """Plan a query, run it over the first epochs, and compare it after each; an error ends it and is reported.

        With no epochs the query is only planned.
        """
        report = QueryReport(self.suite.name, query)
        started = time.perf_counter()
        try:
            with self._planning:
                plan = self.plan(query)
        except NotIncremental as refusal:
            report.incremental, report.reason, report.error = False, refusal.code, str(refusal)
            return report
        report.nodes = strategies(plan)
        report.state_tables = sum(len(infer_state_tables(n)) for n in walk(plan))
        if not epochs:
            return report
        lab = ViewLab(self._spark, plan, self.suite.queries[query], self.suite.reads(query), files)
        try:
            for epoch in range(1, epochs + 1):
                result = lab.run(epoch)
                report.epochs.append(result)
                if result.missing or result.unexpected:
                    report.error = f"epoch {epoch}: {result.missing} rows missing, {result.unexpected} unexpected"
                    break
        except Exception as error:
            text = next((line for line in str(error).splitlines() if line.strip()), "")
            report.error = f"epoch {len(report.epochs) + 1}: {type(error).__name__}: {text[:500]}"
        finally:
            lab.close()
        report.seconds = round(time.perf_counter() - started, 1)
        return report


def strategies(plan: Materialize) -> dict[str, int]:
    """How many nodes of each kind a plan has: joins by type, aggregate calls by the state that keeps them."""
    counts: Counter[str] = Counter()
    for node in walk(plan):
        if isinstance(node, Join):
            counts[f"{node.join_type} join"] += 1
        elif isinstance(node, Aggregate):
            counts["aggregate"] += 1
            for kind in kinds_of(node):
                counts[f"call by {kind.strategy.label}"] += 1
        elif not isinstance(node, (Scan, Project, Materialize)):
            counts[type(node).__name__] += 1
    return dict(counts)


class Reports:
    """The reports of finished queries in one JSON file; each is written as it is made, so a run can be taken up again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        self.reports = {(r["suite"], r["query"]): _report(r) for r in found}

    def add(self, report: QueryReport) -> None:
        """Keep a report, in place of an older one of that query."""
        self.reports[report.suite, report.query] = report
        with tempfile.NamedTemporaryFile("w", dir=self._path.parent, suffix=".part", delete=False) as part:
            json.dump([asdict(r) for r in self.reports.values()], part, indent=1)
        Path(part.name).replace(self._path)


def _report(found: Mapping[str, Any]) -> QueryReport:
    return QueryReport(**{**found, "epochs": [EpochResult(**e) for e in found["epochs"]]})


def run_queries(
    runner: SuiteRunner,
    names: Sequence[str],
    epochs: int,
    reports: Reports,
    progress: Callable[[str], None],
    parallel: int = 1,
) -> list[QueryReport]:
    """Run those of the queries whose last run over so many epochs did not come out equal, some side by side."""
    files = epoch_files(runner.suite)
    known = {n: reports.reports.get((runner.suite.name, n)) for n in names}
    wanted = [n for n, r in known.items() if r is None or (epochs and not r.equal) or len(r.epochs) < epochs]
    made = []
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        for future in as_completed([pool.submit(runner.run, name, files, epochs) for name in wanted]):
            report = future.result()
            reports.add(report)
            made.append(report)
            verdict = f"FAILED: {report.error}" if report.error else f"equal in {len(report.epochs)} epochs"
            rows = " ".join(str(e.changed_rows) for e in report.epochs)
            progress(f"{report.suite} {report.query}: {verdict}; changed rows {rows}; {report.seconds} s")
    return made
