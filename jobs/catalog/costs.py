"""Costs of a view's past epochs, and the cheaper way for the next one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from relstate_dagster.state_lib.tuning import tuning
from relstate_dagster.state_lib.units import bytes_shown


@dataclass(frozen=True, slots=True)
class EpochCost:
    """One epoch: bytes read of sources, and seconds up to the published view.

    ``used`` counts how often all was recomputed because of it.
    """

    read_bytes: int
    seconds: float
    used: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of a view's past epochs.

    Parameters
    ----------
    full : the last epoch that computed all of it from whole sources.
    changes : the last two incremental epochs of each size of change, in powers of ``Tuning.comparable_change``. The cheaper one
        of two counts: what one took says little, if the machine was asleep for a while.
    """

    full: EpochCost | None = None
    changes: Mapping[int, tuple[EpochCost, ...]] = field(default_factory=dict)

    def after(self, cost: EpochCost, *, full: bool) -> Costs:
        """The costs after one more epoch."""
        if full:
            return replace(self, full=cost)
        size = _size(cost.read_bytes)
        return replace(self, changes={**self.changes, size: (*self.changes.get(size, ()), cost)[-2:]})

    def of_change(self, changed_bytes: int) -> float | None:
        """Expected seconds of a change.

        ``None`` unless two of its size or of a greater one are known.

        What an epoch costs at least is taken from the shortest, and what its change adds from one of about this size.
        """
        like = self._like(changed_bytes)
        if like is None:
            return None
        known = min(self.changes[like], key=lambda cost: cost.seconds / cost.read_bytes)
        least = min(cost.seconds for costs in self.changes.values() for cost in costs)
        return least + (known.seconds - least) * changed_bytes / known.read_bytes

    def of_all(self, total_bytes: int) -> float | None:
        """Seconds that computing all of it again is expected to take."""
        if self.full is None:
            return None
        return self.full.seconds * max(1.0, total_bytes / max(1, self.full.read_bytes))

    def cheaper_in_full(self, changed_bytes: int, total_bytes: Callable[[], int]) -> str | None:
        """Why all should be recomputed for a change; ``None`` where the change should be computed.

        Parameters
        ----------
        total_bytes : of all that is read; asked for only where it matters.
        """
        change = self.of_change(changed_bytes)
        if change is None or self.full is None or not _is_much_more(change, self.full.seconds):
            return None
        total = total_bytes()
        everything = self.of_all(total)
        if everything is None or not _is_much_more(change, everything):
            return None
        return (
            f"past epochs say that {bytes_shown(changed_bytes)} of changes take {change:.1f} s, "
            f"and all {bytes_shown(total)} {everything:.1f} s"
        )

    def used(self, changed_bytes: int) -> Costs:
        """The costs after a recompute was chosen by them.

        They count for less the next time.
        """
        like = self._like(changed_bytes)
        if like is None:
            return self
        used = tuple(replace(cost, used=cost.used + 1) for cost in self.changes[like])
        others = {size: costs for size, costs in self.changes.items() if size != like}
        return replace(self, changes=others if used[-1].used >= tuning().recompute_uses else {**others, like: used})

    def _like(self, changed_bytes: int) -> int | None:
        comparable = [
            size
            for size, costs in self.changes.items()
            if len(costs) > 1 and all(0 < changed_bytes <= tuning().comparable_change * cost.read_bytes for cost in costs)
        ]
        return min(comparable, default=None)

    def to_dict(self) -> dict[str, Any]:
        """As the catalog stores it."""
        return {
            "full": None if self.full is None else asdict(self.full),
            "changes": {str(size): [asdict(cost) for cost in costs] for size, costs in self.changes.items()},
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Costs:
        """Costs from the values of :meth:`to_dict`."""
        full = stored.get("full")
        known = stored.get("changes", {}).items()
        changes = {int(size): tuple(EpochCost(**cost) for cost in costs) for size, costs in known}
        return cls(None if full is None else EpochCost(**full), changes)


def _is_much_more(seconds: float, everything: float) -> bool:
    """Whether a change takes so much longer than all rows that this cannot be chance."""
    return seconds > tuning().recompute_margin * everything + tuning().recompute_seconds


def _size(read_bytes: int) -> int:
    """The power of ``Tuning.comparable_change`` that a number of bytes is below."""
    size = 0
    while tuning().comparable_change ** size <= read_bytes:
        size += 1
    return size
