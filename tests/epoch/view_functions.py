"""Functions of a project, as a user would write them: named ``tests.epoch.view_functions:register``."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import pandas_udf, udf


# PySpark warns of type hints that are not those of a pandas function.
def _initial(name):
    return "?" if not name else name[0].upper()


@pandas_udf("decimal(12,2)")
def with_tax(price: pd.Series) -> pd.Series:
    return price.map(lambda p: None if p is None else (p * Decimal("1.2")).quantize(Decimal("0.01")))


@pandas_udf("double")
def median(prices: pd.Series) -> float:
    return float(prices.astype("float64").median())


@udf("string")
def ticket(name):
    return f"{name}-{uuid4()}"


def register(spark: SparkSession) -> None:
    spark.udf.register("initial", _initial, "string")
    spark.udf.register("with_tax", with_tax)
    spark.udf.register("median_price", median)
    spark.udf.register("ticket", ticket.asNondeterministic())
    spark.sql("CREATE OR REPLACE TEMPORARY FUNCTION twice(x DECIMAL(10,2)) RETURNS DECIMAL(12,2) RETURN x * 2")


def register_less(spark: SparkSession) -> None:
    spark.udf.register("initial", _initial, "string")


def fails(_spark: SparkSession) -> None:
    raise RuntimeError("no such file")
