"""Watermarks of sources by which state of closed groups could be dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from pyspark.sql import Column

from relstate_dagster.state_lib.literals import literal
from relstate_dagster.state_lib.sql_type import sql_type


@dataclass(frozen=True, slots=True)
class WatermarkValue:
    """A value below which no row was expected, and its type.

    A timestamp, a date or a whole number.
    """

    value: datetime | date | int
    data_type: str

    def later(self, other: WatermarkValue | None) -> WatermarkValue:
        """The later one; this one where the two cannot be compared."""
        if other is None or other.data_type != self.data_type:
            return self
        return self if self.value >= other.value else other  # type: ignore[operator]

    @property
    def literal(self) -> Column:
        """As Spark has it."""
        found = literal(self.value, self.data_type)
        assert found is not None
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        text = self.value if isinstance(self.value, int) else self.value.isoformat()
        return {"value": text, "type": self.data_type}

    @classmethod
    def from_dict(cls, payload: Mapping[str, Any]) -> WatermarkValue:
        """Watermark from the values of :meth:`to_dict`."""
        value, data_type = payload["value"], payload["type"]
        name = sql_type(data_type).name
        if name in ("timestamp", "timestamp_ntz"):
            return cls(datetime.fromisoformat(value), data_type)
        return cls(date.fromisoformat(value) if name == "date" else int(value), data_type)


#: Of each source, by the column that its watermark is about: one that was declared before may have closed groups, too.
Watermarks = Mapping[str, Mapping[str, WatermarkValue]]


def merged(old: Watermarks, new: Watermarks) -> Watermarks:
    """Both, with the later of two for the same column."""
    found = {source: dict(columns) for source, columns in old.items()}
    for source, columns in new.items():
        of_source = found.setdefault(source, {})
        for column, reached in columns.items():
            of_source[column] = reached.later(of_source.get(column))
    return found


def to_dict(watermarks: Watermarks) -> dict[str, Any]:
    """As JSON has them."""
    return {source: {column: r.to_dict() for column, r in columns.items()} for source, columns in watermarks.items()}


def from_dict(payload: Mapping[str, Any]) -> Watermarks:
    """Watermarks from the values of :func:`to_dict`."""
    return {
        source: {column: WatermarkValue.from_dict(r) for column, r in columns.items()} for source, columns in payload.items()
    }
