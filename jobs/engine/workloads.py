"""Sessions with the settings that a piece of work needs, apart from the user's session."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from relstate_dagster.jobs.engine.functions import UserFunctions
from relstate_dagster.jobs.engine.key_function import add_key_function
from relstate_dagster.jobs.engine.lazy_frames import add_lazy_frames
from relstate_dagster.jobs.engine.names import keep_class_names
from relstate_dagster.jobs.engine.session import SHUFFLE_PARTITIONS
from relstate_dagster.jobs.engine.spark_connect import new_session, set_all
from relstate_dagster.state_lib.lookup_keys import MOST_ONE_BY_ONE, PUSHED_ONE_BY_ONE
from relstate_dagster.state_lib.tuning import tuning

_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
#: Rules of the optimizer that find nothing in plans that operators describe (there are no subqueries, limits or nested
#: updates), and look for it in each several times: a twentieth of what planning takes.
_USELESS_RULES = (
    "org.apache.spark.sql.delta.metric.OptimizeConditionalIncrementMetric",
    "org.apache.spark.sql.execution.datasources.PushVariantIntoScan",
    "org.apache.spark.sql.catalyst.optimizer.OptimizeOneRowRelationSubquery",
    "org.apache.spark.sql.catalyst.optimizer.OptimizeUpdateFields",
    "org.apache.spark.sql.catalyst.optimizer.EliminateLimits",
    "org.apache.spark.sql.catalyst.optimizer.EliminateOffsets",
    "org.apache.spark.sql.catalyst.optimizer.InjectRuntimeFilter",
    "org.apache.spark.sql.catalyst.optimizer.MergeSubplans",
)


class Workload(enum.Enum):
    """Kind of work that a session is configured for.

    ``SMALL``: an epoch whose change and state are small. Nearly all of its cost is fixed. So adaptive execution is off,
    which runs every stage as a job of its own and plans again in between. Expressions are interpreted: generating and
    compiling code for each stage took half of such an epoch (docs/performance.md).

    ``LARGE``: an epoch over a large change or state. Code is generated, plans are not adapted.

    ``MERGE``: some rows of a large published table are replaced, however small the change is.

    ``FULL``: a backfill or a query run in full, as Spark does it by default.
    """

    SMALL = "small"
    LARGE = "large"
    MERGE = "merge"
    FULL = "full"


_OF_LARGE_TABLES: Final = (Workload.LARGE, Workload.MERGE)


def session_for(
    spark: SparkSession,
    settings: Mapping[str, str],
    workload: Workload,
    functions: UserFunctions | None = None,
    *,
    is_local: bool = True,
) -> SparkSession:
    """A session of its own on the same Spark, for one kind of work.

    Parameters
    ----------
    settings : of the plan.
    functions : that the user's queries may call.
    is_local : whether the warehouse lies on a file system of this machine.
    """
    add_key_function(spark)
    add_lazy_frames(spark)
    session = new_session(spark)
    keep_class_names(session)
    excluded_rules = session.conf.get(_EXCLUDED_RULES, None) or ""
    own = _settings(workload, excluded_rules, is_local=is_local, tasks=cores(session))
    set_all(session, {**settings, **own})
    if functions is not None:
        functions.register(session)
    return session


def cores(session: SparkSession) -> int | None:
    """Number of tasks that run at the same time.

    ``None`` over Spark Connect, which does not tell.
    """
    context = getattr(session, "sparkContext", None)
    return None if context is None else int(context.defaultParallelism)


def _settings(workload: Workload, excluded_rules: str, *, is_local: bool, tasks: int | None) -> dict[str, str]:
    """Settings of a kind of work.

    Parameters
    ----------
    excluded_rules : of the optimizer, by the settings that Spark was started with.
    tasks : that run at the same time, where that is known.
    """
    found: dict[str, str] = {}
    # What it infers (IS NOT NULL, for the most part) joins find out themselves. Over wide projections of projections it makes
    # millions of expressions: a view of 18 columns filled a heap of 2 GB.
    found["spark.sql.constraintPropagation.enabled"] = "false"
    # Rows that are part of a plan are computed by the optimizer, in one thread and row by row, and kept as Java objects.
    found["spark.sql.execution.arrow.localRelationThreshold"] = f"{tuning().local_relation_bytes}b"
    found["spark.sql.adaptive.enabled"] = "true" if workload is Workload.FULL else "false"
    # A union that keeps its inputs' partitioning asks each of them again where its data lie, and they ask theirs: with
    # unions above unions the scheduler was busy for minutes with an epoch of some rows (DAGScheduler.getPreferredLocs).
    found["spark.sql.unionOutputPartitioning"] = "false"
    if workload is not Workload.FULL:
        # What the driver holds is one task and not one for each core.
        found["spark.sql.leafNodeDefaultParallelism"] = "1"
        found[SHUFFLE_PARTITIONS] = "1"
        # The keys of a lookup would be looked for in the dictionaries of row groups first, each made a set of objects as
        # a whole: three keys among 60 M lines took up to 33 s of the processor so, and 15 without. More bytes are read then,
        # since dictionaries also spare row groups.
        found["parquet.filter.dictionary.enabled"] = "false"
        # Statistics and page indexes are asked for each of them instead. By default Spark asks up to ten values so; of more
        # Parquet's reader only asks whether a page can lie between the least and the greatest.
        found[PUSHED_ONE_BY_ONE] = str(MOST_ONE_BY_ONE)
        if is_local:
            # Pages that do not lie side by side are read at once, which suits object stores. Hadoop's local file system
            # starts a thread for each.
            found["parquet.hadoop.vectored.io.enabled"] = "false"
        found[_EXCLUDED_RULES] = ",".join([*([excluded_rules] if excluded_rules else []), *_USELESS_RULES])
    if workload is Workload.SMALL:
        found["spark.sql.codegen.wholeStage"] = "false"
        found["spark.sql.codegen.factoryMode"] = "NO_CODEGEN"
    # The keys of a lookup are data to generated code and no part of it, or it would be compiled again for them.
    found["spark.sql.optimizer.inSetSwitchThreshold"] = "0"
    # Files are listed by the driver, which knows their paths from the log: no job to list them.
    found["spark.sql.sources.parallelPartitionDiscovery.threshold"] = "1000000"
    if workload in _OF_LARGE_TABLES and tasks is not None:
        # All cores share reading.
        found["spark.sql.files.minPartitionNum"] = str(tasks)
    # Many small runs make up a state table: by default each would count as 4 MB, and get a task of its own. It is also the
    # least that a file is divided into: less is not worth another core.
    found["spark.sql.files.openCostInBytes"] = "524288" if workload in _OF_LARGE_TABLES else "65536"
    # What is merged is read from a fixed version of the state: it cannot change between the two times MERGE reads it.
    found["spark.databricks.delta.merge.materializeSource"] = "none"
    # A rebuilt view replaces all rows of its table, where clusters may be set up to replace partitions that are written.
    found["spark.sql.sources.partitionOverwriteMode"] = "static"
    # The feed of a table whose columns were renamed in the range is read by what files call them, which stays.
    found["spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable"] = "endVersion"
    # Silently skipped files would be silently wrong views.
    found["spark.sql.files.ignoreMissingFiles"] = "false"
    found["spark.sql.files.ignoreCorruptFiles"] = "false"
    if workload is Workload.MERGE:
        # The table need not be sorted for a join with few rows.
        found["spark.sql.join.preferSortMergeJoin"] = "false"
        found["spark.databricks.delta.replaceWhere.dataColumns.enabled"] = "true"
        # One write both replaces rows and appends rows with new keys.
        found["spark.databricks.delta.replaceWhere.constraintCheck.enabled"] = "false"
    return found


@contextmanager
def transaction(session: SparkSession, app_id: str, version: int, metadata: str) -> Iterator[None]:
    """Make the one Delta commit inside idempotent, with ``metadata`` that names it.

    A MERGE takes its transaction id from the session only. Left set, a stale version would silently drop later writes,
    so it is unset whatever happens, and the session is used for nothing else.
    """
    wanted = {
        "spark.databricks.delta.write.txnAppId": app_id,
        "spark.databricks.delta.write.txnVersion": str(version),
        "spark.databricks.delta.commitInfo.userMetadata": metadata,
    }
    for key, value in wanted.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key in wanted:
            session.conf.unset(key)


def forget_table(session: SparkSession, path: str) -> None:
    """Make Spark open a deleted and recreated Delta table again.

    Delta keeps opened logs by their paths. Spark Connect has no call to drop one: it notices a new version of a table,
    but not a new table at the same path.
    """
    jvm = getattr(session, "_jvm", None)
    if jvm is not None:
        jvm.org.apache.spark.sql.delta.DeltaLog.invalidateCache(session._jsparkSession, jvm.org.apache.hadoop.fs.Path(path))
