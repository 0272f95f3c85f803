"""Session settings that decide what a query means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Each with its value in sessions that are not configured otherwise.
MEANING: Final[Mapping[str, str]] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
}
