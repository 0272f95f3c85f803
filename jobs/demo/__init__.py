"""Data of the demo: flights of 2013, as Delta sources, played day by day.

It lies below `jobs` because it is work for Spark, and knows neither Dagster nor the demo's views; those, and the
declarations of the sources, are SQL files in ``assets/demo``.
"""

from relstate_dagster.jobs.demo.flights import FlightData, load_flight_data
from relstate_dagster.jobs.demo.player import LOADED_THROUGH, DayPlayed, FlightPlayer

__all__ = ["LOADED_THROUGH", "DayPlayed", "FlightData", "FlightPlayer", "load_flight_data"]
