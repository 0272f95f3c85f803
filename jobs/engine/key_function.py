"""The row encoding of storage keys as one compiled function of Spark.

In Spark's own expressions, a DOUBLE of a key is a tree of 36 logarithms, and a wide key exceeds the size of a method that
Java compiles. 200,000 keys of 30 columns took 16 s, and take 1 s by the function. Spark Connect has no way to add it; keys
are written in expressions there.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from py4j.protocol import Py4JError

from relstate_dagster.jobs.engine.java_classes import add_classes
from relstate_dagster.state_lib.errors import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SOURCE: Final = Path(__file__).with_name("RowKeys.java")
_LOG: Final = logging.getLogger(__name__)
_ASKED: Final[WeakSet[SparkSession]] = WeakSet()


def add_key_function(session: SparkSession) -> None:
    """Register the function with a session, and with all that are opened from it later.

    Keys are written in Spark's expressions where that fails.
    """
    # Definitions import this module, and must not import PySpark.
    from relstate_dagster.state_lib.row_encoding.spark_codec import KEY_FUNCTION, use_key_function  # noqa: PLC0415

    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None or session in _ASKED:  # Spark Connect has no JVM here
        return
    _ASKED.add(session)
    try:
        every = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        name = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(KEY_FUNCTION)
        if not every.functionExists(name):
            jar = add_classes(session, _SOURCE)
            context: Any = session.sparkContext
            if context.master.partition("[")[0] != "local":
                context._jsc.sc().addJar(jar.absolute().as_uri())
            jvm.relstate.RowKeys.register(KEY_FUNCTION, every)
        # Opened before, it has a registry without the function.
        jvm.relstate.RowKeys.register(KEY_FUNCTION, session._jsparkSession.sessionState().functionRegistry())
    except (Py4JError, TypeError, OSError) as error:
        _LOG.warning("keys of state are computed by Spark's expressions, which takes longer: %s", first_line(error))
        return
    use_key_function()
