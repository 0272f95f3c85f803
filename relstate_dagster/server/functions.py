"""The user's functions in a process that outlives edits of their files."""

from __future__ import annotations

import importlib
import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

from relstate_dagster.jobs.engine.functions import UserFunctions

#: Where a file was: its path, the time of its last change in nanoseconds, its size in bytes.
_Seen = dict[str, tuple[int, int] | None]


class WatchedFunctions:
    """Functions that are imported again when their file has changed.

    Files are those of the modules that lie in the folder of the functions' package, or beside their module.
    """

    def __init__(self, functions: UserFunctions | None) -> None:
        self._functions = functions
        self._seen: _Seen = {}

    def reloaded(self) -> bool:
        """Import the functions; returns whether they were imported before and have changed since.

        Raises
        ------
        DeclarationError
            They cannot be imported.
        """
        if self._functions is None:
            return False
        changed = bool(self._seen) and self._seen != {path: _state(path) for path in self._seen}
        if changed:
            for name in self._modules():
                del sys.modules[name]
            importlib.invalidate_caches()
            self._seen = {}
        self._functions.load()
        self._seen = {path: _state(path) for path in self._modules().values()}
        return changed

    def _modules(self) -> dict[str, str]:
        """Return the loaded modules that are the user's own, with their files."""
        assert self._functions is not None
        top = self._functions.name.partition(":")[0].partition(".")[0]
        own = getattr(sys.modules.get(top), "__file__", None)
        paths = list(getattr(sys.modules.get(top), "__path__", []))
        if not own and not paths:
            return {}
        # What lies beside the module of a project is the user's own as well; beside an installed one are other packages.
        root = Path(paths[0]).parent if paths else Path(str(own)).parent
        found: dict[str, str] = {}
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            package = name.partition(".")[0]
            if not file or package in ("relstate_dagster", "__main__"):
                continue
            if package == top or (Path(file).is_relative_to(root) and not _is_installed(file)):
                found[name] = file
        return found


def _is_installed(file: str) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in _site_folders())


@lru_cache(maxsize=1)
def _site_folders() -> frozenset[str]:
    return frozenset({*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()})


def _state(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
