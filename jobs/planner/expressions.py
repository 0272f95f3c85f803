"""JVM expressions as Spark SQL text over a plan node's column names.

Some expressions do not write their own text rightly, and are written here:

* A constant expression becomes its value: the analyser puts expressions into it that no SQL text stands for.
* An expression that Spark replaces at run time (``BETWEEN``, ``nvl``, ``date_part``, …) prints the arguments it was
  analysed with, whatever its columns are called by then. Its text is made from its renamed arguments.
* A lambda function, whose variables get a name.
* A scalar subquery is the column that its value was joined in as.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from relstate_dagster.jobs.plan.nodes import NOW, TODAY
from relstate_dagster.jobs.planner.catalyst import Catalyst, type_ddl
from relstate_dagster.jobs.planner.expression_facts import (
    NotIncremental,
    attributes_of,
    check_below,
    check_deterministic,
    expression_id,
    is_python_aggregate,
    reads_time,
    user_function,
)
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_text import quoted, text_literal
from relstate_dagster.state_lib.sql_type import sql_type

#: Expressions that name their replacement, because they have no SQL text of their own.
_REPLACED = frozenset({"Extract"})
#: Parts of times and intervals that no function of their own stands for.
_DATE_PARTS = {
    "SecondWithFraction": "SECOND",
    "SecondsOfTimeWithFraction": "SECOND",
    **{
        f"Extract{kind}{part}": part.removesuffix("s").upper()
        for kind in ("Interval", "ANSIInterval")
        for part in ("Years", "Months", "Days", "Hours", "Minutes", "Seconds")
    },
}
#: LIKE with several patterns, which are no children of theirs.
_LIKE_SEVERAL = {"LikeAny": "LIKE ANY", "NotLikeAny": "NOT LIKE ANY", "LikeAll": "LIKE ALL", "NotLikeAll": "NOT LIKE ALL"}
#: Expressions whose own text says less than they do, or asks what stands in them for its type: of STRUCT the fields have the
#: names that columns had before they were renamed, of LIKE the ESCAPE is missing.
_OWN_TEXTS = frozenset(
    {"Like", "ILike", *_LIKE_SEVERAL, "Collate", "GetStructField", "VariantGet", "CreateNamedStruct", "RaiseError"}
)
#: What arithmetic is called that gives NULL for what is an error otherwise; its own text is that of the other.
_TRY = {
    "Add": "try_add",
    "Subtract": "try_subtract",
    "Multiply": "try_multiply",
    "Divide": "try_divide",
    "Remainder": "try_mod",
}
#: Functions from and to text formats, whose schema and options are no children of theirs.
_FORMATS = frozenset({"JsonToStructs", "CsvToStructs", "XmlToStructs", "StructsToJson", "StructsToCsv", "StructsToXml"})
#: Expressions whose text is made of the arguments they were analysed with, and not of their children.
_KEEPS_ARGUMENTS = "org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules"
_CLASS_TAG = "scala.reflect.ClassTag"
#: Calls that ignore NULLs unless they are asked not to; all others with that choice take NULLs for values.
_IGNORE_BY_DEFAULT = frozenset({"CollectList", "CollectSet"})


#: Expressions that have the value of their child, and only say more of it.
_SAME_VALUE = frozenset({"Alias", "KnownNullable", "KnownNotNull"})
#: Conversions of times to microseconds and back without a text of their own, which time windows are computed with.
_PRECISE_CONVERSIONS = {
    ("timestamp", "bigint"): "unix_micros(x)",
    ("bigint", "timestamp"): "timestamp_micros(x)",
    ("timestamp_ntz", "bigint"): "unix_micros(CAST(concat(CAST(x AS STRING), 'Z') AS TIMESTAMP))",
    ("bigint", "timestamp_ntz"): "timestampadd(MICROSECOND, x, TIMESTAMP_NTZ '1970-01-01 00:00:00')",
}
_NO_COLUMNS: Mapping[int, str] = {}

#: Current time functions as SQL text over the instant of the epoch.
_AT_INSTANT = {
    "CurrentTimestamp": NOW,
    "Now": NOW,
    "CurrentDate": f"CAST({NOW} AS DATE)",
    "LocalTimestamp": f"CAST({NOW} AS TIMESTAMP_NTZ)",
}
#: Functions that give the instant of the epoch.
_CLOCKS = frozenset({"CurrentTimestamp", "Now", "LocalTimestamp"})
#: Units that ``date_trunc`` cuts times off to, in which all instants of a day are equal.
_DAYS = frozenset({"DAY", "DD", "WEEK", "MONTH", "MON", "MM", "QUARTER", "YEAR", "YYYY", "YY"})


class Clock(enum.Enum):
    """A way to write current time functions."""

    REFUSED = enum.auto()
    #: By :data:`.jobs.plan.nodes.NOW`.
    INSTANT = enum.auto()
    #: By :data:`.jobs.plan.nodes.TODAY`; those that give more than the date are refused.
    DAY = enum.auto()


@dataclass(frozen=True, slots=True)
class Written:
    """A text and the expression that it was written from.

    Parameters
    ----------
    text : SQL over columns.
    expression : Catalyst's, over attributes.
    names : the column of each attribute, by its id.
    """

    text: str
    expression: Any
    names: Mapping[int, str]


class ExpressionWriter:
    """Writes expressions as SQL text.

    Attributes
    ----------
    written : all texts so far, for :mod:`.jobs.planner.round_trip`.

    Parameters
    ----------
    clock : how current time functions are written.
    """

    def __init__(self, catalyst: Catalyst, clock: Clock = Clock.REFUSED) -> None:
        self._catalyst = catalyst
        self._clock = clock
        self.written: list[Written] = []

    def sql(self, expression: Any, names: Mapping[int, str]) -> str:
        """SQL text of an expression; ``names`` maps expression ids to the child's column names."""
        text = self._sql(expression, names)
        if class_name(expression) != "AttributeReference":
            self.note(text, expression, names)
        return text

    def note(self, text: str, expression: Any, names: Mapping[int, str]) -> None:
        """Record the original expression of a text."""
        self.written.append(Written(text, expression, names))

    def _sql(self, expression: Any, names: Mapping[int, str]) -> str:
        if class_name(expression) == "AttributeReference":
            return quoted(_name(expression, names))
        if class_name(expression) == "AggregateExpression" and class_name(expression.aggregateFunction()) == "Mode":
            return self._mode(expression, names)
        texts: dict[str, str] = {}
        text = str(self._rename(expression, names, texts).sql())
        for column, written in texts.items():
            text = text.replace(column, written)
        if class_name(expression) == "AggregateExpression":
            return with_null_option(text, expression.aggregateFunction())
        return text

    def _rename(  # noqa: C901, PLR0911, PLR0912 - one return a kind of expression
        self, expression: Any, names: Mapping[int, str], texts: dict[str, str]
    ) -> Any:
        """The expression over the child's columns.

        ``texts`` receives replacements of columns that stand for texts.
        """
        kind = class_name(expression)
        time = self._time_text(expression, kind)
        if time is not None:
            return self._standing_for(time, texts)
        check_deterministic(expression, kind)
        if kind == "AttributeReference":
            return expression.withName(_name(expression, names)).withQualifier(self._catalyst.trees.seq([]))
        if kind == "ScalarSubquery":
            attribute = names.get(expression_id(expression))
            if attribute is None:
                raise NotIncremental("scalar-subquery", str(expression), "this scalar subquery was not turned into a join")
            return self._attribute(attribute)
        if kind == "NamedLambdaVariable":
            return self._attribute(lambda_variable(expression))
        if kind == "AggregateExpression" and is_python_aggregate(expression):
            return self._rename(expression.aggregateFunction(), names, texts)
        children = list(items(expression.children()))
        called = user_function(expression, kind)
        if called is not None:
            return self._standing_for(f"{quoted(called)}({', '.join(self._sql(c, names) for c in children)})", texts)
        if kind == "Literal":
            return self._standing_for(self.literal_text(expression), texts)
        if not children:
            return expression
        written_as = self.written_as(expression, kind)
        if written_as is not None:
            return self._rename(written_as, names, texts)
        if kind == "LambdaFunction":
            variables = [lambda_variable(v) for v in items(expression.arguments())]
            left = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
            return self._standing_for(f"{left} -> {self._sql(expression.function(), names)}", texts)
        folded = self._folded(expression, texts)
        if folded is not None:
            return folded
        own_text = self._own_text(expression, kind, children, names)
        if own_text is not None:
            return self._standing_for(own_text, texts)
        if kind in _REPLACED:
            return self._rename(expression.replacement(), names, texts)
        if self._keeps_arguments(expression):
            replacement = children[0]
            current = _current_names(expression, replacement, names)
            # Of the arguments it is not seen that they are cut off to the date.
            if current is None or (self._clock is Clock.DAY and reads_time(replacement)):
                return self._rename(replacement, names, texts)
            return self._standing_for(self._with_arguments(expression, kind, current), texts)
        if kind == "With":
            # Common parts are written as often as they are used.
            shared = {str(d.id()): self._rename(d.child(), names, texts) for d in items(expression.defs())}
            return self._inlined(expression.child(), shared, names, texts)
        if kind == "SpecifiedWindowFrame":
            return expression  # its bounds are constants, and it tells PRECEDING by their sign's own node
        if kind == "WindowExpression":
            return self._standing_for(f"{self.window_call(expression, names)} OVER {self._sql(children[1], names)}", texts)
        return expression.withNewChildren(self._catalyst.trees.seq([self._rename(child, names, texts) for child in children]))

    def _time_text(self, expression: Any, kind: str) -> str | None:
        """Text of a current time function, or of a date that is made of one."""
        if self._clock is Clock.INSTANT:
            return _AT_INSTANT.get(kind)
        return None if self._clock is Clock.REFUSED else self._date_text(expression, kind)

    def _date_text(self, expression: Any, kind: str) -> str | None:
        """As :meth:`_time_text`, if only the date of the epoch is known."""
        if kind in _CLOCKS and self._catalyst.by_days:
            return f"CAST({TODAY} AS {type_ddl(expression.dataType())})"
        if kind in ("Cast", "ParseToDate") and expression.children().size() == 1:
            is_date = class_name(expression.children().apply(0)) in _CLOCKS and type_ddl(expression.dataType()) == "date"
            return TODAY if is_date else None
        if kind == "TruncTimestamp" and class_name(expression.timestamp()) in _CLOCKS:
            unit = expression.format()
            if class_name(unit) == "Literal" and unit.value() is not None and str(unit.value().toString()).upper() in _DAYS:
                return f"date_trunc({self.literal_text(unit)}, CAST({TODAY} AS TIMESTAMP))"
        return TODAY if kind == "CurrentDate" else None

    def window_call(self, window: Any, names: Mapping[int, str]) -> str:
        """Text of the call of a window expression, without its OVER."""
        function = window.windowFunction()
        call = self._sql(function, names)
        return call if class_name(function) == "AggregateExpression" else with_null_option(call, function)

    def written_as(self, expression: Any, kind: str) -> Any | None:
        """An equal expression for one without a text; ``None`` for any other."""
        if kind in _SAME_VALUE:
            return expression.child()
        if kind == "PreciseTimestampConversion":
            types = (type_ddl(expression.fromType()), type_ddl(expression.toType()))
            return self._catalyst.applied(_PRECISE_CONVERSIONS[types], expression.child())
        return None

    def _mode(self, call: Any, names: Mapping[int, str]) -> str:
        """A call of ``mode``, whose order Spark writes the wrong way round."""
        function = call.aggregateFunction()
        value, reverse = self._sql(function.child(), names), _fields(function)["reverseOpt"]
        text = f"mode({value})"
        if reverse.isDefined():
            text = f"mode() WITHIN GROUP (ORDER BY {value}{'' if reverse.get() else ' DESC'})"
        return f"{text} FILTER (WHERE {self._sql(call.filter().get(), names)})" if call.filter().isDefined() else text

    def _own_text(  # noqa: PLR0911 - one return a kind of expression
        self, expression: Any, kind: str, children: list[Any], names: Mapping[int, str]
    ) -> str | None:
        """Text of an expression whose own text Spark refuses or that lacks a part.

        ``None`` for any other.
        """
        if kind in _FORMATS:
            return self._of_format(expression, names)
        is_try = kind in _TRY and str(expression.evalMode().toString()) == "TRY"
        if not is_try and kind not in _OWN_TEXTS and kind not in _DATE_PARTS:
            return None
        written = [self._sql(child, names) for child in children]
        if is_try:
            return f"{_TRY[kind]}({', '.join(written)})"
        if kind in _DATE_PARTS:
            return f"date_part('{_DATE_PARTS[kind]}', {written[0]})"
        if "Like" in kind:
            return _of_like(expression, kind, written)
        if kind == "Collate":
            return f"({written[0]} COLLATE {type_ddl(expression.dataType()).rpartition(' ')[2]})"
        if kind == "GetStructField":
            return f"{written[0]}.{quoted(str(expression.extractFieldName()))}"
        if kind == "VariantGet":
            return f"{expression.prettyName()}({', '.join(written)}, {text_literal(type_ddl(expression.dataType()))})"
        if kind == "RaiseError":
            # Its arguments are a class of errors and a map with the message.
            message = children[1].children().apply(1) if class_name(children[1]) == "CreateMap" else None
            return None if message is None else f"raise_error({self._sql(message, names)})"
        return f"named_struct({', '.join(written)})"

    def _of_format(self, expression: Any, names: Mapping[int, str]) -> str:
        """A function from or to a text format, with its schema and its options."""
        fields = _fields(expression)
        arguments = [self._sql(child, names) for child in items(expression.children())]
        if "schema" in fields:
            arguments.append(text_literal(str(fields["schema"].sql())))
        options = [text_literal(str(part)) for pair in items(fields["options"].toSeq()) for part in (pair._1(), pair._2())]
        if options:
            arguments.append(f"map({', '.join(options)})")
        return f"{expression.prettyName()}({', '.join(arguments)})"

    def _inlined(self, expression: Any, shared: Mapping[str, Any], names: Mapping[int, str], texts: dict[str, str]) -> Any:
        if class_name(expression) == "CommonExpressionRef":
            return shared[str(expression.id())]
        if not _refers(expression):
            return self._rename(expression, names, texts)
        return self._catalyst.trees.with_children(expression, lambda child: self._inlined(child, shared, names, texts))

    def _folded(self, expression: Any, texts: dict[str, str]) -> Any | None:
        """Literal of a constant expression; ``None`` for others and for errors."""
        if not expression.foldable() or not expression.resolved():
            return None
        if self._clock is not Clock.REFUSED and reads_time(expression):
            return None
        check_below(expression)
        try:
            folded = self._catalyst.folded(expression)
        except (PySparkException, Py4JJavaError):
            return None
        return self._standing_for(self.literal_text(folded), texts) if class_name(folded) == "Literal" else None

    def literal_text(self, literal: Any) -> str:
        """A literal of Catalyst's as SQL text that Spark reads back as its type."""
        data_type = type_ddl(literal.dataType())
        parsed = sql_type(data_type)
        value = literal.value() if parsed.is_nested or parsed.name == "string" else None
        if parsed.is_nested and value is not None:
            # What Spark has computed it may keep as bytes, which have no text.
            converters = self._catalyst.companion("org.apache.spark.sql.catalyst.CatalystTypeConverters")
            literals = self._catalyst.companion("org.apache.spark.sql.catalyst.expressions.Literal")
            literal = literals.create(converters.convertToScala(value, literal.dataType()), literal.dataType())
        text = str(literal.sql())
        if parsed.is_nested:
            return f"CAST({text} AS {data_type})"
        if value is not None and not value.isValid():
            return f"CAST(X'{bytes(value.getBytes()).hex()}' AS {data_type})"
        if parsed.name == "interval" and parsed.interval_unit is None:
            # As a literal it has either months or days and times.
            return f"CAST('{literal.value().toString()}' AS INTERVAL)" if literal.value() is not None else text
        if parsed.decimal is not None and data_type != _written_decimal(text) and literal.value() is not None:
            return f"CAST({text} AS {data_type})"
        return text

    def value_texts(self, row: Any, data_type: Any) -> list[str]:
        """Values of a Catalyst row as SQL text that Spark reads back.

        Parameters
        ----------
        data_type : the STRUCT that the row is of.
        """
        # Picked out by Spark: on its way to Python a value would lose which number type it is.
        expressions = self._catalyst.jvm.org.apache.spark.sql.catalyst.expressions
        whole = expressions.Literal(row, data_type)
        none = self._catalyst.jvm.scala.Option.apply(None)
        picked = (expressions.GetStructField(whole, n, none) for n in range(data_type.size()))
        values = [self._catalyst.folded(value) for value in picked]
        texts = [self.literal_text(value) for value in values]
        for text, value in zip(texts, values, strict=True):
            self.note(text, value, _NO_COLUMNS)
        return texts

    def element_texts(self, values: Any, data_type: Any) -> list[str]:
        """The elements of a Scala sequence of values of one type, as :meth:`value_texts` writes them."""
        rows = self._catalyst.jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow
        types = self._catalyst.jvm.org.apache.spark.sql.types
        struct = types.StructType()
        for n in range(values.size()):
            struct = struct.add(f"_{n}", data_type, True)
        return self.value_texts(rows(values.toArray(self._catalyst.companion(_CLASS_TAG).Any())), struct)

    def _keeps_arguments(self, expression: Any) -> bool:
        return self._catalyst.trees.is_a(expression, _KEEPS_ARGUMENTS)

    def _with_arguments(self, expression: Any, kind: str, names: Mapping[int, str]) -> str:
        arguments = [self._sql(argument, names) for argument in items(expression.parameters())]
        if kind == "Between":
            value, lower, upper = arguments
            return f"({value} BETWEEN {lower} AND {upper})"
        if kind == "DatetimeSub":
            return f"({' - '.join(arguments)})"
        return f"{expression.prettyName()}({', '.join(arguments)})"

    def _standing_for(self, text: str, texts: dict[str, str]) -> Any:
        """A column in whose place the text is put once the whole expression is written."""
        name = f"__relstate_text_{len(texts)}__"
        texts[name] = text
        return self._attribute(name)

    def _attribute(self, name: str) -> Any:
        attribute = self._catalyst.jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
        return attribute.quoted(name)


