"""Backwards through a plan: from rows of a node to rows of its inputs.

=========================  ============================================================================================
node                       rows of the input
=========================  ============================================================================================
Filter, Project, Expand,   the row that it is computed from
Generate, Arrange
UnionAll                   the row, in the input that it came from
Join                       the row of each side; of a side that matched nothing, none
semi join, EXISTS          the left row, and all rows of the right side that match it
anti join                  the left row
Aggregate                  all rows of the group
Window                     all rows of the partition
TopN                       the row; after an OFFSET also the rows that are passed over
a query run in full        all rows of all that it reads
=========================  ============================================================================================

A row of an anti join, or one that an outer join fills up with NULLs, is there because something is not. What matched it at the
other epoch that it is compared with is found as well (``blockers``): it is what came or went in between. So are, of a row that
is not there at the other epoch, the rows that a filter leaves out there, and those that a LIMIT picks instead.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pyspark.sql import functions as F

from relstate_dagster.jobs.inspect.why.plan_rows import Part, PlanRows, rows_of
from relstate_dagster.jobs.inspect.why.view_at import ViewAt
from relstate_dagster.jobs.inspect.why.wanted import Wanted, same_rows
from relstate_dagster.jobs.operators.row_rules import joined, rows_by_rule
from relstate_dagster.jobs.operators.z_sets import columns_of
from relstate_dagster.jobs.plan.nodes import (
    Aggregate,
    Filter,
    FullQuery,
    Join,
    PlanNode,
    Scan,
    TemporalFilter,
    TopN,
    UnionAll,
    Values,
    Window,
    relations_read,
)

#: The views through which a relation is read, and the relation itself.
Path: TypeAlias = tuple[str, ...]


@dataclass
class Found:
    """Contributing rows of one relation.

    Parameters
    ----------
    reader : the view that reads it.
    wanted : its rows, by their identity; ``None`` where it is all of them.
    """

    reader: ViewAt
    wanted: list[Wanted] | None = field(default_factory=list)

    def add(self, rows: Wanted | None) -> None:
        """Note that some rows contribute, or all."""
        if rows is None or self.wanted is None:
            self.wanted = None
        else:
            self.wanted.append(rows)

    def united(self) -> Wanted | None:
        """The rows that contribute; ``None`` where all do."""
        if self.wanted is None:
            return None
        if len(self.wanted) == 1:
            return self.wanted[0]
        frame = self.wanted[0].frame
        for other in self.wanted[1:]:
            frame = frame.union(other.frame.select(*frame.columns))
        return Wanted.of(frame)


@dataclass
class Contributions:
    """Rows of relations that make rows of a view, with remarks."""

    found: dict[Path, Found] = field(default_factory=dict)
    notes: dict[Path, dict[str, None]] = field(default_factory=dict)

    def at(self, path: Path, reader: ViewAt) -> Found:
        """Contributing rows of a relation."""
        return self.found.setdefault(path, Found(reader))

    def note(self, path: Path, text: str) -> None:
        """Say something of a relation, once."""
        self.notes.setdefault(path, {})[text] = None


@dataclass
class Lineage:
    """Traces rows of one view.

    Parameters
    ----------
    other : the view as of the epoch that this one is compared with; ``None`` where there is none.
    path : the views through which it is read, itself included.
    contributions : what is found.
    blockers : the rows found at the other epoch that keep others away; ``None`` where they are not asked for.
    is_alone : whether the row is not there at the other epoch.
    """

    view: ViewAt
    other: ViewAt | None
    path: Path
    contributions: Contributions
    blockers: Contributions | None
    is_alone: bool = False

    @property
    def rows(self) -> PlanRows:
        """The rows of the view's plan."""
        return rows_of(self.view)

    def trace(self, node: PlanNode, wanted: Wanted | None) -> None:  # noqa: C901 - one case a kind of node
        """Find the input rows of a node's rows, given by identity.

        Of all of its rows without one.
        """
        if wanted is None:
            self._all(node)
        elif wanted.is_empty or isinstance(node, Values):
            return
        elif isinstance(node, Scan):
            self._scan(node, wanted)
        elif isinstance(node, FullQuery):
            self._note_below(node, f"{self.view.entry.name} is recomputed in full, so all rows are taken for it")
            self._all(node)
        elif isinstance(node, UnionAll):
            for child, part in zip(node.inputs, self.rows.parts(node), strict=True):
                self.trace(child, self._of_part(wanted, part))
        elif isinstance(node, Join):
            self._join(node, wanted)
        elif isinstance(node, Aggregate):
            self.trace(node.child, self._grouped(node, wanted))
        elif isinstance(node, Window):
            self.trace(node.child, self._partitions(node, wanted))
        elif isinstance(node, TopN):
            self.trace(node.child, self._with_passed_over(node, wanted))
        elif isinstance(node, Filter | TemporalFilter):
            self._left_out_there(node, wanted)
            self.trace(node.child, wanted)
        else:
            (child,) = node.children
            self.trace(child, wanted)

    def _all(self, node: PlanNode) -> None:
        for name in relations_read(node):
            path = (*self.path, name)
            self.contributions.at(path, self.view).add(None)
            if self.view.is_view(name):
                below = self._below(name)
                below.trace(below.view.entry.plan, None)

    def _below(self, name: str) -> Lineage:
        other = None if self.other is None else self.other.upstream(name)
        return Lineage(self.view.upstream(name), other, (*self.path, name), self.contributions, self.blockers, self.is_alone)

    def _scan(self, node: Scan, wanted: Wanted) -> None:
        (part,) = self.rows.parts(node)
        rows = wanted.renamed(part.identity)
        self.contributions.at((*self.path, node.relation), self.view).add(rows)
        if self.view.is_view(node.relation):
            below = self._below(node.relation)
            below.trace(below.view.entry.plan, rows)

    @staticmethod
    def _of_part(wanted: Wanted, part: Part) -> Wanted:
        return (wanted if part.flag is None else wanted.where(part.flag, part.value)).renamed(part.identity)

    def _grouped(self, node: Aggregate, wanted: Wanted) -> Wanted | None:
        child = self.rows.of(node.child)
        if not node.group:
            return Wanted.of(child.frame.select(*child.identity))
        names = self.rows.of(node).identity
        return Wanted.of(same_rows(child.frame, columns_of(node.group), wanted, names).select(*child.identity))

    def _partitions(self, node: Window, wanted: Wanted) -> Wanted:
        child = self.rows.of(node.child)
        if not node.partition:
            return Wanted.of(child.frame.select(*child.identity))
        partition = columns_of(node.partition)
        names = [self.view.past.fresh_name() for _ in partition]
        own = same_rows(child.frame, child.identity, wanted)
        found = Wanted.of(own.select(*(F.col(c).alias(n) for n, c in zip(names, partition, strict=True))))
        return Wanted.of(same_rows(child.frame, partition, found, names).select(*child.identity))

    def _with_passed_over(self, node: TopN, wanted: Wanted) -> Wanted:
        self._note_below(node, "LIMIT picks among all rows: others decide as well whether these are picked")
        if self.other is not None and self.blockers is not None and self.is_alone:
            there = rows_of(self.other).of(node)
            self._keeping_away(self.blockers, self.other, node, Wanted.of(there.frame.select(*there.identity)))
        if not node.offset:
            return wanted
        child = self.rows.of(node.child)
        first = rows_by_rule(replace(node, limit=node.offset, offset=0), [child.frame], ()).select(*child.identity)
        return Wanted.of(first.union(wanted.frame.select(*child.identity)))

    def _left_out_there(self, node: Filter | TemporalFilter, wanted: Wanted) -> None:
        """Rows that pass a filter here, and not at the other epoch."""
        if self.other is None or self.blockers is None or not self.is_alone:
            return
        there, here = rows_of(self.other).of(node.child), self.rows.of(node.child)
        frame = there.frame.where(f"NOT coalesce(({rows_of(self.other).condition(node)}), false)")
        left_out = same_rows(frame, there.identity, wanted, here.identity).select(*there.identity)
        self._keeping_away(self.blockers, self.other, node.child, Wanted.of(left_out))

    def _keeping_away(self, blockers: Contributions, other: ViewAt, node: PlanNode, rows: Wanted) -> None:
        Lineage(other, None, self.path, blockers, None).trace(node, rows)

    # -- joins ----------------------------------------------------------------------------------------------------

    def _join(self, node: Join, wanted: Wanted) -> None:
        if not node.keeps_right_columns:
            self.trace(node.left, wanted)
            self._one_sided(node, wanted)
            return
        left, right = self.rows.parts(node)
        of_left, of_right = self._of_part(wanted, left), self._of_part(wanted, right)
        self.trace(node.left, of_left)
        self.trace(node.right, of_right)
        assert left.flag is not None
        assert right.flag is not None
        if node.join_type in ("left outer", "full outer"):
            self._unmatched(node, wanted.where(right.flag, None).renamed(left.identity), is_left=True)
        if node.join_type in ("right outer", "full outer"):
            self._unmatched(node, wanted.where(left.flag, None).renamed(right.identity), is_left=False)

    def _one_sided(self, node: Join, wanted: Wanted) -> None:
        if node.join_type == "left anti":
            self._unmatched(node, wanted, is_left=True)
            return
        left = self.rows.of(node.left)
        right, part = self.rows.side(node.right)
        own = same_rows(left.frame, left.identity, wanted)
        pairs = joined(node, own, right.frame, "inner")
        self.trace(node.right, Wanted.of(pairs.select(*part.identity)).renamed(part.identity))
        if node.join_type == "existence":
            alone = joined(node, own, right.frame, "left_anti").select(*left.identity)
            self._unmatched(node, Wanted.of(alone), is_left=True)

    def _unmatched(self, node: Join, wanted: Wanted, *, is_left: bool) -> None:
        """Rows of one side without a match: their matches at the other epoch."""
        if wanted.is_empty:
            return
        own, missing = (node.left, node.right) if is_left else (node.right, node.left)
        self._note_below(missing, "no row matches")
        if self.other is None or self.blockers is None:
            return
        rows = self.rows.of(own)
        here = same_rows(rows.frame, rows.identity, wanted).select(*columns_of(own.column_names))
        there, part = rows_of(self.other).side(missing)
        sides = (here, there.frame) if is_left else (there.frame, here)
        pairs = joined(node, *sides, "inner")
        matched = Wanted.of(pairs.select(*part.identity)).renamed(part.identity)
        self._keeping_away(self.blockers, self.other, missing, matched)

    def _note_below(self, node: PlanNode, text: str) -> None:
        for name in relations_read(node):
            self.contributions.note((*self.path, name), text)
