"""``relstate why`` and ``relstate diff`` as docs/why.md shows them, and what a person gets wrong."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from relstate_dagster.cli import app
from relstate_dagster.cli.app import console, output
from relstate_dagster.state_lib.errors import DeclarationError, EpochError
from tests.epoch.scripts import Script

pytestmark = pytest.mark.spark

DOCS = Path(__file__).parents[2] / "docs" / "why.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
#: What is another one each time: when a commit was made, and by which versions of Spark and Delta.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[+-]\d\d:\d\d)?")
_ENGINE: Final = re.compile(r"Apache-Spark/\S+\s+(?:[│\s]*)Delta-Lake/\S+")


class Terminal:
    def __init__(self, folder: str) -> None:
        self.warehouse = folder

    def __call__(self, *arguments: str) -> str:
        done = CliRunner().invoke(app, [*arguments, "--warehouse", self.warehouse])
        if done.exception is not None:
            raise done.exception
        assert "json" in arguments or all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout
        return done.stdout

    def json(self, *arguments: str) -> dict[str, Any]:
        return json.loads(self(*arguments, "--format", "json"), parse_constant=pytest.fail)


@pytest.fixture(scope="module")
def terminal(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    script = Script(spark, tmp_path_factory.mktemp("why") / "warehouse")
    for language, text in BLOCKS:
        if language == "sql":
            script.run(text)
    return Terminal(script.warehouse.root)


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for shown_on in (console, output):
        monkeypatch.setattr(shown_on, "_width", 80)


def _plain(text: str) -> str:
    """Without what is another one each time, and without where lines are broken."""
    words = " ".join(line.strip(" │") for line in text.splitlines()).split()
    return _ENGINE.sub("ENGINE", _TIME.sub("TIME", " ".join(words)))


def _examples() -> list[tuple[str, str]]:
    """The commands, each with what it prints."""
    shown = [(text, following[1]) for (language, text), following in pairwise(BLOCKS) if language == "sh"]
    assert len(shown) == len([language for language, _ in BLOCKS if not language]) == 5
    assert {language for language, _ in BLOCKS} == {"sql", "sh", "", "python"}
    return shown


@pytest.mark.parametrize(("command", "printed"), _examples(), ids=range(len(_examples())))
def test_the_examples(terminal: Terminal, command: str, printed: str) -> None:
    assert _plain(terminal(*shlex.split(command)[1:])) == _plain(printed)


def test_the_python_example(spark: SparkSession, terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = [text for language, text in BLOCKS if language == "python"]
    exec(text.replace("my_warehouse", terminal.warehouse), {"spark": spark})
    said = capsys.readouterr().out
    assert "changed 45 65" in said
    assert "flights 3" in said
    assert re.search(r"\| +UA\| +303\|", said)


def test_as_json(terminal: Terminal) -> None:
    found = terminal.json("why", "days", "--key", "flights=3", "--limit", "1")
    assert found["row"] == {"day": "2013-01-02", "flights": 3, "worst": 65}
    assert (found["change"], found["differing"], found["old"]["worst"]) == ("changed", ["worst"], 45)
    (view,) = found["inputs"]
    assert (view["kind"], view["name"], view["rows"]) == ("view", "airline_days", 1)
    flights = next(item for item in view["inputs"] if item["name"] == "flights")
    assert (flights["rows"], len(flights["shown"]), flights["inserted"], flights["deleted"]) == (3, 1, 2, 2)
    (change,) = flights["changes"]
    assert change["change"] == "deleted"
    assert change["row"] == {"carrier": "UA", "flight": 303, "day": "2013-01-02", "delay": 45}
    assert (change["commit"]["version"], change["commit"]["operation"]) == (2, "UPDATE")
    assert change["commit"]["engine"].startswith("Apache-Spark")


def test_what_is_asked_wrongly_is_said(terminal: Terminal) -> None:
    for key, error, message in [
        ("nothing=1", DeclarationError, "view days has no column nothing; it has day, flights, worst"),
        ("worst=much", DeclarationError, "key column worst of view days is of type INT, not"),
        ("worst", DeclarationError, "not understood"),
        ("", DeclarationError, "which row of days"),
        ("worst=1", DeclarationError, "has no row with worst = 1 at epoch 3, nor at epoch 1, the one before"),
    ]:
        with pytest.raises(error, match=re.escape(message)):
            terminal("why", "days", "--key", key)
    with pytest.raises(EpochError, match=r"has not reached epoch 9, or that is forgotten; there are 1, 3$"):
        terminal("why", "days", "--key", "worst=65", "--epoch", "9")
    with pytest.raises(DeclarationError, match="no materialized view named flights; there are"):
        terminal("why", "flights", "--key", "carrier=UA")


@pytest.fixture
def vacuumed(terminal: Terminal, tmp_path: Path) -> Iterator[None]:
    """The files that only an earlier version of a source has are away; other tests find them again."""
    flights = f"{terminal.warehouse}/sources/flights"
    gone = set(DeltaTable(flights, version=1).file_uris()) - set(DeltaTable(flights).file_uris())
    moved = {path: shutil.move(path, tmp_path) for path in gone}
    yield
    for path, kept in moved.items():
        shutil.move(kept, path)


@pytest.mark.usefixtures("vacuumed")
def test_what_was_vacuumed_is_named(terminal: Terminal) -> None:
    said = " ".join(terminal("why", "days", "--key", "worst=65").split())
    assert "what changed in epoch 3 cannot be found: source flights cannot be read as of epoch 1 any more" in said
    assert "vacuumed away" in said
    assert "since epoch" not in said
    with pytest.raises(EpochError, match="source flights cannot be read as of epoch 1 any more"):
        terminal("why", "days", "--key", "worst=45", "--epoch", "1")
