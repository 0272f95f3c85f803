"""Which project and which warehouse this code location serves: environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import assets

DEMO_PROJECT = Path(assets.__file__).parent / "demo"
DEMO_WAREHOUSE = "demo-warehouse"


@dataclass(frozen=True)
class Location:
    """A project's folder, its warehouse (a folder or the address of an object store), and its functions.

    ``functions`` is the callable that registers what views call besides Spark's own functions, ``package.module:callable``.
    """

    project: Path
    warehouse: str
    functions: str | None = None

    @classmethod
    def from_environment(cls) -> Location:
        """Read ``RELSTATE_PROJECT``, ``RELSTATE_WAREHOUSE`` and ``RELSTATE_FUNCTIONS``; by default the demo, here."""
        project = os.environ.get("RELSTATE_PROJECT")
        warehouse = os.environ.get("RELSTATE_WAREHOUSE") or DEMO_WAREHOUSE
        if "://" not in warehouse:
            warehouse = str(Path(warehouse).absolute())
        functions = os.environ.get("RELSTATE_FUNCTIONS") or None
        return cls(Path(project).absolute() if project else DEMO_PROJECT, warehouse, functions)
