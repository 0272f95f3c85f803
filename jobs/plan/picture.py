"""A plan as an SVG: boxes with state tables, and edges with rows.

Of an epoch it also has how many rows flowed along an edge, and how many were written to a state table.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from relstate_dagster.jobs.plan.distribution import exchanges
from relstate_dagster.jobs.plan.epoch_rows import EpochRows, Flow
from relstate_dagster.jobs.plan.explain import NodeTables, cost, headline, state_of
from relstate_dagster.jobs.plan.nodes import PlanNode, walk

_LETTERS: Final = 38
_LETTER: Final = 6.7
_LINE: Final = 15
_PADDING: Final = 10
_WIDTH: Final = round(_LETTERS * _LETTER) + 2 * _PADDING
_GAP: Final = 24
_LEVEL: Final = 44
#: Of a text that is longer, the end is left out: the text of the plan has it.
_MOST_LINES: Final = 6

_STYLE: Final = """
.page { fill: #ffffff }
text { font: 11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #1f2328 }
.kind { font-weight: 700 }
.less { fill: #59636e }
.node { fill: #f6f8fa; stroke: #59636e }
.leaf { fill: #ddf4ff; stroke: #0969da }
.root { fill: #dafbe1; stroke: #1a7f37 }
.state { fill: #fff8c5; stroke: #9a6700 }
path { fill: none; stroke: #59636e; marker-end: url(#up) }
marker path { fill: #59636e; stroke: none; marker-end: none }
.beside { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
.exchange { stroke-dasharray: 4 3 }
.still { opacity: .4 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117 } .beside { stroke: #0d1117 }
  text { fill: #f0f6fc } .less { fill: #9198a1 } path { stroke: #9198a1 }
  .node { fill: #212830; stroke: #9198a1 } .leaf { fill: #121d2f; stroke: #4493f8 }
  .root { fill: #12261e; stroke: #3fb950 } .state { fill: #272215; stroke: #d29922 }
}
"""


@dataclass
class _Box:
    """A node of the picture: where it is, in pixels, and what is in it."""

    node: PlanNode
    depth: int
    lines: list[tuple[str, str]]
    state: list[str]
    below: list[_Box] = field(default_factory=list)
    exchange: list[str | None] = field(default_factory=list)
    flow: Flow | None = None
    x: float = 0.0
    y: float = 0.0

    @property
    def height(self) -> int:
        return 2 * _PADDING + _LINE * (len(self.lines) + len(self.state)) + (4 if self.state else 0)


def plan_svg(
    root: PlanNode,
    tables: NodeTables | None = None,
    rows: EpochRows | None = None,
) -> str:
    """The picture of a plan, as the text of an SVG file.

    Parameters
    ----------
    tables : the state tables of the view, with their ids; without them their ids are left out.
    rows : those that went along its edges in an epoch, and into its state tables.
    """
    flows = rows.by_node(root) if rows else {}
    written = rows.written if rows else {}
    labels = {node: list(_state_lines(node, tables, written)) for node in walk(root)}
    top = _boxed(root, 0, labels, flows, set())
    if rows:
        top.lines.append(("less", f"rows of epoch {rows.epoch}"))
    boxes = list(_all(top))
    width = _placed(top, 0.0)
    if any(box.flow or any(box.exchange) for box in boxes):
        width += _WIDTH / 2  # what is written beside the last edge
    heights = [max(box.height for box in boxes if box.depth == depth) for depth in range(max(b.depth for b in boxes) + 1)]
    for box in boxes:
        box.y = _PADDING + sum(heights[: box.depth]) + _LEVEL * box.depth
    height = 2 * _PADDING + sum(heights) + _LEVEL * (len(heights) - 1)
    drawn = [*(edge for box in boxes for edge in _edges(box)), *(part for box in boxes for part in _drawn(box))]
    size = f'width="{width + 2 * _PADDING:.0f}" height="{height}" viewBox="0 0 {width + 2 * _PADDING:.0f} {height}"'
    arrow = '<marker id="up" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', f"<style>{_STYLE}</style>"]
    defs = f'<defs>{arrow}<path d="M0 0 L8 4 L0 8 z"/></marker></defs><rect class="page" width="100%" height="100%"/>'
    return "\n".join([*head, defs, *drawn, "</svg>", ""])


def _boxed(
    node: PlanNode,
    depth: int,
    labels: Mapping[PlanNode, list[str]],
    flows: Mapping[PlanNode, Flow],
    seen: set[PlanNode],
) -> _Box:
    kind, _, rest = headline(node).partition(" ")
    if node in seen and node.children:
        return _Box(node, depth, [("kind", kind), ("less", "as beside, maintained once")], [], flow=flows.get(node))
    seen.add(node)
    wrapped = textwrap.wrap(rest, _LETTERS, break_on_hyphens=False)
    if len(wrapped) > _MOST_LINES:
        wrapped = [*wrapped[: _MOST_LINES - 1], f"{wrapped[_MOST_LINES - 1][: _LETTERS - 2]} …"]
    costs = textwrap.wrap(f"cost {cost(node)}", _LETTERS)
    lines = [("kind", kind), *(("", line) for line in wrapped), *(("less", line) for line in costs)]
    box = _Box(node, depth, lines, labels[node], flow=flows.get(node))
    for child, exchange in zip(node.children, exchanges(node), strict=True):
        box.below.append(_boxed(child, depth + 1, labels, flows, seen))
        box.exchange.append(None if exchange is None else f"Exchange {exchange.text}")
    return box


def _state_lines(node: PlanNode, tables: NodeTables | None, written: Mapping[int, int]) -> Iterator[str]:
    for schema, desc in state_of(node, tables):
        number = "" if desc is None else f"{desc.table_id}: "
        rows = 0 if desc is None else written.get(desc.table_id, 0)
        more = f", {rows:,} written" if rows else ""
        yield textwrap.shorten(f"{number}{schema.label}, {schema.kind.value}", _LETTERS - len(more), placeholder=" …") + more


def _all(box: _Box) -> Iterator[_Box]:
    yield box
    for child in box.below:
        yield from _all(child)


def _placed(box: _Box, left: float) -> float:
    """Place a box over those below it, from a left border on; the right border."""
    right = left
    for child in box.below:
        right = _placed(child, right) + _GAP
    right = max(right - _GAP, left + _WIDTH)
    box.x = _PADDING + ((box.below[0].x + box.below[-1].x) / 2 - _PADDING if box.below else left)
    return right


def _edges(box: _Box) -> Iterator[str]:
    for child, exchange in zip(box.below, box.exchange, strict=True):
        x, y = child.x + _WIDTH / 2, child.y
        to_x, to_y = box.x + _WIDTH / 2, box.y + box.height
        half = (y + to_y) / 2
        styles = " ".join([*(["exchange"] if exchange else []), *(["still"] if child.flow == (0, 0) else [])])
        style = f' class="{styles}"' if styles else ""
        yield f'<path{style} d="M{x:.0f} {y:.0f} C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}"/>'
        beside = [("beside", _flow_text(*child.flow))] if child.flow else []
        beside += [("less beside", textwrap.shorten(exchange, _LETTERS, placeholder=" …"))] if exchange else []
        for n, (style, text) in enumerate(beside):
            yield f'<text class="{style}" x="{x + 6:.0f}" y="{y - 8 - _LINE * n:.0f}">{escape(text)}</text>'


def _flow_text(inserted: int, deleted: int) -> str:
    parts = [f"{sign}{rows:,}" for sign, rows in (("+", inserted), ("−", deleted)) if rows]
    return f"{' '.join(parts)} {'row' if inserted + deleted == 1 else 'rows'}" if parts else "no rows"


def _drawn(box: _Box) -> Iterator[str]:
    style = "root" if box.depth == 0 else "node" if box.node.children else "leaf"
    yield f"<g><title>{escape(headline(box.node))}</title>"
    yield f'<rect class="{style}" x="{box.x:.0f}" y="{box.y:.0f}" width="{_WIDTH}" height="{box.height}" rx="6"/>'
    y = box.y + _PADDING + 11
    for style, line in box.lines:
        yield f'<text class="{style}" x="{box.x + _PADDING:.0f}" y="{y:.0f}">{escape(line)}</text>'
        y += _LINE
    for line in box.state:
        yield f'<rect class="state" x="{box.x + 5:.0f}" y="{y - 9:.0f}" width="{_WIDTH - 10}" height="{_LINE - 2}" rx="3"/>'
        yield f'<text x="{box.x + _PADDING:.0f}" y="{y + 2:.0f}">{escape(line)}</text>'
        y += _LINE
    yield "</g>"
