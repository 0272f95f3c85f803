"""A source whose schema changes: views go on where nothing that they read means anything else."""

from __future__ import annotations

import json
from collections.abc import Collection

import pytest

from relstate_dagster.jobs.run.runner import EpochRunner
from relstate_dagster.jobs.sources.schema_changes import added_columns, changed_columns
from relstate_dagster.state_lib.errors import SourceError
from tests.epoch.scripts import Script


def _column(name: str, data_type: object = "integer", *, nullable: bool = True, stored: str = "", comment: str = "") -> object:
    metadata = {"delta.columnMapping.physicalName": stored} if stored else {}
    metadata |= {"comment": comment} if comment else {}
    return {
        "name": name,
        "type": data_type,
        "nullable": nullable,
        "metadata": metadata | ({"comment": comment} if comment else {}),
    }


def _schema(*columns: object) -> str:
    return json.dumps({"type": "struct", "fields": list(columns)})


def _struct(*columns: object) -> object:
    return {"type": "struct", "fields": list(columns)}


_A, _B = _column("a", stored="p"), _column("b", stored="q")


@pytest.mark.parametrize(
    ("before", "after", "columns", "changed"),
    [
        (_schema(_A), _schema(_A, _B), {"a"}, ()),
        (_schema(_A), _schema(_A, _B), None, ("column b was added",)),
        (_schema(_A, _B), _schema(_A), {"a"}, ()),
        (_schema(_A, _B), _schema(_A), {"a", "b"}, ("column b was dropped",)),
        (_schema(_A, _B), _schema(_column("a", stored="p"), _column("z", stored="q")), {"b"}, ("column b was renamed to z",)),
        (_schema(_A, _B), _schema(_column("a", stored="p"), _column("z", stored="q")), {"a"}, ()),
        # Two columns change their names.
        (
            _schema(_A, _B),
            _schema(_column("b", stored="p"), _column("a", stored="q")),
            {"a"},
            ("column a is another column than before, of the same name",),
        ),
        # Column mapping is switched on.
        (_schema(_column("a")), _schema(_column("a", stored="a")), {"a"}, ()),
        (_schema(_A), _schema(_column("a", "long", stored="p")), {"a"}, ("the type of column a changed from int to bigint",)),
        (_schema(_A, _B), _schema(_A, _column("b", "long", stored="q")), {"a"}, ()),
        (_schema(_A), _schema(_column("a", stored="p", comment="what it is")), {"a"}, ()),
        (_schema(_A), _schema(_column("a", stored="p", nullable=False)), {"a"}, ()),
        (_schema(_column("a", nullable=False)), _schema(_column("a")), {"a"}, ("column a can be NULL now",)),
        (
            _schema(_column("a", _struct(_column("x", nullable=False)))),
            _schema(_column("a", _struct(_column("x")))),
            {"a"},
            ("column a can be NULL now",),
        ),
        (
            _schema(_column("a", _struct(_column("x", stored="1"), _column("y", stored="2")))),
            _schema(_column("a", _struct(_column("x", stored="2"), _column("y", stored="1")))),
            {"a"},
            ("the fields of column a were renamed",),
        ),
        (
            _schema(_column("a", _struct(_column("x")))),
            _schema(_column("a", _struct(_column("x"), _column("y")))),
            {"a"},
            ("the type of column a changed from struct<x:int> to struct<x:int,y:int>",),
        ),
    ],
)
def test_what_has_changed_for_a_view(
    before: str, after: str, columns: Collection[str] | None, changed: tuple[str, ...]
) -> None:
    assert changed_columns(before, after, columns) == changed


def test_added_columns() -> None:
    assert added_columns(_schema(_A), _schema(_B, _A, _column("c"))) == ("b", "c")


_MAPPED = "'delta.columnMapping.mode' = 'name'"


