"""Settings of ``spark-defaults.conf``, where ours would replace them.

Spark reads the file itself, and a setting that a session asks for wins over it. Some of ours must not: the jars, extensions and
catalog by which a cluster has its tables are kept beside what views need.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from relstate_dagster.jobs.engine.spark_release import spark_home

#: Lists that are joined, with their separators. If both sides set an option of Java, the later one wins: theirs.
_JOINED: Final = {"spark.jars": ",", "spark.sql.extensions": ",", "spark.driver.extraJavaOptions": " "}
#: Settings of the file that win over ours. The class of ``spark_catalog`` is not among them: tables are read through Delta's.
_YIELDING: Final = frozenset({"spark.sql.catalogImplementation", "spark.sql.warehouse.dir"})


def defaults_of_spark() -> dict[str, str]:
    """Settings of ``spark-defaults.conf``; none without the file.

    In ``$SPARK_CONF_DIR``, else in the folder ``conf`` of Spark, where Spark looks for it.
    """
    folder = os.environ.get("SPARK_CONF_DIR")
    path = (Path(folder) if folder else spark_home() / "conf") / "spark-defaults.conf"
    if not path.is_file():
        return {}
    joined = re.sub(r"\\\n\s*", "", path.read_text(encoding="utf-8"))
    lines = (line.strip() for line in joined.splitlines())
    # As Java's properties: a name ends at a blank, an equals sign or a colon.
    pairs = (re.split(r"\s*[=:]\s*|\s+", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def beside(ours: Mapping[str, str], defaults: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """All settings to ask Spark for.

    Parameters
    ----------
    ours : what views need, and what is made here by default.
    defaults : of ``spark-defaults.conf``.
    asked : further settings, which win over both; lists are joined with ours.
    """
    found = dict(ours)
    for name in _YIELDING & defaults.keys():
        found[name] = defaults[name]
    for name, separator in _JOINED.items():
        theirs = asked.get(name) or defaults.get(name)
        if theirs and name in ours:
            found[name] = separator.join(filter(None, (ours[name], theirs)))
    return found | {name: setting for name, setting in asked.items() if name not in _JOINED or name not in ours}
