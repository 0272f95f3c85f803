"""The examples by which streaming databases explain themselves, word for word, as executed tests.

Stories with more than one vote: a join over an aggregate with HAVING, maintained while votes come and go.
"""

from __future__ import annotations

from tests.epoch.scripts import Script

_STORIES = """
CREATE TABLE Stories (id INT, title STRING, PRIMARY KEY (id));
CREATE TABLE Votes (user_id INT, story_id INT);
INSERT INTO Stories VALUES (1, 'first'), (2, 'second'), (3, 'third');
CREATE MATERIALIZED VIEW StoriesVC AS
  SELECT story_id, COUNT(*) AS vcount FROM Votes GROUP BY story_id HAVING vcount >= 2;
CREATE MATERIALIZED VIEW Popular AS
  SELECT id, title, vcount FROM Stories JOIN StoriesVC ON StoriesVC.story_id = Stories.id WHERE vcount > 1;
"""


def test_votes_come_and_go(script: Script) -> None:
    script.run(_STORIES)
    assert script.rows("SELECT * FROM StoriesVC") == []

    # + (1, 1)  + (2, 1)  + (3, 2)
    script.run("INSERT INTO Votes VALUES (1, 1), (2, 1), (3, 2); REFRESH")
    assert script.rows("SELECT * FROM StoriesVC") == [(1, 2)]
    assert script.rows("SELECT * FROM Popular") == [(1, "first", 2)]

    # - (1, 1): story 1 falls below two votes
    script.run("DELETE FROM Votes WHERE user_id = 1 AND story_id = 1; REFRESH")
    assert script.rows("SELECT * FROM StoriesVC") == []
    assert script.rows("SELECT * FROM Popular") == []

    # + (4, 1)  + (5, 2): both have two now
    script.run("INSERT INTO Votes VALUES (4, 1), (5, 2); REFRESH")
    assert script.rows("SELECT * FROM StoriesVC") == [(1, 2), (2, 2)]
    assert script.rows("SELECT * FROM Popular") == [(1, "first", 2), (2, "second", 2)]
    script.verify()


def test_the_key_a_query_keeps_decides_the_form_of_its_join_state(script: Script) -> None:
    """Two views and two queries over them: whether the left side's key survives decides how its state is kept."""
    script.run(
        """
        CREATE TABLE l (order_id INT, user_id INT);
        CREATE TABLE r (order_id INT);
        INSERT INTO l VALUES (1, 1), (1, 1), (1, 2), (2, 1);
        INSERT INTO r VALUES (1), (1), (3);
        CREATE MATERIALIZED VIEW view1 AS
          SELECT order_id, user_id, count(*) AS cnt FROM l GROUP BY order_id, user_id;
        CREATE MATERIALIZED VIEW view2 AS SELECT order_id FROM r GROUP BY order_id;
        CREATE MATERIALIZED VIEW query1 AS
          SELECT order_id, user_id, cnt FROM view1 WHERE order_id IN (SELECT order_id FROM view2);
        CREATE MATERIALIZED VIEW query2 AS
          SELECT sum(cnt) AS total FROM (SELECT cnt FROM view1 WHERE order_id IN (SELECT order_id FROM view2)) AS q;
        CREATE MATERIALIZED VIEW both AS
          SELECT view1.order_id, user_id, cnt, view2.order_id AS other FROM view1 FULL JOIN view2 USING (order_id);
        """
    )
    views = script.warehouse.read().views
    # The join key order_id contains the key of view2, but not that of view1.
    sides = [t.schema for t in views["both"].tables if t.schema.label in ("left", "right")]
    assert [schema.kind.value for schema in sides] == [
        "InputSideHasUniqueKey",
        "JoinKeyContainsUniqueKey",
    ]
    # The rows of a view are there already, and none of them matches twice: both sides are looked up where they are.
    assert [t.schema.label for t in views["query1"].tables] == ["mv"]
    script.run("DELETE FROM r WHERE order_id = 1; INSERT INTO r VALUES (2); REFRESH")
    assert script.rows("SELECT * FROM query1") == [(2, 1, 1)]
    assert script.rows("SELECT * FROM query2") == [(1,)]
    script.verify()
