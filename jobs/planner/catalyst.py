"""Bridge to Catalyst: analysis, chosen optimizer rules, and JVM trees from Python.

The only module that touches the JVM, with those that walk what it returns: :mod:`.jobs.planner.trees`,
:mod:`.jobs.planner.expressions`, :mod:`.jobs.planner.temporal`, :mod:`.jobs.planner.lowering`, :mod:`.jobs.planner.joins`,
:mod:`.jobs.planner.lowered`, :mod:`.jobs.planner.between`, :mod:`.jobs.planner.idle_casts`, :mod:`.jobs.planner.current_time`,
:mod:`.jobs.planner.not_in`, :mod:`.jobs.planner.semi_joins`, :mod:`.jobs.planner.limits` and :mod:`.jobs.planner.times`.
Relations are registered as empty temporary views whose columns carry the relation's name in their metadata. So planning
reads no table, and a leaf of the analysed tree says by itself what it scans.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from relstate_dagster.jobs.declare.query_function import Query, QueryFunction
from relstate_dagster.jobs.engine.functions import UserFunctions
from relstate_dagster.jobs.engine.names import JavaNames
from relstate_dagster.jobs.engine.spark_connect import is_remote, new_session, set_all
from relstate_dagster.jobs.engine.spark_versions.constant_folding import with_constants_folded
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.between import with_bounds
from relstate_dagster.jobs.planner.frame_check import check_analysed, relations_in
from relstate_dagster.jobs.planner.idle_casts import without_idle_casts
from relstate_dagster.jobs.planner.known_functions import REFUSED
from relstate_dagster.jobs.planner.query_frames import UnknownRelation, frame_of, register_view
from relstate_dagster.jobs.planner.query_settings import meaning_of
from relstate_dagster.jobs.planner.query_text import check_calls, parse_query
from relstate_dagster.jobs.planner.trees import Trees, class_name, items
from relstate_dagster.state_lib.char_columns import char_metadata
from relstate_dagster.state_lib.errors import PlanError

_RELATION = "relstate.relation"
_LOGICAL_PLAN = "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan"
_SUBQUERY = "org.apache.spark.sql.catalyst.expressions.PlanExpression"
#: Functions that are called without parentheses too, by Catalyst's class.
_BARE_CALLS = {
    "CurrentUser": "current_user",
    "CurrentCatalog": "current_catalog",
    "CurrentDatabase": "current_database",
    "CurrentPath": "current_path",
}
_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."

#: Rules in the order they are applied. Each only rewrites towards fewer kinds of nodes or pushes filters down; none
#: introduces an expression that has no SQL text.
_PREPARE = (
    "org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases",
    _OPTIMIZER + "InlineCTE",
    "org.apache.spark.sql.catalyst.analysis.EliminateView",
    # A function defined in SQL becomes its body.
    _OPTIMIZER + "EliminateSQLFunctionNode",
)
_PULL_UP = _OPTIMIZER + "PullupCorrelatedPredicates"
#: Repeated until nothing changes: turning a subquery into a join brings its own set operations and subqueries to light.
#: What came to light must be pulled up before the next rule, which would take its outer references for columns.
_REWRITE = (
    "org.apache.spark.sql.catalyst.analysis.EliminateSubqueryAliases",
    # ``|>`` marks where one step of a query ends.
    "org.apache.spark.sql.catalyst.expressions.EliminatePipeOperators",
    "org.apache.spark.sql.catalyst.analysis.EliminateView",
    _OPTIMIZER + "ReplaceIntersectWithSemiJoin",
    _OPTIMIZER + "ReplaceExceptWithAntiJoin",
    _OPTIMIZER + "ReplaceDistinctWithAggregate",
    # dropDuplicates() of a function that returns a DataFrame, over all columns.
    _OPTIMIZER + "ReplaceDeduplicateWithAggregate",
    _OPTIMIZER + "RewriteExceptAll",
    _OPTIMIZER + "RewriteIntersectAll",
    # A subquery's IN becomes a join that knows true and not true, but not NULL: that is right where no NOT is above it, which
    # is what Spark's optimizer has seen to before.
    _OPTIMIZER + "SimplifyBinaryComparison",
    _OPTIMIZER + "BooleanSimplification",
    # EXISTS of no column of the query around it is whether a scalar subquery of one row is there.
    _OPTIMIZER + "RewriteNonCorrelatedExists",
    _PULL_UP,
    _OPTIMIZER + "RewritePredicateSubquery",
    _PULL_UP,
    _OPTIMIZER + "RewriteCorrelatedScalarSubquery",
    _PULL_UP,
    _OPTIMIZER + "RewriteLateralSubquery",
)
#: Rules that Spark's optimizer repeats: one application can leave NOT (NOT a), and before Spark 4.1 it does so below OR.
_REPEATED = frozenset({_OPTIMIZER + "BooleanSimplification"})
_FOLD = (_OPTIMIZER + "ReplaceExpressions", _OPTIMIZER + "ConstantFolding")
_MOST_REWRITES = 20
_FINISH = (
    # (a AND b) OR (a AND c) hides the equality a of a join.
    _OPTIMIZER + "BooleanSimplification",
    _OPTIMIZER + "PushDownPredicates",
    # A filter above the join refuses its NULLs: so it is with every subquery that is compared with.
    _OPTIMIZER + "EliminateOuterJoin",
    _OPTIMIZER + "PushDownPredicates",
    # (a.x = 1 AND b.y = 2) OR (a.x = 3 AND b.y = 4): a has only rows of x = 1 or 3, and b of y = 2 or 4.
    _OPTIMIZER + "PushExtraPredicateThroughJoin",
    _OPTIMIZER + "PushDownPredicates",
    _OPTIMIZER + "PushPredicateThroughNonJoin",
    _OPTIMIZER + "CombineFilters",
    _OPTIMIZER + "ReorderJoin",
    _OPTIMIZER + "ColumnPruning",
    _OPTIMIZER + "CollapseProject",
    _OPTIMIZER + "RemoveNoopOperators",
)


class Catalyst:
    """One planning session, apart from the user's.

    Its temporary views leave no trace there.

    Parameters
    ----------
    is_of_a_day : whether the date is a constant of the plan, which holds on one day.
    by_days : whether all current time functions give the start of the day.
    """

    def __init__(
        self,
        spark: SparkSession,
        relations: Mapping[str, Relation],
        views: Mapping[str, Query],
        functions: UserFunctions | None = None,
        *,
        is_of_a_day: bool = False,
        by_days: bool = False,
    ) -> None:
        self.is_of_a_day, self.by_days = is_of_a_day, by_days
        if is_remote(spark):
            raise PlanError(
                "Spark Connect does not show how Spark reads a query, so views are planned with a Spark of this machine: set "
                "RELSTATE_MASTER=local[*] for this"
            )
        self.session = new_session(spark)
        set_all(self.session, meaning_of(spark))
        self.jvm: Any = JavaNames(self.session._jvm)
        self._make_active()
        self.trees = Trees(self.session)
        self._functions = functions
        #: Names of the functions that the user registers.
        self.user_functions = self._registered(functions)
        #: Plans that functions gave: they are called once.
        self._analysed: dict[QueryFunction, Any] = {}
        self._known = {name.lower() for name in (*relations, *views)}
        types = self._types_of({column.data_type for relation in relations.values() for column in relation.columns})
        for relation in relations.values():
            self._register(relation, types)
        for name, query in views.items():
            self._register_plain(name, query)

    def _make_active(self) -> None:
        """Make this session the active one of this thread.

        PySpark's `createDataFrame` changes that.
        """
        SparkSession._activeSession = self.session
        SparkSession._get_j_spark_session_class(self.jvm).setActiveSession(self.session._jsparkSession)

    def _types_of(self, texts: Collection[str]) -> dict[str, DataType]:
        """Types by how they are written, as this session reads them: one statement for all."""
        casts = ", ".join(f"CAST(NULL AS {text})" for text in texts)
        fields = self.session.sql(f"SELECT {casts}").schema.fields if texts else []
        return {text: field.dataType for text, field in zip(texts, fields, strict=True)}

    def _register(self, relation: Relation, types: Mapping[str, DataType]) -> None:
        schema, char_types = StructType(), dict(relation.char_types)
        for column in relation.columns:
            metadata = {_RELATION: relation.name, **char_metadata(char_types.get(column.name))}
            schema.add(StructField(column.name, types[column.data_type], column.nullable, metadata))
        # PySpark would send its rows, of which there are none, through a file and a Python of their own.
        rows = self.session.sparkContext._jsc.emptyRDD()
        described = self.jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
        self.session._jsparkSession.createDataFrame(rows, described).createOrReplaceTempView(relation.name)

    @staticmethod
    def _refused(error: PySparkException) -> PlanError:
        return PlanError(f"Spark refuses the query: {first_line(error)}")

    def _registered(self, functions: UserFunctions | None) -> list[str]:
        """Register the user's functions; return their names."""
        if functions is None:
            return []
        # Before 4.2, Spark also lists those that an extension brings, such as Delta's table functions.
        others = set(self._temporary_functions())
        functions.register(self.session)
        return [name for name in self._temporary_functions() if name not in others]

    def _temporary_functions(self) -> list[str]:
        found = self.session._jsparkSession.sessionState().catalog().listTemporaryFunctions()
        return [str(identifier.funcName()) for identifier in items(found)]

    def _register_plain(self, name: str, query: Query) -> None:
        try:
            register_view(self.session, name, query)
        except PySparkException as error:
            raise self._refused(error) from error

    def analyse(self, query: Query) -> Any:
        """The analysed JVM plan of a query, before any rule.

        Raises
        ------
        PlanError : the text is no query, reads or calls what a view may not, or Spark refuses it.
        """
        if not isinstance(query, str):
            return self._analysed_frame(query)
        parsed = parse_query(self.session, query)
        check_calls(parsed, self.user_functions, self._functions)
        for name in parsed.relations:
            if name.lower() not in self._known:
                raise UnknownRelation(
                    f"the table or view `{name}` cannot be found: it is no source or view of this warehouse", name
                )
        try:
            analysed = self.executed(parsed.plan)
        except PySparkException as error:
            raise self._refused(error) from error
        self._check_marked(analysed)
        return analysed

    def named_by(self, query: QueryFunction, known: Collection[str]) -> tuple[str, ...]:
        """Names, of those that are known, by which the rows of a function read something."""
        return relations_in(self.trees, cast("Any", frame_of(self.session, query))._jdf.queryExecution().analyzed(), known)

    def _analysed_frame(self, query: QueryFunction) -> Any:
        """The analysed plan of what a function returns, checked as that of a text is."""
        if query not in self._analysed:
            analysed = cast("Any", frame_of(self.session, query))._jdf.queryExecution().analyzed()
            check_analysed(self.trees, analysed, str(query), self.user_functions, relation_of)
            self._analysed[query] = analysed
        analysed = self._analysed[query]
        self._check_marked(analysed)
        return analysed

    def _check_marked(self, tree: Any) -> None:
        """Refuse what is called without parentheses, and so is known only once it is analysed."""
        if not self.may_read_time(tree):
            return
        name = _BARE_CALLS.get(class_name(tree))
        if name is not None:
            raise PlanError(f"a view cannot call {name}: {REFUSED[name]} (docs/limitations.md has the list)")
        inner = list(items(tree.children()))
        if self.trees.is_a(tree, _LOGICAL_PLAN):
            inner += items(tree.expressions())
        elif self.trees.is_a(tree, _SUBQUERY):
            inner.append(tree.plan())
        for part in inner:
            self._check_marked(part)

    def simplify(self, plan: Any) -> Any:
        """Apply the chosen rules, one after the other, to a JVM plan.

        Raises
        ------
        PlanError : a rule of Spark's fails, as those for recursion do in Spark 4.0.
        """
        try:
            rewritten = self._rewrite(self._apply(_PREPARE, plan))
            return self._apply(_FINISH, with_bounds(self.trees, without_idle_casts(self.trees, rewritten)))
        except PySparkException as error:
            raise self._refused(error) from error

    def _rewrite(self, plan: Any) -> Any:
        for _ in range(_MOST_REWRITES):
            rewritten = self._apply(_REWRITE, self._rewrite_subqueries(plan))
            if rewritten.fastEquals(plan):
                break
            plan = rewritten
        return plan

    def _rewrite_subqueries(self, plan: Any) -> Any:
        """Rewrite the plans of all subqueries, innermost first.

        A rule that turns one into a join sees no other in it.
        """
        if not self.has_subquery(plan):
            return plan
        plan = self.trees.with_children(plan, self._rewrite_subqueries)
        if plan.subqueries().isEmpty():
            return plan
        return self.trees.with_expressions(plan, self._rewritten_expression)

    def _rewritten_expression(self, expression: Any) -> Any:
        if not self.has_subquery(expression):
            return expression
        expression = self.trees.with_children(expression, self._rewritten_expression)
        return self.trees.with_subquery(expression, self._rewritten_plan)

    def _rewritten_plan(self, plan: Any) -> Any:
        rewritten = self._rewrite(plan)
        return plan if rewritten.fastEquals(plan) else rewritten

    def _apply(self, rules: tuple[str, ...], plan: Any) -> Any:
        for name in rules:
            rule = self._rule(name)
            plan = rule.apply(plan)
            for _ in range(_MOST_REWRITES if name in _REPEATED else 0):
                again = rule.apply(plan)
                if again.fastEquals(plan):
                    break
                plan = again
        return plan

    def _rule(self, name: str) -> Any:
        if name.endswith(".InlineCTE"):
            return inline_cte(self.jvm)
        return self.companion(name)

    def executed(self, plan: Any) -> Any:
        """A JVM plan analysed; nothing is run."""
        state = self.session._jsparkSession.sessionState()
        return state.executePlan(plan, getattr(state, "executePlan$default$2")()).analyzed()

    def applied(self, text: str, argument: Any) -> Any:
        """The analysed expression that a text stands for, whose only column ``x`` is the argument."""
        plans = self.jvm.org.apache.spark.sql.catalyst.plans.logical
        x = self.trees.alias(argument, "x").toAttribute()
        none = self.jvm.scala.Option.apply(None)
        relation = plans.LocalRelation(self.trees.seq([x]), self.trees.seq([]), False, none)
        parsed = self.session._jsparkSession.sessionState().sqlParser().parseExpression(text)
        analysed = self.executed(plans.Project(self.trees.seq([self.trees.alias(parsed, "_")]), relation))

        def with_argument(expression: Any) -> Any:
            if class_name(expression) == "AttributeReference":
                return argument
            return self.trees.with_children(expression, with_argument)

        return with_argument(analysed.projectList().apply(0).child())

    def folded(self, expression: Any) -> Any:
        """A constant expression as a literal.

        Others, and those whose value is an error, stay expressions.
        """
        if not self.trees.contains(expression, "RUNTIME_REPLACEABLE"):
            return with_constants_folded(self.session, self.companion(_OPTIMIZER + "ConstantFolding"), expression)
        plans = self.jvm.org.apache.spark.sql.catalyst.plans.logical
        alone = plans.Project(self.trees.seq([self.trees.alias(expression, "_")]), plans.OneRowRelation())
        folded = self._apply(_FOLD, alone).projectList().apply(0)
        return folded.child() if class_name(folded) == "Alias" else folded

    def may_read_time(self, tree: Any) -> bool:
        """Whether Spark marks a tree as having a current time function, or a similar one."""
        return self.trees.contains(tree, "CURRENT_LIKE")

    def has_subquery(self, tree: Any) -> bool:
        """Whether there is a subquery within a plan's or expression's own expressions."""
        return self.trees.contains(tree, "PLAN_EXPRESSION")

    def companion(self, name: str) -> Any:
        """The Scala object of that fully qualified name."""
        return getattr(self.jvm, name + "$").__getattr__("MODULE$")


