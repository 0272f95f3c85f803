"""Which records tell whether an epoch's time depends on the size of the data."""

from __future__ import annotations

from typing import Any

from benchmarks.report import _at_several_scales


def _record(scenario: str, query: str, sf: float, status: str = "ok") -> dict[str, Any]:
    return {"scenario": scenario, "query": query, "sf": sf, "stream": "appended", "size": "100", "status": status}


def test_queries_at_one_scale_factor_are_left_out_and_flat_goes_before_run() -> None:
    flat = [_record("flat", "q1", sf) for sf in (0.1, 10)]
    apart = [_record("tpch", "q2", sf) for sf in (0.1, 1)]
    others = [_record("tpch", "q1", 10), _record("tpch", "q3", 10), _record("tpch", "q2", 10, "failed"), _record("idle", "", 1)]
    assert _at_several_scales([*others, *apart, *flat, _record("flat", "q4", 0.1)]) == [*apart, *flat]
