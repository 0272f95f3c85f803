"""Errors of Spark, Java and files as one line, with remedies."""

from __future__ import annotations

import errno
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from relstate_dagster.jobs.declare.changelogs import changelog_of
from relstate_dagster.jobs.engine.jvm import has_jvm, how_it_ended, is_working
from relstate_dagster.jobs.operators.aggregate_newest import NULL_KEY
from relstate_dagster.state_lib.errors import (
    EnvironmentProblem,
    EpochError,
    RelstateError,
    SourceError,
    StateError,
    first_line,
    text_of,
    with_causes,
)
from relstate_dagster.state_lib.lake.table import DeltaError

#: What Spark says of a job of which a task has failed.
_OF_A_JOB: Final = ("Job aborted", "awaitResult")
#: What Spark puts around the reason: its class names and error codes at the ends.
_BEFORE: Final = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )+")
_AFTER: Final = re.compile(r"(?: ?SQLSTATE: \w+)+$")
_DAMAGED: Final = ("FAILED_READ_FILE", "is not a Parquet file")
_NO_MEMORY: Final = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError")
#: What Java, Rust and Arrow say of it.
_FULL_DISK: Final = ("No space left on device", "os error 28", "There is not enough space on the disk", "Disk quota exceeded")
_GONE: Final = (
    "DELTA_FILE_NOT_FOUND",
    "PATH_NOT_FOUND",
    "FAILED_READ_FILE.FILE_NOT_EXIST",
    "FileNotFoundException",
    "No such file",
)


def explained(view: str, epoch: int | None, error: BaseException) -> RelstateError:
    """The error of a view that could not be computed, as a RelstateError.

    Parameters
    ----------
    epoch : the one that the view could not reach, if it was begun.
    """
    if isinstance(error, RelstateError):
        return error
    return _of_spark_or_files(view, f"view {view}" if epoch is None else f"view {view}, epoch {epoch}", error)


def _of_spark_or_files(view: str, where: str, error: BaseException) -> RelstateError:
    text, line, rebuild = text_of(error), reason_of(error), f"rebuild it with relstate run --full-refresh {view}"
    is_spark = isinstance(error, PySparkException | Py4JJavaError)
    raised = _line(text.split("[USER_RAISED_EXCEPTION]", 1)[-1])
    cases: tuple[tuple[bool, type[RelstateError], str], ...] = (
        (
            "ConcurrentTransaction" in type(error).__name__ or "ConcurrentTransactionException" in text,
            EpochError,
            "another run committed this epoch at the same time; nothing was lost, run again",
        ),
        ("USER_RAISED_EXCEPTION" in text and NULL_KEY in raised, StateError, f"{raised}; {_without_null_keys(view)}"),
        ("USER_RAISED_EXCEPTION" in text, StateError, raised),
        (
            "S3AFileSystem not found" in text,
            EnvironmentProblem,
            "Spark has no jars for S3: fetch them once with relstate prepare --s3, and set AWS's variables (AWS_REGION, …)",
        ),
        (
            "AzureBlobFileSystem not found" in text,
            EnvironmentProblem,
            "Spark has no jars for Azure Storage: fetch them once with relstate prepare --azure, and set Azure's variables "
            "(AZURE_STORAGE_ACCOUNT_KEY, …)",
        ),
        (
            "GoogleHadoopFileSystem not found" in text,
            EnvironmentProblem,
            "Spark has no jars for Google Cloud Storage: fetch them once with relstate prepare --gcs, and set "
            "GOOGLE_APPLICATION_CREDENTIALS",
        ),
        (
            any(word in text for word in _NO_MEMORY),
            EpochError,
            f"Spark's memory ran out ({line}); it stays as it was; raise the memory of its driver (RELSTATE_DRIVER_MEMORY) or "
            "its executors, or mend the rows or the query",
        ),
        (
            any(word in text for word in _FULL_DISK) or (isinstance(error, OSError) and error.errno == errno.ENOSPC),
            EnvironmentProblem,
            f"a disk is full ({line}); nothing was lost, make room and run again",
        ),
        (
            is_spark and any(word in text for word in _GONE),
            SourceError,
            f"a file that it reads is gone ({line}); if VACUUM has deleted it, {rebuild}, else put it back",
        ),
        (
            isinstance(error, FileNotFoundError),
            SourceError,
            f"a file or folder is not there ({line}); put it back, or, if it is of this view's own state, {rebuild}",
        ),
        (
            "DELTA_CHANGE_DATA_FEED" in text,
            SourceError,
            f"the change feed of a source cannot be read: {line}; {rebuild}",
        ),
        (
            any(word in text for word in _DAMAGED),
            StateError,
            f"a file cannot be read, it is damaged ({line}); restore it if it is a source's, or {rebuild}",
        ),
        (
            is_spark,
            EpochError,
            f"Spark could not compute it: {line}; it stays as it was; mend the rows or the query",
        ),
        (
            isinstance(error, DeltaError | OSError),
            StateError,
            f"a table or file cannot be read or written: {line}; if it is of this view's own state, {rebuild}",
        ),
        (True, EpochError, f"{type(error).__name__}: {line}"),
    )
    return next(kind(f"{where}: {message}") for applies, kind, message in cases if applies)


