"""Check that Spark reads every expression text as its original expression.

An epoch runs from the texts alone. What an expression says and its text does not (IGNORE NULLS, say) would silently be another
view. So each text is parsed and analysed over the very columns of its expression, and the two trees are compared as Spark
compares expressions, with constants folded in both. Types may differ in what may be NULL within them: state says that of
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from relstate_dagster.jobs.engine.instants import start_of_day, timestamp_sql
from relstate_dagster.jobs.plan.nodes import NOW, TODAY
from relstate_dagster.jobs.planner.between import written_out
from relstate_dagster.jobs.planner.catalyst import Catalyst, first_line, type_ddl
from relstate_dagster.jobs.planner.current_time import expression_at
from relstate_dagster.jobs.planner.expression_facts import NotIncremental, expression_id
from relstate_dagster.jobs.planner.expressions import ExpressionWriter, Written, lambda_variable
from relstate_dagster.jobs.planner.trees import class_name, items

_SOME_INSTANT = datetime.fromisoformat("2001-02-03T04:05:06.789+00:00")
_CATALYST = "org.apache.spark.sql.catalyst."
_GENERATOR = _CATALYST + "expressions.Generator"


def check_round_trips(catalyst: Catalyst, written: Sequence[Written]) -> None:
    """Read every text again; nothing is run.

    Raises
    ------
    NotIncremental : a text is refused by Spark, or is another expression than the one it was written from.
    """
    batches: dict[int, list[Written]] = {}
    for one in written:
        batches.setdefault(id(one.names), []).append(one)
    trips = _RoundTrips(catalyst)
    for batch in batches.values():
        trips.check(batch)


def check_times(catalyst: Catalyst, written: Sequence[Written]) -> None:
    """Read texts with the time or the date of an epoch again, at some instant."""
    at = _SOME_INSTANT
    if catalyst.by_days:
        at = start_of_day(str(catalyst.session.conf.get("spark.sql.session.timeZone")), at)
    instant = timestamp_sql(at)
    texts = [w.text.replace(NOW, instant).replace(TODAY, f"CAST({instant} AS DATE)") for w in written]
    check_round_trips(
        catalyst,
        [
            Written(text, expression_at(catalyst.session, w.expression, at), w.names)
            for w, text in zip(written, texts, strict=True)
        ],
    )


class _RoundTrips:
    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self._trees = catalyst.trees
        self._write = ExpressionWriter(catalyst)
        self._plans = catalyst.jvm.org.apache.spark.sql.catalyst.plans.logical
        self._parser = catalyst.session._jsparkSession.sessionState().sqlParser()
        self._none = catalyst.jvm.scala.Option.apply(None)
        self._replace = catalyst.companion(_CATALYST + "optimizer.ReplaceExpressions")
        self._fold = catalyst.companion(_CATALYST + "optimizer.ConstantFolding")

    def check(self, batch: Sequence[Written]) -> None:
        """Check texts over the same columns."""
        columns = _Columns(self._catalyst, batch[0].names)
        originals = [columns.over(one.expression) for one in batch]
        relation = self._plans.LocalRelation(self._trees.seq(columns.attributes()), self._trees.seq([]), False, self._none)
        groups: dict[str, list[int]] = {}
        for n, one in enumerate(batch):
            groups.setdefault(self._statement_of(one.expression, n), []).append(n)
        for numbers in groups.values():
            self._compare([batch[n].text for n in numbers], [originals[n] for n in numbers], relation)

    def _statement_of(self, expression: Any, number: int) -> str:
        """Texts that are read as one statement.

        Spark moves windows and generators apart into nodes of their own.
        """
        kind = class_name(expression)
        if kind == "AggregateExpression":
            return "calls"
        if kind == "WindowExpression" or self._trees.is_a(expression, _GENERATOR):
            return f"apart {number}"
        return "plain"

    def _compare(self, texts: Sequence[str], originals: Sequence[Any], relation: Any) -> None:
        try:
            found = self._read(texts, relation)
        except (PySparkException, Py4JJavaError) as error:
            self._raise_refused(texts, relation, error)
        for text, original, read in zip(texts, originals, found, strict=True):
            if not self._is_same(original, read, relation):
                raise NotIncremental(
                    "no-text", str(original.sql()), f"read again by Spark, its text {text} is another expression"
                )

    def _statement(self, texts: Sequence[str], relation: Any) -> Any:
        if len(texts) == 1:
            # As a statement says it: a generator names its own columns.
            return self._parser.parsePlan(f"SELECT {texts[0]}").withNewChildren(self._trees.seq([relation]))
        return self._project([self._parser.parseExpression(text) for text in texts], relation)

    def _raise_refused(self, texts: Sequence[str], relation: Any, error: Exception) -> NoReturn:
        for text in texts if len(texts) > 1 else []:
            try:
                self._read([text], relation)
            except (PySparkException, Py4JJavaError) as refusal:
                raise NotIncremental("no-text", text, f"Spark does not read it back: {first_line(refusal)}") from refusal
        raise NotIncremental("no-text", ", ".join(texts), f"Spark does not read it back: {first_line(error)}") from error

    def _read(self, texts: Sequence[str], relation: Any) -> list[Any]:
        """The texts as analysed expressions over a relation."""
        plan = self._catalyst.executed(self._statement(texts, relation))
        return self._expressions(plan, len(texts))

    def _expressions(self, plan: Any, count: int) -> list[Any]:
        kind = class_name(plan)
        if kind == "Project" and class_name(plan.child()) == "LocalRelation":
            return [_unnamed(e) for e in items(plan.projectList())]
        if kind == "Aggregate":
            return [_unnamed(e) for e in items(plan.aggregateExpressions())]
        while class_name(plan) not in ("Window", "Generate", "LocalRelation"):
            plan = plan.child()
        if class_name(plan) == "Generate":
            return [plan.generator()]
        if class_name(plan) == "Window":
            computed = _below(plan.child())
            return [self._with_computed(_unnamed(e), computed) for e in items(plan.windowExpressions())][:count]
        raise NotIncremental("no-text", "text", "Spark reads it as more than one expression")

    def _with_computed(self, expression: Any, computed: Mapping[int, Any]) -> Any:
        """A window's expression with computed columns replaced by their expressions."""
        if class_name(expression) == "AttributeReference":
            return computed.get(expression_id(expression), expression)
        return self._trees.with_children(expression, lambda child: self._with_computed(child, computed))

    def _project(self, expressions: Sequence[Any], relation: Any) -> Any:
        named = [self._trees.alias(e, f"_{n}") for n, e in enumerate(expressions)]
        return self._plans.Project(self._trees.seq(named), relation)

    def _is_same(self, original: Any, read: Any, relation: Any) -> bool:
        if original.semanticEquals(read):
            return True
        plan = self._fold.apply(self._project([original, read], relation))
        if self.same(*items(plan.projectList())):
            return True
        # What an expression is replaced by may be computed from constants, or hold the whole type of its input.
        plan = self._fold.apply(self._replace.apply(self._project([original, read], relation)))
        return self.same(*items(plan.projectList()))

    def same(self, original: Any, read: Any) -> bool:  # noqa: C901, PLR0911 - one return a kind of expression
        """Whether two expressions are the same but for what may be NULL within their types."""
        original, read = _bare(original), _bare(read)
        if original.semanticEquals(read):
            return True
        kind = class_name(original)
        written_as = self._write.written_as(original, kind)
        if written_as is not None:
            return self.same(written_as, read)
        if kind == "With" or class_name(read) == "With":
            return self.same(written_out(self._trees, original), written_out(self._trees, read))
        if kind != class_name(read):
            return False
        if type_ddl(original.dataType()) != type_ddl(read.dataType()):
            return False
        if kind == "Literal":
            return self._write.literal_text(original) == self._write.literal_text(read)
        if kind == "NamedLambdaVariable":
            return str(read.name()) in (original.name(), lambda_variable(original))
        ours, theirs = list(items(original.children())), list(items(read.children()))
        if not ours or len(ours) != len(theirs) or not all(self.same(a, b) for a, b in zip(ours, theirs, strict=True)):
            return False
        if kind == "LambdaFunction":
            return True
        with_theirs = original.withNewChildren(read.children())
        if with_theirs.semanticEquals(read):
            return True
        if kind != "Cast":
            return False
        cast = self._catalyst.jvm.org.apache.spark.sql.catalyst.expressions.Cast
        return bool(cast(read.child(), read.dataType(), original.timeZoneId(), original.evalMode()).semanticEquals(read))


