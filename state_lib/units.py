"""Numbers for people."""

from __future__ import annotations


def bytes_shown(count: int) -> str:
    """Bytes in the largest unit below them, as ``12 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
