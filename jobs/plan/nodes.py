"""The plan: small immutable nodes of names, types and SQL text.

No Spark object.

Every node derives its facts when it is built, bottom-up: schema, stream key, append-only or not, and (through
:mod:`.jobs.plan.state_tables`) its state tables. Column names are local to a node and follow from its children alone,
so two uses of one common table expression are equal nodes, and equal nodes are maintained once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.sql_type import SqlType, sql_type


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a node: name, Spark type as DDL, and nullability."""

    name: str
    data_type: str
    nullable: bool = True

    @property
    def type(self) -> SqlType:
        """Its type, parsed."""
        return sql_type(self.data_type)


@dataclass(frozen=True, slots=True)
class NamedExpr:
    """A Spark SQL expression over the child's columns, and the column it becomes."""

    sql: str
    output: Field

    @property
    def is_column(self) -> bool:
        """Whether the expression is no more than the child's column of that name."""
        return self.sql == quoted(self.output.name)


@dataclass(frozen=True, slots=True)
class SortKey:
    """One ORDER BY column of a node's own columns."""

    column: str
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class PlanNode:
    """Base of all nodes; see the module's text for what a node derives."""

    schema: tuple[Field, ...] = field(init=False, compare=False, repr=False, default=())
    stream_key: tuple[str, ...] | None = field(init=False, compare=False, repr=False, default=None)
    append_only: bool = field(init=False, compare=False, repr=False, default=False)

    @property
    def children(self) -> tuple[PlanNode, ...]:
        """The inputs, in order."""
        return ()

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of all output columns, hidden ones included."""
        return tuple(f.name for f in self.schema)

    def field_named(self, name: str) -> Field:
        """The output column of that name."""
        for f in self.schema:
            if f.name == name:
                return f
        raise PlanError(f"{type(self).__name__} has no column {name}; it has {list(self.column_names)}")

    def _derive(self, schema: tuple[Field, ...], stream_key: tuple[str, ...] | None, append_only: bool) -> None:
        names = [f.name for f in schema]
        if len(set(names)) != len(names):
            raise PlanError(f"{type(self).__name__}: duplicate column names in {names}")
        if stream_key is not None and not set(stream_key) <= set(names):
            raise PlanError(f"{type(self).__name__}: stream key {stream_key} is not among its columns {names}")
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "stream_key", stream_key)
        object.__setattr__(self, "append_only", append_only)


@dataclass(frozen=True, slots=True)
class OneInput(PlanNode):
    """Base of nodes with one input."""

    child: PlanNode

    @property
    def children(self) -> tuple[PlanNode, ...]:
        """The inputs, in order."""
        return (self.child,)


@dataclass(frozen=True, slots=True)
class Scan(PlanNode):
    """Reads the change set of a source or of another view. Linear, no state.

    ``stores_row_ids``: a row that is read again has the ``_row_id`` it had before, as the rows of views do.
    """

    relation: str
    columns: tuple[Field, ...]
    key: tuple[str, ...] | None
    is_append_only: bool
    stores_row_ids: bool = False

    def __post_init__(self) -> None:
        self._derive(self.columns, self.key, self.is_append_only)


@dataclass(frozen=True, slots=True)
class Values(PlanNode):
    """Constant rows (VALUES, or a SELECT without FROM): they all arrive in the first epoch."""

    rows: tuple[tuple[str, ...], ...]
    columns: tuple[Field, ...]

    def __post_init__(self) -> None:
        self._derive(self.columns, None if len(self.rows) > 1 else (), True)


@dataclass(frozen=True, slots=True)
class FullQuery(PlanNode):
    """A query run in full at every epoch: the `full` refresh policy.

    Its rows are compared with those of the view.

    ``always`` says that the result may change though no input did (it depends on the time of the run).
    """

    query: str
    columns: tuple[Field, ...]
    reads: tuple[str, ...]
    always: bool = False

    def __post_init__(self) -> None:
        self._derive(self.columns, None, False)


@dataclass(frozen=True, slots=True)
class Filter(OneInput):
    """Keeps the rows for which the condition is true. Linear, no state."""

    condition: str

    def __post_init__(self) -> None:
        self._derive(self.child.schema, self.child.stream_key, self.child.append_only)


#: Stands for the instant of the epoch, a TIMESTAMP, in the times of a temporal filter.
NOW = "`__relstate_now__`"
#: Stands for the date of the epoch in expressions of a plan that is of a day (:attr:`Materialize.is_of_a_day`).
TODAY = "`__relstate_today__`"

#: The comparisons of a temporal filter: of a column, on the left, with a time.
TIME_COMPARISONS = ("=", "<=>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class TimeBound:
    """A comparison of a column with a time that moves from epoch to epoch.

    Parameters
    ----------
    column : of the filter's child.
    comparison : one of ``TIME_COMPARISONS``.
    time : SQL text that reads no column; :data:`NOW` stands in it for the instant of the epoch.
    """

    column: str
    comparison: str
    time: str

    def __post_init__(self) -> None:
        if self.comparison not in TIME_COMPARISONS:
            raise PlanError(f"a temporal filter compares by {', '.join(TIME_COMPARISONS)}, not by {self.comparison}")

    def time_at(self, instant: str) -> str:
        """The time as SQL text, for an instant given as SQL text."""
        return self.time.replace(NOW, instant)

    def sql_at(self, instant: str) -> str:
        """The comparison as SQL over the child's columns, at an instant (SQL)."""
        return f"{quoted(self.column)} {self.comparison} {self.time_at(instant)}"


