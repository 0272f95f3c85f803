"""Runs random queries as views over random changes, each epoch checked; for as long as one likes.

A round is a schema, some queries over it and one history: every query is a view over the same changes, all in one Spark
session.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.expression_facts import NotIncremental
from tests.operators.histories import epochs_of
from tests.operators.lab import Lab
from tests.random_queries.grammar import queries
from tests.random_queries.schemas import histories_of, schemas, source_of

#: What Spark raises where a query has no result; the second where one of its own rules goes wrong.
_NO_RESULT = (PySparkException, Py4JError)


@dataclass(slots=True)
class Counts:
    """What has been run: queries, their epochs that were equal, what Spark or the planner refused, and what failed."""

    queries: int = 0
    query_epochs: int = 0
    refused_by_spark: int = 0
    not_incremental: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        codes = ", ".join(f"{code} {n}" for code, n in self.not_incremental.most_common()) or "none"
        return (
            f"{self.queries} queries, {self.query_epochs} query-epochs equal, {len(self.failures)} failed; "
            f"not incremental: {codes}; refused by Spark: {self.refused_by_spark}"
        )


@dataclass(frozen=True, slots=True)
class Round:
    """The relations of a round, queries over them, and what happens to their rows."""

    relations: Mapping[str, Relation]
    queries: tuple[str, ...]
    history: list[list[Any]]


def run_view(spark: SparkSession, query: str, of: Round, counts: Counts) -> None:
    """One query over the history of its round. A difference, and any error but Spark's own refusal, is a failure."""
    relations, history = of.relations, of.history
    try:
        lab = Lab(spark, query, relations)
    except NotIncremental as refusal:
        counts.not_incremental[refusal.code] += 1
        return
    except Exception as error:
        if _spark_refuses(spark, query, relations):
            counts.refused_by_spark += 1
            return
        counts.failures.append(f"planning: {type(error).__name__}: {error}\n{query}")
        return
    counts.queries += 1
    with lab:
        for changes in epochs_of(history, source_of(relations)):
            try:
                lab.step(changes)
            except Exception as error:
                if _fails(lab):
                    counts.refused_by_spark += 1  # the query itself has no result on these rows
                    return
                counts.failures.append(f"epoch {lab.epoch}: {type(error).__name__}: {str(error)[:600]}\n{query}\n{history}")
                return
            try:
                lab.check(wait=True)
            except _NO_RESULT:
                counts.refused_by_spark += 1
                return
            except AssertionError as difference:
                counts.failures.append(f"{difference}\n{history}")
                return
            counts.query_epochs += 1


def _spark_refuses(spark: SparkSession, query: str, relations: Mapping[str, Relation]) -> bool:
    session = spark.newSession()
    for name, relation in relations.items():
        columns = ", ".join(f"CAST(NULL AS {f.data_type}) AS `{f.name}`" for f in relation.columns)
        session.sql(f"SELECT {columns} WHERE false").createOrReplaceTempView(name)
    try:
        session.sql(query).collect()
    except _NO_RESULT:
        return True
    return False


def _fails(lab: Lab) -> bool:
    try:
        lab.expected().collect()
    except _NO_RESULT:
        return True
    return False


def rounds(spark: SparkSession, counts: Counts, first_seed: int, views: int, depth: int) -> Iterator[int]:
    """Endless rounds; yields the seed of each when it is done."""
    for number in itertools.count(first_seed):
        of = drawn(number, views, depth)
        for query in of.queries:
            run_view(spark, query, of, counts)
        yield number


def drawn(number: int, views: int, depth: int) -> Round:
    """The round of a seed: the same on every machine."""
    made: list[Round] = []

    # The first example that Hypothesis draws is the smallest there is; the last one is the round's.
    @seed(number)
    @settings(max_examples=4, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def draw(data: st.DataObject) -> None:
        relations = data.draw(schemas())
        texts = data.draw(st.lists(queries(relations, depth), min_size=views, max_size=views))
        made.append(Round(relations, tuple(texts), data.draw(histories_of(relations))))

    draw()
    return made[-1]


def main() -> int:
    """The command; 1 if anything failed."""
    from relstate_dagster.jobs.engine import SparkSettings, create_session

    parser = argparse.ArgumentParser(prog="python -m tests.random_queries.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; each further one takes the next")
    parser.add_argument("--views", type=int, default=8, help="queries of a round")
    parser.add_argument("--depth", type=int, default=4, help="operators above each other")
    arguments = parser.parse_args()
    conf = {"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}
    spark = create_session(SparkSettings(master="local[2]", driver_memory="3g", shuffle_partitions=2, conf=conf))
    counts, printed = Counts(), 0
    until = time.monotonic() + 60 * arguments.minutes
    for number in rounds(spark, counts, arguments.seed, arguments.views, arguments.depth):
        print(f"seed {number}: {counts}", flush=True)  # noqa: T201 - a command
        for failure in counts.failures[printed:]:
            print(f"--- seed {number}\n{failure}\n", flush=True)  # noqa: T201
        printed = len(counts.failures)
        if time.monotonic() > until:
            break
    spark.stop()
    return 1 if counts.failures else 0


if __name__ == "__main__":
    sys.exit(main())
