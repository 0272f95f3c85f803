"""Lowers Catalyst's simplified tree to a plan, one method a node kind.

Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from relstate_dagster.jobs.declare.query_function import Query
from relstate_dagster.jobs.plan.aggregates.registry import with_kinds
from relstate_dagster.jobs.plan.nodes import (
    TODAY,
    Aggregate,
    Expand,
    Field,
    Generate,
    Join,
    JoinKey,
    Materialize,
    NamedExpr,
    OutputColumn,
    PlanNode,
    Project,
    Scan,
    SortKey,
    TopN,
    UnionAll,
    Values,
    Window,
)
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.aggregate_calls import AggregateCalls, check_python_aggregates
from relstate_dagster.jobs.planner.catalyst import Catalyst, relation_of, type_ddl
from relstate_dagster.jobs.planner.expression_facts import (
    NotIncremental,
    conjuncts,
    expression_id,
    references,
    scalar_subqueries,
)
from relstate_dagster.jobs.planner.expressions import Clock, ExpressionWriter
from relstate_dagster.jobs.planner.first_row import FirstRow, is_row_number
from relstate_dagster.jobs.planner.group_columns import GroupColumns
from relstate_dagster.jobs.planner.in_place import with_sides_in_place
from relstate_dagster.jobs.planner.input_columns import InputColumns
from relstate_dagster.jobs.planner.joins import Joins, is_one_sided, join_type_of
from relstate_dagster.jobs.planner.latest_rows import latest_rows_of
from relstate_dagster.jobs.planner.lowered import Lowered, NameSpace, reads_only, select, where, with_columns
from relstate_dagster.jobs.planner.map_keys import with_map_keys
from relstate_dagster.jobs.planner.one_row import SUBQUERY, at_most_one_row, has_one_row
from relstate_dagster.jobs.planner.recursion import rows_of_recursion
from relstate_dagster.jobs.planner.round_trip import check_round_trips, check_times
from relstate_dagster.jobs.planner.semi_joins import pushed_below_join
from relstate_dagster.jobs.planner.sessions import merged_sessions, session_of
from relstate_dagster.jobs.planner.short_keys import with_short_key
from relstate_dagster.jobs.planner.temporal import TimeComparison, split_temporal
from relstate_dagster.jobs.planner.times import Times
from relstate_dagster.jobs.planner.trees import class_name, items
from relstate_dagster.jobs.planner.union_keys import branch_keys
from relstate_dagster.jobs.planner.window_reach import reach_of
from relstate_dagster.state_lib.constants import HIDDEN_COLUMNS
from relstate_dagster.state_lib.errors import PlanError
from relstate_dagster.state_lib.sql_text import quoted
from relstate_dagster.state_lib.tuning import tuning

#: Numbers that ``range`` may give: they are made up as one array.
_MOST_OF_RANGE = 1_000_000
_PASS_THROUGH = frozenset(
    {
        "SubqueryAlias",
        "View",
        "ResolvedHint",
        "LimitAll",
        "RepartitionByExpression",
        "Repartition",
        "RebalancePartitions",
        "Subquery",
    }
)


class Lowering:
    """Lowers one view's query.

    ``need_key`` travels down: hidden key columns are added only where the key is used.
    """

    def __init__(self, catalyst: Catalyst, relations: Mapping[str, Relation], *, reduces: bool = True) -> None:
        self._catalyst = catalyst
        self._relations = relations
        self._write = ExpressionWriter(catalyst, Clock.DAY if catalyst.is_of_a_day else Clock.REFUSED)
        self._times = Times(catalyst, self._write)
        self._joins = Joins(catalyst, self._write, reduces=reduces)

    @property
    def has_reduced(self) -> bool:
        """Whether an aggregate was reduced to the groups that it is asked for."""
        return self._joins.has_reduced

    def view(self, query: Query) -> Materialize:
        """The plan of a view, rooted at its materialization."""
        plan = self._catalyst.simplify(self._catalyst.analyse(query))
        visible = [(expression_id(a), str(a.name())) for a in items(plan.output())]
        order: list[tuple[Any, bool, bool]] = []
        while class_name(plan) in {"Sort", *_PASS_THROUGH}:
            if class_name(plan) == "Sort" and not order:
                order = [(o.child(), *_direction(o)) for o in items(plan.order())]
            plan = plan.child()
        lowered = self._lower(plan, need_key=True)
        sort_keys = tuple(
            SortKey(lowered.names[expression_id(child)], descending, nulls_last)
            for child, descending, nulls_last in order
            if class_name(child) == "AttributeReference" and expression_id(child) in lowered.names
        )
        output = tuple(OutputColumn(name, lowered.names[number]) for number, name in visible)
        _check_output_names(output)
        used = list(dict.fromkeys([o.column for o in output] + list(lowered.node.stream_key or ())))
        used += [k.column for k in sort_keys if k.column not in used]
        timed = [one for one in self._write.written if TODAY in one.text]
        check_round_trips(self._catalyst, [one for one in self._write.written if TODAY not in one.text])
        check_times(self._catalyst, [*timed, *self._times.written])
        shown = {*(o.column for o in output), *(k.column for k in sort_keys)}
        rows = with_map_keys(with_short_key(select(lowered.node, used), shown))
        return Materialize(rows, output, sort_keys, bool(timed))

    def _lower(self, plan: Any, *, need_key: bool) -> Lowered:
        kind = class_name(plan)
        if kind in _PASS_THROUGH:
            return self._lower(plan.child(), need_key=need_key)
        if plan.children().size() == 0:
            return self._leaf(plan, kind)
        method = getattr(self, f"_{kind.lower()}", None)
        if method is None:
            raise NotIncremental("unknown-operator", kind, "this operator has no incremental form here")
        lowered: Lowered = method(plan, need_key)
        return lowered

    def _leaf(self, plan: Any, kind: str) -> Lowered:
        name = relation_of(plan)
        if name is not None:
            relation = self._relations[name]
            columns = (*relation.columns, *relation.hidden_columns)
            scan = Scan(name, columns, relation.key, relation.append_only, relation.is_view)
            return self._scanned(scan, list(items(plan.output())))
        if kind == "OneRowRelation":
            return Lowered(Values(((),), ()), {})
        if kind == "LocalRelation":
            return self._values(plan)
        if kind == "Range":
            return self._range(plan)
        raise NotIncremental("unknown-source", kind, "only sources and views of this warehouse can be read")

    def _scanned(self, scan: Scan, attributes: list[Any]) -> Lowered:
        names = {expression_id(a): str(a.name()) for a in attributes}
        if not any(name.startswith("_") for name in names.values()):
            return Lowered(scan, names)
        space = NameSpace(scan.column_names)
        renamed = {str(a.name()): space.named(a) for a in attributes if str(a.name()).startswith("_")}
        outputs = [NamedExpr(quoted(f.name), replace(f, name=renamed.get(f.name, f.name))) for f in scan.schema]
        return Lowered(Project(scan, tuple(outputs)), {number: renamed.get(name, name) for number, name in names.items()})

    def _values(self, plan: Any) -> Lowered:
        space, names, columns = NameSpace(), {}, []
        attributes = list(items(plan.output()))
        for attribute in attributes:
            name = space.named(attribute)
            names[expression_id(attribute)] = name
            columns.append(_field(attribute, name))
        rows = tuple(tuple(self._write.value_texts(row, plan.schema())) for row in items(plan.data()))
        return Lowered(Values(rows, tuple(columns)), names)

    def _range(self, plan: Any) -> Lowered:
        attribute = next(items(plan.output()))
        name = NameSpace().named(attribute)
        names, column = {expression_id(attribute): name}, _field(attribute, name)
        count, start, step = int(str(plan.numElements())), int(plan.start()), int(plan.step())
        if count > _MOST_OF_RANGE:
            raise NotIncremental(
                "range", f"range({count} rows)", f"more than {_MOST_OF_RANGE} rows are not made up in one task"
            )
        if not count:
            return Lowered(Values((), (column,)), names)
        numbers = f"sequence({start}L, {start + (count - 1) * step}L, {step}L)"
        return Lowered(Generate(Values(((),), ()), f"explode({numbers})", False, (column,)), names)

    def _unionloop(self, plan: Any, _need_key: bool) -> Lowered:
        return self._values(rows_of_recursion(self._catalyst, plan))

    # -- linear nodes ---------------------------------------------------------------------------------------------

    def _project(self, plan: Any, need_key: bool) -> Lowered:
        expressions = list(items(plan.projectList()))
        below = plan.child()
        lower = {"Filter": self._filter, "Join": self._join}.get(class_name(below))
        # Where rows are kept for the time to come, they have the columns that are read.
        if lower is not None and self._catalyst.may_read_time(below):
            child = lower(below, need_key, set[int]().union(*map(references, expressions)))
        else:
            child = self._lower(below, need_key=need_key)
        child, expressions = self._times.flagged(self._with_subqueries(child, expressions), expressions)
        return self._named(child, expressions, need_key)

    def _named(self, child: Lowered, expressions: list[Any], need_key: bool) -> Lowered:
        """Project Catalyst's named expressions; where the key is needed, its lost columns go along hidden."""
        space, names, outputs = NameSpace(), {}, []
        for expression in expressions:
            name = space.named(expression)
            names[expression_id(expression)] = name
            value = expression.child() if class_name(expression) == "Alias" else expression
            outputs.append(NamedExpr(self._write.sql(value, child.names), _field(expression, name)))
        if need_key:
            carried = {e.sql for e in outputs}
            for column in child.node.stream_key or ():
                if quoted(column) not in carried:
                    field = child.node.field_named(column)
                    hidden = Field(space.unique(column), field.data_type, field.nullable)
                    outputs.append(NamedExpr(quoted(column), hidden))
        if [e.output.name for e in outputs] == list(child.node.column_names) and all(e.is_column for e in outputs):
            return Lowered(child.node, names)
        return Lowered(Project(child.node, tuple(outputs)), names)

    def _filter(self, plan: Any, need_key: bool, read: set[int] | None = None) -> Lowered:
        """A filter.

        ``read`` are the attributes that nodes above read; ``None`` for all of them.
        """
        condition = plan.condition()
        conditions = list(conjuncts(condition))
        child, remaining = self._filtered(plan.child(), conditions, need_key)
        joined, parts = self._equal_to_subqueries(child, remaining)
        others, temporal = split_temporal(self._catalyst, parts)
        if len(others) == len(conditions) and joined is child and not self._times.are_in(condition):
            others = [condition]
        extended = self._with_subqueries(joined, [*others, *(t.value for t in temporal)])
        timed, timeless = self._times.apart(others)
        # Times come above the other conditions: what those leave out need not be kept, nor what nobody reads.
        return self._times.passing(where(self._write, extended, timeless), child, timed, temporal, read)

    def _filtered(self, plan: Any, conditions: list[Any], need_key: bool) -> tuple[Lowered, list[Any]]:
        """The input of a filter, and its conditions that remain."""
        first = FirstRow.of(plan, conditions)
        if first is not None:
            read = [*items(plan.partitionSpec()), *items(plan.orderSpec())]
            rows = first.lowered(self._write, self._with_subqueries(self._lower(plan.child(), need_key=False), read))
            rows = rows or first.filtered(self._write, self._lower(plan, need_key=need_key))
            return rows, [c for c in conditions if c is not first.condition]
        return self._lower(plan, need_key=need_key), conditions

    def _with_subqueries(self, child: Lowered, expressions: list[Any]) -> Lowered:
        """Join the one row of each uncorrelated scalar subquery to every row of the child."""
        node, names = child.node, dict(child.names)
        for expression in expressions:
            for subquery in scalar_subqueries(self._catalyst, expression):
                number = expression_id(subquery)
                if number in names:
                    continue
                row, name = self._row_of(subquery, node)
                names[number] = name
                node = with_sides_in_place(Join(node, row, "inner" if has_one_row(row) else "left outer", ()))
        return child if node is child.node else Lowered(node, names)

    def _row_of(self, subquery: Any, outer: PlanNode) -> tuple[PlanNode, str]:
        """A scalar subquery as a relation of at most one row, with its column."""
        inner = self._lower(self._catalyst.simplify(subquery.plan()), need_key=True)
        value = inner.names[expression_id(subquery.plan().output().apply(0))]
        name = NameSpace(outer.column_names).unique(SUBQUERY)
        return at_most_one_row(inner.node, value, name), name

    def _equal_to_subqueries(self, child: Lowered, parts: list[Any]) -> tuple[Lowered, list[Any]]:
        """Inner joins for columns that equal scalar subqueries, and the other conditions."""
        rest = []
        for part in parts:
            sides = [part.left(), part.right()] if class_name(part) == "EqualTo" else []
            kinds = [class_name(side) for side in sides]
            if sorted(kinds) != ["AttributeReference", "ScalarSubquery"] or not reads_only(part, child):
                rest.append(part)
                continue
            column, subquery = sides if kinds[0] == "AttributeReference" else reversed(sides)
            row, name = self._row_of(subquery, child.node)
            key = JoinKey(child.names[expression_id(column)], name)
            joined = with_sides_in_place(Join(child.node, row, "inner", (key,)))
            child = Lowered(joined, {**child.names, expression_id(subquery): name})
        return child, rest

    def _union(self, plan: Any, need_key: bool) -> Lowered:
        attributes = list(items(plan.output()))
        space = NameSpace()
        names = {expression_id(a): space.named(a) for a in attributes}
        fields = [_field(a, names[expression_id(a)]) for a in attributes]
        branches = [self._lower(child, need_key=need_key) for child in items(plan.children())]
        selected = [
            [(quoted(b.names[expression_id(a)]), f) for a, f in zip(items(c.output()), fields, strict=True)]
            for b, c in zip(branches, items(plan.children()), strict=True)
        ]
        key: tuple[str, ...] | None = None
        if need_key and all(b.node.stream_key is not None for b in branches):
            key = branch_keys([b.node for b in branches], selected, space)
        inputs = tuple(
            Project(b.node, tuple(NamedExpr(sql, f) for sql, f in columns))
            for b, columns in zip(branches, selected, strict=True)
        )
        return Lowered(UnionAll(inputs, key), names)

    def _expand(self, plan: Any, need_key: bool) -> Lowered:
        child = self._lower(plan.child(), need_key=False)
        space = NameSpace()
        columns, names = [], {}
        for attribute in items(plan.output()):
            name = space.named(attribute)
            names[expression_id(attribute)] = name
            columns.append(_field(attribute, name))
        projections = tuple(
            tuple(self._write.sql(e, child.names) for e in items(projection)) for projection in items(plan.projections())
        )
        return Lowered(Expand(child.node, projections, tuple(columns)), names)

    def _generate(self, plan: Any, need_key: bool) -> Lowered:
        child = self._lower(plan.child(), need_key=False)
        space = NameSpace(child.node.column_names)
        names, generated = dict(child.names), []
        for attribute in items(plan.generatorOutput()):
            name = space.named(attribute)
            names[expression_id(attribute)] = name
            generated.append(_field(attribute, name))
        text = self._generator(plan.generator(), child.names)
        if bool(plan.outer()) and text.partition("(")[0].removesuffix("_outer") not in _WITH_OUTER_FORM:
            raise NotIncremental("outer-generator", text, "this generator has no outer form")
        return Lowered(Generate(child.node, text, bool(plan.outer()), tuple(generated)), names)

    def _generator(self, generator: Any, names: Mapping[int, str]) -> str:
        if class_name(generator) != "ReplicateRows":
            return self._write.sql(generator, names)
        # INTERSECT ALL and EXCEPT ALL: the row in the later columns, as often as the first says.
        times, *row = (self._write.sql(child, names) for child in items(generator.children()))
        return f"inline(array_repeat(struct({', '.join(row)}), CAST({times} AS INT)))"

    # -- joins ----------------------------------------------------------------------------------------------------

    def _join(self, plan: Any, need_key: bool, read: set[int] | None = None) -> Lowered:
        moved = pushed_below_join(self._catalyst, plan)
        if moved is not None:
            return self._lower(moved, need_key=need_key)
        needs_right = need_key and not is_one_sided(join_type_of(plan))
        left, right = self._lower(plan.left(), need_key=need_key), self._lower(plan.right(), need_key=needs_right)
        parts = conjuncts(plan.condition().get()) if plan.condition().isDefined() else []
        # The value of a scalar subquery goes along with every left row: it is one row, so no row is lost or doubled.
        left = self._with_subqueries(left, parts)
        timed: list[Any] = []
        temporal: list[TimeComparison] = []
        if join_type_of(plan) == "inner":
            # A condition of an inner join filters its pairs.
            others, temporal = split_temporal(self._catalyst, parts)
            timed, parts = self._times.apart(others)
        else:
            left, parts = self._times.flagged(left, parts, None)
            right, parts = self._times.flagged(right, parts, None)
        joined = self._joins.joined(plan, left, right, parts)
        return self._times.passing(joined, joined, timed, temporal, read)

    # -- aggregates -----------------------------------------------------------------------------------------------

    def _aggregate(self, plan: Any, need_key: bool) -> Lowered:
        pattern = self._catalyst.companion("org.apache.spark.sql.catalyst.planning.PhysicalAggregation").unapply(plan)
        if not pattern.isDefined():
            raise NotIncremental("aggregate", "Aggregate", "Spark cannot split it into groups and calls")
        parts = pattern.get()
        grouping, calls, results = list(items(parts._1())), list(items(parts._2())), list(items(parts._3()))
        check_python_aggregates(grouping, calls)
        child = self._lower(parts._4(), need_key=False)
        child, timed = self._times.flagged(self._with_subqueries(child, [*grouping, *calls]), [*grouping, *calls])
        grouping, calls = timed[: len(grouping)], timed[len(grouping) :]
        session = session_of(grouping)
        merged = None if session is None else merged_sessions(self._write, child, grouping, session)
        child = child if merged is None else merged.rows
        inputs = InputColumns(self._write, child)
        groups = GroupColumns(self._write, inputs)
        for expression in grouping:
            if merged is not None and expression is session:
                groups.columns.append(inputs.computed(quoted(merged.start), merged.data_type))
            else:
                groups.add(expression)
        names = groups.names
        computed = AggregateCalls(self._catalyst, self._write, inputs)
        for call in calls:
            names[expression_id(call.resultAttribute())] = computed.column(call)
        if merged is not None:
            names[expression_id(session)] = computed.session(merged, session)
        node: PlanNode = with_kinds(Aggregate(inputs.node(), tuple(groups.columns), tuple(computed.calls)))
        for above in (groups.maps, computed.means, computed.results):
            if above:
                node = with_columns(node, above)
        return self._named(self._with_subqueries(Lowered(node, names), results), results, need_key)

    # -- windows and limits ---------------------------------------------------------------------------------------

    def _window(self, plan: Any, need_key: bool) -> Lowered:
        _check_order(plan)
        read = [*items(plan.windowExpressions()), *items(plan.partitionSpec()), *items(plan.orderSpec())]
        child = self._with_subqueries(self._lower(plan.child(), need_key=need_key), read)
        space = NameSpace(child.node.column_names)
        inputs = InputColumns(self._write, child, keep=child.node.column_names)
        partition = tuple(dict.fromkeys(inputs.column(e, "_partition") for e in items(plan.partitionSpec())))
        order = tuple(SortKey(inputs.column(o.child(), "_order"), *_direction(o)) for o in items(plan.orderSpec()))
        names, outputs = dict(child.names), []
        for expression in items(plan.windowExpressions()):
            if class_name(expression) == "AttributeReference":
                continue  # a column of the input, that a correlated subquery is compared by
            name = space.named(expression)
            names[expression_id(expression)] = name
            outputs.append(
                NamedExpr(self._write.sql(self._as_node_has_it(expression, plan), child.names), _field(expression, name))
            )
        windows = [e for e in items(plan.windowExpressions()) if class_name(e) != "AttributeReference"]
        reach = reach_of(self._catalyst, [e.child() for e in windows]) if windows else None
        latest = None
        if reach is not None:
            of_node = [self._as_node_has_it(e, plan) for e in windows]
            latest = latest_rows_of(self._catalyst, self._write, of_node, child.names, partition, order, reach)
        return Lowered(Window(with_map_keys(inputs.node()), partition, order, tuple(outputs), reach, latest), names)

    def _as_node_has_it(self, expression: Any, plan: Any) -> Any:
        """A window expression with its node's partition and order.

        In a correlated subquery Spark changes these alone.
        """
        function, specification = items(expression.child().children())
        of_node = specification.copy(plan.partitionSpec(), plan.orderSpec(), specification.frameSpecification())
        return expression.child().withNewChildren(self._catalyst.trees.seq([function, of_node]))

    def _globallimit(self, plan: Any, need_key: bool) -> Lowered:
        return self._limit(plan, need_key)

    def _locallimit(self, plan: Any, need_key: bool) -> Lowered:
        return self._limit(plan, need_key)

    def _offset(self, plan: Any, need_key: bool) -> Lowered:
        return self._limit(plan, need_key)

    def _limit(self, plan: Any, need_key: bool) -> Lowered:
        limit: int | None = None
        offset = 0
        while class_name(plan) in ("GlobalLimit", "LocalLimit", "Offset", *_PASS_THROUGH):
            kind = class_name(plan)
            if kind == "Offset":
                offset = int(plan.offsetExpr().eval(None))
            elif kind == "GlobalLimit":
                # Under an OFFSET the limit counts the skipped rows as well.
                limit = int(plan.limitExpr().eval(None)) - offset
            plan = plan.child()
        return self._first_rows(plan, limit, offset, need_key)

    def _first_rows(self, plan: Any, limit: int | None, offset: int, need_key: bool) -> Lowered:
        if class_name(plan) == "Project" and class_name(plan.child()) == "Sort":
            # SELECT drops a column that ORDER BY needs: take the first rows below the projection.
            rows = self._first_rows(plan.child(), limit, offset, need_key)
            expressions = list(items(plan.projectList()))
            return self._named(self._with_subqueries(rows, expressions), expressions, need_key)
        order: list[Any] = []
        if class_name(plan) == "Sort":
            order = list(items(plan.order()))
            plan = plan.child()
        child = self._lower(plan, need_key=True)
        inputs = InputColumns(self._write, child, keep=child.node.column_names)
        keys = tuple(SortKey(inputs.column(o.child(), "_sort"), *_direction(o)) for o in order)
        keeps_first = limit is not None and limit + offset <= tuning().kept_limit_rows
        return Lowered(TopN(with_map_keys(inputs.node()), keys, limit, offset, keeps_first), child.names)

    def _sample(self, plan: Any, need_key: bool) -> Lowered:
        raise NotIncremental("non-deterministic", "TABLESAMPLE", "it draws other rows in each run")

    def _sort(self, plan: Any, need_key: bool) -> Lowered:
        # An ORDER BY below the root orders nothing that a reader could see.
        return self._lower(plan.child(), need_key=need_key)


