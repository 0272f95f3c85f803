"""Protocol of the relations that operators read: sources and upstream views."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame

from relstate_dagster.state_lib.lookup_keys import LookupKeys


class Relations(Protocol):
    """The relations of a view in one epoch. Rows have a relation's columns and ``_weight``."""

    def changes(self, name: str) -> DataFrame | None:
        """Change set of a relation since the view's last epoch; ``None`` without changes."""

    def rows(self, name: str, lookup_keys: LookupKeys | None, /) -> DataFrame:
        """Rows of a relation as of this epoch.

        At least those with the keys, and all without keys.
        """

    def bag(self, name: str, columns: Collection[str], /) -> DataFrame:
        """All rows of a relation as of this epoch, without weights.

        A row that the relation has twice is returned twice.

        Parameters
        ----------
        columns : that are read; others may be missing.
        """

    def rows_between(self, name: str, column: str, lower: Column, upper: Column, /) -> DataFrame:
        """Rows of a source with a column between two values, ends included."""

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:
        """Whether certainly no row of the last epoch had one of the keys.

        Without reading rows.
        """

    def row_count(self, name: str) -> int | None:
        """Rows of a relation as of this epoch; ``None`` if unknown without reading."""

    def rows_read(self, name: str, lookup_keys: LookupKeys | None) -> float | None:
        """About how many rows a lookup of the keys reads; ``None`` if unknown."""

    def sample(self, name: str) -> tuple[DataFrame, int] | None:
        """Some rows of a relation, and their number; ``None`` if unknown without reading."""

    def come_once(self) -> bool:
        """Whether no relation has rows that cancel, or a key twice."""

    def gives_ids(self, name: str) -> bool:
        """Whether a relation's rows get ``_row_id`` as they come in.

        No row can be read with it again.
        """


@dataclass(frozen=True, slots=True)
class OtherRelations:
    """Relations with something replaced by a subclass."""

    relations: Relations

    def changes(self, name: str) -> DataFrame | None:
        """As of the relations themselves; so are the others."""
        return self.relations.changes(name)

    def rows(self, name: str, lookup_keys: LookupKeys | None) -> DataFrame:  # noqa: D102
        return self.relations.rows(name, lookup_keys)

    def bag(self, name: str, columns: Collection[str]) -> DataFrame:  # noqa: D102
        return self.relations.bag(name, columns)

    def rows_between(self, name: str, column: str, lower: Column, upper: Column) -> DataFrame:  # noqa: D102
        return self.relations.rows_between(name, column, lower, upper)

    def provably_absent_before(self, name: str, lookup_keys: LookupKeys) -> bool:  # noqa: D102
        return self.relations.provably_absent_before(name, lookup_keys)

    def row_count(self, name: str) -> int | None:  # noqa: D102
        return self.relations.row_count(name)

    def rows_read(self, name: str, lookup_keys: LookupKeys | None) -> float | None:  # noqa: D102
        return self.relations.rows_read(name, lookup_keys)

    def sample(self, name: str) -> tuple[DataFrame, int] | None:  # noqa: D102
        return self.relations.sample(name)

    def come_once(self) -> bool:  # noqa: D102
        return self.relations.come_once()

    def gives_ids(self, name: str) -> bool:  # noqa: D102
        return self.relations.gives_ids(name)


@dataclass(frozen=True, slots=True)
class Sampled(OtherRelations):
    """Relations replaced by samples."""

    samples: Mapping[str, DataFrame]

    def rows(self, name: str, _lookup_keys: LookupKeys | None) -> DataFrame:
        """The sample of a relation."""
        return self.samples[name]
