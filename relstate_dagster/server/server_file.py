"""Address file of a warehouse's server, in the user's private cache folder."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.address import Address

try:
    import fcntl
except ImportError:  # pragma: no cover - no such lock on Windows: the newest server is the one that is found
    fcntl = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Registered:
    """A server, as its file tells.

    Parameters
    ----------
    address : a socket's path, or ``127.0.0.1:port``.
    token : what both ends of a connection have to know.
    """

    pid: int
    address: str
    token: str
    warehouse: str


class Place:
    """Files of one warehouse's server: its address, its lock, and its log.

    Parameters
    ----------
    warehouse : its folder, or its address in an object store.
    """

    def __init__(self, warehouse: str) -> None:
        self.warehouse = Address.parse(warehouse).spark
        self._folder = cache_folder() / "servers"
        self._name = hashlib.sha256(self.warehouse.encode()).hexdigest()[:16]

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._folder / f"{self._name}.log"

    @property
    def path(self) -> Path:
        """The file that says where the server is."""
        return self._folder / f"{self._name}.json"

    def created_folder(self) -> Path:
        """Return the folder, made."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        return self._folder

    def read(self) -> Registered | None:
        """The file's contents; None without one, or if others may have written it."""
        try:
            if hasattr(os, "getuid") and self.path.stat().st_uid != os.getuid():
                return None
            return Registered(**json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, server: Registered) -> None:
        """Say where the server is, all of it at once."""
        half = self.created_folder() / f"{self._name}.{server.pid}"
        descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(server), file)
        half.replace(self.path)

    def forget(self, server: Registered) -> None:
        """Remove the file and socket of an ended server, unless another has them."""
        if self.read() == server:
            self.path.unlink(missing_ok=True)
        if not server.address.startswith("127.0.0.1:"):
            shutil.rmtree(Path(server.address).parent, ignore_errors=True)

    def is_held(self) -> bool:
        """Whether a server has this place, also while it starts."""
        with suppress(EnvironmentProblem), self.held():
            return False
        return fcntl is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the place alone; the operating system gives it back when its holder dies.

        Raises
        ------
        EnvironmentProblem
            Another server has it.
        """
        if fcntl is None:
            yield
            return
        with (self.created_folder() / f"{self._name}.lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise EnvironmentProblem(f"a server of {self.warehouse} is there already: relstate server status") from error
            yield
