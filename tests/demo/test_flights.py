"""The data set's types and key, and the declarations that go with it; no Spark."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from relstate_dagster import assets
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.demo import load_flight_data
from relstate_dagster.jobs.demo.player import FLIGHT_KEY

DEMO = Path(assets.__file__).parent / "demo"


@pytest.fixture(scope="module")
def data():
    return load_flight_data()


@pytest.fixture(scope="module")
def project():
    return load_project(DEMO, exists=lambda _: False)


def test_all_336776_flights_are_there(data):
    assert {name: table.num_rows for name, table in data.tables.items()} == {
        "airlines": 16,
        "airports": 1458,
        "planes": 3322,
        "flights": 336776,
        "weather": 26115,
    }


def test_declared_columns_are_the_data_sets(data, project):
    arrow = {"INT": "int32", "STRING": "string", "DOUBLE": "double", "TIMESTAMP": "timestamp[us, tz=UTC]"}
    for source in project.sources:
        declared = {column.name: arrow[column.type_text] for column in source.columns}
        assert declared == {field.name: str(field.type) for field in data.tables[source.name].schema}


def test_declared_keys_are_unique_and_never_null(data, project):
    keys = {source.name: source.primary_key for source in project.sources}
    assert keys["flights"] == FLIGHT_KEY
    assert keys["weather"] == ()
    for name, key in keys.items():
        table = data.tables[name]
        if key:
            assert table.group_by(list(key)).aggregate([]).num_rows == table.num_rows
            assert all(table[column].null_count == 0 for column in key)


def test_missing_numbers_are_null_and_whole_numbers_are_integers(data):
    delays = data.tables["flights"]["dep_delay"]
    assert (str(delays.type), delays.null_count, delays[0].as_py()) == ("int32", 8255, 2)


def test_rows_of_days(data):
    rows = data.on("flights", date(2013, 1, 31), date(2013, 2, 1))
    assert set(zip(rows["month"].to_pylist(), rows["day"].to_pylist(), strict=True)) == {(1, 31), (2, 1)}


def test_views_of_the_demo_are_ordered_and_explained(project):
    names = [view.name for view in project.views]
    assert len(names) == 10
    assert names.index("flight_details") < names.index("airline_punctuality")
    assert all(view.comment for view in project.views)
    assert project.undeclared == ()


def test_every_output_column_of_every_view_has_a_lineage(project):
    for view in project.views:
        lineage = project.lineage(view.name)
        assert set(lineage) == set(project.columns[view.name])
    assert project.lineage("busy_routes")["arr_delay_minutes"] == (("flights", "arr_delay"),)
