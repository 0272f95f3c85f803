"""The user's cache folder, for fetched and generated files."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return ``$RELSTATE_CACHE``, or ``relstate`` in the user's cache folder (the folder may not exist yet)."""
    override = os.environ.get("RELSTATE_CACHE")
    if override:
        return Path(override).expanduser()
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "relstate"
