"""Views of Python files, read without running them."""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent

import pytest

from relstate_dagster.jobs.declare import Project, load_project, materialized_view
from relstate_dagster.server.json_values import from_plain, to_plain
from relstate_dagster.state_lib.errors import DeclarationError

HEAD = "from relstate_dagster import materialized_view\nimport nowhere_installed\n"


@pytest.fixture
def written(tmp_path):
    def write(text, name="views.py", head=HEAD):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(head + dedent(text))
        return tmp_path

    return write


def reads(folder, name="v"):
    return load_project(folder).view(name).query.reads


def test_what_the_decorator_says_is_read(written):
    folder = written(
        '''
        @materialized_view(name="V", cluster_by=["a"], properties={"refresh.policy": "incremental"}, reads=["x", "y"])
        def any_name(spark):
            """What it is."""
            return nowhere_installed.frame(spark)
        '''
    )
    view = load_project(folder).view("v")
    assert (view.name, view.comment, view.cluster_by, view.line) == ("V", "What it is.", ("a",), 5)
    assert (view.refresh_policy, view.query.reads, view.query.name) == ("incremental", ("x", "y"), "V")
    assert (view.path, view.query.path) == (str(folder / "views.py"), str(folder / "views.py"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return spark.table('a')", ("a",)),
        ("return spark.read.table('a').join(spark.sql('SELECT * FROM b, `C`'), 'k')", ("a", "b", "C")),
        ("return helper(spark)", ("h",)),
        ("return spark.table(NAME)", None),
        ("return spark.table(f'{NAME}')", None),
        ("return spark.range(3)", ()),
        ("from local import frame\n    return frame(spark)", None),
    ],
)
def test_tables_are_found_in_the_text_of_a_function(written, body, expected):
    written("", "local.py", "def frame(spark): return spark.table('z')")
    text = f"NAME = 'n'\ndef helper(spark):\n    return spark.table('h')\n@materialized_view\ndef v(spark):\n    {body}\n"
    found = reads(written(text))
    assert found == expected if expected is None else set(found) == set(expected)


def test_a_digest_is_of_what_a_function_uses(written):
    text = """
    import local
    ONE, OTHER = 1, 2

    def helper():
        return ONE

    @materialized_view
    def v(spark):
        "What it is."
        return spark.table("a").limit(helper())

    @materialized_view
    def w(spark):
        return spark.table("a").limit(local.N)
    """
    written("", "local.py", "N = 1")

    def digests(text, local="N = 1"):
        written("", "local.py", local)
        project = load_project(written(text))
        return [project.view(name).query.digest for name in ("v", "w")]

    first = digests(text)
    assert digests(text.replace('"What it is."', '"Other words."').replace("def helper", "# a note\n    def helper")) == first
    assert [a == b for a, b in zip(first, digests(text.replace("ONE, OTHER = 1, 2", "ONE, OTHER = 1, 3")), strict=True)] == [
        False,
        True,
    ]
    assert [a == b for a, b in zip(first, digests(text, "N = 2"), strict=True)] == [True, False]
    assert [a == b for a, b in zip(first, digests(text.replace("limit(local", "offset(local")), strict=True)] == [True, False]


def test_functions_cross_the_socket_of_a_server(written):
    folder = written("@materialized_view\ndef v(spark):\n    return spark.table('a')\n")
    written("@materialized_view\ndef w(spark):\n    return spark.table(f'{1}')\n", "more.py")
    (folder / "p.sql").write_text("CREATE VIEW p AS SELECT * FROM v; CREATE MATERIALIZED VIEW x AS SELECT * FROM p")
    project = load_project(folder)
    again = from_plain(Project, json.loads(json.dumps(to_plain(project))))
    assert again == project
    assert [view.query for view in again.views] == [view.query for view in project.views]
    assert [again.view(name).query.reads for name in ("v", "w")] == [("a",), None]


def test_environments_and_other_python_files_are_passed_over(written):
    broken = "materialized_view relstate_dagster ("
    folder = written("", ".venv/x.py", broken)
    written("", "env/pyvenv.cfg", "")
    written("", "env/x.py", broken)
    written("", "other.py", "import dagster, nowhere_installed")
    written("@materialized_view\ndef v(spark):\n    return spark.table('a')\n", "sub/views.py")
    assert [view.name for view in load_project(folder).views] == ["v"]


def test_errors_name_the_file(written):
    with pytest.raises(DeclarationError, match=r"views.py:3: this is no Python"):
        load_project(written("def v(:"))
    with pytest.raises(DeclarationError, match=r"views.py: the file fails as it runs: ModuleNotFoundError: .*nowhere"):
        load_project(written("for n in 'ab':\n    materialized_view(name=n)(lambda spark: spark.table(n))"))
    text = "@materialized_view(properties={'refresh.polcy': 'full'})\ndef v(spark):\n    return spark.table('a')\n"
    with pytest.raises(DeclarationError, match=r"refresh\.polcy"):
        load_project(written(text))
    both = "@materialized_view\ndef v():\n    return 5\n"
    with pytest.raises(DeclarationError, match=r"a function without parameters returns SQL"):
        load_project(written(both, head="from relstate_dagster import materialized_view\n"))


def test_a_file_may_load_its_own_project(written):
    text = """
        from pathlib import Path
        from relstate_dagster.jobs.declare import load_project
        sums = materialized_view(name="sums", query="SELECT g, sum(v) AS s FROM t GROUP BY g")
        @materialized_view(name="n" "s")
        def counted(spark):
            return spark.table("t").groupBy("g").count()
        print(sorted(view.name for view in load_project(Path(__file__).parent, extra=[sums, counted]).views))
        """
    folder = written(text, "definitions.py", "from relstate_dagster import materialized_view\n")
    (folder / "t.sql").write_text("CREATE TABLE t (g INT, v INT)")
    assert sorted(view.name for view in load_project(folder).views) == ["ns", "sums"]
    done = subprocess.run([sys.executable, folder / "definitions.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["['ns', 'sums']"]), done.stderr
    other = materialized_view(name="sums", query="SELECT 1 AS one")
    with pytest.raises(DeclarationError, match="sums"):
        load_project(folder, extra=[other])


def test_links_and_files_of_others_do_not_matter(written):
    folder = written("@materialized_view\ndef v(spark):\n    return spark.table('a')\n", "sub/views.py")
    (folder / "sub" / "up").symlink_to(folder)
    (folder / "gone.py").symlink_to(folder / "nowhere.py")
    (folder / "latin.py").write_bytes("x = 'ä'".encode("latin-1"))
    assert [view.name for view in load_project(folder).views] == ["v"]
    (folder / "latin.py").write_bytes(f"{HEAD}x = 'ä'  # materialized_view".encode("latin-1"))
    with pytest.raises(DeclarationError, match=r"latin\.py: a file that declares views is UTF-8"):
        load_project(folder)