def inline_cte(jvm: Any) -> Any:
    """The rule that inlines common table expressions.

    A class, and not an object as other rules are.
    """
    return getattr(jvm, _OPTIMIZER + "InlineCTE")(False, False)


def frame_of_plan(session: SparkSession, plan: Any) -> DataFrame:
    """The rows of a JVM plan, as a frame of a classic session."""
    jvm: Any = JavaNames(session._jvm)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session)


def first_line(error: Exception) -> str:
    """Spark's message without the query plan and stack that follow it."""
    text = str(error).strip()
    return text.split("\n", 1)[0].split(";", 1)[0].strip()


def type_ddl(data_type: Any) -> str:
    """DDL text of a JVM data type; simple types in lower case.

    As ``simpleString`` writes them.

    Fields within a struct may be NULL: what comes back from state is so, and Spark casts it to nothing stricter.
    """
    text = str(data_type.sql())
    if "<" in text:
        text = str(data_type.asNullable().sql())
    return text if "<" in text or "COLLATE" in text.upper() else text.lower()


def relation_of(leaf: Any) -> str | None:
    """The relation that a leaf scans, from the metadata of its columns."""
    output = leaf.output()
    if output.size() == 0:
        return None
    metadata = output.apply(0).metadata()
    return str(metadata.getString(_RELATION)) if metadata.contains(_RELATION) else None
