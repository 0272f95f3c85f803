"""Rewrites of Catalyst's trees from Python.

What does not change stays the very object that it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.names import JavaNames
from relstate_dagster.state_lib.columns import jvm_of_columns

_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
_SUBQUERY = "org.apache.spark.sql.catalyst.expressions.SubqueryExpression"
_SEQ = "scala.collection.immutable.Seq"
_SOME = "scala.Some"
_CLASS_NAME = "_relstate_class_name"

#: Gives for a tree another one, or the very same.
Rewrite = Callable[[Any], Any]


def items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(n) for n in range(sequence.size()))


def class_name(jvm_object: Any) -> str:
    """Simple class name of a JVM tree node, without the ``$`` of Scala objects.

    It is asked for some 17,000 times to plan 72 views: once for each object, and in one call.
    """
    kept = vars(jvm_object)
    if _CLASS_NAME not in kept:
        kept[_CLASS_NAME] = str(_name_of(jvm_of_columns())(jvm_object))
    return str(kept[_CLASS_NAME])


@lru_cache(maxsize=4)
def _name_of(_jvm: int) -> Any:
    gateway: Any = SparkContext._gateway
    return JavaNames(gateway.jvm).org.apache.spark.util.Utils.getFormattedClassName


class Trees:
    """Rewrites expressions and plans of one session's JVM."""

    def __init__(self, session: SparkSession) -> None:
        self.jvm: Any = JavaNames(session._jvm)
        self._gateway: Any = session.sparkContext._gateway
        #: What Java has for a name: each is asked for once, by several calls.
        self._classes: dict[str, Any] = {}
        self._patterns: dict[str, Any] = {}

    def seq(self, elements: list[Any]) -> Any:
        """A Scala sequence."""
        return self.jvm.PythonUtils.toSeq(elements)

    def alias(self, expression: Any, name: str) -> Any:
        """An expression under a name and an id of its own."""
        expressions = self.jvm.org.apache.spark.sql.catalyst.expressions
        new_id = getattr(expressions, "NamedExpression$").__getattr__("MODULE$").newExprId()
        return expressions.Alias(expression, name, new_id, self.seq([]), self.jvm.scala.Option.apply(None), self.seq([]))

    def is_a(self, candidate: Any, class_: str) -> bool:
        """Whether something is a JVM object of a class or interface."""
        if class_ not in self._classes:
            self._classes[class_] = self.jvm.java.lang.Class.forName(class_)
        return isinstance(candidate, JavaObject) and bool(self._classes[class_].isInstance(candidate))

    def contains(self, tree: Any, pattern: str) -> bool:
        """Whether Spark marks a plan or expression as containing a node kind."""
        if pattern not in self._patterns:
            self._patterns[pattern] = getattr(self.jvm.org.apache.spark.sql.catalyst.trees.TreePattern, pattern)()
        return bool(tree.containsPattern(self._patterns[pattern]))

    def with_children(self, tree: Any, rewrite: Rewrite) -> Any:
        """A plan or an expression with its children rewritten."""
        old = list(items(tree.children()))
        new = [rewrite(child) for child in old]
        return tree if _same(new, old) else tree.withNewChildren(self.seq(new))

    def with_expressions(self, plan: Any, rewrite: Rewrite) -> Any:
        """A plan node with its expressions rewritten, also in sequences and options."""
        old = [plan.productElement(n) for n in range(plan.productArity())]
        new = [self._argument(argument, rewrite) for argument in old]
        if _same(new, old):
            return plan
        copied = self._gateway.new_array(self.jvm.java.lang.Object, len(new))
        for n, argument in enumerate(new):
            copied[n] = argument
        return plan.makeCopy(copied)

    def with_subquery(self, expression: Any, rewrite: Rewrite) -> Any:
        """An expression with its plan rewritten, where it is a subquery."""
        if not self.is_a(expression, _SUBQUERY):
            return expression
        old = expression.plan()
        new = rewrite(old)
        return expression if new is old else expression.withNewPlan(new)

    def _argument(self, argument: Any, rewrite: Rewrite) -> Any:
        if self.is_a(argument, _EXPRESSION):
            return rewrite(argument)
        if self.is_a(argument, _SOME):
            old = argument.get()
            new = self._argument(old, rewrite)
            return argument if new is old else self.jvm.scala.Option.apply(new)
        if self.is_a(argument, _SEQ):
            elements = list(items(argument))
            changed = [self._argument(element, rewrite) for element in elements]
            return argument if _same(changed, elements) else self.seq(changed)
        return argument


def _same(new: list[Any], old: list[Any]) -> bool:
    return all(n is o for n, o in zip(new, old, strict=True))
