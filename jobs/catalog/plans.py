"""Plans of views, each in a file of its own, named by its content: written once, and read when a view is computed or shown.

A plan is most of what there is to say of a view. The catalog names it, so what a run reads and writes of the catalog does
not grow with the plans of views that it has nothing to do with.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from relstate_dagster.jobs.planner.nodes import Materialize
from relstate_dagster.jobs.planner.serialize import plan_from_dict, plan_to_dict
from relstate_dagster.state_lib.errors import WarehouseError
from relstate_dagster.state_lib.lake.files import delete_file, files_in, read_file, write_once
from relstate_dagster.state_lib.table_catalog import desc_from_dict, desc_to_dict
from relstate_dagster.state_lib.table_schema import StateTableDesc

_Contents: TypeAlias = tuple[Materialize, tuple[StateTableDesc, ...]]


class Planned:
    """A view's plan and the state tables that it needs. Two are equal if their digests are.

    Parameters
    ----------
    digest : of :meth:`to_json`.
    load : reads the plan and its tables when they are first asked for.
    """

    __slots__ = ("_contents", "_load", "digest")

    def __init__(self, digest: str, load: Callable[[str], _Contents]) -> None:
        self.digest = digest
        self._load = load
        self._contents: _Contents | None = None

    @classmethod
    def of(cls, plan: Materialize, tables: tuple[StateTableDesc, ...]) -> Planned:
        """A plan that was just made."""
        found = cls("", lambda _: (plan, tables))
        found.digest = hashlib.sha256(found.to_json().encode()).hexdigest()[:32]
        return found

    @property
    def plan(self) -> Materialize:
        """The plan."""
        return self._read()[0]

    @property
    def tables(self) -> tuple[StateTableDesc, ...]:
        """Its state tables, with the vnodes that they begin with."""
        return self._read()[1]

    def _read(self) -> _Contents:
        if self._contents is None:
            self._contents = self._load(self.digest)
        return self._contents

    def to_json(self) -> str:
        """As it is stored."""
        stored = {"plan": plan_to_dict(self.plan), "tables": [desc_to_dict(t) for t in self.tables]}
        return json.dumps(stored, sort_keys=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Planned) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Planned({self.digest})"


class PlanStore:
    """The folder of a warehouse's plans."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, planned: Planned) -> None:
        """Store a plan, if it is not there yet."""
        write_once(self._file(planned.digest), planned.to_json().encode())

    def planned(self, digest: str) -> Planned:
        """A stored plan, not yet read."""
        return Planned(digest, self._load)

    def delete_unused(self, used: Collection[str], hours: float) -> None:
        """Delete plans that no view has, and that were written longer ago: younger ones may be of a catalog to come."""
        oldest = time.time() - hours * 3600
        for info in files_in(self.path):
            if info.base_name.removesuffix(".json") not in used and info.mtime.timestamp() < oldest:
                delete_file(self.path, info.base_name)

    def _load(self, digest: str) -> _Contents:
        try:
            stored: dict[str, Any] = json.loads(read_file(self._file(digest)))
        except (OSError, ValueError) as error:
            raise WarehouseError(
                f"the plan {self._file(digest)} cannot be read ({error}): restore the warehouse from a backup, or drop the "
                "view that has it and create it again"
            ) from error
        plan = plan_from_dict(stored["plan"])
        if not isinstance(plan, Materialize):
            raise WarehouseError(f"the plan {self._file(digest)} has no materialization at its root")
        return plan, tuple(desc_from_dict(t) for t in stored["tables"])

    def _file(self, digest: str) -> str:
        return f"{self.path}/{digest}.json"
