"""Hidden column names, table layouts and limits, in one place."""

from __future__ import annotations

from typing import Final

#: Multiplicity of a row in a change set (a Z-set weight): +n inserts, -n deletes.
WEIGHT: Final = "_weight"
#: Serial row id of a keyless append-only source.
ROW_ID: Final = "_row_id"
#: The version of the commit that a row of a changelog came with.
COMMIT_VERSION: Final = "_commit_version"
#: What sources have besides the columns of their tables.
MADE_BY_SOURCES: Final = frozenset({ROW_ID, COMMIT_VERSION})
#: The hidden identity column of a published view (the encoded stream key).
VIEW_KEY: Final = "_key"

#: What a change set has besides a view's own columns, or a view's table.
HIDDEN_COLUMNS: Final = frozenset({WEIGHT, ROW_ID, VIEW_KEY})

#: Columns of every Delta state table, before its typed slots.
TABLE_ID: Final = "table_id"
VNODE: Final = "vnode"
KEY: Final = "key"
EPOCH_COLUMN: Final = "epoch"
WEIGHT_COLUMN: Final = "weight"

#: The same two next to a table's own column names, in the frames that reads give: a view may have a column ``weight``.
EPOCH: Final = "_epoch"
STATE_WEIGHT: Final = "_state_weight"

#: The vnode count of a table is a power of two, at most this (10 bits of a Serial row id).
MAX_VNODE_COUNT: Final = 1024

#: How long a file stays that a newer version has replaced. Delta's own default: nobody reads a version, or still writes one,
#: for longer than a week.
RETAINED_HOURS: Final = 168

#: Version of the warehouse layout; a warehouse of another one is refused.
FORMAT_VERSION: Final = 4
