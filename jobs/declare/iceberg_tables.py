"""Declarations of Iceberg tables as sources.

::

    CREATE TABLE orders (PRIMARY KEY (id)) USING iceberg TBLPROPERTIES ('source.table' = 'lake.sales.orders')

``lake`` is a catalog that is configured for PyIceberg. A table without one is named by its folder, as ``LOCATION``.
"""

from __future__ import annotations

import re
from typing import Final

from relstate_dagster.jobs.declare.catalog_tables import TABLE
from relstate_dagster.jobs.declare.model import SourceDeclaration
from relstate_dagster.state_lib.errors import DeclarationError
from relstate_dagster.state_lib.lake.address import Address

_NAME: Final = re.compile(r"[^.`\s]+(\.[^.`\s]+){2,}")
#: What the place of a table in a catalog begins with.
IN_CATALOG: Final = "iceberg:"


def check_iceberg_table(source: SourceDeclaration, where: str) -> None:
    """Check the declaration of an Iceberg table.

    Raises
    ------
    DeclarationError
        It does not say where the table is, or says what only Delta tables have.
    """
    if not source.is_iceberg:
        return
    name = source.properties.get(TABLE)
    if (name is None) == (source.location is None):
        raise DeclarationError(
            f"{where}: USING iceberg needs either '{TABLE}' = 'catalog.database.table' or the table's folder as LOCATION."
        )
    if name is not None and not _NAME.fullmatch(name):
        raise DeclarationError(f"{where}: '{TABLE}' = {name!r} is no name of an Iceberg table: write catalog.database.table.")
    given = {
        "columns": source.columns,
        "PARTITIONED BY": source.partitioned_by,
        "CLUSTER BY": source.cluster_by,
        "'source.kind'": "source.kind" in source.properties,
        "'delta.appendOnly'": "delta.appendOnly" in source.properties,
    }
    for what, is_given in given.items():
        if is_given:
            raise DeclarationError(f"{where}: {what} cannot be declared of an Iceberg table, which is there already.")


def iceberg_place(source: SourceDeclaration) -> str | None:
    """The place of an Iceberg table: its name in a catalog, or its folder.

    None for another source.
    """
    if not source.is_iceberg:
        return None
    return f"{IN_CATALOG}{source.properties[TABLE]}" if source.location is None else Address.parse(source.location).spark
