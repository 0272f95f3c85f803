"""Compiled classes of the code that Spark generates, kept between processes.

A run is a fresh process, and a fifth of its processor time went to compiling what the run before had compiled: 1,470 pieces
for 66 views, of which 52 were new in the next batch. Spark also compiles each piece twice in one process on one machine, for
the class loaders of driver and tasks.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

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
    """Let Spark take kept classes in place of compiling, and keep what it compiles when the JVM ends.

    Spark compiles as ever where that fails.
    """
    jvm: Any = session._jvm
    try:
        add_classes(session, _SOURCE)
        jvm.relstate.GeneratedCode.install(str(kept_classes(java)), _LIMIT)
    except (Py4JError, TypeError, OSError) as error:
        _LOG.info("generated code is compiled anew in each process: %s", first_line(error))


def kept_classes(java: Java) -> Path:
    """File of kept classes for this Java and the installed Spark."""
    return class_archive(java).with_suffix(".generated")
