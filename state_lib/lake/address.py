"""Addresses of tables and files, in the form that each reader wants.

=========  ==========================  =======================  ======================
of         a local folder              an object store          where it is made
=========  ==========================  =======================  ======================
Spark      ``/data/my wh``             ``s3a://bucket/wh``      :attr:`Address.spark`
delta-rs   ``/data/my wh``             ``s3://bucket/wh``       :attr:`Address.delta_rs`
Arrow      a file system, and a path in it                      :func:`filesystem_of`
=========  ==========================  =======================  ======================
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from pyarrow import fs

from relstate_dagster.state_lib.errors import AddressError, StateError
from relstate_dagster.state_lib.lake.storage import STORE_OF, Store, arrow_filesystem, storage_options

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//.*)", re.DOTALL)
_ONE_SLASH: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
#: By the scheme that is written: that of Spark, and that of delta-rs and Arrow.
_SCHEMES: Final = {
    "s3": ("s3a", "s3"),
    "s3a": ("s3a", "s3"),
    "gs": ("gs", "gs"),
    "abfss": ("abfss", "abfss"),
    "abfs": ("abfs", "abfs"),
    "hdfs": ("hdfs", "hdfs"),
}
#: What Spark or delta-rs take for other folders than the one that is named, or not at all, and what has no place in SQL.
_REFUSED: Final = {
    r"[\[\]{}*?]": "Spark takes it for a pattern, and some paths with it delta-rs cannot open",
    r"%[0-9A-Fa-f]{2}": "delta-rs takes a percent sign before two hexadecimal digits for another character",
    r"\\": "delta-rs takes a backslash for a slash",
    r"`": "a path with a backtick cannot be named in SQL",
    r"[\x00-\x1f\x7f]": "delta-rs cannot open paths with control characters",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a table or a warehouse.

    Parameters
    ----------
    scheme : as written; ``file`` for this machine.
    path : absolute on this machine, not escaped; else what stands behind the scheme, as written.
    """

    scheme: str
    path: str

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Address:
        """Parse a path, ``file:/path``, ``file:///path``, or an object store's address.

        Only in addresses that begin with ``file:`` are characters escaped (``%20``).

        Raises
        ------
        AddressError : it cannot be used, and why.
        """
        written = os.fspath(text)
        return _parsed(written, str(Path.cwd()) if not Path(written).is_absolute() else "")

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's disks."""
        return self.scheme == "file"

    @property
    def store(self) -> Store | None:
        """Its object store; ``None`` for local disks, and stores without access options."""
        return STORE_OF.get(self.scheme)

    @property
    def spark(self) -> str:
        """As Spark takes it."""
        return self.path if self.is_local else f"{_SCHEMES[self.scheme][0]}:{self.path}"

    @property
    def delta_rs(self) -> str:
        """As delta-rs takes it."""
        return self.path if self.is_local else f"{_SCHEMES[self.scheme][1]}:{self.path}"

    @property
    def options(self) -> dict[str, str] | None:
        """Options that delta-rs gets besides."""
        return storage_options(self.scheme)

    def __str__(self) -> str:
        return self.spark


@lru_cache(maxsize=1024)
def _parsed(text: str, folder: str) -> Address:
    if not text.strip():
        raise AddressError("a path or address is empty: name a folder, or an address such as s3://bucket/folder")
    if text.startswith("file:"):
        return _local(_path_of_file_uri(text))
    uri = _URI.fullmatch(text)
    if uri is None and _ONE_SLASH.match(text):
        raise AddressError(
            f"{text} is neither a path nor an address: write two slashes behind the scheme, as in s3://bucket/folder"
        )
    if uri is None:
        return _local(os.path.normpath(f"{folder}/{text}" if folder else text))
    scheme, rest = uri[1].lower(), uri[2].rstrip("/")
    if scheme not in _SCHEMES:
        raise AddressError(
            f"{text}: addresses that begin with {uri[1]}:// cannot be used; write a path, file:///…, s3://…, gs://…, "
            "abfss://… or hdfs://…"
        )
    if scheme != "hdfs" and not rest.removeprefix("//").split("/")[0]:
        raise AddressError(f"{text} names no bucket or container: write {uri[1]}://bucket/folder")
    _refuse(text)
    return Address(scheme, rest)


def _path_of_file_uri(text: str) -> str:
    rest = text.removeprefix("file:")
    if rest.startswith("//"):
        host, slash, path = rest.removeprefix("//").partition("/")
        if host not in ("", "localhost"):
            raise AddressError(f"{text} names a folder of the machine {host}: write file:///… with three slashes, or a path")
        rest = slash + path
    if not rest.startswith("/"):
        raise AddressError(f"{text} is a relative address: write a path without file:, or file:/… with an absolute one")
    return os.path.normpath(unquote(rest))


def _local(path: str) -> Address:
    path = "/" + path.lstrip("/")
    _refuse(path)
    return Address("file", path)


def _refuse(text: str) -> None:
    for pattern, reason in _REFUSED.items():
        found = re.search(pattern, text)
        if found is not None:
            raise AddressError(f"{text!r} cannot be used, because of {found[0]!r}: {reason}; rename the folder")


def filesystem_of(path: str) -> tuple[fs.FileSystem, str]:
    """File system of a path or address, and the path within it.

    What is no ``file:`` address is taken literally.
    """
    uri = _URI.fullmatch(path)
    if uri is None and not path.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    if uri is None or uri[1] == "file":
        return fs.LocalFileSystem(), _path_of_file_uri(path)
    authority, _, inside = uri[2].removeprefix("//").partition("/")
    store = arrow_filesystem(uri[1], authority)
    if store is not None:
        return store[0], f"{store[1]}/{inside}".rstrip("/")
    filesystem, root = fs.FileSystem.from_uri(f"{_SCHEMES.get(uri[1], ('', uri[1]))[1]}://{authority}/")
    return filesystem, "/".join(part for part in (root.rstrip("/"), inside) if part)


def no_pattern(path: str) -> str:
    """A path escaped for Spark's readers, which take patterns.

    Spark's option ``__globPaths__`` would say the same, but with it, Spark 4.2 reads all of several paths once more for each of
    them that looks like a pattern.
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def is_inside(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; local links are followed."""
    inner, outer = Address.parse(path), Address.parse(folder)
    if inner.is_local and outer.is_local:
        real = os.path.realpath(inner.path)
        return os.path.commonpath([real, os.path.realpath(outer.path)]) == os.path.realpath(outer.path)
    return f"{inner.spark}/".startswith(f"{outer.spark}/")


def table_reference(path: str) -> str:
    """A Delta table in SQL, by its path.

    Raises
    ------
    StateError
        The path has a backtick.
    """
    if "`" in path:
        raise StateError(f"a path with a backtick cannot be named in SQL: {path}")
    return f"delta.`{path}`"


def full_path(table: str, path: str) -> str:
    """Full path of a table's file, from its path in the log."""
    if not is_absolute(path):
        return f"{table}/{unquote(path)}"
    # Logs have addresses escaped; here a path is as it is.
    return _path_of_file_uri(path) if path.startswith("file:") else unquote(path)


def is_absolute(path: str) -> bool:
    """Whether a path in a log is an address and not one within the table."""
    return "://" in path or path.startswith("file:")
