"""Logs of Spark and PySpark: to a file, and on demand to the terminal."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: As the command line takes them, quietest first, and as log4j and Python call them.
LEVELS: Final = ("off", "error", "warn", "info", "debug")
_OF_PYTHON: Final = {
    "off": logging.CRITICAL + 10,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
#: PySpark logs each failed statement with its plan and stack, as JSON of several kilobytes, by loggers of its own class.
_OF_STATEMENTS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_OF_PYSPARK: Final = ("py4j", "pyspark")


class _LogFile(logging.FileHandler):
    """A log file that raises no error if it cannot be written."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, if that is possible."""
        with suppress(OSError):
            Path(self.baseFilename).parent.mkdir(parents=True, exist_ok=True)
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - named by logging
        """Leave out a record that cannot be written."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Targets and levels of logs.

    Parameters
    ----------
    console : what reaches the terminal, one of :data:`LEVELS`.
    file : where errors, and whatever the terminal gets, are written; ``None`` for a file in the temporary folder.
    """

    console: str = "error"
    file: Path | None = None

    def java_options(self) -> list[str]:
        """Options of the JVM that the log4j configuration beside this module reads."""
        # The root has to let through what any appender wants.
        root = self.console if LEVELS.index(self.console) > LEVELS.index("error") else "error"
        options = [f"-Drelstate.log.console={self.console}", f"-Drelstate.log.root={root}"]
        if self.file is not None:
            options.append(f"-Drelstate.log.file={self.file}")
        return options

    def apply_to_python(self) -> None:
        """Let PySpark's own loggers write where Spark does."""
        handlers: list[logging.Handler] = []
        if self.console != "off":
            console = logging.StreamHandler()
            console.setLevel(_OF_PYTHON[self.console])
            handlers.append(console)
        if self.file is not None:
            handlers.append(_LogFile(self.file, delay=True, encoding="utf-8"))
        from pyspark.logger import PySparkLogger  # noqa: PLC0415 - importing PySpark takes 0.5 s

        if not logging.getLogger().handlers:
            # Py4j logs calls that Ctrl-C breaks off by the root logger, which would be set up to print them.
            logging.getLogger().addHandler(handlers[-1] if handlers else logging.NullHandler())
        loggers = [*map(PySparkLogger.getLogger, _OF_STATEMENTS), *map(logging.getLogger, _OF_PYSPARK)]
        for logger in loggers:
            logger.handlers = list(handlers) or [logging.NullHandler()]
            logger.propagate = False