#: Generators that give a row of NULLs for a row they generate nothing for.
_WITH_OUTER_FORM = frozenset({"explode", "posexplode", "inline", "variant_explode"})


def _field(named: Any, name: str) -> Field:
    return Field(name, type_ddl(named.dataType()), bool(named.nullable()))


def _direction(order: Any) -> tuple[bool, bool]:
    descending = class_name(order.direction()) == "Descending"
    return descending, class_name(order.nullOrdering()) == "NullsLast"


def _check_order(window: Any) -> None:
    """Refuse a row number in no order.

    Spark makes it of LIMIT in a correlated subquery.
    """
    numbers = [e for e in items(window.windowExpressions()) if is_row_number(e)]
    if numbers and not window.orderSpec().size():
        raise NotIncremental(
            "unordered",
            "LIMIT in a correlated subquery",
            "it has no ORDER BY, or sorts by a column that it does not select, so Spark takes any of the rows; select that "
            "column too",
        )


def _check_output_names(output: tuple[OutputColumn, ...]) -> None:
    seen: dict[str, str] = {}
    for column in output:
        if column.name.lower() in seen:
            raise PlanError(f"the view has two columns named {column.name}; give one of them another alias")
        if column.name.lower() in HIDDEN_COLUMNS:
            raise PlanError(f"the view has a column {column.name}, a name that change sets use; give it another alias")
        seen[column.name.lower()] = column.name
