"""*Deep Dive Into the RisingWave Stream Processing Engine - Part 2: Computational Model*: its statements, word for word."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.plan.nodes import Join, walk
from relstate_dagster.state_lib.errors import RelstateError
from relstate_dagster.state_lib.table_schema import StateKind
from tests.seeds.shown import Shown


def test_stories_with_votes(shown: Shown) -> None:
    """«Get stories information with more than 1 vote»."""
    shown.run(
        """
        CREATE TABLE StoriesVC(story_id int, vote_count int);
        CREATE TABLE Stories (id int, title string);
        INSERT INTO Stories VALUES (1, 'first'), (2, 'second');
        INSERT INTO StoriesVC VALUES (1, 2), (2, 1);
        CREATE MATERIALIZED VIEW popular AS
        /* Get stories information with more than 1 vote*/
        SELECT id, title, vote_count
        FROM Stories JOIN StoriesVC
        ON StoriesVC.story_id = Stories.id
        WHERE vote_count > 1;
        """
    )
    assert shown.rows("SELECT * FROM popular") == [(1, "first", 2)]
    shown.run("UPDATE StoriesVC SET vote_count = 3 WHERE story_id = 2; REFRESH")
    assert shown.rows("SELECT * FROM popular") == [(1, "first", 2), (2, "second", 3)]
    shown.run("DROP MATERIALIZED VIEW popular; DROP TABLE StoriesVC")


def test_votes_come_and_go(shown: Shown) -> None:
    """The time-varying relation StoriesVC, and the query that has it as a subquery."""
    shown.run(
        """
        CREATE TABLE Votes(user_id int, story_id int);

        CREATE MATERIALIZED VIEW StoriesVC AS
        SELECT story_id, COUNT(*) AS vcount
        FROM Votes GROUP BY story_id
        HAVING vcount >= 2;

        CREATE MATERIALIZED VIEW popular AS
        /* Get stories information with more than 1 vote*/
        SELECT id, title, vote_count
        FROM Stories JOIN (
            SELECT count(*) AS vote_count, story_id FROM Votes GROUP BY story_id
        ) StoriesVC
        ON StoriesVC.story_id = Stories.id
        WHERE vote_count > 1;
        """
    )
    assert shown.rows("SELECT * FROM StoriesVC") == []
    shown.run("INSERT INTO Votes VALUES (1,1), (2,1), (3,2); REFRESH")
    assert shown.rows("SELECT * FROM StoriesVC") == [(1, 2)]
    assert shown.rows("SELECT * FROM popular") == [(1, "first", 2)]
    shown.run("DELETE FROM Votes WHERE user_id = 1 AND story_id = 1; REFRESH")
    assert shown.rows("SELECT * FROM StoriesVC") == []
    shown.run("INSERT INTO Votes VALUES (4,1), (5,2); REFRESH")
    assert shown.rows("SELECT * FROM StoriesVC") == [(1, 2), (2, 2)]
    assert shown.rows("SELECT * FROM popular") == [(1, "first", 2), (2, "second", 2)]
    (counts,) = shown.tables("StoriesVC", StateKind.VALUE_STATE)
    assert [row[:2] for row in shown.state("StoriesVC", counts)] == [(1, 2), (2, 2)]
    shown.verify()


def test_stream_keys_are_hidden_columns(shown: Shown) -> None:
    """«the materialized view can use them as hidden columns for a composite primary key»."""
    shown.run(
        """
        CREATE TABLE VisitEvent(
          story_id int,
          user_id int,
          time timestamp,
          uuid varchar(36) primary key);
        CREATE TABLE Comments(
          story_id int,
          user_id int,
          created_at timestamp,
          content string,
          uuid varchar(36) primary key);
        INSERT INTO VisitEvent VALUES (1, 1, '2024-01-01', 'v1'), (1, 1, '2024-01-01', 'v2');
        INSERT INTO Comments VALUES (1, 1, '2024-01-02', 'good', 'c1');

        CREATE MATERIALIZED VIEW mv AS SELECT
          Comments.story_id as story_id,
          Comments.user_id as user_id,
          Comments.content as content,
          Comments.created_at as comment_time,
          VisitEvent.time as visit_time
        FROM Comments JOIN VisitEvent USING(story_id, user_id);
        """
    )
    (table,) = shown.tables("mv", StateKind.MATERIALIZED_VIEW)
    plan = shown.warehouse.read().views["mv"].plan
    (join,) = (n for n in walk(plan) if isinstance(n, Join))
    assert [join.left.stream_key, len(join.right.stream_key or ())] == [("uuid",), 1]
    assert shown.key(table) == list(plan.stream_key or ())
    assert len(shown.key(table)) == 2
    assert not set(shown.key(table)) & {o.column for o in plan.output}
    # Two visits make two equal rows of the view, which their keys tell apart.
    assert [row[2] for row in shown.rows("SELECT * FROM mv")] == ["good", "good"]
    shown.run("DELETE FROM VisitEvent WHERE uuid = 'v1'; REFRESH")
    assert [row[2] for row in shown.rows("SELECT * FROM mv")] == ["good"]
    shown.verify()


def test_inserts_and_deletes_of_a_key_alternate(shown: Shown) -> None:
    """«an existing stream key cannot be inserted or a non-existing stream key cannot be deleted»."""
    shown.run("INSERT INTO VisitEvent VALUES (9, 9, NULL, 'v2')")
    with pytest.raises(RelstateError, match=r"VisitEvent.*PRIMARY KEY \(uuid\)"):
        shown.run("REFRESH")
    # The row that made its key ambiguous goes again, and the views go on.
    shown.run("DELETE FROM VisitEvent WHERE story_id = 9; REFRESH")
    shown.verify()


def test_an_upsert_is_a_deletion_and_an_insertion(shown: Shown) -> None:
    """«it queries the value of the key in the table and fills in the corresponding DELETE operation as needed»."""
    shown.run(
        """
        CREATE TABLE upserted (k INT, v INT, PRIMARY KEY (k));
        INSERT INTO upserted VALUES (1, 10), (2, 20);
        CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS s FROM upserted;
        MERGE INTO upserted t USING (SELECT * FROM VALUES (1, 11), (3, 30) AS u(k, v)) u ON t.k = u.k
        WHEN MATCHED THEN UPDATE SET v = u.v WHEN NOT MATCHED THEN INSERT *;
        REFRESH;
        """
    )
    assert shown.rows("SELECT * FROM total") == [(61,)]
    shown.verify()
