"""``relstate run`` and the verbs around it, as a person calls them in a terminal of 80 columns."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli.app import console, output
from relstate_dagster.jobs.api import Warehouse
from relstate_dagster.state_lib.errors import DeclarationError, RelstateError
from tests.epoch.scripts import Script
from tests.processes import heeds_interrupts

_LONG = "revenue_of_each_customer_by_day_of_the_week_and_store"
_SOURCES = "CREATE TABLE orders_of_all_stores (id INT, customer STRING, cents BIGINT, PRIMARY KEY (id));"
_VIEWS = {
    _LONG: "SELECT customer, sum(cents) AS cents FROM orders_of_all_stores GROUP BY customer",
    "over": f"SELECT cents FROM {_LONG} WHERE cents > 100",
    "plain_count": "SELECT count(*) AS n FROM orders_of_all_stores",
}


class Terminal:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.project, self.warehouse = folder / "project", folder / "warehouse"
        self.project.mkdir()
        (self.project / "sources.sql").write_text(_SOURCES)
        for name, query in _VIEWS.items():
            self.declare(name, query)
        for shown_on in (console, output):
            monkeypatch.setattr(shown_on, "_width", 80)

    def declare(self, name: str, query: str) -> None:
        (self.project / f"{name}.sql").write_text(f"CREATE MATERIALIZED VIEW {name} AS {query}")

    def __call__(self, verb: str, *arguments: str) -> tuple[int, str]:
        where = ["--warehouse", str(self.warehouse)]
        if verb in ("run", "status"):
            where += ["--project", str(self.project)]
        done = CliRunner().invoke(app, [verb, *arguments, *where])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert all(len(line) <= 80 for line in done.output.splitlines() if "│" in line or "┃" in line), done.output
        return done.exit_code, done.output


@pytest.fixture
def terminal(spark, tmp_path, monkeypatch):
    return Terminal(tmp_path, monkeypatch)


def test_a_view_that_is_left_behind_is_named_with_its_reason_and_the_others_go_on(terminal):
    assert terminal("run")[0] == 0
    big = 9223372036854775807
    assert terminal("sql", "-e", f"INSERT INTO orders_of_all_stores VALUES (1, 'ann', {big}), (2, 'ann', 1)")[0] == 0
    code, said = terminal("sql", "-e", "REFRESH")
    assert code == 1
    assert f"{_LONG} was left behind at epoch" in said.replace("\n", " ")
    assert "over was left behind" in said.replace("\n", " ")
    code, said = terminal("run")
    assert code == 1
    assert f"│ {_LONG} " in said, "no name is cut in two"
    assert "left behind" in said
    assert "overflow" in said
    assert "waits for" in said
    assert Warehouse(terminal.warehouse).read().views["plain_count"].problem is None
    code, said = terminal("status")
    assert "see below" in said
    assert f"{_LONG}: left behind at epoch" in said
    assert terminal("verify")[0] == 0
    terminal("sql", "-e", "DELETE FROM orders_of_all_stores WHERE id = 1")
    code, said = terminal("run")
    assert (code, "left behind" in said) == (0, False)
    assert "see below" not in terminal("status")[1]


def test_all_views_are_rebuilt_at_once(terminal):
    terminal("run")
    before = {name: view.generation for name, view in Warehouse(terminal.warehouse).read().views.items()}
    assert terminal("run", "--full-refresh", "--all")[0] == 0
    after = {name: view.generation for name, view in Warehouse(terminal.warehouse).read().views.items()}
    assert not set(before.values()) & set(after.values())
    assert terminal("verify")[0] == 0


def test_a_source_is_read_up_to_a_version(terminal):
    assert terminal("run")[0] == 0
    for number in (1, 2):
        terminal("sql", "-e", f"INSERT INTO orders_of_all_stores VALUES ({number}, 'ann', 200)")
    assert terminal("run", "--until", "orders_of_all_stores=1", "--strict")[0] == 0
    assert Warehouse(terminal.warehouse).read().last_pins["orders_of_all_stores"].version == 1
    picture = Path(terminal.warehouse).parent / "plan.svg"
    assert terminal("explain", "plain_count", "--svg", str(picture))[0] == 0
    drawn = picture.read_text()
    flows = re.findall("[+−].* rows?(?=</text>)", drawn)
    assert ("rows of epoch" in drawn, len(flows)) == (True, drawn.count("<path d=")), "a strict run counts along each edge"
    assert "unchanged" in terminal("run", "--until", "orders_of_all_stores=1")[1]
    for wrong, message in (
        ("orders_of_all_stores", "write SOURCE=VERSION"),
        ("orders_of_all_stores=x", "write SOURCE=VERSION"),
        ("orders=1", "there is no source named orders; there are orders_of_all_stores"),
        ("orders_of_all_stores=0", "up to version 1 and cannot go back to version 0"),
    ):
        with pytest.raises(RelstateError, match=message):
            terminal("run", "--until", wrong)
    assert terminal("run", "--full-refresh", "--all", "--until", "orders_of_all_stores=0")[0] == 0
    assert terminal("run")[0] == 0
    assert terminal("verify")[0] == 0


def test_a_view_whose_file_is_gone_is_named_and_dropped_when_that_is_asked_for(terminal):
    terminal("run")
    (terminal.project / "over.sql").unlink()
    code, said = terminal("run")
    assert code == 0
    assert "no file declares over any more" in said.replace("\n", " ")
    assert "over: no file declares it any more" in terminal("status")[1]
    assert "over" in Warehouse(terminal.warehouse).read().views
    code, said = terminal("run", "--prune")
    assert code == 0
    assert "over" not in Warehouse(terminal.warehouse).read().views
    assert not (terminal.warehouse / "views" / "over").exists()
    with pytest.raises(DeclarationError, match="cannot be dropped"):
        terminal("drop", "orders_of_all_stores")
    assert terminal("drop", _LONG, "plain_count", "orders_of_all_stores")[0] == 0
    assert not any((terminal.warehouse / "sources").iterdir())


def test_version_and_log_level():
    assert CliRunner().invoke(app, ["--version"]).output.startswith("relstate ")
    with pytest.raises(DeclarationError, match="--log-level loud: there are off, error, warn, info, debug"):
        raise CliRunner().invoke(app, ["--log-level", "loud", "doctor"]).exception


def _has_java(pid: int) -> bool:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(b"java" in Path(f"/proc/{child}/cmdline").read_bytes() for child in children)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the JVM in /proc")
@pytest.mark.parametrize("when", ["while Spark starts", "in a statement"])
def test_ctrl_c_ends_with_one_line_and_leaves_no_process(tmp_path, when):
    warehouse = tmp_path / "ctrl_c_warehouse"
    slow = "SELECT count(*) FROM range(3000000000) a JOIN range(100) b ON a.id % 3 <> b.id"
    code = "from relstate_dagster.cli import console_script; console_script()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "sql", "--warehouse", str(warehouse), "-e", f"CREATE TABLE made (a INT); {slow}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=heeds_interrupts,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
    )
    try:
        has_come_so_far = {
            "while Spark starts": lambda: _has_java(process.pid),
            "in a statement": lambda: (warehouse / "_relstate" / "catalog").exists(),
        }[when]
        while not has_come_so_far():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.2)
        time.sleep(0 if when == "while Spark starts" else 3)
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=120)  # which ends once the JVM has ended as well
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert said.splitlines()[-1] == "interrupted: what was committed stays, and the next run goes on from there"
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert process.returncode == 130


_DROPPED = """
import os, signal, sys
from py4j.protocol import Py4JError
from relstate_dagster.cli import console_script
from relstate_dagster.cli.app import app

