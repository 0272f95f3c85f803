"""``relstate test``: YAML beside views, run in steps, as a person calls it."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli.app import console, output
from relstate_dagster.jobs.declare.view_tests import read_view_tests
from relstate_dagster.starter import STARTER
from relstate_dagster.state_lib.errors import DeclarationError

_PROJECT = """
CREATE TABLE orders (id BIGINT NOT NULL, day DATE, amount DECIMAL(10,2), tags ARRAY<STRING>, at STRUCT<x: INT, y: DOUBLE>,
    `odd; y` INT, m MAP<STRING, INT>, seen TIMESTAMP, PRIMARY KEY (id));
CREATE TABLE log (k INT, note STRING) TBLPROPERTIES ('delta.appendOnly' = 'true');
CREATE TABLE unused (nothing INT);
CREATE TABLE prices (k INT, price INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert');
CREATE VIEW large AS SELECT * FROM orders WHERE amount >= 2;
CREATE MATERIALIZED VIEW by_day TBLPROPERTIES ('check.c.references' = 'day IN unused(nothing)')
    AS SELECT day, sum(amount) AS total, count(*) AS n FROM large GROUP BY day;
CREATE MATERIALIZED VIEW best AS SELECT day, n, avg(total / 3D) AS mean FROM by_day WHERE total > 5 GROUP BY day, n;
CREATE MATERIALIZED VIEW nested AS SELECT o.id, tags, at, `odd; y`, m, l.note FROM orders o LEFT JOIN log l ON o.id = l.k;
CREATE MATERIALIZED VIEW today AS SELECT id FROM orders WHERE seen > now() - INTERVAL 1 DAY;
CREATE MATERIALIZED VIEW cheap AS SELECT k FROM prices WHERE price < 10;
CREATE MATERIALIZED VIEW bad AS SELECT id, 10 / amount AS q FROM orders;
"""
_TESTS = {
    "by_day": """
tests:
  - name: late orders count
    given:
      ORDERS: |
        id, day, amount
        1, 2024-01-01, 3
        2, , 2.5
        4, , 1
    expect: [{day: 2024-01-01, total: 3.00, N: 1}, {day: null, total: 2.5, N: 1}]
    steps:
      - insert: {orders: [{id: 3, day: 2024-01-01, amount: 12345678.91}]}
        delete: {orders: [{id: 2}]}
        expect: [{total: 12345681.91, n: 2, day: 2024-01-01}]
      - update: {orders: [{id: 1, amount: 1}, {id: 3, day: ~}]}
        expect: [{day: , n: 1}]
        delete: {orders: [{id: 4}]}
""",
    "best": """
tests:
  - name: over a stand-in
    given: {by_day: [{day: 2024-01-01, total: 9, n: 2}, {day: 2024-01-02, total: 5, n: 1}, {total: 6, n: 1}]}
    expect: [{mean: 3.0000000000001, n: 2}, {mean: 2, n: 1}]
    steps:
      - update: {by_day: [{day: 2024-01-02, total: 7.5}]}
        expect: [{mean: 3, n: 2}, {mean: 2.5, n: 1}, {mean: 2, n: 1}]
      - update: {by_day: [{day: , total: 3}]}
        expect: [{day: 2024-01-01}, {day: 2024-01-02}]
  - name: over the view itself
    given: {orders: orders.csv}
    expect: [{day: null, n: 2, mean: 2}]
""",
    "nested": """
tests:
  - name: lists and mappings
    given:
      orders:
        - {id: 1, tags: [a, null, "null", "it's \\\\ ;"], at: {X: 3, y: 0.5}, m: {k: 1}, odd; y: 7}
        - {id: 2, tags: [], at: '{"x": 4}'}
      log: [{k: 1, note: "null"}, {k: 1, note: "null"}]
    expect:
      - {id: 1, tags: [a, null, "null", "it's \\\\ ;"], at: {x: 3, y: 0.5}, note: "null", odd; y: 7}
      - {id: 1, tags: [a, null, "null", "it's \\\\ ;"], at: {x: 3, y: 0.5}, note: "null", odd; y: 7}
      - {id: 2, tags: [], at: {x: 4}, note: , odd; y: ~}
""",
    "today": """
tests:
  - name: a day passes
    now: 2024-05-01 12:00:00
    given: {orders: [{id: 1, seen: 2024-05-01 11:00:00}, {id: 2, seen: 2024-04-30T13:00:00Z}]}
    expect: [{id: 1}, {id: 2}]
    steps:
      - {now: "2024-05-01T16:00:00+02:00", expect: [{id: 1}]}
      - {now: 2024-05-02 12:00:00, expect: []}
""",
    "cheap": """
tests:
  - name: changes of a key
    given: {prices_changelog: [{k: 1, price: 5}]}
    expect: [{k: 1}]
    steps: [{insert: {prices_changelog: [{k: 1, price: 50}]}, expect: []}]
  - name: what changes come to
    given: {prices: [{k: 1, price: 5}, {k: 2, price: 50}]}
    expect: [{k: 1}]
    steps: [{update: {prices: [{k: 2, price: 9}]}, expect: [{k: 1}, {k: 2}]}]
""",
}
_FAILING = {
    "other rows": ("by_day", "given: {orders: [{id: 1, amount: 7}]}\n    expect: [{total: 7}, {total: 7}, {total: '8'}]"),
    "in a step": ("by_day", "steps: [{expect: []}, {insert: {orders: [{id: 1, amount: 7}]}, expect: []}]"),
    "no such row": ("by_day", "expect: []\n    steps: [{delete: {orders: [{id: 9}]}}]"),
    "no key": ("nested", "given: {log: [{k: 1}]}\n    expect: []\n    steps: [{update: {log: [{k: 1, note: a}]}}]"),
    "only appended to": ("nested", "given: {log: [{k: 1}]}\n    expect: []\n    steps: [{delete: {log: [{k: 1}]}}]"),
    "not its table": ("by_day", "given: {unused: [{nothing: 1}]}\n    expect: []"),
    "not its column": ("by_day", "given: {orders: [{id: 1, amont: 1}]}\n    expect: []"),
    "no such column": ("by_day", "expect: [{totl: 1}]"),
    "no such value": ("by_day", "given: {orders: [{id: one}]}\n    expect: []"),
    "divided by zero": ("bad", "given: {orders: [{id: 1, amount: 0}]}\n    expect: []"),
}
_SAID = {
    "other rows": "what is given: the view has other rows than expected: 2 missing, 0 unexpected",
    "in a step": "step 2: the view has other rows than expected: 0 missing, 1 unexpected",
    "no such row": "step 1: delete of orders: there is no row {'id': '9'}",
    "no key": "step 1: update of log: each row names its new values and no key; write delete and insert instead",
    "only appended to": "step 1: delete of log: .*only allow appends",
    "not its table": "view by_day reads no unused in this test; rows can be given of orders",
    "not its column": "what is given: orders has no column amont; there are id, day",
    "no such column": "what is given: view by_day has no column totl; there are day, total, n",
    "no such value": "what is given: insert of orders: .*CAST.one AS BIGINT",
    "divided by zero": "what is given: view bad, epoch 2: Spark could not compute it: .*by zero",
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    for shown_on in (console, output):
        monkeypatch.setattr(shown_on, "_width", 80)
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "all.sql").write_text(_PROJECT)
    return tmp_path


def run(folder, *views):
    done = CliRunner().invoke(app, ["test", *views, "--project", str(folder), "--warehouse", str(folder / "warehouse")])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert all(len(line) <= 80 for line in done.output.splitlines() if "│" in line or "┃" in line), done.output
    return done.exit_code, done.output


def test_steps_in_full_and_one_by_one(spark, project):
    for view, text in _TESTS.items():
        (project / "views" / f"{view}.test.yaml").write_text(text)
    (project / "views" / "orders.csv").write_text("id,day,amount\n1,,2\n2,,4\n")
    code, said = run(project)
    assert code == 0, said
    assert said.endswith("7 passed, 0 failed\n")
    assert re.search(r"passed by_day: late orders count \(4 epochs, incremental, [\d.]+ s\)", said), said
    assert not (project / "warehouse").exists(), "tests leave nothing behind"


def test_what_fails_is_shown_with_its_place_and_stops_nothing_else(spark, project):
    for name, (view, text) in _FAILING.items():
        (project / f"{name}.test.yaml").write_text(f"view: {view.upper()}\ntests:\n  - name: {name}\n    {text}\n")
    (project / "views" / "by_day.test.yml").write_text("tests:\n- name: well\n  expect: []\n")
    code, said = run(project)
    assert (code, said.splitlines()[-1]) == (1, "1 passed, 10 failed")
    for name, wanted in _SAID.items():
        place = re.escape(f"{project}/{name}.test.yaml:3: ")
        assert re.search(f"FAILED {_FAILING[name][0]}: {name} .*\n  {place}{wanted}", said), (name, said)
    assert "│ missing │ 7.00  │" in said
    assert "│ unexpected │ NULL │ 7.00  │ 1 │" in said
    assert run(project, "bad")[1].splitlines()[-1] == "0 passed, 1 failed"
    assert "there is no test of today in" in run(project, "today")[1].replace("\n", " ")
    with pytest.raises(DeclarationError, match="no materialized view 'tody'"):
        run(project, "tody")


def test_the_columns_of_a_table_that_nobody_declares(spark, project):
    (project / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT a FROM made_elsewhere")
    (project / "views" / "v.test.yaml").write_text("tests: [{name: t, given: {made_elsewhere: [{a: 1}]}, expect: [{a: 1}]}]")
    code, said = run(project)
    assert (code, "the columns of made_elsewhere are not known" in said) == (1, True)
    spark.sql(f"CREATE TABLE delta.`{project}/warehouse/sources/made_elsewhere` (a INT) USING delta")
    assert run(project)[0] == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests: [", "it is no YAML"),
        ("view: by_day", "v.test.yaml:1: a file of tests has a list of tests"),
        ("test: []", "a file of tests has no 'test'; there are view, tests"),
        ("tests:\n- expect: []", ":2: a test has a name"),
        ("tests:\n- {name: a, expected: []}", "a test has no 'expected'; there are name, given, expect"),
        ("tests:\n- {name: a, given: {}}", "test 'a' expects nothing"),
        ("tests:\n- {name: a, expect: []}\n- {name: a, expect: []}", ":3: there is a test 'a' already"),
        ("tests:\n- {name: a, expect: [{a: 1}, {b: 1}]}", "name the same columns each"),
        ("tests:\n- {name: a, expect: [{a: 1, a: 2}]}", "'a' stands twice"),
        ("tests:\n- {name: a, expect: {a: 1}}", "expect is a list"),
        ("tests:\n- {name: a, given: {t: t.csv}, expect: []}", "there is no file .*t.csv"),
        ("tests:\n- {name: a, expect: [], steps: [{upsert: {}}]}", "a step has no 'upsert'"),
        ("tests:\n- {name: a, expect: [], now: soon}", "now: 'soon' is no instant"),
        ('tests:\n- {name: a, expect: [], given: {t: "a,b\\n1,2,3\\n"}}', "the line '1,2,3' has not as many values"),
    ],
)
def test_files_that_are_not_understood(tmp_path, text, said):
    path = tmp_path / "v.test.yaml"
    path.write_text(text)
    with pytest.raises(DeclarationError, match=said):
        read_view_tests(path)


def test_the_project_to_start_from_passes_its_test(spark, tmp_path):
    for path, text in STARTER.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    code, said = run(tmp_path)
    assert (code, said.splitlines()[-1]) == (0, "1 passed, 0 failed"), said
