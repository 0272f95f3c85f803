"""Table ids: unique numbers of all plans' state tables, never reused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from relstate_dagster.state_lib.errors import WarehouseError
from relstate_dagster.state_lib.table_schema import (
    KeyPart,
    MergeRule,
    StateColumn,
    StateKind,
    StateTableDesc,
    StateTableSchema,
)
from relstate_dagster.state_lib.vnode import check_vnode_count


@dataclass(frozen=True, slots=True)
class TableCatalog:
    """The next free table id.

    Immutable: whoever commits the new one owns the ids given out.

    Ids start at 1. A dropped view's ids stay used, so that rows left behind by it can never be read as another's.
    """

    next_table_id: int = 1

    def allocate(
        self, schemas: Sequence[StateTableSchema], vnode_counts: Sequence[int] | None = None
    ) -> tuple[tuple[StateTableDesc, ...], TableCatalog]:
        """Give each table of a plan an id, in the order of the walk.

        Parameters
        ----------
        schemas : as ``infer_state_tables`` gives them along one walk of the plan.
        vnode_counts : one for each table; 1 by default.

        Returns
        -------
        tuple of descriptions, and the catalog after them.
        """
        counts = [1] * len(schemas) if vnode_counts is None else list(vnode_counts)
        for count in counts:
            check_vnode_count(count)
        numbered = enumerate(zip(schemas, counts, strict=True), start=self.next_table_id)
        descs = tuple(StateTableDesc(table_id, schema, count, count) for table_id, (schema, count) in numbered)
        return descs, TableCatalog(self.next_table_id + len(descs))

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"next_table_id": self.next_table_id}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TableCatalog:
        """From plain values."""
        return cls(int(plain["next_table_id"]))


def desc_to_dict(desc: StateTableDesc) -> dict[str, Any]:
    """A state table as plain values, for JSON."""
    plain = asdict(desc)
    plain["schema"]["kind"] = desc.schema.kind.value
    plain["schema"]["merge"] = desc.schema.merge.value
    return plain


def desc_from_dict(plain: Mapping[str, Any]) -> StateTableDesc:
    """A state table from plain values.

    Raises
    ------
    WarehouseError
        They are not those of a state table.
    """
    try:
        schema = plain["schema"]
        return StateTableDesc(
            table_id=int(plain["table_id"]),
            schema=StateTableSchema(
                label=schema["label"],
                kind=StateKind(schema["kind"]),
                columns=tuple(StateColumn(**column) for column in schema["columns"]),
                storage_key=tuple(KeyPart(**part) for part in schema["storage_key"]),
                prefix_length=int(schema["prefix_length"]),
                distribution_key=tuple(schema["distribution_key"]),
                merge=MergeRule(schema["merge"]),
            ),
            vnode_count=int(plain["vnode_count"]),
            first_vnode_count=int(plain.get("first_vnode_count", 1)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WarehouseError(f"not the description of a state table: {plain!r} ({error!r})") from error


def descs_to_json(descs: Sequence[StateTableDesc]) -> str:
    """Several state tables as one line of JSON."""
    return json.dumps([desc_to_dict(desc) for desc in descs], sort_keys=True, separators=(",", ":"))
