"""Which class opens which kind of source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relstate_dagster.jobs.sources.delta_source import DeltaSource
from relstate_dagster.jobs.sources.iceberg_source import IcebergSource
from relstate_dagster.jobs.sources.protocol import Source

#: Opens a source by its name, place and key; by kind. Files of folders and changes of changelogs are read into Delta tables.
KINDS: Final[dict[str, Callable[[str, str, Sequence[str]], Source]]] = {
    "delta": DeltaSource,
    "files": DeltaSource,
    "changelog": DeltaSource,
    "iceberg": IcebergSource,
}


def open_source(kind: str, name: str, path: str, key: Sequence[str]) -> Source:
    """Open a source."""
    return KINDS[kind](name, path, key)
