"""The command: ``python -m benchmarks``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.data import base_tables, default_data
from benchmarks.queries import QUERIES
from benchmarks.results import Results
from benchmarks.scenarios import tpch
from benchmarks.scenarios.common import Run
from benchmarks.streams import SIZES, STREAMS

app = typer.Typer(help=__doc__, no_args_is_help=True)
