"""Which project and which warehouse this code location serves: two environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import assets

DEMO_PROJECT = Path(assets.__file__).parent / "demo"
DEMO_WAREHOUSE = "demo-warehouse"


@dataclass(frozen=True)
class Location:
    """A project's folder and its warehouse, a folder or the address of an object store."""

    project: Path
    warehouse: str

    @classmethod
    def from_environment(cls) -> Location:
        """Read ``RELSTATE_PROJECT`` and ``RELSTATE_WAREHOUSE``; by default the demo, in the working directory."""
        project = os.environ.get("RELSTATE_PROJECT")
        warehouse = os.environ.get("RELSTATE_WAREHOUSE") or DEMO_WAREHOUSE
        if "://" not in warehouse:
            warehouse = str(Path(warehouse).absolute())
        return cls(Path(project).absolute() if project else DEMO_PROJECT, warehouse)