def test_columns_come_and_go(script: Script) -> None:
    script.run(
        f"CREATE TABLE t (k INT, a INT, b INT, PRIMARY KEY (k)) TBLPROPERTIES ({_MAPPED});"
        "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2);"
        "CREATE TABLE u (a INT, n STRING); INSERT INTO u VALUES (1, 'one'), (2, 'two');"
        "CREATE MATERIALIZED VIEW every AS SELECT * FROM t;"
        "CREATE MATERIALIZED VIEW few AS SELECT t.a, u.n, count(*) AS c FROM t JOIN u ON t.a = u.a GROUP BY t.a, u.n;"
        "INSERT INTO t VALUES (3, 2, 3);"
        "ALTER TABLE t ADD COLUMN (c STRING COMMENT 'new'); UPDATE t SET c = 'x', b = 9 WHERE k = 1;"
        "INSERT INTO t VALUES (4, 2, 4, 'y')"
    )
    reports = {r.view: r for r in EpochRunner(script.session._spark, script.warehouse).run()}
    assert "source t has new columns (c)" in reports["every"].advice[0]
    assert not reports["few"].advice
    script.verify()
    assert script.rows("SELECT * FROM every") == [(1, 1, 9), (2, 1, 2), (3, 2, 3), (4, 2, 4)]

    script.run("ALTER TABLE t DROP COLUMN b; ALTER TABLE t ALTER COLUMN a COMMENT 'told'; INSERT INTO t VALUES (5, 1, 'z')")
    script.run("INSERT INTO u VALUES (1, 'uno'); REFRESH MATERIALIZED VIEW few; VERIFY few")
    with pytest.raises(SourceError, match=r"view every reads it: column b was dropped.*--full-refresh"):
        raise script.error("REFRESH")
    script.run("ALTER TABLE t RENAME COLUMN a TO aa; INSERT INTO t VALUES (6, 1, 'z')")
    with pytest.raises(SourceError, match=r"view few reads it: column a was renamed to aa.*--full-refresh"):
        raise script.error("REFRESH MATERIALIZED VIEW few")
    script.run("ALTER TABLE t RENAME COLUMN aa TO a; ALTER TABLE t RENAME COLUMN k TO kk; INSERT INTO t VALUES (7, 1, 'z')")
    with pytest.raises(SourceError, match=r"view few reads it: column k was renamed to kk.*--full-refresh"):
        raise script.error("REFRESH MATERIALIZED VIEW few")


def test_a_widened_column(script: Script) -> None:
    script.run(
        "CREATE TABLE t (k INT, w INT, x INT, PRIMARY KEY (k)) TBLPROPERTIES ('delta.enableTypeWidening' = 'true');"
        "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2);"
        "CREATE MATERIALIZED VIEW few AS SELECT x, count(*) AS c FROM t GROUP BY x;"
        "CREATE MATERIALIZED VIEW wide AS SELECT w, count(*) AS c FROM t GROUP BY w;"
        "INSERT INTO t VALUES (3, 2, 3); ALTER TABLE t ALTER COLUMN w TYPE BIGINT;"
        "INSERT INTO t VALUES (4, 12345678901, 4); UPDATE t SET x = 7 WHERE k = 1; DELETE FROM t WHERE k = 2;"
        "REFRESH MATERIALIZED VIEW few; VERIFY few"
    )
    with pytest.raises(SourceError, match=r"view wide reads it: the type of column w changed from int to bigint"):
        raise script.error("REFRESH")
    # Files of both types are read.
    script.run("CREATE MATERIALIZED VIEW late AS SELECT k, sum(w) AS s FROM t GROUP BY k; INSERT INTO t VALUES (5, 5, 5)")
    script.run("UPDATE t SET w = w + 1; REFRESH MATERIALIZED VIEW late; VERIFY late")
    script.run("INSERT INTO t VALUES (3, 1, 1)")
    with pytest.raises(SourceError, match="2 rows have k = 3"):
        raise script.error("REFRESH MATERIALIZED VIEW late")


def test_a_dropped_column_of_a_source_that_is_read_twice(script: Script) -> None:
    """The driver holds the rows that came in for both readers, with the columns that the view was planned with."""
    script.run(
        f"CREATE TABLE t (k INT, a INT, b INT, PRIMARY KEY (k)) TBLPROPERTIES ({_MAPPED});"
        "INSERT INTO t VALUES (1, 1, 1), (2, 1, 2);"
        "CREATE MATERIALIZED VIEW twice AS SELECT k FROM t UNION ALL SELECT a FROM t;"
        "CREATE MATERIALIZED VIEW few AS SELECT k FROM t WHERE EXISTS (SELECT * FROM t o WHERE o.a = t.a AND o.k <> t.k);"
        "ALTER TABLE t DROP COLUMN b; INSERT INTO t VALUES (3, 1), (4, 2); REFRESH"
    )
    script.verify()
    script.run("UPDATE t SET a = 2 WHERE k = 1; DELETE FROM t WHERE k = 2; REFRESH")
    script.verify()
