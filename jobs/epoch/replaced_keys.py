"""The keys of rows that go from a large published table, as a condition by which Delta deletes them where it appends others.

MERGE joins the whole table with the change set: by an outer join where some rows are new, which sends every row of the table
through a shuffle. A condition on the key is asked of each row where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame

from relstate_dagster.state_lib.collected import collected
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.sizing import sizing
from relstate_dagster.state_lib.sql_text import quoted


def few_keys(frame: DataFrame) -> list[bytes] | None:
    """The only column of a frame; ``None`` where it has more than a condition may name. One job."""
    rows = collected(frame, sizing().replaced_key_bytes)
    return None if rows is None else few_keys_of(rows.column(0))


def few_keys_of(keys: pa.ChunkedArray) -> list[bytes] | None:
    """As :func:`few_keys`, of keys that the driver has."""
    return keys.to_pylist() if keys.nbytes <= sizing().replaced_key_bytes else None


def key_condition(keys: Iterable[bytes]) -> str:
    """Whether a row of a published table has one of these keys, in Spark SQL."""
    literals = ", ".join(f"X'{key.hex()}'" for key in keys)
    return f"{quoted(VIEW_KEY)} IN ({literals})"
