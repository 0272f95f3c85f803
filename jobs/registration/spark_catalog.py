"""Tables of Spark's catalog: sources by their names there, and the names of published views."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.entries import ViewEntry
from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare.catalog_tables import table_text
from relstate_dagster.jobs.view_epoch.error_messages import reason_of
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import Address

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


def path_in_catalog(spark: SparkSession, table: str, shown: str) -> str | None:
    """Path of a Delta table of Spark's catalog; ``None`` if there is none.

    Parameters
    ----------
    table : its name as SQL writes it.
    shown : its name in messages.

    Raises
    ------
    DeclarationError : the catalog cannot be read, or the table is not a Delta table.
    """
    try:
        # Of a table whose folder is gone Spark knows the name, but does not say whether it exists.
        detail = spark.sql(f"DESCRIBE DETAIL {table}").first() if spark.catalog.tableExists(table) else None
    except PySparkException as error:
        raise DeclarationError(f"table {shown} of Spark's catalog cannot be read: {reason_of(error)}") from error
    if detail is None:
        return None
    if detail["format"] != "delta":
        raise DeclarationError(f"table {shown} is not a Delta table; only Delta tables can be sources")
    return str(Address.parse(str(detail["location"])).spark)


def names_table(spark: SparkSession, name: str, path: str) -> bool:
    """Whether a name in the session's database is that of the table at a path.

    If not, the name is free. In a metastore, no table is dropped because a source has its name. A catalog in memory ends with
    its process, and sessions replace the names of earlier ones.

    Raises
    ------
    DeclarationError : another table has the name.
    """
    if spark.conf.get("spark.sql.catalogImplementation") == "in-memory" or not spark.catalog.tableExists(f"`{name}`"):
        return False
    found = spark.catalog.getTable(f"`{name}`")
    in_full = ".".join([*(found.namespace or ()), name])
    if found.tableType != "VIEW" and path_in_catalog(spark, f"`{name}`", in_full) == Address.parse(path).spark:
        return True
    raise DeclarationError(
        f"source {name}: Spark's catalog has another table {in_full}, and statements are run with the names of sources; give "
        "the source another name"
    )


def check_published_name(spark: SparkSession, warehouse: Warehouse, view: ViewEntry, others: Iterable[ViewEntry]) -> None:
    """Check that a view's table can have its name in Spark's catalog.

    Parameters
    ----------
    others : views of the warehouse, which may have asked for the same name.

    Raises
    ------
    DeclarationError : another table has the name, another view asks for it, or its database is not there.
    """
    name = view.published_as
    if name is None:
        return
    shown, database = name.replace("`", ""), table_text(view.published_parts[:-1])
    same = [other.name for other in others if other.name != view.name and other.published_as == name]
    if same:
        raise DeclarationError(
            f"view {view.name}: 'publish.table' is {shown}, and so is that of view {same[0]}; choose another name"
        )
    if len(view.published_parts) < 3 and not all(_PLAIN_NAME.fullmatch(part) for part in view.published_parts):
        raise DeclarationError(
            f"view {view.name}: 'publish.table' is {shown}; in Spark's own catalog, names have letters, digits and _ alone"
        )
    is_own = _has_own_name(spark, warehouse, view, name)
    if is_own is None and not spark.catalog.databaseExists(database):
        raise DeclarationError(
            f"view {view.name}: 'publish.table' is {shown}, and Spark's catalog has no such database; create it first"
        )
    if is_own is False:
        raise DeclarationError(
            f"view {view.name}: 'publish.table' is {shown}, which Spark's catalog has for another table or view; drop that, or "
            "choose another name"
        )


def forget_published_name(spark: SparkSession, warehouse: Warehouse, view: ViewEntry) -> None:
    """Take a view's name out of Spark's catalog, before the view is dropped.

    A table of that name that is not the view's stays.
    """
    name = view.published_as
    if name is not None and _has_own_name(spark, warehouse, view, name):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def _has_own_name(spark: SparkSession, warehouse: Warehouse, view: ViewEntry, name: str) -> bool | None:
    """Whether a name of Spark's catalog is that of a view's table.

    ``None`` if nothing has it.

    Raises
    ------
    DeclarationError : the catalog cannot be read.
    """
    try:
        if not spark.catalog.tableExists(name):
            return None
        # A view of the catalog has no detail.
        if spark.catalog.getTable(name).tableType == "VIEW":
            return False
        detail = spark.sql(f"DESCRIBE DETAIL {name}").first()
    except PySparkException as error:
        raise DeclarationError(f"view {view.name}: 'publish.table' is {name.replace('`', '')}: {reason_of(error)}") from error
    assert detail is not None
    return Address.parse(str(detail["location"])).spark == Address.parse(warehouse.target(view.name).path).spark