def _without_null_keys(view: str) -> str:
    """Remedy for changes with a NULL in their key."""
    log = changelog_of(view)
    return (
        f"delete such rows (ALTER TABLE {log} SET TBLPROPERTIES ('delta.appendOnly' = 'false'), then DELETE FROM {log} WHERE … "
        f"IS NULL, then relstate run --full-refresh {view}). If the table has no 'source.order', and other rows of their "
        f"files are left, the rebuild is refused. Then create another table, insert the rows of {view} (INSERT INTO … SELECT * "
        f"FROM {view}) and all newer rows into it, and drop this one"
    )


def ends_the_run(error: BaseException, at_work: Collection[str] = ()) -> RelstateError | None:
    """Whether nothing else can be computed after an error either: Spark itself is gone.

    Parameters
    ----------
    at_work : the views that were computed just then.
    """
    if not _says_that_spark_is_gone(error) and is_working():
        return None
    doing = f" in the middle of an epoch that brings {', '.join(at_work)} up to date" if at_work else ""
    others = "; where the same view ends it each time, others go on by name (relstate run VIEW …)" if at_work else ""
    return EnvironmentProblem(
        f"Spark has ended{doing} ({how_it_ended() or first_line(error)}): look into its log, raise the driver's memory "
        f"(RELSTATE_DRIVER_MEMORY) if it ran out; the next run repairs what was left{others}"
    )


@contextmanager
def ended_spark_is_said() -> Iterator[None]:
    """Report that Spark has ended, in words of this project.

    It may be noticed anywhere in a piece of work.
    """
    try:
        yield
    except RelstateError:
        raise
    except Exception as error:
        ended = ends_the_run(error)
        if ended is None:
            raise
        raise ended from error


def _says_that_spark_is_gone(error: BaseException) -> bool:
    text = text_of(error)
    if isinstance(error, Py4JNetworkError) or "Cannot call methods on a stopped SparkContext" in text:
        return True
    if isinstance(error, ConnectionError):
        return has_jvm()
    # A call that was not answered has neither a Java error nor its trace.
    unanswered = type(error) is Py4JError and "Trace:" not in text
    return unanswered or (isinstance(error, Py4JError) and (not text or ("SparkContext" in text and "stopped" in text)))


#: What Spark says where an executor died that held the only copy of something, or that a task was on, too often.
_OF_EXECUTORS: Final = (
    "Checkpoint block",
    "ExecutorLostFailure",
    "Could not find CoarseGrainedScheduler",
    "MetadataFetchFailed",
)


def lost_an_executor(error: BaseException) -> bool:
    """Whether the death of an executor alone made a view fail.

    A second try may then work.
    """
    return any(words in text_of(error) for words in _OF_EXECUTORS)


#: SQL's classes of errors of data: values that an expression is not defined for, more rows than one, and what queries raise.
_OF_A_VALUE: Final = re.compile(r"SQLSTATE: (?:21|22|P0)\w+")


def is_of_a_value(error: BaseException) -> bool:
    """Whether an expression could not be computed for the values of a row."""
    return _OF_A_VALUE.search(text_of(error)) is not None


def reason_of(error: BaseException) -> str:
    """Reason in an error of Spark, Delta or a store, in one line."""
    line = _line(with_causes(error))
    if "computeMetadata" not in line:
        return line
    return f"there are no credentials for Google Cloud Storage, set GOOGLE_APPLICATION_CREDENTIALS ({line})"


def _line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    caused = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    own = next((line for line in lines if not line.startswith("An error occurred while calling")), "an error without a text")
    # A task's own reason stands behind those of its job and of the thread that waited for it.
    chosen = caused[-1] if caused and any(word in own for word in _OF_A_JOB) else own.removeprefix(": ")
    return _AFTER.sub("", _BEFORE.sub("", chosen)).strip()
