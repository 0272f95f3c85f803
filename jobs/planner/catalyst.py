"""The bridge to Catalyst: analyse a query, apply chosen optimizer rules, and read JVM trees from Python.

The only module (with :mod:`jobs.planner.expressions` and :mod:`jobs.planner.lowering`, which walk what it returns) that
touches the JVM. Relations are registered as empty temporary views whose columns carry the relation's name in their
metadata, so planning reads no table and a leaf of the analysed tree says by itself what it scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from jobs.planner.relations import Relation
from state_lib.errors import PlanError

_RELATION = "relstate.relation"
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."

#: Rules in the order they are applied. Each only rewrites towards fewer kinds of nodes or pushes filters down; none
#: introduces an expression that has no SQL text.
_PREPARE = (
    "org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases",
    _OPTIMIZER + "InlineCTE",
    "org.apache.spark.sql.catalyst.analysis.EliminateView",
)
_PULL_UP = _OPTIMIZER + "PullupCorrelatedPredicates"
#: Repeated until nothing changes: turning a subquery into a join brings its own set operations and subqueries to light.
#: What came to light must be pulled up before the next rule, which would take its outer references for columns.
_REWRITE = (
    "org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases",
    "org.apache.spark.sql.catalyst.analysis.EliminateView",
    _OPTIMIZER + "ReplaceIntersectWithSemiJoin",
    _OPTIMIZER + "ReplaceExceptWithAntiJoin",
    _OPTIMIZER + "ReplaceDistinctWithAggregate",
    _OPTIMIZER + "RewriteExceptAll",
    _OPTIMIZER + "RewriteIntersectAll",
    _PULL_UP,
    _OPTIMIZER + "RewritePredicateSubquery",
    _PULL_UP,
    _OPTIMIZER + "RewriteCorrelatedScalarSubquery",
    _PULL_UP,
    _OPTIMIZER + "RewriteLateralSubquery",
)
_MOST_REWRITES = 20
_FINISH = (
    # (a AND b) OR (a AND c) hides the equality a of a join.
    _OPTIMIZER + "BooleanSimplification",
    _OPTIMIZER + "PushDownPredicates",
    _OPTIMIZER + "PushPredicateThroughNonJoin",
    _OPTIMIZER + "CombineFilters",
    _OPTIMIZER + "ReorderJoin",
    _OPTIMIZER + "ColumnPruning",
    _OPTIMIZER + "CollapseProject",
    _OPTIMIZER + "RemoveNoopOperators",
)


class Catalyst:
    """One planning session: a session of its own, so that its temporary views leave no trace in the user's."""

    def __init__(self, spark: SparkSession, relations: Mapping[str, Relation], views: Mapping[str, str]) -> None:
        if not hasattr(spark, "_jsparkSession"):
            raise PlanError(
                "planning needs a classic Spark session; with Spark Connect, plan in a local session first "
                "(plans are stored, so epochs need no planner)"
            )
        self.session = spark.newSession()
        for key in ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.caseSensitive"):
            self.session.conf.set(key, spark.conf.get(key) or "")
        self.jvm: Any = self.session._jvm
        for relation in relations.values():
            self._register(relation)
        for name, query in views.items():
            self._run(f"CREATE OR REPLACE TEMPORARY VIEW `{name}` AS {query}")

    def _register(self, relation: Relation) -> None:
        schema = StructType()
        for column in relation.columns:
            data_type = self.session.sql(f"SELECT CAST(NULL AS {column.data_type})").schema[0].dataType
            schema.add(StructField(column.name, data_type, column.nullable, {_RELATION: relation.name}))
        self.session.createDataFrame([], schema).createOrReplaceTempView(relation.name)

    def _run(self, text: str) -> Any:
        try:
            return self.session.sql(text)
        except PySparkException as error:
            raise PlanError(f"Spark refuses the query: {first_line(error)}") from error

    def analyse(self, query: str) -> Any:
        """The analysed JVM plan of a query, before any rule."""
        return self._run(query)._jdf.queryExecution().analyzed()

    def simplify(self, plan: Any) -> Any:
        """Apply the chosen rules, one after the other, to a JVM plan."""
        plan = self._apply(_PREPARE, plan)
        for _ in range(_MOST_REWRITES):
            rewritten = self._apply(_REWRITE, plan)
            if rewritten.fastEquals(plan):
                break
            plan = rewritten
        return self._apply(_FINISH, plan)

    def _apply(self, rules: tuple[str, ...], plan: Any) -> Any:
        for name in rules:
            plan = self._rule(name).apply(plan)
        return plan

    def _rule(self, name: str) -> Any:
        if name.endswith(".InlineCTE"):
            return getattr(self.jvm, name)(False, False)
        return self.companion(name)

    def companion(self, name: str) -> Any:
        """The Scala object of that fully qualified name."""
        return getattr(self.jvm, name + "$").__getattr__("MODULE$")

    def seq(self, items: list[Any]) -> Any:
        """A Scala Seq of JVM objects."""
        return self.jvm.PythonUtils.toSeq(items)


def first_line(error: Exception) -> str:
    """Spark's message without the query plan and stack that follow it."""
    text = str(error).strip()
    return text.split("\n", 1)[0].split(";", 1)[0].strip()


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def class_name(jvm_object: Any) -> str:
    """Simple class name of a JVM tree node, without the ``$`` of Scala objects."""
    name = str(jvm_object.getClass().getSimpleName())
    return name.rstrip("$")


def type_ddl(data_type: Any) -> str:
    """Spark DDL text of a JVM data type; simple types in lower case, as ``simpleString`` writes them."""
    text = str(data_type.sql())
    return text if "<" in text or "COLLATE" in text.upper() else text.lower()


def relation_of(leaf: Any) -> str | None:
    """The relation that a leaf of the analysed tree scans, from the metadata of its columns."""
    output = leaf.output()
    if output.size() == 0:
        return None
    metadata = output.apply(0).metadata()
    return str(metadata.getString(_RELATION)) if metadata.contains(_RELATION) else None
