"""The two suites: their tables from the ``.ddl`` files beside this module, their query texts as Spark's own tests have them.

The texts come out of the test jar that Spark publishes next to every release; nothing in them is rewritten.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relstate_dagster.jobs.declare import dependencies
from relstate_dagster.jobs.declare.model import rename_columns
from relstate_dagster.jobs.engine.jars import Jar, fetch_jar, find_jar
from relstate_dagster.jobs.plan.nodes import Field
from relstate_dagster.jobs.plan.relation import Relation
from relstate_dagster.jobs.planner.catalyst import Catalyst
from relstate_dagster.jobs.planner.trees import items

SPARK_TESTS = Jar(
    "org.apache.spark",
    "spark-sql_2.13",
    "4.2.0",
    "810bef6fd568e1626aad7354a1161e9e5ac629fbc55ba0a9a4e3cec8c06376eb",
    classifier="tests",
)

_TABLE = re.compile(r"CREATE TABLE (\w+) \((.*?),\s*PRIMARY KEY \(([^)]*)\)\s*\);", re.DOTALL)
_COLUMN = re.compile(r"(\w+) (INT|BIGINT|STRING|DATE|DECIMAL\(\d+,\d+\))")


@dataclass(frozen=True, slots=True)
class Suite:
    """Tables and queries that belong together.

    Parameters
    ----------
    name : ``tpch`` or ``tpcds``.
    tables : every base table by name, each with its primary key.
    queries : query texts by name, in the order of their numbers.
    """

    name: str
    tables: Mapping[str, Relation]
    queries: Mapping[str, str]

    def reads(self, query: str) -> dict[str, Relation]:
        """The tables that a query names, by name."""
        named = {d.lower() for d in dependencies(self.queries[query])}
        return {name: relation for name, relation in self.tables.items() if name in named}

    def definition(self, query: str, catalyst: Catalyst) -> str:
        """The text as a materialized view's: where two columns share a name, as one declared with a column list."""
        text = self.queries[query]
        names = [str(a.name()) for a in items(catalyst.analyse(text).output())]
        if len({n.lower() for n in names}) == len(names):
            return text
        return rename_columns(
            text, tuple(f"{n}_{names[:i].count(n) + 1}" if n in names[:i] else n for i, n in enumerate(names))
        )


def query_number(name: str) -> int:
    """The number of a query whose text may be one of two variants: 14 of ``q14b``."""
    found = re.search(r"\d+", name)
    assert found is not None, name
    return int(found[0])


@cache
def suite(name: str) -> Suite:
    """One of the two suites; the query texts are fetched on the first call on a machine.

    Raises
    ------
    EnvironmentProblem : the test jar is in no cache and cannot be fetched.
    """
    return Suite(name, _tables(name), _queries(name))


def _tables(name: str) -> dict[str, Relation]:
    text = Path(__file__).with_name(f"{name}.ddl").read_text(encoding="utf-8")
    tables = {}
    for table, body, key_text in _TABLE.findall(text):
        key = tuple(k.strip() for k in key_text.split(","))
        columns = tuple(Field(c, t.lower(), c not in key) for c, t in _COLUMN.findall(body))
        tables[table] = Relation(table, columns, key)
    return tables


def _queries(name: str) -> dict[str, str]:
    jar = find_jar(SPARK_TESTS) or fetch_jar(SPARK_TESTS)
    with zipfile.ZipFile(jar) as archive:
        found = {
            Path(entry).stem: archive.read(entry).decode("utf-8")
            for entry in archive.namelist()
            if re.fullmatch(rf"{name}/q\d+[ab]?\.sql", entry)
        }
    return dict(sorted(found.items(), key=lambda item: (query_number(item[0]), item[0])))
