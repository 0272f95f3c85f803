"""Starts a Spark session with Delta, on this machine or on a cluster."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from relstate_dagster.jobs.engine.class_archive import archive_options
from relstate_dagster.jobs.engine.defaults_file import beside, defaults_of_spark
from relstate_dagster.jobs.engine.generated_code import keep_generated_code
from relstate_dagster.jobs.engine.jars import delta_jars, jars_of
from relstate_dagster.jobs.engine.java import Java, find_java, spark_java_home
from relstate_dagster.jobs.engine.key_function import add_key_function
from relstate_dagster.jobs.engine.lazy_frames import add_lazy_frames
from relstate_dagster.jobs.engine.log_store import CLASS_NAME, add_log_store
from relstate_dagster.jobs.engine.logs import LogSettings
from relstate_dagster.jobs.engine.spark_connect import connect
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake.storage import Store, spark_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
#: Tasks of a shuffle where nothing else is configured.
SPARKS_OWN_TASKS: Final = 200


@dataclass(frozen=True)
class SparkSettings:
    """Place and size of Spark; making one starts nothing.

    Parameters
    ----------
    master
        A Spark master (``local[*]``, ``local[2]``, ``spark://…``, ``yarn``, ``k8s://…``) or the address of a Spark
        Connect server (``sc://host:port``). By default ``$RELSTATE_MASTER``, else ``local[*]``.
    driver_memory
        Heap of the driver, as Spark writes sizes; by default ``$RELSTATE_DRIVER_MEMORY``, else 2g. Ignored by Spark Connect.
    shuffle_partitions
        Partitions of a shuffle; by default twice the cores of a local master, and a cluster's own setting elsewhere.
    app_name
        Name that Spark shows for the application.
    conf
        Further Spark settings; they win over the ones made here. Jars, extensions and Java's options come beside these.
    logs
        How much of Spark's log reaches the terminal, and the file that it goes to.
    stores
        The object stores that tables lie in; their jars are fetched.
    is_brief
        Whether little is to be done: the JVM then compiles code once and does not optimize it. Optimizing takes a third of a
        cold run of ten small views on two cores, and has not paid before the run ends.
    """

    master: str = field(default_factory=lambda: os.environ.get("RELSTATE_MASTER") or "local[*]")
    driver_memory: str = field(default_factory=lambda: os.environ.get("RELSTATE_DRIVER_MEMORY") or "2g")
    shuffle_partitions: int | None = None
    app_name: str = "relstate"
    conf: Mapping[str, str] = field(default_factory=dict)
    logs: LogSettings | None = None
    stores: Collection[Store] = ()
    is_brief: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether the session is a Spark Connect client, without Java or jars here."""
        return self.master.startswith("sc://")

    @property
    def is_local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master.startswith("local")

    @property
    def local_cores(self) -> int | None:
        """Cores of a local master; None elsewhere."""
        match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\d+)?\])?", self.master)
        if match is None:
            return None
        cores = match.group(1) or "1"
        return os.cpu_count() or 1 if cores == "*" else int(cores)

    @property
    def shuffle_tasks(self) -> int | None:
        """Tasks of a shuffle; None: as the cluster has it."""
        if self.shuffle_partitions is None and self.local_cores is not None:
            return 2 * self.local_cores
        return self.shuffle_partitions


def create_session(settings: SparkSettings | None = None) -> SparkSession:
    """Start (or join, where this process has one) the Spark session that `settings` asks for.

    Raises
    ------
    EnvironmentProblem
        Java, a jar or the Spark Connect client is missing, or Spark did not start.
    """
    settings = settings or SparkSettings()
    if settings.is_remote:
        return connect(settings.master, {**session_conf(settings), **settings.conf})
    return _start(settings)


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """Return the Spark settings that the maintained views rely on, on any kind of session."""
    conf = {
        "spark.sql.session.timeZone": "UTC",
        # A state table is many small commits: fifty-way snapshots cost seconds each (the default is made for lakes).
        "spark.databricks.delta.snapshotPartitions": "1",
        # Reads back every file's statistics after a commit, only to log them.
        "spark.databricks.delta.commitStats.collect": "false",
    }
    if settings.shuffle_tasks is not None:
        conf[SHUFFLE_PARTITIONS] = str(settings.shuffle_tasks)
    return conf


