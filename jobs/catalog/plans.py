"""Plans of views, each in a file named by its content.

Written once, and read when a view is computed or shown.

A plan is most of what there is to say of a view. The catalog names it, so what a run reads and writes of the catalog does
not grow with the plans of views that it has nothing to do with.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from datetime import date

from relstate_dagster.jobs.plan.nodes import Materialize
from relstate_dagster.jobs.plan.stateful_plan import StatefulPlan
from relstate_dagster.state_lib.errors import RelstateError, WarehouseError
from relstate_dagster.state_lib.lake.files import delete_file, files_in, read_file, write_once
from relstate_dagster.state_lib.table_schema import StateTableDesc


class Planned:
    """A view's plan with its state tables, compared by their digest.

    Parameters
    ----------
    digest : of :meth:`to_json`.
    load : reads the plan when it is first asked for.
    """

    __slots__ = ("_contents", "_load", "digest")

    def __init__(self, digest: str, load: Callable[[str], StatefulPlan]) -> None:
        self.digest = digest
        self._load = load
        self._contents: StatefulPlan | None = None

    @classmethod
    def of(cls, plan: StatefulPlan) -> Planned:
        """A plan that was just made."""
        found = cls("", lambda _: plan)
        found.digest = hashlib.sha256(found.to_json().encode()).hexdigest()[:32]
        return found

    @property
    def plan(self) -> Materialize:
        """The plan."""
        return self.stateful.root

    @property
    def tables(self) -> tuple[StateTableDesc, ...]:
        """Its state tables, with the vnodes that they begin with."""
        return self.stateful.tables

    @property
    def stateful(self) -> StatefulPlan:
        """The plan with the state tables of each node."""
        if self._contents is None:
            self._contents = self._load(self.digest)
        return self._contents

    def on(self, day: Callable[[], date]) -> Planned:
        """The plan with a date as a constant; not for storing.

        Parameters
        ----------
        day : asked for where the plan depends on it.
        """
        return Planned(self.digest, lambda _: self.stateful.on(day()) if self.plan.is_of_a_day else self.stateful)

    def to_json(self) -> str:
        """The stored text."""
        return json.dumps(self.stateful.to_dict(), sort_keys=True)

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
        """Delete old plans that no view has.

        Younger ones may be of a catalog that is being written.
        """
        oldest = time.time() - hours * 3600
        for info in files_in(self.path):
            if info.base_name.removesuffix(".json") not in used and info.mtime.timestamp() < oldest:
                delete_file(self.path, info.base_name)

    def _load(self, digest: str) -> StatefulPlan:
        try:
            return StatefulPlan.from_dict(json.loads(read_file(self._file(digest))))
        except (OSError, ValueError, RelstateError) as error:
            raise WarehouseError(
                f"the plan {self._file(digest)} cannot be read ({error}): restore the warehouse from a backup, or drop the "
                "view that has it and create it again"
            ) from error

    def _file(self, digest: str) -> str:
        return f"{self.path}/{digest}.json"
