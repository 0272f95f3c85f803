"""Results: one JSON line a measurement, appended at once, so that runs resume."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: What names a measurement; one of these is measured once.
IDENTITY = ("scenario", "sf", "query", "stream", "size")


class Results:
    """A file of results.

    Parameters
    ----------
    again : measure what is there, too; the newest line of a measurement counts.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        done = () if again else read_results(path)
        self._done = {identity(r) for r in done if r["status"] != "failed"}
        self.failures: list[str] = []

    def has(self, **named: Any) -> bool:
        """Whether a measurement is there, and did not fail."""
        return identity(named) in self._done

    def add(self, record: dict[str, Any]) -> None:
        """Append a measurement."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, sort_keys=True) + "\n")
        if record["status"] == "failed":
            self.failures.append(f"{name_of(record)}: {record['error']}")
        else:
            self._done.add(identity(record))


def identity(record: dict[str, Any]) -> tuple[Any, ...]:
    """Identity of a measurement."""
    return tuple(record.get(k) for k in IDENTITY)


def name_of(record: dict[str, Any]) -> str:
    """The same, to read."""
    return " ".join(f"SF {v}" if k == "sf" else str(v) for k, v in zip(IDENTITY, identity(record), strict=True) if v)


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file; a last line that was cut off is left out."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def newest(paths: list[Path]) -> list[dict[str, Any]]:
    """The newest measurement of each name in some files, failed ones left out."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in paths:
        for record in read_results(path):
            if record["status"] != "failed":
                found[identity(record)] = record
    return list(found.values())
