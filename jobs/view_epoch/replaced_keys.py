"""Keys of rows that leave a large published table, as a condition for ``replaceWhere``.

MERGE joins the whole table with the change set: by an outer join where some rows are new, which sends every row of the table
through a shuffle. A condition on the key is asked of each row where it is read.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from relstate_dagster.state_lib.collected import collected
from relstate_dagster.state_lib.constants import VIEW_KEY
from relstate_dagster.state_lib.sql_text import quoted


def few_keys(frame: DataFrame, most_bytes: int) -> pa.ChunkedArray | None:
    """The only column of a frame; ``None`` where it takes more bytes. One job."""
    rows = collected(frame, most_bytes)
    return None if rows is None else rows.column(0)


def key_condition(keys: pa.ChunkedArray) -> str:
    """Whether a row of a published table has one of these keys, in Spark SQL."""
    literals = ", ".join(f"X'{key.hex()}'" for key in keys.to_pylist())
    return f"{quoted(VIEW_KEY)} IN ({literals})"
