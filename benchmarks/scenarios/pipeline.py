"""A warehouse of chained views over batches of raw files, against plain Spark.

Ours brings all views up to date in one run. Plain Spark runs the same queries in full, each written as a Delta table after
those that it reads. Both have processes of their own: one for the build, and one for the batches after it. The first of these
batches is therefore the first work of a fresh process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.pipeline.stages import pipeline, read_stages
from benchmarks.pipeline.worker import ANSWER, VERIFY, Task
from benchmarks.scenarios.common import Run
from benchmarks.series import Series

_ROOT: Final = Path(__file__).resolve().parents[2]
WAYS: Final = ("ours", "plain")


def run(run_: Run, sf: float, batches: int, parallel: int, views: Sequence[str] = (), is_brief: bool | None = None) -> None:
    """Measure it once."""
    count = len(pipeline(views).views)
    named = {
        "scenario": "pipeline",
        "sf": sf,
        "query": f"{count} views",
        "stream": f"{batches} batches",
        "size": f"{parallel} at once, heap {run_.memory}",
    }
    run_.record(named, lambda: measure(run_, sf, batches, parallel, views, is_brief), line)


def line(record: dict[str, Any]) -> str:
    """One line."""
    return "; ".join(
        f"batch {number}: ours {batch['ours']['wall']:.1f} s, plain {batch['plain']['wall']:.1f} s, ratio {batch['ratio']:.2f}"
        for number, batch in enumerate(record["batches"], start=1)
    )


def measure(run_: Run, sf: float, batches: int, parallel: int, views: Sequence[str], is_brief: bool | None) -> dict[str, Any]:
    """All batches by both, then every view of ours compared with its query."""
    series = read_stages(run_.data, sf, batches, run_.memory)
    found: dict[str, list[dict[str, Any]]] = {}
    for way in WAYS:
        folder = run_.work(sf) / way
        task = Task(way, str(folder), run_.memory, parallel, tuple(views), is_brief if way == "ours" else None)
        found[way] = list(_batches(run_, series, task))
    both = [dict(zip(WAYS, batch, strict=True)) for batch in zip(*found.values(), strict=True)]
    return {
        "views": len(both[0]["ours"]["views"]),
        "parallel": parallel,
        "batches": [
            {"rows": rows, **batch, "ratio": round(batch["plain"]["wall"] / batch["ours"]["wall"], 3)}
            for rows, batch in zip([{}, *series.rows], both, strict=True)
        ],
        "verified": True,
    }


def _batches(run_: Run, series: Series, task: Task) -> Iterator[dict[str, Any]]:
    """Figures of each batch, and the comparison after the last one."""
    sources = [source.name for source in pipeline(task.views).sources]
    replay = series.replay(Path(task.folder) / "sources", sources)
    for numbers in (range(1), range(1, len(series.versions))):
        if not numbers:
            continue
        for number in numbers[:1]:
            if number:
                replay.advance()
        with Worker.started(task) as worker:
            for number in numbers:
                if number > numbers[0]:
                    replay.advance()
                figures = worker.ask("batch")
                run_.console.print(f"{task.way}, batch {number + 1}: {figures['wall']:.1f} s", style="dim", highlight=False)
                yield {**figures, **worker.facts}
            if number == len(series.versions) - 1:
                worker.ask(VERIFY)


@dataclass
class Worker:
    """A process with a Spark of its own."""

    process: subprocess.Popen[str]
    facts: dict[str, Any]

    @classmethod
    @contextmanager
    def started(cls, task: Task) -> Iterator[Worker]:
        """Start it, and end it when the block ends."""
        command = [sys.executable, "-m", "benchmarks.pipeline.worker", json.dumps(asdict(task))]
        with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            worker = cls(process, {})
            worker.facts = {key: fact for key, fact in worker.answer().items() if key != "jvm"}
            yield worker

    def ask(self, what: str) -> dict[str, Any]:
        """Have it do something, and return what it answers."""
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """The next answer.

        Raises
        ------
        RuntimeError : the process has ended; what went wrong is in its error output.
        """
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if text.startswith(ANSWER):
                found: dict[str, Any] = json.loads(text.removeprefix(ANSWER))
                return found
        raise RuntimeError("the process of the pipeline ended before it answered")
