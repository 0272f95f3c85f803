"""Every block of the README is run, in its order, in an empty folder; installation is what the machine of the tests did."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from relstate_dagster.jobs.declare import parse_text
from relstate_dagster.jobs.declare.model import SourceDeclaration, ViewDeclaration
from tests.processes import heeds_interrupts

_README = Path(__file__).parent.parent / "README.md"
_DEV = "dagster dev"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("readme")
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("RELSTATE_PROJECT", "RELSTATE_WAREHOUSE", "DAGSTER"))}
    return {"cwd": folder, "env": {**kept, "PATH": ":".join(paths), "PYTHONPATH": str(_README.parent), "COLUMNS": "80"}}


def test_every_block_is_of_a_language_that_is_run_here() -> None:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", _README.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert {language for language, _ in found} <= {"", "bash", "sql", "python"}
    unnamed = [text for language, text in found if not language]
    # What is not run: the two commands of make and pip, which made the environment of this very test, and a drawing.
    assert all(text.startswith(("make demo", "pip install", "sources (Delta)")) for text in unnamed), unnamed


def test_the_shell_blocks(shell: dict) -> None:
    commands = [text for text in blocks("bash") if _DEV not in text]
    exported = [line for text in commands for line in text.splitlines() if line.startswith("export ")]
    for text in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, timeout=600, check=False, **shell
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        assert all(len(line) <= 80 for line in done.stdout.splitlines() if "│" in line or "┃" in line), done.stdout
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines[0]["rows"] == [[1, "5.00"]]
    (dev,) = [text for text in blocks("bash") if _DEV in text]
    _runs_until_it_answers("; ".join([*exported, dev.strip() + " --port 3977"]), "http://127.0.0.1:3977/server_info", shell)
    instance = shell["cwd"] / "my_views" / "dagster_home"
    assert (instance / "history").exists(), "the instance of the README is the one that was used"


def _runs_until_it_answers(command: str, url: str, shell: dict) -> None:
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=heeds_interrupts,  # Dagster ends its own processes by them
        **shell,
    )
    try:
        for _ in range(480):
            try:
                with urllib.request.urlopen(url, timeout=2) as answer:
                    assert "dagster_version" in answer.read().decode()
                    return
            except OSError:
                assert process.poll() is None, "dagster dev has ended"
                time.sleep(0.5)
        raise AssertionError(f"{url} does not answer")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_sql_blocks_are_declarations() -> None:
    declared = [d for text in blocks("sql") for d in parse_text(text)]
    assert [type(d) for d in declared] == [SourceDeclaration, ViewDeclaration]


_CALLS = """
CREATE TABLE p (k INT, name STRING, price DECIMAL(10,2), PRIMARY KEY (k));
INSERT INTO p VALUES (1, 'ann', 2.4), (2, 'art', 1.2), (3, 'bob', 6.0);
CREATE MATERIALIZED VIEW nets AS SELECT initial(name) AS i, sum(net(price)) AS net FROM p GROUP BY 1;
CREATE MATERIALIZED VIEW middles AS SELECT initial(name) AS i, median_price(price) AS mid FROM p GROUP BY 1;
DELETE FROM p WHERE k = 2; REFRESH; VERIFY; SELECT i, mid, net FROM nets JOIN middles USING (i) ORDER BY i
"""


def test_the_python_blocks(shell: dict) -> None:
    *others, functions = blocks("python")
    for text in others:
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, **shell)
        assert done.returncode == 0, done.stderr
    place, name = re.match(r"# (\S+); RELSTATE_FUNCTIONS=(\S+)", functions).groups()
    (shell["cwd"] / place).parent.mkdir()
    (shell["cwd"] / place).write_text(functions)
    command = ["relstate", "sql", "--warehouse", "functions_warehouse", "--format", "json", "-e", _CALLS]
    environment = {**shell["env"], "RELSTATE_FUNCTIONS": name, "PYTHONPATH": f"{shell['env']['PYTHONPATH']}:{shell['cwd']}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=shell["cwd"], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == [["A", 2.4, "2.00"], ["B", 6.0, "5.00"]]
