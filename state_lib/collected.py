"""Rows of a frame brought to the driver, as far as it may hold them."""

from __future__ import annotations

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame


def collected(df: DataFrame) -> pa.Table | None:
    """All rows of a frame; ``None`` where Spark finds that they are more than ``spark.driver.maxResultSize``.

    How many rows a change meets is known only once they are there: one row of a table of countries can meet half of all
    orders. Whoever asks must be able to go on without holding them.
    """
    try:
        return df.toArrow()
    except (PySparkException, Py4JJavaError) as error:
        if "spark.driver.maxResultSize" in str(error):
            return None
        raise
