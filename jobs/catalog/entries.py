"""What the catalog remembers, as plain values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from jobs.catalog.costs import Costs
from jobs.declare.model import PUBLISH_ON_CHANGE
from jobs.planner.nodes import Materialize
from jobs.planner.serialize import plan_from_dict, plan_to_dict
from jobs.sources.delta_source import Pin
from state_lib.constants import FORMAT_VERSION
from state_lib.table_catalog import desc_from_dict, desc_to_dict
from state_lib.table_schema import StateTableDesc


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """A registered source: where it lies, its key, whether the warehouse made it, and the columns it has an index by."""

    name: str
    path: str
    primary_key: tuple[str, ...] = ()
    append_only: bool = False
    managed: bool = False
    indexes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlainView:
    """A view that is inlined where it is used."""

    name: str
    query: str


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How a view's published table is laid out: ``CLUSTER BY`` and ``PARTITIONED BY`` columns, and comments of columns."""

    cluster_by: tuple[str, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    column_comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a view was left behind: the epoch that it could not reach (``None``: it was not begun) and the reason.

    ``pins`` are the versions of its sources at that try, as :attr:`Pin.identity`: the same ones give the same error again.
    """

    reason: str
    epoch: int | None = None
    pins: Mapping[str, str] = field(default_factory=dict)


def new_generation() -> str:
    """A name for a life of a view's state that no other ever had: dropped, restored and rebuilt views never share a folder."""
    return f"g{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A materialized view and how far it has come.

    ``epochs`` are those it has reached, newest last; ``settings`` the session settings its plan depends on. ``planned_on``
    is a digest of the relations that it was planned on: it is planned again before a backfill on others. ``inlined`` are the
    plain views that its query reads, as they were then, each after those that it reads.
    ``generation`` names a life of the state, from one backfill to the next. ``merged_rows`` has the rows of
    each state table when it was last compacted, by table id. ``functions`` are the user's own that the query calls.
    ``costs`` is what its epochs have cost, where that may decide how the next one is computed. ``layout`` is how the
    published table is laid out. ``problem`` is why it was left behind by the last run that tried.
    """

    name: str
    query: str
    strategy: str
    reason: str | None
    plan: Materialize | None
    tables: tuple[StateTableDesc, ...]
    reads: tuple[str, ...]
    settings: Mapping[str, str]
    generation: str = field(default_factory=new_generation)
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    epochs: tuple[int, ...] = ()
    merged_rows: Mapping[str, int] = field(default_factory=dict)
    functions: tuple[str, ...] = ()
    costs: Costs = field(default_factory=Costs)
    planned_on: str = ""
    inlined: Mapping[str, str] = field(default_factory=dict)
    layout: TableLayout = field(default_factory=TableLayout)
    problem: Problem | None = None

    @property
    def last_epoch(self) -> int | None:
        """The newest epoch that the view has reached; ``None`` before its backfill."""
        return self.epochs[-1] if self.epochs else None

    @property
    def refresh_policy(self) -> str:
        """``auto`` (the default), ``incremental`` or ``full``."""
        return self.properties.get("refresh.policy", "auto")

    @property
    def restores_published(self) -> bool:
        """Whether runs put the published table back where somebody else has changed its rows."""
        return self.properties.get(PUBLISH_ON_CHANGE) == "restore"

    def reached(self, epoch: int, *, keep: int = 32) -> ViewEntry:
        """The entry after one more epoch."""
        return replace(self, epochs=(*self.epochs, epoch)[-keep:], problem=None)

    def restarted(self) -> ViewEntry:
        """The entry before a backfill, in a generation of its own."""
        return replace(self, epochs=(), generation=new_generation(), merged_rows={}, problem=None)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The commit of a table that the catalog has recorded: its version and its digest; ``None`` before the first."""

    version: int | None = None
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ViewVersions:
    """The Delta versions of a view's state and of its published table at an epoch; ``None`` before the first.

    ``digest`` names the state commit, and ``published`` the one whose change set was published last (a commit without changes
    of the view publishes none); both are in the commits themselves, so that another commit of the same number is noticed.
    """

    state_version: int | None = None
    view_version: int | None = None
    digest: str = ""
    published: str = ""

    @property
    def state_commit(self) -> Recorded:
        """The commit of the state."""
        return Recorded(self.state_version, self.digest)

    @property
    def published_commit(self) -> Recorded:
        """The commit of the published table."""
        return Recorded(self.view_version, self.published)


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """An epoch: the pinned sources, the views that take part, and, once complete, their versions.

    ``instant`` is what ``now()`` means in all of them; ``None`` for an epoch of before there were such. ``anew`` are views that
    ``auto`` has computed anew, with the reason.
    """

    epoch: int
    pins: Mapping[str, Pin]
    views: tuple[str, ...]
    run_id: str
    complete: bool = False
    versions: Mapping[str, ViewVersions] = field(default_factory=dict)
    instant: datetime | None = None
    anew: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CatalogState:
    """Everything the catalog holds, as of one of its versions.

    ``views`` are what readers see. ``rebuilds`` are views that are to be built again, each beside the one that readers see
    until it is complete. ``garbage`` are folders of what was dropped, with the id of the table in each, until they are deleted.
    """

    version: int = -1
    format_version: int = FORMAT_VERSION
    next_table_id: int = 1
    next_epoch: int = 1
    sources: Mapping[str, SourceEntry] = field(default_factory=dict)
    plain_views: Mapping[str, PlainView] = field(default_factory=dict)
    views: Mapping[str, ViewEntry] = field(default_factory=dict)
    epochs: Mapping[int, EpochEntry] = field(default_factory=dict)
    rebuilds: Mapping[str, ViewEntry] = field(default_factory=dict)
    garbage: Mapping[str, str] = field(default_factory=dict)

    @property
    def running_epoch(self) -> EpochEntry | None:
        """The epoch that has begun and is not complete, if any."""
        return next((e for e in self.epochs.values() if not e.complete), None)

    @property
    def last_pins(self) -> dict[str, Pin]:
        """The newest pin of each source."""
        pins: dict[str, Pin] = {}
        for epoch in sorted(self.epochs):
            pins.update(self.epochs[epoch].pins)
        return pins

    def versions_at(self, view: str) -> ViewVersions | None:
        """The versions of a view at the newest epoch it has reached."""
        last = self.views[view].last_epoch
        return None if last is None else self.epochs[last].versions.get(view)

    @property
    def working(self) -> CatalogState:
        """The state as a run sees it: views that are to be rebuilt are at their beginning."""
        return replace(self, views={**self.views, **self.rebuilds})

    def with_view(self, view: ViewEntry) -> CatalogState:
        """The state with a view added or replaced."""
        return replace(self, views={**self.views, view.name: view})

    def with_rebuild(self, view: ViewEntry) -> CatalogState:
        """The state with a view that is to be built again; one that readers do not see yet is simply replaced."""
        if self.views[view.name].last_epoch is None:
            return self.with_view(view)
        return replace(self, rebuilds={**self.rebuilds, view.name: view})

    def with_problem(self, name: str, problem: Problem | None) -> CatalogState:
        """The state with the reason for which a view was left behind."""
        return replace(self, views={**self.views, name: replace(self.views[name], problem=problem)})

    def with_source(self, source: SourceEntry) -> CatalogState:
        """The state with a source added or replaced."""
        return replace(self, sources={**self.sources, source.name: source})

    def with_plain_view(self, view: PlainView) -> CatalogState:
        """The state with a plain view added or replaced."""
        return replace(self, plain_views={**self.plain_views, view.name: view})

    def without(self, name: str) -> CatalogState:
        """The state without a source, view or plain view of that name."""
        return replace(
            self,
            sources={k: v for k, v in self.sources.items() if k != name},
            views={k: v for k, v in self.views.items() if k != name},
            plain_views={k: v for k, v in self.plain_views.items() if k != name},
            rebuilds={k: v for k, v in self.rebuilds.items() if k != name},
        )

    def with_epoch(self, epoch: EpochEntry) -> CatalogState:
        """The state with an epoch added or replaced; epochs that nothing refers to any more are forgotten."""
        epochs = {**self.epochs, epoch.epoch: epoch}
        needed = {e for v in self.views.values() for e in v.epochs} | {epoch.epoch}
        newest = max(epochs)
        kept = {n: e for n, e in epochs.items() if n in needed or n == newest}
        return replace(self, epochs=kept, next_epoch=max(self.next_epoch, epoch.epoch + 1))

    def dependents(self, name: str) -> list[str]:
        """Views and plain views that read a source or view directly."""
        return sorted(v.name for v in self.views.values() if name in v.reads)


def to_rows(state: CatalogState) -> list[tuple[str, str, dict[str, Any]]]:
    """The state as (kind, name, payload) rows."""
    rows: list[tuple[str, str, dict[str, Any]]] = [
        (
            "warehouse",
            "",
            {
                "version": state.version,
                "format_version": state.format_version,
                "next_table_id": state.next_table_id,
                "next_epoch": state.next_epoch,
                **({"garbage": dict(state.garbage)} if state.garbage else {}),
            },
        )
    ]
    rows += [("source", s.name, asdict(s)) for s in state.sources.values()]
    rows += [("plain view", v.name, asdict(v)) for v in state.plain_views.values()]
    rows += [("view", v.name, _view_payload(v)) for v in state.views.values()]
    rows += [("rebuild", v.name, _view_payload(v)) for v in state.rebuilds.values()]
    rows += [("epoch", str(e.epoch), _epoch_payload(e)) for e in state.epochs.values()]
    return rows


def from_rows(version: int, rows: list[tuple[str, str, dict[str, Any]]]) -> CatalogState:
    """The state that :func:`to_rows` wrote."""
    of_kind: dict[str, list[dict[str, Any]]] = {}
    for kind, _, payload in rows:
        of_kind.setdefault(kind, []).append(payload)
    (warehouse,) = of_kind["warehouse"]
    return CatalogState(
        version,
        warehouse["format_version"],
        warehouse["next_table_id"],
        warehouse["next_epoch"],
        {p["name"]: _source(p) for p in of_kind.get("source", [])},
        {p["name"]: PlainView(**p) for p in of_kind.get("plain view", [])},
        {p["name"]: _view(p) for p in of_kind.get("view", [])},
        {p["epoch"]: _epoch(p) for p in of_kind.get("epoch", [])},
        {p["name"]: _view(p) for p in of_kind.get("rebuild", [])},
        warehouse.get("garbage", {}),
    )


def _source(payload: dict[str, Any]) -> SourceEntry:
    return SourceEntry(
        **{**payload, "primary_key": tuple(payload["primary_key"]), "indexes": tuple(payload.get("indexes", ()))}
    )


def _view_payload(view: ViewEntry) -> dict[str, Any]:
    return {
        "name": view.name,
        "query": view.query,
        "strategy": view.strategy,
        "reason": view.reason,
        "plan": None if view.plan is None else plan_to_dict(view.plan),
        "tables": [desc_to_dict(t) for t in view.tables],
        "reads": list(view.reads),
        "settings": dict(view.settings),
        "generation": view.generation,
        "comment": view.comment,
        "properties": dict(view.properties),
        "epochs": list(view.epochs),
        "merged_rows": dict(view.merged_rows),
        **({"functions": list(view.functions)} if view.functions else {}),
        **({"costs": view.costs.to_dict()} if view.costs != Costs() else {}),
        "planned_on": view.planned_on,
        # As pairs: their order says which is read by which, and the keys of a JSON object are sorted.
        **({"inlined": list(view.inlined.items())} if view.inlined else {}),
        **({"layout": asdict(view.layout)} if view.layout != TableLayout() else {}),
        **({"problem": asdict(view.problem)} if view.problem is not None else {}),
    }


def _view(payload: dict[str, Any]) -> ViewEntry:
    plan = payload["plan"]
    restored = None if plan is None else plan_from_dict(plan)
    if restored is not None and not isinstance(restored, Materialize):
        raise TypeError(f"the stored plan of {payload['name']} has no materialization at its root")
    return ViewEntry(
        **{
            **payload,
            "plan": restored,
            "tables": tuple(desc_from_dict(t) for t in payload["tables"]),
            "reads": tuple(payload["reads"]),
            "epochs": tuple(payload["epochs"]),
            "functions": tuple(payload.get("functions", ())),
            "costs": Costs.from_dict(payload.get("costs", {})),
            "layout": _layout(payload.get("layout", {})),
            "inlined": dict(payload.get("inlined", ())),
            "problem": None if payload.get("problem") is None else Problem(**payload["problem"]),
        }
    )


def _layout(payload: dict[str, Any]) -> TableLayout:
    return TableLayout(
        tuple(payload.get("cluster_by", ())), tuple(payload.get("partitioned_by", ())), payload.get("column_comments", {})
    )


def _epoch_payload(epoch: EpochEntry) -> dict[str, Any]:
    return {
        "epoch": epoch.epoch,
        "pins": {name: pin.to_dict() for name, pin in epoch.pins.items()},
        "views": list(epoch.views),
        "run_id": epoch.run_id,
        "complete": epoch.complete,
        "versions": {name: asdict(v) for name, v in epoch.versions.items()},
        "instant": None if epoch.instant is None else epoch.instant.isoformat(),
        **({"anew": dict(epoch.anew)} if epoch.anew else {}),
    }


def _epoch(payload: dict[str, Any]) -> EpochEntry:
    instant = payload.get("instant")
    return EpochEntry(
        payload["epoch"],
        {name: Pin.from_dict(pin) for name, pin in payload["pins"].items()},
        tuple(payload["views"]),
        payload["run_id"],
        payload["complete"],
        {name: ViewVersions(**v) for name, v in payload["versions"].items()},
        None if instant is None else datetime.fromisoformat(instant),
        payload.get("anew", {}),
    )
