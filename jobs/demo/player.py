"""Plays the flights of 2013 as an operations desk sees them, day by day.

On day D, in five Delta commits:

1. corrections: what was reported of day D-1 is replaced by what was measured (MERGE on flights),
2. cancellations: flights of day D-1 that never departed are deleted,
3. one plane is registered under a new tail number (UPDATE of planes, of its primary key),
4. the weather of day D is appended (a source with no key, and with duplicate rows: the hour when clocks go back),
5. the flights of day D are appended, one in twenty of them with delays as first reported, rounded and too high.

Step 5 is last, so that the newest day in ``flights`` shows how far a player got, and steps 1 to 3 can be repeated. Appends
carry a transaction version, so they can be repeated too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

from relstate_dagster.jobs.declare import SourceDeclaration
from relstate_dagster.jobs.demo.flights import FlightData, load_flight_data
from relstate_dagster.jobs.registration.sync import create_source_table
from relstate_dagster.state_lib.collected import frame_of
from relstate_dagster.state_lib.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST_DAY: Final = date(2013, 1, 1)
LAST_DAY: Final = date(2013, 12, 31)
#: The day up to which the demo loads flights before it plays any.
LOADED_THROUGH: Final = date(2013, 2, 28)
FLIGHT_KEY: Final = ("time_hour", "carrier", "flight")
_SAME_FLIGHT: Final = " AND ".join(f"t.{column} = s.{column}" for column in FLIGHT_KEY)
_FIRST_REPORTED: Final = "crc32(concat(carrier, flight, day)) % 20 = 0"


@dataclass(frozen=True)
class DayPlayed:
    """One day: rows that changed in each source."""

    day: date
    flights_appended: int
    flights_corrected: int
    flights_cancelled: int
    planes_registered: int
    weather_appended: int


class FlightPlayer:
    """Loads the first months and plays days after them.

    Parameters
    ----------
    spark
        A session with Delta.
    folder
        Where managed sources lie; each table is ``<folder>/<name>``. A source with a LOCATION lies there.
    sources
        Declarations of the five tables.
    """

    def __init__(self, spark: SparkSession, folder: str, sources: Iterable[SourceDeclaration]) -> None:
        self._spark = spark
        self._sources = {source.name: source for source in sources}
        self._folder = folder.rstrip("/")
        self._flights: FlightData | None = None

    def load(self, through: date, on_table: Callable[[str, int], None] = lambda _table, _rows: None) -> None:
        """Create the sources and load everything until a day.

        Tables that exist are not changed.

        Parameters
        ----------
        through
            The last day to load, on which flights are as first reported.
        on_table
            Called after each table with its name and the number of rows loaded.
        """
        for name in ("airlines", "airports", "planes", "weather", "flights"):
            rows = self._initial_rows(name, through)
            if not self._exists(name):
                create_source_table(self._spark, self.path(name), self._sources[name])
            self._append(rows, name, version=_ordinal(through))
            on_table(name, rows.count())

    def is_loaded(self) -> bool:
        """Whether `load` has completed."""
        return self._exists("flights") and self.last_day() is not None

    def last_day(self) -> date | None:
        """Return the newest day in ``flights``; None where it is empty."""
        query = f"SELECT max(make_date(year, month, day)) FROM {self.table('flights')}"
        found: date | None = self._spark.sql(query).collect()[0][0]
        return found

    def play_day(self, day: date | None = None) -> DayPlayed:
        """Play one day, the one after the newest by default.

        Raises
        ------
        SourceError
            Nothing is loaded yet, or the year is over.
        """
        newest = self.last_day() if self._exists("flights") else None
        if newest is None:
            raise SourceError(f"there are no flights in {self._folder} to go on from: load the first months first.")
        day = day or newest + timedelta(days=1)
        if day > LAST_DAY:
            raise SourceError(f"the data set ends on {LAST_DAY}: start again with an empty warehouse.")
        before = day - timedelta(days=1)
        corrected = self._correct(before)
        cancelled = self._cancel(before)
        registered = self._register_plane(day)
        weather = self._arrow_rows("weather", day, day)
        self._append(weather, "weather", version=_ordinal(day))
        flights = as_first_reported(self._arrow_rows("flights", day, day))
        self._append(flights, "flights", version=_ordinal(day))
        return DayPlayed(day, flights.count(), corrected, cancelled, registered, weather.count())

    def table(self, name: str) -> str:
        """Return how SQL addresses a source."""
        return f"delta.`{self.path(name)}`"

    def path(self, name: str) -> str:
        """Return where a source lies."""
        return self._sources[name].location or f"{self._folder}/{name}"

    def _correct(self, day: date) -> int:
        measured = self._arrow_rows("flights", day, day).where(f"dep_time IS NOT NULL AND {_FIRST_REPORTED}")
        measured.createOrReplaceTempView("_measured")
        changed = ("dep_delay", "arr_delay", "air_time")
        differs = " OR ".join(f"NOT (t.{column} <=> s.{column})" for column in changed)
        assigned = ", ".join(f"{column} = s.{column}" for column in changed)
        return self._changed(
            f"MERGE INTO {self.table('flights')} AS t USING _measured AS s ON {_SAME_FLIGHT} "
            f"WHEN MATCHED AND ({differs}) THEN UPDATE SET {assigned}"
        )

    def _cancel(self, day: date) -> int:
        on_day = f"year = {day.year} AND month = {day.month} AND day = {day.day}"
        return self._changed(f"DELETE FROM {self.table('flights')} WHERE {on_day} AND dep_time IS NULL")

    def _register_plane(self, day: date) -> int:
        # One plane a day, in the order of tail numbers, among those that have not been registered again.
        tails = self._data.tables["planes"]["tailnum"].to_pylist()
        tail = sorted(tails)[_ordinal(day) % len(tails)]
        return self._changed(f"UPDATE {self.table('planes')} SET tailnum = '{tail}-{day:%m%d}' WHERE tailnum = '{tail}'")

    def _changed(self, statement: str) -> int:
        counts = self._spark.sql(statement).collect()
        return int(counts[0][0]) if counts else 0

    def _initial_rows(self, name: str, through: date) -> DataFrame:
        if name == "weather":
            return self._arrow_rows(name, FIRST_DAY, through)
        if name == "flights":
            settled = self._arrow_rows(name, FIRST_DAY, through - timedelta(days=1)).where("dep_time IS NOT NULL")
            return settled.unionByName(as_first_reported(self._arrow_rows(name, through, through)))
        return frame_of(self._spark, self._data.tables[name])

    def _arrow_rows(self, name: str, first: date, last: date) -> DataFrame:
        return frame_of(self._spark, self._data.on(name, first, last))

    def _append(self, rows: DataFrame, name: str, version: int) -> None:
        (
            rows.coalesce(1)
            .write.format("delta")
            .mode("append")
            .option("txnAppId", f"demo-{name}")
            .option("txnVersion", str(version))
            .save(self.path(name))
        )

    def _exists(self, name: str) -> bool:
        from relstate_dagster.state_lib.lake.table import DeltaTable  # noqa: PLC0415 - delta-rs loads only when asked

        return DeltaTable.is_deltatable(self.path(name))

    @property
    def _data(self) -> FlightData:
        if self._flights is None:
            self._flights = load_flight_data()
        return self._flights


def as_first_reported(flights: DataFrame) -> DataFrame:
    """Flights as reported on their day.

    One in twenty has its delays rounded up to the next quarter of an hour.

    Which ones is a function of the flight, so that the corrections of the next day find them.
    """
    return flights.selectExpr(
        *[
            f"CAST(IF({_FIRST_REPORTED}, ceil(({column} + 1) / 15) * 15, {column}) AS INT) AS {column}"
            if column in ("dep_delay", "arr_delay")
            else f"IF({_FIRST_REPORTED}, NULL, air_time) AS air_time"
            if column == "air_time"
            else column
            for column in flights.columns
        ]
    )


def _ordinal(day: date) -> int:
    return (day - FIRST_DAY).days
