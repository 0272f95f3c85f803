"""Rows of a frame that Spark computes once."""

from __future__ import annotations

from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame


def local_checkpoint(frame: DataFrame, *, eager: bool = True, level: StorageLevel | None = None) -> DataFrame:
    """A frame of the same rows, kept on the executors, by ``DataFrame.localCheckpoint``.

    Parameters
    ----------
    eager : compute them now, and not when they are first read.
    level : where they are kept; as Spark has it by default.
    """
    if isinstance(frame, ClassicDataFrame):
        return frame.localCheckpoint(eager, level)
    # Spark Connect's client takes the result to be in the active session of the thread, whichever session the frame is of.
    active: Any = type(frame.sparkSession)
    before = getattr(active._active_session, "session", None)
    active._active_session.session = frame.sparkSession
    try:
        return frame.localCheckpoint(eager, level)
    finally:
        active._active_session.session = before
