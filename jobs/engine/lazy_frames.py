"""The JVM's side of lazy frames: several steps, analyzed as one."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from py4j.protocol import Py4JError

from relstate_dagster.jobs.engine.java_classes import add_classes
from relstate_dagster.state_lib.errors import first_line

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_SOURCE: Final = Path(__file__).with_name("LazyFrames.java")
_LOG: Final = logging.getLogger(__name__)
_ASKED: Final[WeakSet[SparkContext]] = WeakSet()


def add_lazy_frames(session: SparkSession) -> None:
    """Let frames be lazy; where that fails, Spark analyzes each of their steps."""
    # Definitions import this module, and must not import PySpark.
    from relstate_dagster.state_lib.lazy_frame import set_analyzer  # noqa: PLC0415

    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None or session.sparkContext in _ASKED:  # Spark Connect has no JVM here
        return
    _ASKED.add(session.sparkContext)
    set_analyzer(None)  # that of a JVM before
    try:
        add_classes(session, _SOURCE)
        set_analyzer(jvm.relstate.LazyFrames.after)
    except (Py4JError, TypeError, OSError) as error:
        _LOG.info("Spark analyzes each step of a frame: %s", first_line(error))
