"""Tables in Markdown, and figures in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def seconds_text(value: float | None) -> str:
    """Seconds with two places; nothing where they are unknown."""
    return "" if value is None else f"{value:.2f}"


def bytes_text(value: float | None) -> str:
    """Bytes in a unit that suits them; nothing where they are unknown."""
    if value is None:
        return ""
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"
