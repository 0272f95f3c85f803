"""Random queries over the lab's relations: every operator, nested as deep as asked for, deterministic in what they mean.

A query is built bottom-up from relations whose columns are known by name and type, so that nearly all of them are ones
that Spark accepts. What Spark itself may answer in two ways is left out: ties in an order (every order ends with all
columns), arrays in no order, sums of floating-point numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from relstate_dagster.jobs.plan.relation import Relation as Source

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]

INT, TEXT, DECIMAL, BIGINT, DOUBLE = "int", "string", "decimal(10,2)", "bigint", "double"
TIMESTAMP, LONG_DECIMAL = "timestamp", "decimal(38,2)"
STRUCT, ARRAY = "struct<x:int,y:string>", "array<int>"
_CONSTANTS = {
    INT: ["0", "1", "2", "7"],
    TEXT: ["'a'", "''", "'b'", r"'it\'s\n\"a\"'", r"r'\n'"],
    DECIMAL: ["0.00", "1.50", "-2.25"],
    BIGINT: ["0L", "2L", "-3L"],
    LONG_DECIMAL: ["CAST(0 AS DECIMAL(38,2))", "12345678901234567890123456789.05", "-0.01"],
    "date": ["DATE '2024-02-29'", "DATE '1969-12-31'"],
    "boolean": ["true", "false"],
    TIMESTAMP: ["TIMESTAMP '2024-02-29 23:59:59'", "TIMESTAMP '2024-03-01 00:00:00'"],
    DOUBLE: ["0D", "1.5D"],
    STRUCT: ["named_struct('x', 1, 'y', 'a')", "named_struct('x', CAST(NULL AS INT), 'y', 'b')"],
    ARRAY: ["array(1, NULL)", "CAST(array() AS ARRAY<INT>)"],
}
#: By the type that a RANGE frame is ordered by: how far it reaches.
_RANGES = {
    INT: ["1", "3"],
    DECIMAL: ["0.50", "2"],
    "date": ["INTERVAL 1 DAY", "INTERVAL 1 MONTH", "2"],
    TIMESTAMP: ["INTERVAL 1 DAY", "INTERVAL '0 00:30:00' DAY TO SECOND", "INTERVAL 1 MONTH"],
}
#: Types that queries group by, compare across relations, and stack.
_TYPES = tuple(_CONSTANTS)
#: Columns of a relation that is pivoted: what is grouped by, what becomes columns, and what is in these.
_PIVOTED = 3
_JOINS = ("INNER", "INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI", "CROSS")


@dataclass(frozen=True, slots=True)
class Relation:
    """A subquery: its text and its columns (name, type)."""

    sql: str
    columns: tuple[tuple[str, str], ...]

    def of(self, *types: str) -> list[str]:
        """The columns of some types."""
        return [name for name, data_type in self.columns if data_type in types]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]


_CONSTANT_ROWS = Relation("SELECT * FROM VALUES (1, 'a'), (2, 'b'), (NULL, 'a') v({0}, {1})", (("g", INT), ("s", TEXT)))


class Grammar:
    """Draws one query over some relations; names are unique within it."""

    def __init__(self, draw: Draw, relations: Mapping[str, Source]) -> None:
        self._draw = draw
        self._names = 0
        self._relations = [*(_read(r) for r in relations.values()), _CONSTANT_ROWS]

    def query(self, depth: int) -> str:
        """The text of a whole query."""
        return self.relation(depth).sql

    def relation(self, depth: int) -> Relation:
        """A relation of at most this many operators above each other."""
        if depth <= 0:
            return self._base()
        makers = (
            self._filter, self._filter, self._project, self._join, self._join, self._join, self._aggregate, self._aggregate,
            self._aggregate, self._distinct, self._set_operation, self._window, self._range_window,
            self._limit, self._explode, self._subquery,
            self._scalar, self._window, self._time_window, self._sessions, self._lateral, self._best, self._pivot,
            self._unpivot,
        )  # fmt: skip
        return self._pick(makers)(depth)

    # -- drawing --------------------------------------------------------------------------------------------------

    def _pick(self, options: Any) -> Any:
        return self._draw(st.sampled_from(list(options)))

    def _chance(self) -> bool:
        return bool(self._draw(st.booleans()))

    def _name(self) -> str:
        self._names += 1
        return f"c{self._names}"

    def _alias(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def _from(self, relation: Relation) -> str:
        return f"({relation.sql}) {self._alias()}"

    # -- relations ------------------------------------------------------------------------------------------------

    def _base(self) -> Relation:
        base = self._pick(self._relations)
        names = [self._name() for _ in base.columns]
        columns = tuple((name, data_type) for name, (_, data_type) in zip(names, base.columns, strict=True))
        return Relation(base.sql.format(*names), columns)

    def _filter(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        return Relation(f"SELECT * FROM {self._from(child)} WHERE {self._predicate(child)}", child.columns)

    def _project(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        kept = [c for c in child.columns if self._chance()] or [child.columns[0]]
        name, data_type = self._name(), self._pick([INT, TEXT])
        made = f"{self._expression(child, data_type)} AS {name}"
        listed = ", ".join([*(n for n, _ in kept), made])
        return Relation(f"SELECT {listed} FROM {self._from(child)}", (*kept, (name, data_type)))

    def _join(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(self._pick([0, 0, depth - 1]))
        kind = self._pick(_JOINS)
        shared = [t for t in _TYPES if left.of(t) and right.of(t)]
        if kind == "CROSS" or not shared:
            return Relation(f"SELECT * FROM {self._from(left)} CROSS JOIN {self._from(right)}", (*left.columns, *right.columns))
        data_type = self._pick(shared)
        equal = self._pick(["=", "=", "<=>"])
        one, other = self._pick(left.of(data_type)), self._pick(right.of(data_type))
        constant = self._pick(_CONSTANTS[data_type])
        condition = self._pick(
            [
                *([f"{one} {equal} {other}"] * 4),
                f"{one} < {other}",
                f"({one} = {other} OR {one} IS NULL)",
                f"coalesce({one}, {constant}) = coalesce({other}, {constant})",
                f"({one} = {other} AND {one} <> {constant})",
            ]
        )
        if self._pick([False, False, True]):
            condition += f" AND {self._predicate(Relation('', (*left.columns, *right.columns)), subqueries=False)}"
        columns = left.columns if kind in ("LEFT SEMI", "LEFT ANTI") else (*left.columns, *right.columns)
        return Relation(f"SELECT * FROM {self._from(left)} {kind} JOIN {self._from(right)} ON {condition}", columns)

    def _aggregate(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        group = [c for c in child.columns if self._chance()][:2]
        calls = [self._call(child) for _ in range(self._pick([1, 2, 3]))]
        named = [(self._name(), data_type, sql) for sql, data_type in calls]
        listed = ", ".join([*(n for n, _ in group), *(f"{sql} AS {name}" for name, _, sql in named)])
        text = f"SELECT {listed} FROM {self._from(child)}"
        if group:
            form = self._pick(["{}", "{}", "{}", "ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), (), ({first}))"])
            text += " GROUP BY " + form.format(", ".join(n for n, _ in group), first=group[-1][0])
            if self._chance():
                text += " HAVING count(*) > 1"
        return Relation(text, (*group, *((name, data_type) for name, data_type, _ in named)))

    def _call(self, child: Relation) -> tuple[str, str]:
        """One aggregate call and its type, cast back to the types that the grammar knows."""
        column = self._pick(child.names)
        numbers = child.of(INT, DECIMAL, BIGINT)
        options = [
            ("CAST(count(*) AS INT)", INT),
            (f"CAST(count({column}) AS INT)", INT),
            (f"CAST(count(DISTINCT {column}) AS INT)", INT),
            (f"min({column})", dict(child.columns)[column]),
            (f"max({column})", dict(child.columns)[column]),
            (f"array_join(array_sort(collect_list(CAST({column} AS STRING))), '|')", TEXT),
            (f"CAST(count_if({column} IS NULL) AS INT)", INT),
            (f"CAST(bool_and({column} IS NULL) AS INT)", INT),
        ]
        if child.of(INT):
            whole = self._pick(child.of(INT))
            options.append((f"CAST(round(var_pop({whole}) * count({whole}) * count({whole})) AS INT)", INT))
            distinct = self._pick(["", "DISTINCT "])
            options.append((f"{self._pick(['bit_xor', 'bit_or', 'bit_and'])}({distinct}{whole})", INT))
        options += [
            (
                f"array_join(transform(array_sort(collect_list(struct({column}))), x -> CAST(x.{column} AS STRING)), '\\n')",
                TEXT,
            ),
            (f"to_json(max(struct({', '.join(child.names)})))", TEXT),
        ]
        if numbers:
            number = self._pick(numbers)
            data_type = BIGINT if number in child.of(BIGINT) else INT
            options += [
                (f"CAST(sum({number}) AS {data_type})", data_type),
                (f"CAST(avg({number} % 1000) AS DECIMAL(10,2))", DECIMAL),
                (f"CAST(sum(DISTINCT {number}) AS {data_type})", data_type),
                (f"CAST(sum({number}) FILTER (WHERE {number} > 0) AS {data_type})", data_type),
                (f"max_by({column}, struct({', '.join([number, *child.names])}))", dict(child.columns)[column]),
            ]
        return self._pick(options)  # type: ignore[no-any-return]

    def _distinct(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        kept = child.columns[: self._pick([1, 2])]
        return Relation(f"SELECT DISTINCT {', '.join(n for n, _ in kept)} FROM {self._from(child)}", kept)

    def _set_operation(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(depth - 1)
        shared = [t for t in _TYPES if left.of(t) and right.of(t)]
        if not shared:
            return left
        types = [self._pick(shared) for _ in range(self._pick([1, 1, 2]))]
        columns = tuple((self._name(), data_type) for data_type in types)
        ours = ", ".join(f"{self._pick(left.of(data_type))} AS {name}" for name, data_type in columns)
        theirs = ", ".join(self._pick(right.of(data_type)) for data_type in types)
        kind = self._pick(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"])
        text = f"SELECT {ours} FROM {self._from(left)} {kind} SELECT {theirs} FROM {self._from(right)}"
        return Relation(f"SELECT {', '.join(name for name, _ in columns)} FROM ({text}) {self._alias()}", columns)

    def _best(self, depth: int) -> Relation:
        """The first rows of each group."""
        child = self.relation(depth - 1)
        order = ", ".join(f"{name}{self._pick(['', ' DESC'])}" for name in child.names)
        function = self._pick(["row_number", "rank", "dense_rank"])
        place, name = f"{function}() OVER (PARTITION BY {self._pick(child.names)} ORDER BY {order})", self._name()
        listed = ", ".join(child.names)
        text = f"SELECT {listed} FROM (SELECT *, {place} AS {name} FROM {self._from(child)}) WHERE {name} "
        return Relation(text + self._pick(["= 1", "<= 2", "< 2", "= 2", "BETWEEN 2 AND 3"]), child.columns)

    def _pivot(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        if len(child.columns) < _PIVOTED:
            return child
        group, by, of = child.columns[:_PIVOTED]
        if by[1] in (STRUCT, ARRAY, LONG_DECIMAL):  # Spark compares what it pivots by with literals
            return child
        values = _CONSTANTS[by[1]][:2]
        names = [self._name() for _ in values]
        listed = ", ".join(f"{value} AS {name}" for value, name in zip(values, names, strict=True))
        function, data_type = self._pick([("count", INT), ("max", of[1])])
        inner = f"SELECT {group[0]}, {by[0]}, {of[0]} FROM {self._from(child)}"
        text = f"SELECT * FROM ({inner}) PIVOT ({function}({of[0]}) FOR {by[0]} IN ({listed}))"
        cast = ", ".join([group[0], *(f"CAST({name} AS {data_type}) AS {name}" for name in names)])
        return Relation(f"SELECT {cast} FROM ({text}) {self._alias()}", (group, *((name, data_type) for name in names)))

    def _unpivot(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        data_type = self._pick(sorted({t for _, t in child.columns}))
        turned = child.of(data_type)[:2]
        kept = tuple(c for c in child.columns if c[0] not in turned)
        name, value = self._name(), self._name()
        nulls = self._pick(["", "INCLUDE NULLS "])
        text = f"SELECT * FROM {self._from(child)} UNPIVOT {nulls}({value} FOR {name} IN ({', '.join(turned)}))"
        return Relation(text, (*kept, (name, TEXT), (value, data_type)))

    def _range_window(self, depth: int) -> Relation:
        """A window function over a frame of values: what it gives does not depend on the order of ties."""
        child = self.relation(depth - 1)
        ordered = child.of(*_RANGES)
        if not ordered:
            return child
        order, column = self._pick(ordered), self._pick(child.names)
        steps = _RANGES[dict(child.columns)[order]]
        starts = ["UNBOUNDED PRECEDING", f"{self._pick(steps)} PRECEDING", "CURRENT ROW"]
        ends = ["CURRENT ROW", f"{self._pick(steps)} FOLLOWING", "UNBOUNDED FOLLOWING"]
        frame = f"RANGE BETWEEN {self._pick(starts)} AND {self._pick(ends)}"
        function = self._pick(["count(*)", f"count({column})", f"min({column})", f"max({column})"])
        name, data_type = self._name(), INT if function.startswith("count") else dict(child.columns)[column]
        partition = f"PARTITION BY {self._pick(child.names)} " if self._chance() else ""
        direction = self._pick(["", " DESC", " NULLS LAST"])
        value = f"CAST({function} OVER ({partition}ORDER BY {order}{direction} {frame}) AS {data_type})"
        return Relation(f"SELECT *, {value} AS {name} FROM {self._from(child)}", (*child.columns, (name, data_type)))

    def _window(self, depth: int) -> Relation:
        """A window function: rows in an order that leaves no ties, any frame of them, NULLs respected or not."""
        child = self.relation(depth - 1)
        column = child.names[0]
        directions = ["", " DESC", " NULLS LAST", " DESC NULLS FIRST"]
        order = ", ".join(f"{name}{self._pick(directions)}" for name in child.names)
        partition = f"PARTITION BY {self._pick(child.names)} " if self._pick([True, True, False]) else ""
        nulls = self._pick(["", " IGNORE NULLS", " RESPECT NULLS"])
        function, framed = self._pick(
            [
                ("row_number()", False), ("rank()", False), ("dense_rank()", False), ("ntile(3)", False),
                (f"lag({column}){nulls}", False), (f"lead({column}, 2){nulls}", False), ("count(*)", True),
                (f"count({column})", True), (f"min({column})", True), (f"max({column})", True),
                (f"first_value({column}){nulls}", True), (f"last_value({column}){nulls}", True),
                (f"nth_value({column}, 2){nulls}", True),
            ]
        )  # fmt: skip
        frame = ""
        if framed and self._chance():
            starts = ["UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW", "1 FOLLOWING"]
            start = self._pick(starts)
            ends = ["UNBOUNDED FOLLOWING", "3 FOLLOWING"] + (["CURRENT ROW"] if starts.index(start) < 3 else [])
            frame = f" ROWS BETWEEN {start} AND {self._pick(ends)}"
        counts = function.startswith(("row", "rank", "dense", "ntile", "count"))
        name, data_type = self._name(), INT if counts else child.columns[0][1]
        value = f"CAST({function} OVER ({partition}ORDER BY {order}{frame}) AS {data_type})"
        return Relation(f"SELECT *, {value} AS {name} FROM {self._from(child)}", (*child.columns, (name, data_type)))

    def _time_window(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        if not child.of(TIMESTAMP):
            return child
        sizes = self._pick(["'30 minutes'", "'1 day', '8 hours'", "'25 minutes', '10 minutes', '5 minutes'"])
        name, end = self._name(), self._pick(["start", "end"])
        value = f"window({self._pick(child.of(TIMESTAMP))}, {sizes}).{end}"
        listed = ", ".join([*child.names, f"{value} AS {name}"])
        return Relation(f"SELECT {listed} FROM {self._from(child)}", (*child.columns, (name, TIMESTAMP)))

    def _sessions(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        if not child.of(TIMESTAMP):
            return child
        gap = self._pick(["'1 hour'", "'400 days'"])
        session = f"session_window({self._pick(child.of(TIMESTAMP))}, {gap})"
        group = [c for c in child.columns if self._pick([False, False, True])][:1]
        begin, end, count = self._name(), self._name(), self._name()
        listed = ", ".join([*(n for n, _ in group), f"session_window.start AS {begin}", f"session_window.end AS {end}"])
        keys = ", ".join([session, *(n for n, _ in group)])
        text = f"SELECT {listed}, CAST(count(*) AS INT) AS {count} FROM {self._from(child)} GROUP BY {keys}"
        return Relation(text, (*group, (begin, TIMESTAMP), (end, TIMESTAMP), (count, INT)))

    def _lateral(self, depth: int) -> Relation:
        left, right = self.relation(depth - 1), self.relation(0)
        shared = [t for t in _TYPES if left.of(t) and right.of(t)]
        if not shared:
            return left
        data_type = self._pick(shared)
        where = f"WHERE {self._pick(right.of(data_type))} = {self._pick(left.of(data_type))}"
        column, name = right.names[0], self._name()
        order = ", ".join(right.names)
        form = self._pick(
            [
                f"SELECT max({column}) AS {name} FROM {self._from(right)} {where}",
                f"SELECT {column} AS {name} FROM {self._from(right)} {where}",
                f"SELECT {column} AS {name} FROM {self._from(right)} {where} ORDER BY {order} LIMIT 1",
                f"SELECT {column} AS {name} FROM (SELECT *, row_number() OVER (ORDER BY {order}) AS n FROM {self._from(right)} "
                f"{where}) WHERE n <= 2",
            ]
        )
        join = self._pick([", LATERAL", " LEFT JOIN LATERAL"])
        text = f"SELECT * FROM {self._from(left)}{join} ({form}) {self._alias()}"
        return Relation(text, (*left.columns, (name, right.columns[0][1])))

    def _limit(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        order = ", ".join(f"{n} {self._pick(['ASC', 'DESC', 'ASC NULLS LAST'])}" for n in child.names)
        offset = f" OFFSET {self._pick([1, 2])}" if self._pick([False, False, True]) else ""
        text = f"SELECT * FROM {self._from(child)} ORDER BY {order} LIMIT {self._pick([1, 3])}{offset}"
        return Relation(f"SELECT * FROM ({text}) {self._alias()}", child.columns)

    def _explode(self, depth: int) -> Relation:
        child = self.relation(depth - 1)
        name, data_type = self._name(), self._pick([INT, TEXT])
        values = f"array({self._expression(child, data_type)}, {self._expression(child, data_type)})"
        text = f"SELECT *, {name} FROM {self._from(child)} LATERAL VIEW explode({values}) {self._alias()} AS {name}"
        listed = ", ".join(child.names)
        return Relation(text.replace("SELECT *", f"SELECT {listed}", 1), (*child.columns, (name, data_type)))

    def _subquery(self, depth: int) -> Relation:
        """IN, NOT IN, EXISTS and NOT EXISTS, correlated where a column of the same type is there, and what is made of them."""
        child, other = self.relation(depth - 1), self.relation(0)
        shared = [t for t in _TYPES if child.of(t) and other.of(t)]
        if not shared:
            return child
        data_type = self._pick(shared)
        ours, theirs = self._pick(child.of(data_type)), self._pick(other.of(data_type))
        sub = f"SELECT {theirs} FROM {self._from(other)}"
        pair = sub.replace("SELECT ", f"SELECT {self._pick(other.of(data_type))} AS {self._name()}, ", 1)
        condition = self._pick(
            [
                f"{ours} IN ({sub})",
                f"{ours} NOT IN ({sub})",
                f"EXISTS ({sub} WHERE {theirs} = {ours})",
                f"NOT EXISTS ({sub} WHERE {theirs} = {ours})",
                f"EXISTS ({sub} WHERE {theirs} < {ours})",
                f"NOT EXISTS ({sub} WHERE {theirs} <=> {ours} AND {self._predicate(other, subqueries=False)})",
                f"{ours} {self._pick(['IN', 'NOT IN'])} ({sub} WHERE {self._pick(other.of(data_type))} = {ours})",
                f"({ours}, {ours}) {self._pick(['IN', 'NOT IN'])} ({pair})",
                f"({ours} IN ({sub}) OR {ours} IS NULL)",
                f"EXISTS ({sub})",
            ]
        )
        if self._chance():
            predicate = self._predicate(child, subqueries=False)
            condition = self._pick(
                [
                    f"NOT ({condition})",
                    f"NOT ({condition} AND {predicate})",
                    f"NOT ({condition} OR {predicate})",
                    f"({condition}) = ({predicate})",
                    f"({condition}) = false OR {predicate}",
                    f"coalesce({condition}, {predicate})",
                ]
            )
        return Relation(f"SELECT * FROM {self._from(child)} WHERE {condition}", child.columns)

    def _scalar(self, depth: int) -> Relation:
        """A scalar subquery in the select list: a global aggregate, correlated or not."""
        child, other = self.relation(depth - 1), self.relation(0)
        shared = [t for t in _TYPES if child.of(t) and other.of(t)]
        where = ""
        if shared and self._chance():
            data_type = self._pick(shared)
            equal = self._pick(["=", "=", "<=>", ">"])
            where = f" WHERE {self._pick(other.of(data_type))} {equal} {self._pick(child.of(data_type))}"
        value = self._pick(["CAST(count(*) AS INT)", f"CAST(count({other.names[0]}) AS INT)", "CAST(max(1) AS INT)"])
        name = self._name()
        sub = f"(SELECT {value} FROM {self._from(other)}{where})"
        return Relation(f"SELECT *, {sub} AS {name} FROM {self._from(child)}", (*child.columns, (name, INT)))

    # -- expressions ----------------------------------------------------------------------------------------------

    def _expression(self, child: Relation, data_type: str) -> str:
        columns = child.of(data_type)
        one = self._pick([*columns, *columns, *_CONSTANTS[data_type]])
        other = self._pick([*columns, *_CONSTANTS[data_type]])
        forms = [one, f"coalesce({one}, {other})", f"CASE WHEN {self._predicate(child, subqueries=False)} THEN {one} END"]
        if data_type == INT:
            forms += [f"({one} % 5 + {other} % 7)", f"length(CAST({self._pick(child.names)} AS STRING))"]
        if data_type == TEXT:
            forms += [
                f"to_json(named_struct('x y', {self._pick(child.names)}, 'z', array({one})))",
                f"{one} ILIKE '%A!_' ESCAPE '!'",
            ]
            forms[-1] = f"CAST({forms[-1]} AS STRING)"
            forms += [f"concat({one}, {other})", f"upper({one})", f"CAST({self._pick(child.names)} AS STRING)"]
        return str(self._pick(forms))

    def _predicate(self, child: Relation, *, subqueries: bool = True) -> str:
        data_type = self._pick(sorted({t for _, t in child.columns}))
        column = self._pick(child.of(data_type))
        constants = _CONSTANTS[data_type]
        forms = [
            f"{column} {self._pick(['=', '<>', '<', '>='])} {self._pick(constants)}",
            f"{column} IS NULL",
            f"{column} IS NOT NULL",
            f"{column} IN ({', '.join(constants[:2])})",
            f"NOT ({column} <=> {self._pick(constants)})",
            f"{column} = {self._pick(child.of(data_type))}",
        ]
        if subqueries and data_type == INT:
            base = self._base()
            if base.of(INT):
                forms.append(f"{column} <= (SELECT max({base.of(INT)[0]}) FROM {self._from(base)})")
        return str(self._pick(forms))


def _read(source: Source) -> Relation:
    listed = ", ".join(f"{field.name} AS {{{n}}}" for n, field in enumerate(source.columns))
    return Relation(f"SELECT {listed} FROM {source.name}", tuple((f.name, f.data_type) for f in source.columns))


@st.composite
def queries(draw: Draw, relations: Mapping[str, Source], max_depth: int = 4) -> str:
    """The text of a query that Spark accepts (nearly always) and answers in one way only."""
    return Grammar(draw, relations).query(draw(st.integers(1, max_depth)))