def with_null_option(text: str, function: Any) -> str:
    """Text of a call with its treatment of NULLs, which Spark leaves out."""
    if text.lower().endswith(" nulls"):
        return text
    ignores = _fields(function).get("ignoreNulls")
    if ignores is None:
        return text
    if ignores == (class_name(function) in _IGNORE_BY_DEFAULT):
        return text
    return f"{text} {'IGNORE' if ignores else 'RESPECT'} NULLS"


def _fields(expression: Any) -> dict[str, Any]:
    """Parts of an expression, by Spark's names."""
    names = expression.productElementNames()
    return {str(names.next()): expression.productElement(n) for n in range(expression.productArity())}


def _written_decimal(text: str) -> str:
    """The type that Spark gives a decimal literal: as many digits as are written."""
    whole, _, fraction = text.removesuffix("BD").lstrip("-").partition(".")
    digits = len(whole.lstrip("0")) + len(fraction)
    return f"decimal({max(digits, len(fraction), 1)},{len(fraction)})"


def _current_names(expression: Any, replacement: Any, names: Mapping[int, str]) -> Mapping[int, str] | None:
    """Columns behind the arguments of an expression; ``None`` if unknown.

    Rules give columns new ids, as on one side of a self join, and do so in the replacement only. The arguments keep the old
    ids, which may be those of the other side. An argument's column that the replacement does not read is the one of the
    same name that it reads and the other arguments do not.
    """
    read = {expression_id(a): str(a.name()) for a in attributes_of(replacement)}
    kept = {expression_id(a): str(a.name()) for p in items(expression.parameters()) for a in attributes_of(p)}
    outdated = {number: name for number, name in kept.items() if number not in read}
    current = {number: names[number] for number in kept if number in read and number in names}
    for number, name in outdated.items():
        same = [n for n, other in read.items() if other == name and n not in kept and n in names]
        if len(same) != 1:
            return None
        current[number] = names[same[0]]
    subqueries = {n: column for n, column in names.items() if n not in kept}
    return {**subqueries, **current}


def lambda_variable(variable: Any) -> str:
    """Name of a lambda variable.

    Inner ones hide outer ones, and columns, as in the query.
    """
    return f"_var_{variable.name()}"


def _of_like(expression: Any, kind: str, written: list[str]) -> str:
    if kind in _LIKE_SEVERAL:
        patterns = ["CAST(NULL AS STRING)" if p is None else text_literal(str(p)) for p in items(expression.patterns())]
        return f"({written[0]} {_LIKE_SEVERAL[kind]} ({', '.join(patterns)}))"
    escape = str(expression.escapeChar())
    ending = "" if escape == "\\" else f" ESCAPE {text_literal(escape)}"
    return f"({written[0]} {kind.upper()} {written[1]}{ending})"


def _refers(expression: Any) -> bool:
    return class_name(expression) == "CommonExpressionRef" or any(_refers(child) for child in items(expression.children()))


def _name(attribute: Any, names: Mapping[int, str]) -> str:
    name = names.get(expression_id(attribute))
    if name is None:
        raise PlanError(f"column {attribute.toString()} is not among the columns at hand: {sorted(names.values())}")
    return name
