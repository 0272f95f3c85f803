"""Maps in views: they have no order and are in no key, and rows that differ in a map alone are different rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.epoch.scripts import Script

_TABLES = """
CREATE TABLE bag (g INT, m MAP<STRING, INT>);
CREATE TABLE only_maps (m MAP<STRING, INT>);
CREATE TABLE nested (g INT, a ARRAY<MAP<STRING, INT>>, s STRUCT<x: INT, m: MAP<INT, STRING>>);
CREATE TABLE t (k INT, g INT, PRIMARY KEY (k));
INSERT INTO t VALUES (1, 1), (2, 1), (3, 2);
INSERT INTO bag VALUES (1, map('a', 1, 'b', 2)), (1, map('a', 1, 'b', 2)), (1, map('b', 2, 'a', 9)), (1, NULL), (2, map());
INSERT INTO only_maps VALUES (map('a', 1)), (map('a', 1)), (NULL);
INSERT INTO nested VALUES (1, array(map('a', 1)), named_struct('x', 1, 'm', map(1, 'a'))), (1, NULL, NULL);
"""
#: Views over relations without a key: the storage key is what else the rows have.
_VIEWS = {
    "passed on": "SELECT g, m FROM bag",
    "maps alone": "SELECT m FROM only_maps",
    "maps within": "SELECT g, a, s FROM nested",
    "joined": "SELECT t.k, bag.m FROM t JOIN bag ON bag.g = t.g",
    "left joined": "SELECT t.k, bag.m FROM t LEFT JOIN bag ON bag.g = t.g",
    "the side that counts": "SELECT bag.g, bag.m, t.k FROM bag LEFT JOIN t ON bag.g = t.k",
    "a window": "SELECT g, m, count(*) OVER (PARTITION BY g) AS n FROM bag",
    "an aggregate of rows": "SELECT g, sort_array(collect_list(m['a'])) AS l, first(m['b'] IS NULL) AS f FROM bag "
    "WHERE m['b'] IS NULL GROUP BY g",
    "first rows": "SELECT g, m FROM bag WHERE m IS NOT NULL ORDER BY g DESC, m['a'] LIMIT 2",
    "groups by a map": "SELECT m, count(*) AS n, sum(g) AS s FROM bag GROUP BY m",
    "groups by a map and more": "SELECT map_keys(m) AS ks, g, max(g) AS x FROM bag GROUP BY m, g HAVING count(*) > 1",
    "groups by what holds maps": "SELECT a, s, count(*) AS n FROM nested GROUP BY a, s",
    "groups by a map that is made": "SELECT map_filter(m, (k, v) -> v > 1) AS f, map('k', m) AS mm, count(*) AS n FROM bag "
    "GROUP BY map_filter(m, (k, v) -> v > 1), map('k', m)",
    "a union of maps": "SELECT m FROM bag UNION ALL SELECT m FROM only_maps",
    "groups of a union": "SELECT m, count(*) AS n FROM (SELECT m FROM bag UNION ALL SELECT m FROM only_maps) GROUP BY m",
    "a join by the entries": "SELECT a.g, b.g AS h FROM bag a JOIN bag b ON map_entries(map_filter(a.m, (k, v) -> v > 1)) "
    "= map_entries(map_filter(b.m, (k, v) -> v > 1))",
    "a join of groups": "SELECT x.m, x.n, t.k FROM (SELECT m, g, count(*) AS n FROM bag GROUP BY m, g) x JOIN t ON t.g = x.g",
}

_CHANGES = (
    # Duplicates, and rows that differ in the map alone; the order of entries does not tell maps apart.
    "INSERT INTO bag VALUES (1, map('b', 2, 'a', 1)), (1, map('a', 2)), (3, map('a', NULL)); INSERT INTO t VALUES (4, 3)",
    "DELETE FROM bag WHERE m['a'] = 9; DELETE FROM only_maps WHERE m IS NULL; DELETE FROM t WHERE k = 1",
    "UPDATE bag SET m = map('a', 1) WHERE m IS NULL; UPDATE nested SET a = array(map('a', 2)) WHERE g = 1",
    "INSERT INTO only_maps VALUES (map('a', 2)), (NULL), (NULL)",
    "DELETE FROM bag WHERE g = 1; DELETE FROM nested; INSERT INTO bag VALUES (1, map('a', 1, 'b', 2))",
)


#: The same in two epochs, and in five.
_EPOCHS = ([_CHANGES[:2], _CHANGES[2:]], [[change] for change in _CHANGES])


@pytest.mark.parametrize("epochs", _EPOCHS, ids=len)
def test_views_with_maps_equal_their_queries(script: Script, epochs: Sequence[Sequence[str]]) -> None:
    script.run(_TABLES)
    for n, query in enumerate(_VIEWS.values()):
        script.run(f"CREATE MATERIALIZED VIEW v{n} TBLPROPERTIES ('refresh.policy' = 'incremental') AS {query}")
    script.run("CREATE MATERIALIZED VIEW in_full TBLPROPERTIES ('refresh.policy' = 'full') AS SELECT m, g FROM bag")
    script.run("CREATE MATERIALIZED VIEW over_v0 AS SELECT m, g + 1 AS g FROM v0")
    script.verify()
    for changes in epochs:
        script.run(f"{'; '.join(changes)}; REFRESH")
        script.verify()
    # As often as it is there: a row of three is two after one of them has gone.
    assert script.rows("SELECT g, m['b'] AS b, count(*) AS n FROM v0 GROUP BY ALL") == [(1, 2, 1), (2, None, 1), (3, None, 1)]
