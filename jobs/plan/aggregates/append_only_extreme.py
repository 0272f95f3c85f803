"""min(x) and max(x) of an append-only input: the value itself is kept."""

from __future__ import annotations

from typing import Final

from relstate_dagster.jobs.plan.aggregates.kind import Accumulator, AggregateKind, CallStrategy, Version
from relstate_dagster.jobs.plan.nodes import AggCall
from relstate_dagster.state_lib.sql_text import quoted

EXTREME: Final = "_extreme"


class AppendOnlyExtreme(AggregateKind):
    """The least or the greatest value so far."""

    strategy = CallStrategy.VALUE

    def __init__(self, function: str, merge: str) -> None:
        self.name, self.function, self._merge = f"append-only {function}", function, merge
        self.description = (f"{function}(x), append-only", f"{function} of x", f"{merge} of old and change")

    def takes(self, call: AggCall, *, append_only: bool) -> bool:
        """Calls over an append-only input; DISTINCT makes no difference."""
        return len(call.arguments) == 1 and append_only

    def accumulators(self, call: AggCall) -> tuple[Accumulator, ...]:
        """The value, NULL where a group has no value but NULL."""
        change = f"{self.function}({quoted(call.arguments[0])})"
        merge = self._merge
        return (Accumulator(EXTREME, call.argument_types[0], change, new=lambda old, changed: f"{merge}({old}, {changed})"),)

    def result(self, call: AggCall, at: Version) -> str:
        """The value."""
        return f"CAST({at[EXTREME]} AS {call.output.data_type})"


KINDS: Final = (AppendOnlyExtreme("min", "least"), AppendOnlyExtreme("max", "greatest"))
