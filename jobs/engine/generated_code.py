"""Compiled classes of Spark's generated code, kept between processes.

A run is a fresh process. A fifth of its processor time went to compiling what an earlier run had compiled: 1,470 pieces for 66
views. The next batch added 52. On one machine, Spark also compiles each piece twice in one process, for the
class loaders of driver and tasks.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from relstate_dagster.jobs.engine.cache import cache_folder
from relstate_dagster.jobs.engine.class_archive import class_archive
from relstate_dagster.jobs.engine.java import Java
from relstate_dagster.jobs.engine.java_classes import add_classes
from relstate_dagster.state_lib.errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE: Final = Path(__file__).with_name("GeneratedCode.java")
#: Bytes of kept classes: some 5,000 pieces.
_LIMIT: Final = 64 * 1024 * 1024
_LOG: Final = logging.getLogger(__name__)


def keep_generated_code(session: SparkSession, java: Java) -> None:
    """Let Spark use kept classes, and keep those that it compiles.

    They are written when the JVM ends. Where that fails, Spark compiles all.
    """
    jvm: Any = session._jvm
    try:
        add_classes(session, _SOURCE)
        jvm.relstate.GeneratedCode.install(str(kept_classes(java)), _LIMIT)
    except (Py4JError, TypeError, OSError) as error:
        _LOG.info("each process compiles all of Spark's generated code: %s", first_line(error))


def kept_classes(java: Java) -> Path:
    """File of kept classes for this Java and the installed Spark."""
    return cache_folder() / "generated" / f"{class_archive(java).stem}.classes"
