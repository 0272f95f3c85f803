"""Common parts of scenarios: settings, one lazy Spark, and recording of measurements."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from benchmarks.data import sf_folder
from benchmarks.harness import environment, start_spark
from benchmarks.measure import Probe
from benchmarks.results import Results, name_of
from benchmarks.series import Series, build_series


@dataclass
class Run:
    """One call of the command.

    Parameters
    ----------
    epochs, warm_up : measured epochs of a view, and epochs before them that are not measured.
    full_every : the query is run in full after the first measured epoch and at this interval from there.
    keep : leave series and warehouses where they are.
    indexes : columns of tables that have an index by them.
    counts_stages : whether Spark remembers what is counted, which takes some of its memory.
    """

    data: Path
    results: Results
    epochs: int = 20
    warm_up: int = 3
    full_every: int = 1
    seed: int = 1
    memory: str = "6g"
    keep: bool = False
    fail_fast: bool = False
    indexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    counts_stages: bool = True
    console: Console = field(default_factory=Console)
    _spark: SparkSession | None = None
    _probe: Probe | None = None
    _measured: int = 0

    @property
    def spark(self) -> SparkSession:
        """The one Spark."""
        if self._spark is None:
            self._spark = start_spark(self.memory, counts_stages=self.counts_stages)
        return self._spark

    @property
    def probe(self) -> Probe:
        """Measures on it."""
        if self._probe is None:
            self._probe = Probe(self.spark)
        return self._probe

    def series(self, sf: float, stream: str, size: str, epochs: int | None = None) -> Series:
        """The series of a stream, made if it is not there."""
        wanted = self.warm_up + self.epochs if epochs is None else epochs

        def tell(text: str) -> None:
            self.console.print(text, style="dim")

        return build_series(self.data, sf, stream, size, wanted, self.seed, tell, lambda: self.spark)

    def work(self, sf: float) -> Path:
        """A folder for this measurement's warehouses, on the data's file system.

        No path is used twice in a process: Delta remembers tables by their paths.
        """
        return sf_folder(self.data, sf) / "work" / f"{os.getpid()}-{self._measured}"

    def record(
        self, named: dict[str, Any], measure: Callable[[], dict[str, Any]], line: Callable[[dict[str, Any]], str]
    ) -> None:
        """Measure, unless that was done before; append the result, and print one line of it."""
        if self.results.has(**named):
            return
        started = time.perf_counter()
        record: dict[str, Any] = {**named, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        try:
            record |= {"status": "ok", **measure()}
            outcome = line(record) if record["status"] == "ok" else record["status"]
        except Exception as problem:
            # A JVM's error has its reason in the second line.
            error = f"{type(problem).__name__}: {' '.join(str(problem).splitlines()[:2])}"
            outcome = f"FAILED: {error}"
            record |= {"status": "failed", "error": error}
            if self.fail_fast:
                raise
        finally:
            if not self.keep:
                shutil.rmtree(self.work(named["sf"]), ignore_errors=True)
        seconds = time.perf_counter() - started
        record |= {"seconds": round(seconds, 1), "nth_in_process": self._measured, "seed": self.seed}
        record["environment"] = environment(self.spark, self.memory)
        self._measured += 1
        self.results.add(record)
        style = "bold red" if record["status"] == "failed" else None
        self.console.print(
            f"{name_of(record):40} {outcome}  ({seconds:.0f} s)", style=style, highlight=False, markup=False, soft_wrap=True
        )

    def drop_series(self, series: Series) -> None:
        """Remove a series that nothing more is measured over."""
        if not self.keep:
            shutil.rmtree(series.folder, ignore_errors=True)