class _Columns:
    """The columns that a batch of expressions reads, each one attribute under its name."""

    def __init__(self, catalyst: Catalyst, names: Mapping[int, str]) -> None:
        self._catalyst = catalyst
        self._trees = catalyst.trees
        self._names = names
        self._of_column: dict[str, Any] = {}

    def attributes(self) -> list[Any]:
        """The attributes, under the names of their columns."""
        return [a.withName(column).withQualifier(self._trees.seq([])) for column, a in self._of_column.items()]

    def over(self, expression: Any) -> Any:
        """An expression over attributes of columns, and of its scalar subqueries' columns."""
        read = list(items(expression.references().toSeq()))
        ids = {self._of(str(self._names[expression_id(a)]), a): expression_id(a) for a in read}
        if (
            self._catalyst.has_subquery(expression)
            or any(kept != number for kept, number in ids.items())
            or len(ids) < len(read)
        ):
            return self._rewritten(expression)
        return expression

    def _of(self, column: str, attribute: Any) -> int:
        return expression_id(self._of_column.setdefault(column, attribute))

    def _rewritten(self, expression: Any) -> Any:
        kind = class_name(expression)
        if kind == "AttributeReference":
            column = str(self._names[expression_id(expression)])
            return self._of_column.setdefault(column, expression)
        if kind == "ScalarSubquery":
            column = str(self._names[expression_id(expression)])
            if column not in self._of_column:
                self._of_column[column] = self._trees.alias(expression, column).toAttribute()
            return self._of_column[column]
        return self._trees.with_children(expression, self._rewritten)


def _unnamed(expression: Any) -> Any:
    return expression.child() if class_name(expression) == "Alias" else expression


def _bare(expression: Any) -> Any:
    """An expression without its name, and without a cast to the type that it has."""
    kind = class_name(expression)
    if kind == "Alias" or (kind == "Cast" and expression.child().dataType() == expression.dataType()):
        return _bare(expression.child())
    return expression


def _below(plan: Any) -> dict[int, Any]:
    """Computed columns of a projection below a window, by id."""
    if class_name(plan) != "Project":
        return {}
    return {expression_id(e): e.child() for e in items(plan.projectList()) if class_name(e) == "Alias"}
