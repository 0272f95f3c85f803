"""Names of Java classes, found without asking the JVM for each part of them.

To py4j, ``jvm.PythonUtils`` is a question to the JVM, which tries every imported package for it, jar by jar; PySpark asks
it for each list of columns it hands over. A name kept on the view of the JVM is found there instead: an epoch of some
joins then has 450 fewer of 3,200 calls.

``jvm.org.apache.spark.sql.types`` is five such questions, and none of them finds a class. They took a quarter of the time in
which views are planned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from py4j.java_gateway import JavaClass
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


class JavaNames:
    """Packages and classes of the JVM of a session, as attributes.

    A part in lower case is a package, and one in upper case a class.

    Parameters
    ----------
    view : py4j's view of the JVM. It answers for names without a package.
    package : of this object; none by default.
    """

    def __init__(self, view: Any, package: str = "") -> None:
        self._view = view
        self._package = package

    def __getattr__(self, name: str) -> Any:
        full = f"{self._package}.{name}" if self._package else name
        last = full.rpartition(".")[2]
        if full in vars(self._view):
            found = vars(self._view)[full]
        elif not last[:1].isupper():
            found = JavaNames(self._view, full)
        elif last == full:
            found = getattr(self._view, full)
        else:
            found = JavaClass(full, self._view._gateway_client)
        vars(self)[name] = found
        return found
