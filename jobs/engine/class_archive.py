"""An archive of a JVM's loaded classes, for a faster start of the next.

From Java 25 on it has profiles as well.

A run is a fresh process, so it pays for some 20,000 classes every time: three tenths of what starting Spark and a first small
epoch take (docs/performance.md). Up to Java 24 an archive of classes is mapped instead of loading and checking each of them.
From Java 25 on an ahead-of-time cache also has them linked, with profiles of their methods, so that the compiler need not
wait for those. Java keeps either for one class path and one build of itself; it is named by both, so another Java or another
Spark finds none. A JVM that cannot use it goes on without it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.engine.java import Java
from relstate_dagster.jobs.engine.spark_release import spark_jars

#: Set while a process is run whose JVM shall write an archive, when it ends, to the path that this names.
_WRITE_TO: Final = "RELSTATE_WRITE_CLASS_ARCHIVE"
#: The first release whose ahead-of-time cache has profiles and is written by one run.
_PROFILES_SINCE: Final = 25


def has_profiles(java: Java) -> bool:
    """Whether this Java keeps an ahead-of-time cache with profiles, and no plain archive."""
    return java.release >= _PROFILES_SINCE


def class_archive(java: Java) -> Path:
    """Path of the archive for this Java and the installed Spark."""
    jars = spark_jars()
    build = java.home / "release"
    facts = [
        str(java.home),
        build.read_text(errors="replace") if build.is_file() else str(java.release),
        str(jars),
        # Java compares each jar's time and size; a new installation touches the folder.
        str(jars.stat().st_mtime_ns if jars.is_dir() else 0),
    ]
    name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return cache_folder() / "classes" / f"{name}.{'aot' if has_profiles(java) else 'jsa'}"


def archive_options(java: Java) -> str:
    """JVM options that use the archive, or write one; empty without.

    :func:`writing_to` asks for it to be written.
    """
    target = os.environ.get(_WRITE_TO)
    path = target or class_archive(java)
    if not (target or Path(path).is_file()):
        return ""
    # It lists every class that cannot be archived, and complains of an archive that does not fit, on standard output.
    if has_profiles(java):
        return f'-XX:{"AOTCacheOutput" if target else "AOTCache"}="{path}" -Xlog:aot*=off -Xlog:cds*=off'
    return f'-XX:{"ArchiveClassesAtExit" if target else "SharedArchiveFile"}="{path}" -Xlog:cds*=off'


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Let JVMs of sessions in this context write their loaded classes to `path`."""
    os.environ[_WRITE_TO] = str(path)
    try:
        yield
    finally:
        del os.environ[_WRITE_TO]
