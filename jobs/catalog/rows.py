"""The catalog's entries as rows of a kind, a name and JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from relstate_dagster.jobs.catalog import watermarks
from relstate_dagster.jobs.catalog.costs import Costs
from relstate_dagster.jobs.catalog.entries import (
    NOTED_SINCE,
    Claim,
    EpochEntry,
    PlainViewEntry,
    Problem,
    Slice,
    SourceEntry,
    ViewEntry,
    ViewVersions,
    managed_path,
)
from relstate_dagster.jobs.catalog.expiry import Expiry
from relstate_dagster.jobs.catalog.plans import PlanStore
from relstate_dagster.jobs.catalog.state import CatalogState, changed_entries
from relstate_dagster.jobs.declare.model import FileFolder
from relstate_dagster.jobs.declare.query_function import Query, QueryFunction
from relstate_dagster.jobs.plan.epoch_rows import EpochRows
from relstate_dagster.jobs.sources.pins import Pin
from relstate_dagster.jobs.targets.declared_table import TableLayout

#: What names a row: its kind, and the name of the entry in it.
RowKey: TypeAlias = tuple[str, str]
Payload: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Home:
    """Parts of the warehouse that its entries refer to."""

    plans: PlanStore
    root: str


#: The one row about the warehouse itself, written by every commit.
WAREHOUSE: Final = ("warehouse", "")


def changed_rows(base: CatalogState, state: CatalogState) -> dict[RowKey, Payload | None]:
    """Rows of the commit that turns one state into another.

    Removed entries are ``None``.
    """
    about = {
        "version": state.version,
        "format_version": state.format_version,
        "next_table_id": state.next_table_id,
        "next_epoch": state.next_epoch,
    }
    rows: dict[RowKey, Payload | None] = {WAREHOUSE: about}
    for kind, (field, encode, _) in _KINDS.items():
        for name, entry in changed_entries(getattr(base, field), getattr(state, field)).items():
            rows[kind, str(name)] = None if entry is None else encode(entry)
    return rows


def entry_of(key: RowKey, payload: Payload, home: Home) -> Any:
    """The entry in a row; the payload itself for the row about the warehouse."""
    return payload if key == WAREHOUSE else _KINDS[key[0]][2](payload, home)


def entry_in(state: CatalogState, key: RowKey, payload: Payload) -> Any:
    """The entry of a state that a row was made from."""
    if key == WAREHOUSE:
        return payload
    entries: Mapping[Any, Any] = getattr(state, _KINDS[key[0]][0])
    return entries[_name(key)]


def _name(key: RowKey) -> Any:
    return int(key[1]) if key[0] == "epoch" else key[1]


def state_of(version: int, entries: Mapping[RowKey, Any]) -> CatalogState:
    """The state that entries make up, each as :func:`entry_of` gives it."""
    of_kind: dict[str, dict[Any, Any]] = {kind: {} for kind in _KINDS}
    for key, entry in entries.items():
        if key != WAREHOUSE:
            of_kind[key[0]][_name(key)] = entry
    about = entries[WAREHOUSE]
    return CatalogState(
        version=version,
        format_version=about["format_version"],
        next_table_id=about["next_table_id"],
        next_epoch=about["next_epoch"],
        **{field: of_kind[kind] for kind, (field, _, _) in _KINDS.items()},
    )


def _source_payload(source: SourceEntry) -> Payload:
    # A managed source lies where the warehouse lies, which can be moved.
    return {**asdict(source), "path": "" if source.managed else source.path}


def _source(payload: Payload, home: Home) -> SourceEntry:
    folder = payload.get("folder")
    if folder is not None:
        folder = FileFolder(**{**folder, "options": tuple((key, value) for key, value in folder["options"])})
    path = managed_path(home.root, payload["name"], folder) if payload["managed"] else payload["path"]
    keys = {"primary_key": tuple(payload["primary_key"]), "indexes": tuple(payload.get("indexes", ()))}
    return SourceEntry(**{**payload, "path": path, "folder": folder, **keys})


def _query_payload(query: Query) -> str | Payload:
    return query if isinstance(query, str) else asdict(query)


def _query(payload: str | Payload) -> Query:
    if isinstance(payload, str):
        return payload
    reads = payload["reads"]
    return QueryFunction(**{**payload, "reads": None if reads is None else tuple(reads)})


def _view_payload(view: ViewEntry) -> Payload:
    return {
        "name": view.name,
        "query": _query_payload(view.query),
        "strategy": view.strategy,
        "reason": view.reason,
        "planned": view.planned.digest,
        "reads": list(view.reads),
        "settings": dict(view.settings),
        "generation": view.generation,
        "comment": view.comment,
        "properties": dict(view.properties),
        "epochs": list(view.epochs),
        **({"vnode_counts": dict(view.vnode_counts)} if view.vnode_counts else {}),
        **({"first_vnode_counts": dict(view.first_vnode_counts)} if view.first_vnode_counts else {}),
        "merged_rows": dict(view.merged_rows),
        **({"functions": list(view.functions)} if view.functions else {}),
        **({"costs": view.costs.to_dict()} if view.costs != Costs() else {}),
        "planned_on": view.planned_on,
        "plan_version": view.plan_version,
        **({"planned_on_spark": view.planned_on_spark} if view.planned_on_spark != NOTED_SINCE else {}),
        # As pairs: their order says which is read by which, and the keys of a JSON object are sorted.
        **({"inlined": [[name, _query_payload(query)] for name, query in view.inlined.items()]} if view.inlined else {}),
        **({"layout": asdict(view.layout)} if view.layout != TableLayout() else {}),
        **({"expiry": view.expiry.to_dict()} if view.expiry != Expiry() else {}),
        **({"watermarks": watermarks.to_dict(view.watermarks)} if view.watermarks else {}),
        **({"problem": asdict(view.problem)} if view.problem is not None else {}),
        **({"built_until": _epoch_payload(view.built_until)} if view.built_until is not None else {}),
        **({"rows": view.rows.to_dict()} if view.rows is not None else {}),
        **({"unfilled": list(view.unfilled)} if view.unfilled else {}),
    }


def _view(payload: Payload, home: Home) -> ViewEntry:
    return ViewEntry(
        **{
            **payload,
            "query": _query(payload["query"]),
            "planned": home.plans.planned(payload["planned"]),
            "reads": tuple(payload["reads"]),
            "epochs": tuple(payload["epochs"]),
            "functions": tuple(payload.get("functions", ())),
            "costs": Costs.from_dict(payload.get("costs", {})),
            "layout": _layout(payload.get("layout", {})),
            "inlined": {name: _query(query) for name, query in payload.get("inlined", ())},
            "expiry": Expiry.from_dict(payload.get("expiry", {})),
            "watermarks": watermarks.from_dict(payload.get("watermarks", {})),
            "problem": None if payload.get("problem") is None else Problem(**payload["problem"]),
            "built_until": None if payload.get("built_until") is None else _epoch(payload["built_until"]),
            "rows": None if payload.get("rows") is None else EpochRows.from_dict(payload["rows"]),
            "unfilled": tuple(payload.get("unfilled", ())),
        }
    )


def _layout(payload: Payload) -> TableLayout:
    return TableLayout(
        tuple(payload.get("cluster_by", ())), tuple(payload.get("partitioned_by", ())), payload.get("column_comments", {})
    )


def _claim_payload(claim: Claim) -> Payload:
    return {
        "id": claim.id,
        "run_id": claim.run_id,
        "views": list(claim.views),
        "doing": claim.doing,
        "host": claim.host,
        "pid": claim.pid,
        "place": claim.place,
        "until": claim.until.isoformat(),
        "epoch": None if claim.epoch is None else _epoch_payload(claim.epoch),
        **({"ticket": claim.ticket} if claim.ticket is not None else {}),
    }


def _claim(payload: Payload) -> Claim:
    return Claim(
        **{
            **payload,
            "views": tuple(payload["views"]),
            "until": datetime.fromisoformat(payload["until"]),
            "epoch": None if payload["epoch"] is None else _epoch(payload["epoch"]),
        }
    )


def _epoch_payload(epoch: EpochEntry) -> Payload:
    return {
        "epoch": epoch.epoch,
        "pins": {name: pin.to_dict() for name, pin in epoch.pins.items()},
        "views": list(epoch.views),
        "run_id": epoch.run_id,
        "versions": {name: asdict(v) for name, v in epoch.versions.items()},
        "instant": None if epoch.instant is None else epoch.instant.isoformat(),
        **({"slice": asdict(epoch.slice)} if epoch.slice is not None else {}),
    }


def _epoch(payload: Payload) -> EpochEntry:
    instant = payload.get("instant")
    return EpochEntry(
        payload["epoch"],
        {name: Pin.from_dict(pin) for name, pin in payload["pins"].items()},
        tuple(payload["views"]),
        payload["run_id"],
        {name: ViewVersions(**v) for name, v in payload["versions"].items()},
        None if instant is None else datetime.fromisoformat(instant),
        None if payload.get("slice") is None else Slice(**payload["slice"]),
    )


_Kind: TypeAlias = tuple[str, Callable[[Any], Payload], Callable[[Payload, Home], Any]]

#: Of each kind of row: the field of the state, and how an entry becomes a payload and comes back.
_KINDS: Final[dict[str, _Kind]] = {
    "source": ("sources", _source_payload, _source),
    "plain view": (
        "plain_views",
        lambda plain: {"name": plain.name, "query": _query_payload(plain.query)},
        lambda p, _: PlainViewEntry(p["name"], _query(p["query"])),
    ),
    "view": ("views", _view_payload, _view),
    "rebuild": ("rebuilds", _view_payload, _view),
    "epoch": ("epochs", _epoch_payload, lambda p, _: _epoch(p)),
    "claim": ("claims", _claim_payload, lambda p, _: _claim(p)),
    "garbage": ("garbage", lambda table_id: {"table_id": table_id}, lambda p, _: p["table_id"]),
}