class Java:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1000))

@app.command()
def doomed():
    java = Java()
    del java
    raise Py4JError("Answer from Java side is empty")

sys.argv = ["relstate", "doomed"]
console_script()
"""


def test_ctrl_c_is_said_though_python_has_dropped_it():
    """It comes while an object of Java's is let go; what is seen of it is a connection that answers no more."""
    ended = subprocess.run(
        [sys.executable, "-c", _DROPPED], capture_output=True, text=True, check=False, preexec_fn=heeds_interrupts
    )
    assert ended.stderr.splitlines()[-1] == "interrupted: what was committed stays, and the next run goes on from there"
    assert ended.returncode == 130


def test_the_demo_is_kept_out_of_a_warehouse_that_has_other_views(spark, tmp_path, monkeypatch):
    """It is the project where none is named."""
    monkeypatch.delenv("RELSTATE_PROJECT", raising=False)
    script = Script(spark, tmp_path / "warehouse")
    script.run("CREATE TABLE t (k INT); CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM t; REFRESH")
    before = Warehouse(tmp_path / "warehouse").read()

    def done(verb, *arguments):
        return CliRunner().invoke(app, [verb, "--warehouse", str(tmp_path / "warehouse"), "--server", "never", *arguments])

    for verb in ("run", "plan"):
        with pytest.raises(DeclarationError, match="no project is named"):
            raise CliRunner().invoke(app, [verb, "--warehouse", str(tmp_path / "warehouse")]).exception
    for verb in ("compact", "vacuum", "check", "verify"):
        result = done(verb)
        assert result.exit_code == 0, result.output
    after = Warehouse(tmp_path / "warehouse").read()
    assert (set(after.views), set(after.sources)) == (set(before.views), set(before.sources))
    # Named, it is what was asked for.
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "w.sql").write_text("CREATE MATERIALIZED VIEW w AS SELECT max(k) AS k FROM t")
    result = done("run", "--project", str(tmp_path / "views"))
    assert result.exit_code == 0, result.output
    assert set(Warehouse(tmp_path / "warehouse").read().views) == {"v", "w"}
