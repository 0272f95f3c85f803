"""Tables whose rows replace and delete earlier ones of their key: as upserts, and as Debezium's envelopes."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from relstate_dagster.jobs.catalog.warehouse import Warehouse
from relstate_dagster.jobs.declare import load_project
from relstate_dagster.jobs.registration.sync import sync_project
from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.view_epoch.reports import ViewReport
from relstate_dagster.state_lib.errors import DeclarationError, PlanError, RelstateError
from tests.epoch.scripts import Script
from tests.operators.histories import seeds_of
from tests.sizes import Resized

pytestmark = pytest.mark.spark

UPSERT = """
CREATE TABLE u (k INT, v INT, gone BOOLEAN, PRIMARY KEY (k))
TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone');
"""
ORDERED = """
CREATE TABLE u (k STRING, `v"w` DOUBLE, ts INT, op STRING, PRIMARY KEY (k))
TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'op = ''d''', 'source.order' = 'ts, coalesce(op, '''')');
"""


def report_of(script: Script, view: str) -> ViewReport:
    runner = EpochRunner(script.session._spark, script.warehouse)
    return {report.view: report for report in list(runner.run())}[view]


def test_the_newest_row_of_a_key_by_the_order_of_commits(script: Script) -> None:
    script.run(f"""{UPSERT}
        INSERT INTO u VALUES (1, 10, false), (2, 20, NULL), (NULL, 1, false)
    """)
    assert "NULL in its key" in str(script.error("REFRESH"))


def test_inserts_updates_and_deletes_by_the_order_of_commits(script: Script) -> None:
    script.run(f"{UPSERT} INSERT INTO u VALUES (1, 10, false), (2, 20, NULL), (3, 30, true)")
    script.run("CREATE TABLE t (k INT, name STRING, PRIMARY KEY (k)); INSERT INTO t VALUES (1, 'one'), (2, 'two'), (9, 'nine')")
    script.run("CREATE MATERIALIZED VIEW named AS SELECT u.k, name, v FROM u JOIN t ON u.k = t.k; REFRESH")
    script.run("CREATE MATERIALIZED VIEW total AS SELECT count(*) AS n, sum(v) AS s FROM u")
    assert script.rows("SELECT * FROM u") == [(1, 10, False), (2, 20, None)]
    # Updated, deleted, deleted though it is not there, and deleted and made again in one epoch.
    script.run("INSERT INTO u VALUES (1, 11, false), (2, 0, true), (7, 0, true)")
    script.run("INSERT INTO u VALUES (9, 90, false)")
    script.run("INSERT INTO u VALUES (9, NULL, true); INSERT INTO u VALUES (9, 91, false); REFRESH")
    assert script.rows("SELECT k, v FROM u") == [(1, 11), (9, 91)]
    assert script.rows("SELECT * FROM named") == [(1, "one", 11), (9, "nine", 91)]
    assert script.rows("SELECT * FROM total") == [(2, 102)]
    script.verify()
    # The table itself has all changes, and nobody updates it.
    assert script.rows("SELECT count(*) FROM u_changelog") == [(9,)]
    for statement in ("UPDATE u SET v = 1", "DELETE FROM u WHERE k = 1"):
        assert "append" in str(script.error(statement)).lower()


def test_two_rows_of_a_key_in_one_commit(script: Script) -> None:
    script.run(f"{UPSERT} INSERT INTO u VALUES (1, 10, false)")
    script.run("INSERT INTO u VALUES (1, 11, false), (5, 50, false), (1, 12, false)")
    for _ in range(2):
        error = str(script.error("REFRESH"))
        assert "two different rows of one key" in error
        assert '{"k":1}' in error
        assert "source.order" in error
    # Delivered twice, a row is still one row.
    script.run("DROP TABLE u; " + UPSERT)
    script.run("INSERT INTO u VALUES (1, 11, false), (1, 11, false); REFRESH")
    assert script.rows("SELECT k, v FROM u") == [(1, 11)]
    script.verify()


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "executors"])
def test_late_rows_are_ignored_and_counted(script: Script, by_driver: bool, resized: Resized) -> None:
    if not by_driver:
        resized(driver_change_bytes=0, driver_backfill_bytes=0)
    script.run(f"{ORDERED} INSERT INTO u VALUES ('a', 1, 10, 'c'), ('b', 1, 10, 'c'), ('a', 2, 12, 'u'), ('', -0.0, 3, NULL)")
    assert report_of(script, "u").late_rows == 0
    assert script.rows("SELECT * FROM u") == [("", -0.0, 3, None), ("a", 2.0, 12, "u"), ("b", 1.0, 10, "c")]
    # Three are late: one before the newest, one that would delete, and one of a key that has a newer row in this epoch, too.
    script.run(
        "INSERT INTO u VALUES ('a', 9, 11, 'u'), ('b', NULL, 9, 'd'), ('b', 3, 20, 'u'), ('', 5, 1, 'u'), ('new', 1, 1, 'c')"
    )
    report = report_of(script, "u")
    assert (report.late_rows, report.rows_in["u_changelog"]) == (3, (5, 0))
    assert script.rows('SELECT k, `v"w` FROM u') == [("", -0.0), ("a", 2.0), ("b", 3.0), ("new", 1.0)]
    # A row that was deleted stays so, whatever comes late.
    script.run("INSERT INTO u VALUES ('a', NULL, 30, 'd')")
    report_of(script, "u")
    script.run("INSERT INTO u VALUES ('a', 7, 29, 'u')")
    assert report_of(script, "u").late_rows == 1
    assert [k for (k,) in script.rows("SELECT k FROM u")] == ["", "b", "new"]
    # What is delivered twice is not late.
    script.run("INSERT INTO u VALUES ('b', 3, 20, 'u'), ('new', 1, 1, 'c')")
    assert report_of(script, "u").late_rows == 0
    script.verify()
    script.run("INSERT INTO u VALUES ('b', 4, 20, 'u')")
    assert '{"k":"b"}' in str(script.error("REFRESH"))


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "executors"])
@pytest.mark.parametrize("ordered", [False, True], ids=["by commits", "by a column"])
def test_histories(script: Script, ordered: bool, by_driver: bool, resized: Resized) -> None:
    if not by_driver:
        resized(driver_change_bytes=0, driver_backfill_bytes=0)
    for seed in seeds_of(f"changelog {ordered}"):
        draw, kept, clock = random.Random(seed), dict[str, tuple[int, bool]](), 0
        script.run("DROP TABLE IF EXISTS u")
        order = ", 'source.order' = 'ts'" if ordered else ""
        script.run(f"""CREATE TABLE u (k STRING, ts INT, v INT, gone BOOLEAN, PRIMARY KEY (k))
            TBLPROPERTIES ('source.kind' = 'upsert', 'source.deleted' = 'gone'{order})""")
        newest = dict.fromkeys("abcde", -1)
        for _ in range(5):
            for _ in range(draw.randint(0, 3)):
                rows = []
                for k in draw.sample("abcde", draw.randint(1, 5)):
                    clock += 1
                    ts = clock if not ordered or draw.random() < 0.6 else -clock
                    v, gone = draw.randint(0, 2), draw.random() < 0.3
                    rows.append(f"('{k}', {ts}, {v}, {'true' if gone else draw.choice(['false', 'NULL'])})")
                    if ts > newest[k] or not ordered or newest[k] == -1:
                        newest[k], kept[k] = ts, (v, gone)
                script.run(f"INSERT INTO u VALUES {', '.join(rows)}")
            script.run("REFRESH; VERIFY")
            live = sorted((k, v) for k, (v, gone) in kept.items() if not gone)
            if not ordered:
                assert script.rows("SELECT k, v FROM u") == live


def test_a_backfill_by_the_order_of_commits_after_compaction(script: Script, tmp_path: Path) -> None:
    """OPTIMIZE mixes the rows of commits in one file; the commits' own files are read as long as they are there."""
    where = str(tmp_path / "theirs")
    for v in (1, 2, 3):
        write_deltalake(
            where, pa.table({"k": pa.array([1, v + 10], pa.int32()), "v": pa.array([v, v], pa.int32())}), mode="append"
        )
    script.run(f"CREATE TABLE before (k INT, v INT) USING delta LOCATION '{where}'; OPTIMIZE before")
    create = f"CREATE TABLE u (PRIMARY KEY (k)) USING delta LOCATION '{where}' TBLPROPERTIES ('source.kind' = 'upsert')"
    script.run(create)
    assert script.rows("SELECT * FROM u") == [(1, 3), (11, 1), (12, 2), (13, 3)]
    write_deltalake(where, pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([9], pa.int32())}), mode="append")
    script.run("REFRESH; VERIFY")
    assert script.rows("SELECT * FROM u WHERE k = 1") == [(1, 9)]
    script.run("DROP TABLE u; SET spark.databricks.delta.retentionDurationCheck.enabled = false; VACUUM before RETAIN 0 HOURS")
    error = str(script.error(create))
    assert "the order of their rows is not known" in error
    assert "source.order" in error
    assert script.rows("SELECT count(*) FROM before") == [(7,)]
    script.run(create.replace("'upsert'", "'upsert', 'source.order' = 'v'"))
    assert script.rows("SELECT * FROM u WHERE k = 1") == [(1, 9)]
    script.verify()


def test_dropped_and_made_again(script: Script) -> None:
    script.run(f"{UPSERT} INSERT INTO u VALUES (1, 10, false); REFRESH")
    script.run("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM u")
    with pytest.raises(DeclarationError, match="u cannot be dropped: n depend"):
        script.run("DROP TABLE u")
    with pytest.raises(DeclarationError, match="u_changelog cannot be dropped: u depend"):
        script.run("DROP TABLE u_changelog")
    script.run("DROP MATERIALIZED VIEW n; DROP TABLE u; DROP TABLE IF EXISTS u")
    state = script.warehouse.read()
    assert not state.sources
    assert not state.views
    assert not Path(script.warehouse.source_path("u_changelog")).exists()
    # By the name of the view, as `relstate drop` and `run --prune` do it, it is the same.
    script.run(f"{UPSERT} INSERT INTO u VALUES (5, 1, false); DROP MATERIALIZED VIEW u")
    assert not script.warehouse.read().sources
    script.run(f"{UPSERT} REFRESH")
    assert script.rows("SELECT * FROM u") == []
    script.run("INSERT INTO u VALUES (2, 1, false); REFRESH")
    assert script.rows("SELECT k FROM u") == [(2,)]
    script.verify()


def test_a_key_keeps_the_sign_of_its_zero(script: Script) -> None:
    """To Spark both zeros are equal, and one key, so that no comparison with the query would notice."""
    script.run("CREATE TABLE u (k DOUBLE, v INT, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert')")
    for v, zero in enumerate(("0.0", "-0.0", "0.0")):
        script.run(f"INSERT INTO u VALUES (CAST('{zero}' AS DOUBLE), {v}); REFRESH")
        assert [(str(k), n) for k, n in script.rows("SELECT * FROM u")] == [(zero, v)]
    script.verify()


@pytest.mark.parametrize(
    ("properties", "key", "said"),
    [
        ("'source.kind' = 'upserts'", "k", "it is one of table, upsert, debezium"),
        ("'source.deleted' = 'gone'", "k", "says nothing of a source of 'source.kind' = 'table'"),
        ("'source.kind' = 'upsert', 'source.sort' = 'v'", "k", "property 'source.sort' is unknown"),
        ("'source.kind' = 'upsert', 'index.columns' = 'v'", "k", "'index.columns' says nothing"),
        ("'source.kind' = 'upsert', 'source.envelope' = 'json'", "k", "'source.envelope' says nothing"),
        ("'source.kind' = 'upsert'", "", "needs a PRIMARY KEY"),
        ("'state.ttl' = '1 day'", "k", "property 'state.ttl' is unknown"),
    ],
)
def test_properties_that_are_refused(script: Script, properties: str, key: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        script.run(f"CREATE TABLE u (k INT, v INT{', PRIMARY KEY (k)' if key else ''}) TBLPROPERTIES ({properties})")
    assert not script.warehouse.read().sources


@pytest.mark.parametrize(
    ("columns", "properties", "said"),
    [
        ("k INT, v INT", "'source.order' = 'nothing'", "nothing"),
        ("k INT, v INT", "'source.deleted' = 'v +'", "Syntax error"),
        ("k INT, v MAP<STRING, INT>", "'source.order' = 'k'", "MAP or VARIANT"),
        ("k INT, v VARIANT", "'source.order' = 'k'", "column v is of type variant"),
        ("k INT, v INT", "'source.order' = 'now()'", "the changes of u cannot be followed"),
    ],
)
def test_what_cannot_be_kept_leaves_nothing_behind(script: Script, columns: str, properties: str, said: str) -> None:
    with pytest.raises((DeclarationError, PlanError), match=said):
        script.run(f"CREATE TABLE u ({columns}, PRIMARY KEY (k)) TBLPROPERTIES ('source.kind' = 'upsert', {properties})")
    state = script.warehouse.read()
    assert not state.sources
    assert not state.views


def test_in_a_project(spark: SparkSession, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "all.sql").write_text(f"{UPSERT} CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM u;", encoding="utf-8")
    loaded = load_project(project)
    assert [view.name for view in loaded.views] == ["u", "n"]
    assert [source.name for source in loaded.sources] == ["u_changelog"]
    assert loaded.upstream("u") == ("u_changelog",)
    home = Warehouse(tmp_path / "warehouse")
    runner = EpochRunner(spark, home)
    sync_project(spark, home, loaded)
    rows = pa.table({"k": pa.array([1, 2], pa.int32()), "v": pa.array([1, 1], pa.int32()), "gone": pa.array([False, None])})
    write_deltalake(home.source_path("u_changelog"), rows, mode="append")
    assert [report.rows_inserted for report in runner.run()] == [2, 1]
    assert all(report.equal for report in runner.verify())
    assert sync_project(spark, home, loaded).version == home.read().version, "the same project changes nothing"
    # Another order makes it another view, which is built again.
    ordered = UPSERT.replace("'gone'", "'gone', 'source.order' = 'v'")
    (project / "all.sql").write_text(f"{ordered} CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM u;", encoding="utf-8")
    sync_project(spark, home, load_project(project))
    list(runner.run())
    assert all(report.equal for report in runner.verify())
    (project / "more.sql").write_text("CREATE TABLE u_changelog (k INT);", encoding="utf-8")
    with pytest.raises(DeclarationError, match="'u_changelog' is already declared"):
        load_project(project)


# -- Debezium ---------------------------------------------------------------------------------------------------------

COLUMNS = "id INT, name STRING, at TIMESTAMP, PRIMARY KEY (id)"
_AT = "2024-01-02T03:04:05Z"


def row(number: int, name: str | None) -> dict[str, Any]:
    return {"id": number, "name": name, "at": _AT}


#: Commits of events: operation, before, after, log sequence number.
EVENTS: list[list[tuple[str | None, dict[str, Any] | None, dict[str, Any] | None, int]]] = [
    [("r", None, row(1, "one"), 1), ("r", None, row(2, "two"), 2), ("c", None, row(3, "three"), 3)],
    [
        ("u", row(1, "one"), row(1, "Öne\u2028"), 4),
        ("u", row(1, "Öne\u2028"), row(1, None), 5),
        ("d", row(2, "two"), None, 6),
        (None, None, None, 6),
        ("m", None, None, 7),
    ],
    # A key that changes is a delete and a create, and of an update of before all this nothing is left.
    [("d", row(3, "three"), None, 8), (None, None, None, 8), ("c", None, row(4, "three"), 9), ("u", None, row(1, "late"), 2)],
]
NOW = [[(1, "one"), (2, "two"), (3, "three")], [(1, None), (3, "three")], [(1, None), (4, "three")]]


def envelopes(form: str, events: list[tuple[str | None, dict[str, Any] | None, dict[str, Any] | None, int]]) -> str:
    """An INSERT of events in one of the forms in which they are found."""

    def text(value: Any) -> str:
        return "NULL" if value is None else "'" + json.dumps(value).replace("\\", "\\\\").replace("'", "\\'") + "'"

    def struct(value: dict[str, Any] | None) -> str:
        if value is None:
            return "NULL"
        name = "CAST(NULL AS STRING)" if value["name"] is None else f"'{value['name']}'"
        return f"named_struct('id', {value['id']}, 'name', {name}, 'at', TIMESTAMP '{value['at']}')"

    values = []
    for op, before, after, lsn in events:
        quoted_op = "NULL" if op is None else f"'{op}'"
        source = {"lsn": lsn, "connector": "postgresql", "table": "people"}
        if form in ("value", "payload"):
            event = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 7, "transaction": None}
            whole = {"schema": {"type": "struct"}, "payload": event} if form == "payload" else event
            values.append(f"({text(None if op is None else whole)})")
        else:
            write = struct if form == "struct" else text
            values.append(f"({write(before)}, {write(after)}, {text(source)}, {quoted_op}, 7)")
    return f"INSERT INTO people VALUES {', '.join(values)}"


@pytest.mark.parametrize("form", ["struct", "json", "value", "payload"])
def test_envelopes_of_debezium(script: Script, form: str) -> None:
    whole = form in ("value", "payload")
    envelope = "value" if whole else form
    order = "CAST(event.source['lsn'] AS BIGINT)" if whole else "CAST(get_json_object(source, '$.lsn') AS BIGINT)"
    script.run(f"""CREATE TABLE people ({COLUMNS}) TBLPROPERTIES ('source.kind' = 'debezium', 'source.envelope' = '{envelope}',
        'source.order' = "{order}")""")
    script.run("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n, max(at) AS at FROM people")
    for events, now in zip(EVENTS, NOW, strict=True):
        script.run(f"{envelopes(form, events)}; REFRESH; VERIFY")
        assert script.rows("SELECT id, name FROM people") == now
        assert script.rows("SELECT n FROM n") == [(len(now),)]
    script.run(envelopes(form, [("t", None, None, 99)]))
    assert "an operation that no row follows from: t" in str(script.error("REFRESH"))


def test_envelopes_that_are_there_already_and_are_damaged(script: Script, tmp_path: Path) -> None:
    where = str(tmp_path / "topic")
    whole = [json.dumps({"before": None, "after": {"id": n, "name": "x"}, "op": "c"}) for n in range(3)]
    write_deltalake(where, pa.table({"value": pa.array([*whole, None]), "offset": pa.array([1, 2, 3, 4])}))
    script.run(f"""CREATE TABLE people (id INT, name STRING, PRIMARY KEY (id)) USING delta LOCATION '{where}'
        TBLPROPERTIES ('source.kind' = 'debezium', 'source.envelope' = 'value', 'source.order' = 'offset')""")
    assert script.rows("SELECT * FROM people") == [(0, "x"), (1, "x"), (2, "x")]
    write_deltalake(where, pa.table({"value": ["{'no json"], "offset": [5]}), mode="append")
    with pytest.raises(RelstateError, match="end-of-input in field name"):
        script.run("REFRESH")
    assert script.rows("SELECT count(*) FROM people") == [(3,)]


def test_the_examples_of_the_docs(script: Script, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "1.csv").write_text(
        "id,kind,at\n1,login,2024-01-01 10:00:00\n2,logout,2024-01-01 11:00:00\nx,login,\n"
    )
    page = (Path(__file__).parents[2] / "docs" / "sources.md").read_text(encoding="utf-8")
    examples = re.findall(r"```sql\n((?:(?!```).)*)```\n\n```\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 4
    for statements, printed in examples:
        last = script.run(statements.replace("/data/events", str(tmp_path / "events")))[-1]
        assert ["  ".join(map(str, row)) for row in last.rows] == printed.splitlines()
    script.verify()
