"""The two consoles: what a person asked for goes to standard output, everything else to standard error."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def progress() -> Progress:
    """Return a progress bar for a long step; it stays silent where standard error is not a terminal."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