@dataclass(frozen=True, slots=True)
class Temporal(OneInput):
    """Base of nodes that compare columns with times.

    Their rows change by time alone.
    """

    bounds: tuple[TimeBound, ...]

    def __post_init__(self) -> None:
        for bound in self.bounds:
            self.child.field_named(bound.column)
        self._derive((*self.child.schema, *self.appended), self.child.stream_key, False)

    @property
    def appended(self) -> tuple[Field, ...]:
        """The columns that the node has besides those of its input."""
        return ()

    @property
    def bound_columns(self) -> tuple[str, ...]:
        """The columns that are compared with a time, each once."""
        return tuple(dict.fromkeys(bound.column for bound in self.bounds))


@dataclass(frozen=True, slots=True)
class TemporalFilter(Temporal):
    """Keeps the rows for which all bounds hold at the instant of the epoch."""

    def condition_at(self, instant: str) -> str:
        """The condition at an instant, as SQL text; false where it is NULL."""
        return f"coalesce({' AND '.join(f'({bound.sql_at(instant)})' for bound in self.bounds)}, false)"


@dataclass(frozen=True, slots=True)
class TemporalProject(Temporal):
    """Appends for each bound whether it holds at the instant of the epoch.

    Parameters
    ----------
    flags : the BOOLEAN columns that are appended, one a bound: NULL where the comparison is.
    """

    flags: tuple[Field, ...]

    @property
    def appended(self) -> tuple[Field, ...]:
        """The flags."""
        return self.flags

    def flags_at(self, instant: str) -> tuple[str, ...]:
        """Named flags as SQL over the child's columns, at an instant (SQL)."""
        return tuple(
            f"{bound.sql_at(instant)} AS {quoted(flag.name)}" for bound, flag in zip(self.bounds, self.flags, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Project(OneInput):
    """Computes expressions. Linear, no state.

    Keeps the stream key where its columns (or renames of them) survive. ``key`` is set by the planner where it knows another
    one.
    """

    expressions: tuple[NamedExpr, ...]
    key: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        renamed: dict[str, str] = {}
        for expression in self.expressions:
            renamed.setdefault(expression.sql, expression.output.name)
        key = self.key
        if key is None and self.child.stream_key is not None:
            survivors = [renamed.get(quoted(name)) for name in self.child.stream_key]
            if all(name is not None for name in survivors):
                key = tuple(name for name in survivors if name is not None)
        self._derive(tuple(e.output for e in self.expressions), key, self.child.append_only)

    @property
    def passed_on(self) -> dict[str, str]:
        """Columns that are not computed, each with the child's column."""
        names = {quoted(name): name for name in self.child.column_names}
        return {e.output.name: names[e.sql] for e in self.expressions if e.sql in names}


@dataclass(frozen=True, slots=True)
class UnionAll(PlanNode):
    """Stacks its inputs, whose columns have the same names and types. Linear, no state.

    ``key`` is set by the planner where a hidden branch column tells the inputs' keys apart.
    """

    inputs: tuple[PlanNode, ...]
    key: tuple[str, ...] | None

    def __post_init__(self) -> None:
        first = self.inputs[0]
        for other in self.inputs[1:]:
            if other.column_names != first.column_names:
                raise PlanError(f"UNION: branches differ in columns: {first.column_names} and {other.column_names}")
        schema = tuple(
            Field(f.name, f.data_type, any(i.schema[n].nullable for i in self.inputs)) for n, f in enumerate(first.schema)
        )
        self._derive(schema, self.key, all(i.append_only for i in self.inputs))

    @property
    def children(self) -> tuple[PlanNode, ...]:
        """The inputs, in order."""
        return self.inputs


@dataclass(frozen=True, slots=True)
class Arrange(OneInput):
    """Passes its input on, and may keep its rows by key.

    It does so once a join looks up few of them among many.
    """

    def __post_init__(self) -> None:
        if not self.child.stream_key:
            raise PlanError(f"rows are arranged by their key, and {type(self.child).__name__} has none")
        self._derive(self.child.schema, self.child.stream_key, self.child.append_only)


@dataclass(frozen=True, slots=True)
class Expand(OneInput):
    """Each row once per projection (GROUPING SETS, ROLLUP, CUBE). Linear, no state."""

    projections: tuple[tuple[str, ...], ...]
    columns: tuple[Field, ...]

    def __post_init__(self) -> None:
        self._derive(self.columns, None, self.child.append_only)


@dataclass(frozen=True, slots=True)
class Generate(OneInput):
    """Each row once per element of a generator (explode, inline, …).

    Linear, no state.
    """

    generator: str
    outer: bool
    generated: tuple[Field, ...]

    def __post_init__(self) -> None:
        self._derive((*self.child.schema, *self.generated), None, self.child.append_only)


@dataclass(frozen=True, slots=True)
class JoinKey:
    """One equality of a join: a column of each side.

    And whether NULL equals NULL (``<=>``).
    """

    left: str
    right: str
    null_safe: bool = False

    @property
    def sql(self) -> str:
        """The equality as SQL over both sides' columns."""
        return f"{quoted(self.left)} {'<=>' if self.null_safe else '='} {quoted(self.right)}"


JOIN_TYPES = ("inner", "left outer", "right outer", "full outer", "left semi", "left anti", "existence")


@dataclass(frozen=True, slots=True)
class Join(PlanNode):
    """A join of any type on zero or more equalities and an optional residual condition.

    A side is a state table of its own, or is looked up *in place*: its rows as of the epoch are read in the sources and
    views below it. A side that keeps association counts always has a state table.

    ``exists`` names the boolean column that an existence join adds to the left columns. ``left_there`` names a left column
    that is never NULL. In a full outer join of sides whose keys may all be NULL, it distinguishes a left row without a
    match from a right one.
    """

    left: PlanNode
    right: PlanNode
    join_type: str
    keys: tuple[JoinKey, ...]
    residual: str | None = None
    exists: str | None = None
    left_in_place: bool = False
    right_in_place: bool = False
    left_there: str | None = None

    def __post_init__(self) -> None:
        if self.join_type not in JOIN_TYPES:
            raise PlanError(f"join type {self.join_type} is not known; known are {', '.join(JOIN_TYPES)}")
        if (self.left_in_place and self.left_has_associations) or (self.right_in_place and self.right_has_associations):
            raise PlanError(f"a side of a {self.join_type} join that counts its associations needs state of its own")
        self._derive(self._join_schema(), self._join_key(), self._join_append_only())

    @property
    def children(self) -> tuple[PlanNode, ...]:
        """The inputs, in order."""
        return (self.left, self.right)

    @property
    def keeps_right_columns(self) -> bool:
        """Whether the right side's columns are part of the output."""
        return self.join_type not in ("left semi", "left anti", "existence")

    @property
    def left_has_associations(self) -> bool:
        """Whether the left side keeps association counts."""
        return self.join_type not in ("inner", "right outer")

    @property
    def right_has_associations(self) -> bool:
        """Whether the right side keeps association counts."""
        return self.join_type in ("right outer", "full outer")

    def _join_schema(self) -> tuple[Field, ...]:
        left, right = self.left.schema, self.right.schema
        if self.join_type in ("right outer", "full outer"):
            left = tuple(Field(f.name, f.data_type, True) for f in left)
        if self.join_type in ("left outer", "full outer"):
            right = tuple(Field(f.name, f.data_type, True) for f in right)
        if not self.keeps_right_columns:
            return (*left, Field(self.exists, "boolean", False)) if self.exists else left
        return (*left, *right)

    def _join_key(self) -> tuple[str, ...] | None:
        left_key, right_key = self.left.stream_key, self.right.stream_key
        if not self.keeps_right_columns:
            return left_key
        left_at_most_once = left_key is not None and set(left_key) <= {k.left for k in self.keys}
        right_at_most_once = right_key is not None and set(right_key) <= {k.right for k in self.keys}
        # A side that matches at most once adds nothing to the other side's key, unless its own rows can stand alone.
        if left_key is not None and right_at_most_once and self.join_type in ("inner", "left outer"):
            return left_key
        if right_key is not None and left_at_most_once and self.join_type in ("inner", "right outer"):
            return right_key
        if left_key is None or right_key is None:
            return None
        return (*left_key, *right_key, *([] if self.left_there is None else [self.left_there]))

    def _join_append_only(self) -> bool:
        # An outer or anti join takes back its NULL-padded row when a match arrives.
        both = self.left.append_only and self.right.append_only
        return both and self.join_type in ("inner", "left semi")


@dataclass(frozen=True, slots=True)
class AggCall:
    """One aggregate call over columns of the aggregate's input.

    Parameters
    ----------
    function : lower-case name (``sum``, ``count``, ``min``, …).
    arguments : the input columns it reads, in order; none for ``count(*)``.
    distinct : whether it is a DISTINCT call.
    sql : the whole call as Spark SQL text over the input columns, for calls that Spark itself recomputes.
    output : the column it becomes.
    argument_types : DDL types of the arguments.
    kind : the name of its aggregate kind (:mod:`.jobs.plan.aggregates`), chosen for the aggregate's input.
    """

    function: str
    arguments: tuple[str, ...]
    distinct: bool
    sql: str
    output: Field
    argument_types: tuple[str, ...] = ()
    kind: str = ""

    @property
    def types(self) -> tuple[SqlType, ...]:
        """The types of the arguments, parsed."""
        return tuple(map(sql_type, self.argument_types))

    @property
    def label(self) -> str:
        """Name of the call in explain and the table catalog: ``count(distinct tailnum)``."""
        inner = ", ".join(self.arguments) or "*"
        return f"{self.function}({'distinct ' if self.distinct else ''}{inner})"


@dataclass(frozen=True, slots=True)
class Aggregate(OneInput):
    """Groups by columns and folds calls.

    With no calls it is DISTINCT; with no group columns it keeps its one row.

    ``is_of_changelog`` says that its one call takes the newest row of a key, as a struct whose first field says which is
    newest. Two rows with equal first fields are an error, as is a NULL in the key, and late rows are counted.

    ``shares_value_state`` says that one table has the value state of all calls. In plans of earlier versions each call has its
    own.
    """

    group: tuple[str, ...]
    calls: tuple[AggCall, ...]
    is_of_changelog: bool = False
    shares_value_state: bool = True

    def __post_init__(self) -> None:
        group_fields = tuple(self.child.field_named(name) for name in self.group)
        append_only = self.child.append_only and not self.calls and bool(self.group)
        self._derive((*group_fields, *(call.output for call in self.calls)), self.group, append_only)


@dataclass(frozen=True, slots=True)
class Reach:
    """Rows around a changed row whose window results may change.

    They are counted in the order of the window.

    Parameters
    ----------
    before, after : how many rows; ``None`` for all.
    peers : also rows that are equal to it in the order.
    """

    before: int | None
    after: int | None
    peers: bool = False

    @property
    def is_everywhere(self) -> bool:
        """Whether all rows of a partition may change."""
        return self.before is None and self.after is None

    @property
    def text(self) -> str:
        """For people: ``up to 5 rows after a change``; empty where all rows may change."""
        if self.is_everywhere:
            return ""
        sides = {"before": self.before, "after": self.after}
        texts = [
            f"all rows {name}" if rows is None else f"{rows} row{'s' * (rows > 1)} {name}"
            for name, rows in sides.items()
            if rows != 0
        ]
        return f"{' and '.join(texts)} a change" if texts else "a change alone"

    def and_of(self, other: Reach) -> Reach:
        """The reach of two functions together."""
        before = None if self.before is None or other.before is None else max(self.before, other.before)
        after = None if self.after is None or other.after is None else max(self.after, other.after)
        return Reach(before, after, self.peers or other.peers)


@dataclass(frozen=True, slots=True)
class LatestRows:
    """Window results from the last rows of a partition, and the row before these.

    That row, the carrier, stands for itself and all rows before it. The texts are SQL over the columns of the input and of
    the state table (:mod:`.jobs.plan.latest_rows`).

    Parameters
    ----------
    before : rows before a row that its results are computed from, besides those that the carrier stands for.
    margin : rows that are kept so that a change of the last one finds these, for all rows that it reaches.
    running : values of the rows up to one, that the carrier has, each with its column; first the number of these rows.
    results : of the node's expressions.
    splits_no_peers : whether changed rows have to differ from the carrier in the order.
    one_by_one : the results of one row, computed from all kept rows; empty where no frame is so long that this saves time.
    """

    before: int
    margin: int
    running: tuple[NamedExpr, ...]
    results: tuple[str, ...]
    splits_no_peers: bool = False
    one_by_one: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Window(OneInput):
    """Window functions over one partitioning and order, from materialized input or the latest rows.

    ``reach`` is of all functions together. Views planned before it was known are without. ``latest`` is there where the last
    rows of a partition are kept: views planned before that was done are without, as are functions that need other rows.
    """

    partition: tuple[str, ...]
    order: tuple[SortKey, ...]
    expressions: tuple[NamedExpr, ...]
    reach: Reach | None = field(default=None, compare=False)
    latest: LatestRows | None = None

    def __post_init__(self) -> None:
        self._derive((*self.child.schema, *(e.output for e in self.expressions)), self.child.stream_key, False)


@dataclass(frozen=True, slots=True)
class TopN(OneInput):
    """The first rows by a sort order, after an offset.

    Kept in state, and taken from materialized input when they run out.

    ``keeps_first`` is whether they are kept: views planned before that was done are without, as are limits too large.
    """

    order: tuple[SortKey, ...]
    limit: int | None
    offset: int
    keeps_first: bool = False

    def __post_init__(self) -> None:
        self._derive(self.child.schema, self.child.stream_key, False)


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the view for its readers, and its plan column."""

    name: str
    column: str


@dataclass(frozen=True, slots=True)
class Materialize(OneInput):
    """The root: the view itself, keyed by sort key and stream key.

    Columns of the child not in ``output`` are hidden.

    Parameters
    ----------
    is_of_a_day : the rows depend on the date of the epoch. On the same date they are maintained, with :data:`TODAY` as a
        constant; when the date changes, all are computed.
    """

    output: tuple[OutputColumn, ...]
    order: tuple[SortKey, ...] = ()
    is_of_a_day: bool = False

    def __post_init__(self) -> None:
        append_only = self.child.append_only and not self.is_of_a_day
        self._derive(self.child.schema, self.child.stream_key, append_only)


def walk(node: PlanNode) -> Iterator[PlanNode]:
    """All nodes below and including this one, children first, equal nodes once."""
    seen: set[PlanNode] = set()

    def visit(current: PlanNode) -> Iterator[PlanNode]:
        if current in seen:
            return
        for child in current.children:
            yield from visit(child)
        if current not in seen:
            seen.add(current)
            yield current

    return visit(node)


def depends_on_time(root: PlanNode) -> bool:
    """Whether a plan's rows may change though no input did."""
    return any(isinstance(n, Temporal) or (isinstance(n, FullQuery) and n.always) for n in walk(root))


def relations_read(node: PlanNode) -> tuple[str, ...]:
    """Names of the sources and views that the plan scans, in order of first use."""
    names: list[str] = []
    for n in walk(node):
        if isinstance(n, Scan):
            names.append(n.relation)
        elif isinstance(n, FullQuery):
            names += n.reads
    return tuple(dict.fromkeys(names))
