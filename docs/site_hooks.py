"""What mkdocs does for the site besides: the README is its first page; pages on commands and metadata come from code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import typer
from mkdocs.structure.files import File, Files

from relstate_dagster.assets.metadata import EPOCH_METADATA
from relstate_dagster.cli import app

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

_README = Path(__file__).parent.parent / "README.md"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    readme = _README.read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=re.sub(r"\]\(docs/", "](", readme)))
    files.append(File.generated(config, "cli.md", content="\n".join(commands())))
    files.append(File.generated(config, "metadata.md", content="\n".join(metadata())))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to the README lead to the first page."""
    del page, config, files
    return markdown.replace("](../README.md", "](index.md").replace("](../../README.md", "](../index.md")


def commands() -> Iterator[str]:
    """The lines of the page on the command line."""
    yield "# Commands\n"
    yield "Every command says what it does, and what its options are, with `--help`. Paths are folders or addresses of object"
    yield "stores. Commands exit with 1 if what they were asked for is not so, and with 2 for a wrong use.\n"
    yield "| command | |\n|---|---|"
    found = sorted(_all_of(typer.main.get_command(app)))
    for name, command in found:
        yield f"| [`relstate {name}`](#relstate-{name.replace(' ', '-')}) | {_sentence(command)} |"
    for name, command in found:
        yield f"\n## relstate {name}\n\n{_text(command.help)}\n"
        if command.params:
            yield "| | |\n|---|---|"
            yield from (f"| {_names(parameter)} | {_cell(getattr(parameter, 'help', None))} |" for parameter in command.params)


def metadata() -> Iterator[str]:
    """The lines of the page on metadata in Dagster."""
    yield "# Metadata in Dagster\n"
    yield "What a materialization of a view says of its epoch; numbers are plotted. Late rows, malformed records, advice and"
    yield "remarks are there where there are some. Nothing of this takes a Spark job of its own.\n"
    yield "| name | |\n|---|---|"
    yield from (f"| `{name}` | {_cell(text)} |" for name, text in EPOCH_METADATA.items())


def _all_of(group: Any, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands of a group by name, those of groups in it as well."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if hasattr(command, "commands"):
            yield from _all_of(command, f"{before}{name} ")


def _sentence(command: click.Command) -> str:
    return _cell(_text(command.help).split("\n\n")[0])


def _names(parameter: click.Parameter) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.name or '').upper()}{'…' if parameter.nargs == -1 else ''}`"
    return ", ".join(f"`{name}`" for name in parameter.opts)


def _text(text: str | None) -> str:
    return (text or "").replace("\b", "").strip()


def _cell(text: str | None) -> str:
    return " ".join(_text(text).split()).replace("|", "\\|")