def _start(settings: SparkSettings) -> SparkSession:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing PySpark takes 0.5 s, which definitions must not

    running = SparkSession.getActiveSession()
    if running is not None:
        # Joined as it is: asking the builder for it would set this call's settings on a session that others use.
        return running
    if settings.logs is not None:
        settings.logs.apply_to_python()
    java = find_java()
    java_home = spark_java_home(java)
    scratch = Path(tempfile.gettempdir()) / f"relstate-{os.getuid() if hasattr(os, 'getuid') else 0}"
    conf = {
        "spark.master": settings.master,
        "spark.app.name": settings.app_name,
        "spark.driver.memory": settings.driver_memory,
        "spark.jars": ",".join(map(str, _jars(settings))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalogImplementation": "in-memory",
        # Tables are addressed by path; this folder is only where Spark would put a table that has none.
        "spark.sql.warehouse.dir": str(scratch / "spark-warehouse"),
        "spark.sql.codegen.cache.maxEntries": str(_compiled_pieces(settings.driver_memory)),
        # By default a page is up to 64 MB, and a hash table or a sort of ten rows takes one: zeroed, moved around, collected.
        # Less than 1 MiB by the header that Java puts before a page: heaps of up to 2 GB have regions of 1 MiB, and a page that
        # is larger than one takes two of them, half of that for nothing.
        "spark.buffer.pageSize": f"{1024 * 1024 - 16}b",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # What Spark remembers of queries, stages and tasks for its UI grows with the width of plans, and is shown nowhere.
        "spark.sql.ui.retainedExecutions": "10",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.maxPlanStringLength": "10000",
        # Delta keeps up to 10,000 opened tables for an hour, with their plans: 2.9 MB each, of ten columns (a heap of 423 MB
        # after 120 tables, and of 144 MB if it keeps ten). To open one again takes 0.2 s.
        "spark.databricks.delta.delta.log.cacheSize": "100",
        "spark.driver.extraJavaOptions": _java_options(java, settings),
        # PySpark would note the line of our code for every column expression: half of the calls into the JVM.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **session_conf(settings),
        **({"spark.delta.logStore.s3a.impl": CLASS_NAME} if "s3" in settings.stores else {}),
        **{name: setting for store in settings.stores for name, setting in spark_settings(store).items()},
    }
    if settings.is_local:
        # A laptop whose host name resolves to nothing, or to an address behind a VPN, must still start.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf = beside(conf, defaults_of_spark(), settings.conf)
    builder = SparkSession.builder
    for name, setting in conf.items():
        builder = builder.config(name, setting)
    # Python functions run in this very Python: the first one on PATH may lack pandas, or be of another version.
    workers = sys.executable if settings.is_local and "PYSPARK_PYTHON" not in os.environ else None
    with _environment(
        JAVA_HOME=str(java_home), SPARK_LOCAL_IP="127.0.0.1" if settings.is_local else None, PYSPARK_PYTHON=workers
    ):
        try:
            with _interrupted_afterwards():
                session = builder.getOrCreate()
            _end_out_of_memory(session)
            if "s3" in settings.stores:
                add_log_store(session)
            add_key_function(session)
            add_lazy_frames(session)
            keep_generated_code(session, java)
            return session
        except Exception as problem:
            raise EnvironmentProblem(
                f"Spark did not start on {settings.master} with Java at {java_home}: {problem}. "
                "Run `relstate doctor` to see what is missing."
            ) from problem


def _compiled_pieces(driver_memory: str) -> int:
    """Compiled code pieces that Spark caches, by the size of the heap.

    By default it keeps 100, which one view of some joins fills. In a run of epoch after epoch it would always drop its
    oldest piece just before the piece is needed, and compile all again.
    """
    size = re.fullmatch(r"(\d+)([kmgt]?)b?", driver_memory.strip().lower())
    # What else is written there Spark refuses.
    number, unit = size.groups() if size else ("0", "m")
    mebibytes = int(number) * {"k": 2**-10, "": 1, "m": 1, "g": 2**10, "t": 2**20}[unit]
    return int(min(10_000, max(500, mebibytes)))


def _end_out_of_memory(session: SparkSession) -> None:
    """End the JVM if a thread dies for want of memory.

    Spark does so for threads of tasks.

    Spark hands rows to Python from a thread of its own, and who waits for them would never hear that it has died.
    """
    jvm: Any = session._jvm
    jvm.java.lang.Thread.setDefaultUncaughtExceptionHandler(jvm.org.apache.spark.util.SparkUncaughtExceptionHandler(False))


def _jars(settings: SparkSettings) -> list[Path]:
    return delta_jars() + [jar for store in settings.stores for jar in jars_of(store)]


#: Spark generates code for each query, and most of it runs only for seconds. In a build of 72 views the optimizing compiler
#: took a quarter of the processor time; with thresholds six times as high it took a fifth. Java sweeps compiled code when
#: little of its 240 MB is left: this build swept 133 times, with 15 MB left for code that is profiled.
_OPTIMIZES_LATE: Final = (
    "-XX:Tier4InvocationThreshold=30000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=60000",
    "-XX:Tier4BackEdgeThreshold=400000",
    "-XX:ReservedCodeCacheSize=512m",
)


def _java_options(java: Java, settings: SparkSettings) -> str:
    log4j = os.environ.get("RELSTATE_LOG4J") or str(Path(__file__).with_name("log4j2.properties"))
    logs = settings.logs or LogSettings()
    options = [f"-Dlog4j2.configurationFile={Path(log4j).absolute().as_uri()}", *logs.java_options()]
    if settings.is_brief:
        # With one compiler, Java has 48 MB for compiled code. Seventy views fill them, and all others are interpreted.
        options += ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"]
    else:
        options += _OPTIMIZES_LATE
    # Spark splits them at blanks, but for quoted ones.
    quoted = [f'"{option}"' if " " in option else option for option in options]
    return f"{' '.join(quoted)} {archive_options(java)}".rstrip()


@contextmanager
def _interrupted_afterwards() -> Iterator[None]:
    """Answer Ctrl-C once Spark has started, as Python does.

    PySpark's own handler talks to the JVM in the middle of a call.

    A start that is broken off leaves a JVM that never ends: the file it is to answer with is gone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, came = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            raise KeyboardInterrupt


@contextmanager
def _environment(**variables: str | None) -> Iterator[None]:
    """Set environment variables (those that are not None) for the start of the JVM only."""
    wanted = {name: text for name, text in variables.items() if text is not None}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = text
