"""Delta tables that random statements change, by Spark and by delta-rs."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.epoch.scripts import FOR_FEW_ROWS

_DELETING = "'delta.enableDeletionVectors' = 'true'"
_MAPPED = "'delta.columnMapping.mode' = 'name'"
_BY_ID = "'delta.columnMapping.mode' = 'id'"
_TRACKED = "'delta.enableRowTracking' = 'true'"
#: Column ``p`` and what else a table is created with; a key is ``k``.
LAYOUTS = {
    "plain": ("p STRING", "", ""),
    "marked": ("p STRING", "", _DELETING),
    "mapped": ("p STRING", "", f"{_MAPPED}, {_DELETING}"),
    "by id": ("p STRING", "", f"{_BY_ID}, {_DELETING}"),
    "texts": ("p STRING", "PARTITIONED BY (p)", _DELETING),
    "mapped texts": ("p STRING", "PARTITIONED BY (p)", _MAPPED),
    "times": ("p TIMESTAMP", "PARTITIONED BY (p)", ""),
    "times, marked": ("p TIMESTAMP", "PARTITIONED BY (p)", _DELETING),
    "doubles": ("p DOUBLE", "PARTITIONED BY (p)", ""),
    "tracked": ("p STRING", "", f"{_TRACKED}, {_DELETING}"),
    "tracked texts": ("p STRING", "PARTITIONED BY (p)", f"{_TRACKED}, {_MAPPED}"),
}
_PARTITIONS = {
    "STRING": ("'a b/c%=}[*'", "''", "'007'", "NULL", "' x'", "'+%2F'"),
    "TIMESTAMP": (
        "TIMESTAMP'2024-02-29 23:59:59.123456'",
        "NULL",
        "TIMESTAMP'1969-12-31 23:00:00'",
        "TIMESTAMP'2024-10-27 02:30:00'",
    ),
    "DOUBLE": ("double('NaN')", "0D", "NULL", "1.5D", "-1e300D", "double('Infinity')"),
}
_COLUMNS = "k INT, v INT, d DOUBLE, x DECIMAL(30,5), s STRUCT<a: INT, b: ARRAY<STRING>>, u STRING"


@dataclass
class AnyTable:
    """A table with columns of many types, and the hands that change it.

    Parameters
    ----------
    is_keyed : no two rows have the same ``k``.
    """

    spark: SparkSession
    path: Path
    layout: str
    seed: int
    is_keyed: bool = False
    has_feed: bool = False
    done: list[str] = field(default_factory=list)
    _next: int = 0

    def __post_init__(self) -> None:
        for key, value in FOR_FEW_ROWS.items():
            self.spark.conf.set(key, value)
        self.random = random.Random(f"{self.layout} {self.seed}")
        partition, partitioned, properties = LAYOUTS[self.layout]
        feed = "'delta.enableChangeDataFeed' = 'true'" if self.has_feed else ""
        listed = ", ".join(filter(None, (properties, feed)))
        wanted = f"TBLPROPERTIES ({listed})" if listed else ""
        self.spark.sql(f"CREATE TABLE {self.name} ({_COLUMNS}, {partition}) USING delta {partitioned} {wanted}")
        self.partitions = _PARTITIONS[partition.split()[1]]
        if self.layout == "mapped texts":
            # Not where delta-rs writes: it removes files by other names than Spark has added them under.
            self.partitions = (*self.partitions, "'ü'")
        self.insert()
        self.insert()

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    @property
    def version(self) -> int:
        return DeltaTable(str(self.path)).version()

    def rows(self, count: int, keys: list[int] | None = None) -> str:
        """Drawn rows as a SELECT.

        They have NULLs, NaN, zeros of both signs and, without a key, equal rows.
        """
        if keys is None:
            keys = list(range(self._next, self._next + count))
            self._next += count
        values = []
        for k in keys:
            pick = self.random.choice
            d = pick(("NULL", "double('NaN')", "0D", "double('-0.0')", "1.5D"))
            s = pick(("NULL", "named_struct('a', 1, 'b', array('x', NULL))", "named_struct('a', NULL, 'b', array())"))
            x = pick(("NULL", "12345678901234567890.12345BD", "0BD"))
            u = pick(("NULL", "''", "'u'"))
            values.append(
                f"({k}, {pick((1, 2, 3, 'NULL'))}, {d}, CAST({x} AS DECIMAL(30,5)), {s}, {u}, {pick(self.partitions)})"
            )
        return f"SELECT * FROM VALUES {', '.join(values)} AS r (k, v, d, x, s, u, p)"

    def change(self) -> None:
        """Do one thing to the table; what the table does not allow is not done."""
        often = [self.insert, self.update, self.delete]
        by_spark = [self.merge, self.optimize, self.zorder, self.overwrite, self.restore, self.replace_where, self.purge]
        altering = [self.vectors, self.add_column, self.rename_column, self.drop_column, self.map_columns]
        by_delta_rs = [self.rs_append, self.rs_delete, self.rs_update, self.rs_merge, self.rs_optimize]
        hands = [*often, *often, *by_spark, *altering, *by_delta_rs]
        hand = self.random.choice(hands)
        self.done.append(hand.__name__)
        try:
            hand()
        except (PySparkException, DeltaError) as error:
            self.done.append(f"({type(error).__name__})")

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace("{t}", self.name))

    def condition(self) -> str:
        number = self.random.randint(0, 6)
        return self.random.choice(
            (f"k % 7 = {number}", f"k % 3 = {number % 3}", f"v = {number % 3 + 1}", "v IS NULL", "isnan(d)")
        )

    @property
    def columns(self) -> str:
        """Columns of the table at its creation that are still there."""
        return "k, v, d, x, s, u, p"

    # -- by Spark -------------------------------------------------------------------------------------------------

    def insert(self) -> None:
        count = self.random.randint(1, 8)
        keys = None
        if not self.is_keyed and self.random.random() < 0.5:
            keys = [self.random.choice((0, 1, 2)) for _ in range(count)] * 2
        text = self.rows(count, keys)
        twice = "" if self.is_keyed else self.random.choice(("", f" UNION ALL {text}"))
        self.sql(f"INSERT INTO {{t}} ({self.columns}) {text}{twice}")

    def update(self) -> None:
        values = ("v = coalesce(v, 0) + 1", "v = v", "d = double('NaN')", "d = double('-0.0')", "x = x + 1")
        to = self.random.choice((*values, f"p = {self.random.choice(self.partitions)}"))
        self.sql(f"UPDATE {{t}} SET {to} WHERE {self.condition()}")

    def delete(self) -> None:
        self.sql(f"DELETE FROM {{t}} WHERE {self.condition()}")

    def merge(self) -> None:
        keys = sorted({self.random.randint(0, self._next) for _ in range(3)} | {self._next})
        self._next += 1
        using = self.rows(len(keys), keys)
        values = ", ".join(f"n.{column}" for column in self.columns.split(", "))
        inserts = self.is_keyed or self.random.random() < 0.7
        insert = f"WHEN NOT MATCHED THEN INSERT ({self.columns}) VALUES ({values})" if inserts else ""
        self.sql(
            f"MERGE INTO {{t}} t USING ({using}) n ON t.k = n.k WHEN MATCHED AND n.v = 1 THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET t.v = n.v, t.d = n.d, t.p = n.p {insert}"
        )

    def optimize(self) -> None:
        self.sql("OPTIMIZE {t}")

    def zorder(self) -> None:
        self.sql("OPTIMIZE {t} ZORDER BY (k)")

    def overwrite(self) -> None:
        rows = self.spark.table(self.name).where("k % 2 = 0")
        rows.write.format("delta").mode("overwrite").save(str(self.path))

    def restore(self) -> None:
        newest = self.version
        self.sql(f"RESTORE TABLE {{t}} TO VERSION AS OF {self.random.randint(max(2, newest - 4), newest)}")

    def replace_where(self) -> None:
        low = self.random.randint(0, self._next)
        rows = self.spark.table(self.name).where(f"k >= {low} AND k < {low + 5} AND k % 2 = 0").selectExpr("*").coalesce(1)
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", f"k >= {low} AND k < {low + 5}")
        writer.save(str(self.path))

    def purge(self) -> None:
        self.sql("REORG TABLE {t} APPLY (PURGE)")

    def vectors(self) -> None:
        self.sql(
            f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.enableDeletionVectors' = '{self.random.choice(('true', 'false'))}')"
        )

    def add_column(self) -> None:
        self.sql(f"ALTER TABLE {{t}} ADD COLUMN (n{len(self.done)} INT)")
        with suppress(PySparkException):
            self.sql(f"UPDATE {{t}} SET n{len(self.done)} = 1 WHERE {self.condition()}")

    def _others(self) -> list[str]:
        return [c for c in self.spark.table(self.name).columns if c not in self.columns.split(", ")] or ["none"]

    def rename_column(self) -> None:
        self.sql(f"ALTER TABLE {{t}} RENAME COLUMN {self.random.choice(self._others())} TO n{len(self.done)}_r")

    def drop_column(self) -> None:
        self.sql(f"ALTER TABLE {{t}} DROP COLUMN {self.random.choice(self._others())}")

    def map_columns(self) -> None:
        self.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")

    # -- by delta-rs ----------------------------------------------------------------------------------------------

    def _arrow(self) -> pa.Table:
        """A few rows with the columns that delta-rs can write, of the table's types."""
        keys = [self._next, self._next + 1]
        self._next += 2
        return pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array([1, None], pa.int32()), "u": pa.array(["é", None])})

    def rs_append(self) -> None:
        deltalake.write_deltalake(str(self.path), self._arrow(), mode="append", schema_mode="merge")

    def rs_delete(self) -> None:
        DeltaTable(str(self.path)).delete(f"k % 5 = {self.random.randint(0, 4)}")

    def rs_update(self) -> None:
        DeltaTable(str(self.path)).update(updates={"v": "7"}, predicate=f"k % 5 = {self.random.randint(0, 4)}")

    def rs_merge(self) -> None:
        rows = self._arrow()
        merging = DeltaTable(str(self.path)).merge(rows, "v.k % 4 = c.k % 4 AND v.v = c.v", source_alias="c", target_alias="v")
        merging.when_matched_delete().execute()

    def rs_optimize(self) -> None:
        DeltaTable(str(self.path)).optimize.compact()


def bag(frame: DataFrame) -> Counter[str]:
    """Rows of a frame as texts, which differ by NaN and the sign of zero."""
    return Counter(str(tuple(row)) for row in frame.collect())


def net(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """What changed between two bags of rows."""
    return {row: after[row] - before[row] for row in {**before, **after} if after[row] != before[row]}


def weighted(frame: DataFrame | None, columns: list[str]) -> dict[str, int]:
    """The rows of a change set with their summed weights."""
    found: Counter[str] = Counter()
    for row in [] if frame is None else frame.select(*columns, "_weight").collect():
        found[str(tuple(row)[:-1])] += row["_weight"]
    return {row: weight for row, weight in found.items() if weight}
