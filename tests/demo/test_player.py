"""The player against real Delta tables: what one day changes, and that a repeated day changes nothing more."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from relstate_dagster import assets
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.demo import FlightPlayer
from relstate_dagster.state_lib.errors import SourceError

DEMO = Path(assets.__file__).parent / "demo"


def test_days_arrive_and_settle_on_the_data_set(spark, tmp_path):
    project = load_project(DEMO)
    player = FlightPlayer(spark, str(tmp_path), project.sources)
    assert not player.is_loaded()
    with pytest.raises(SourceError, match="load the first months"):
        player.play_day()

    loaded = {}
    player.load(date(2013, 1, 2), loaded.__setitem__)
    assert player.is_loaded()
    assert loaded["airlines"] == 16
    player.load(date(2013, 1, 2))
    assert spark.read.format("delta").load(player.path("weather")).count() == loaded["weather"]

    played = player.play_day()
    assert played.day == date(2013, 1, 3)
    assert (played.flights_appended, played.planes_registered, played.weather_appended) == (914, 1, 72)
    assert played.flights_corrected > 20
    assert played.flights_cancelled == 8

    # Of the day before, nothing but the truth is left.
    truth = player._arrow_rows("flights", date(2013, 1, 2), date(2013, 1, 2)).where("dep_time IS NOT NULL")
    settled = spark.read.format("delta").load(player.path("flights")).where("day = 2").select(*truth.columns)
    assert truth.exceptAll(settled).count() == settled.exceptAll(truth).count() == 0

    again = player.play_day(date(2013, 1, 3))
    assert (again.flights_corrected, again.flights_cancelled, again.planes_registered) == (0, 0, 0)
    flights = spark.read.format("delta").load(player.path("flights"))
    assert flights.where("day = 3").count() == 914
    assert flights.select("time_hour", "carrier", "flight").distinct().count() == flights.count()
