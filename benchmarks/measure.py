"""Cost of a piece of work: seconds, processor seconds, Spark jobs, bytes, memory.

Units: seconds, bytes, counts. Where the system has no /proc, processor seconds, bytes read and memory are missing.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

T = TypeVar("T")

#: Of the heap, at least and at most, before what is in use is taken for alive.
_COLLECTIONS: Final = (4, 12)


@dataclass(frozen=True)
class Sample:
    """One piece of work.

    Parameters
    ----------
    wall : seconds from call to return.
    cpu_jvm, cpu_python : processor seconds, user and system, all threads, garbage collection and compiling included.
    jobs, stages, tasks : of Spark; stages and tasks that it skipped do not count.
    spark_input_bytes : what Spark's stages report to have read.
    read_bytes : what both processes read from files, by their system calls.
    peak_rss : the most memory that the JVM held meanwhile, bytes.
    """

    wall: float
    cpu_jvm: float | None
    cpu_python: float | None
    jobs: int
    stages: int
    tasks: int
    spark_input_bytes: int
    read_bytes: int | None
    peak_rss: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, seconds to the tenth of a millisecond."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


class Probe:
    """Measures work on one Spark in this process.

    Parameters
    ----------
    counts_stages : whether Spark still knows all stages when work ends; without it, they count as none.
    """

    def __init__(self, spark: SparkSession, *, counts_stages: bool = True) -> None:
        self._counts_stages = counts_stages
        self._context = spark.sparkContext._jsc.sc()
        self._store = self._context.statusStore()
        self._jvm = jvm_pid(spark)

    def measure(self, work: Callable[[], T]) -> tuple[T, Sample]:
        """Do some work, and tell what it cost."""
        self._settle()
        first_job = self._context.dagScheduler().numTotalJobs()
        _reset_peak(self._jvm)
        before = [_cpu_seconds(self._jvm), _cpu_seconds(os.getpid()), _read_bytes(self._jvm), _read_bytes(os.getpid())]
        started = time.perf_counter()
        result = work()
        wall = time.perf_counter() - started
        after = [_cpu_seconds(self._jvm), _cpu_seconds(os.getpid()), _read_bytes(self._jvm), _read_bytes(os.getpid())]
        peak = _peak_rss(self._jvm)
        self._settle()
        spent = [None if a is None or b is None else b - a for a, b in zip(before, after, strict=True)]
        jobs = range(first_job, self._context.dagScheduler().numTotalJobs())
        stages, tasks, read = self._stages(jobs) if self._counts_stages else (0, 0, 0)
        both = None if spent[2] is None or spent[3] is None else int(spent[2] + spent[3])
        return result, Sample(wall, spent[0], spent[1], len(jobs), stages, tasks, read, both, peak)

    def _settle(self) -> None:
        """Wait until Spark has noted everything that has happened."""
        self._context.listenerBus().waitUntilEmpty()

    def _stages(self, jobs: range) -> tuple[int, int, int]:
        seen: set[int] = set()
        tasks = read = 0
        for job in jobs:
            ids = self._store.job(job).stageIds()
            for stage_id in (int(ids.apply(n)) for n in range(ids.size())):
                if stage_id in seen:
                    continue
                try:
                    stage = self._store.lastStageAttempt(stage_id)
                except Py4JJavaError:
                    continue  # Spark forgets stages that it skipped first
                if stage.status().toString() == "SKIPPED":
                    continue
                seen.add(stage_id)
                tasks += int(stage.numCompleteTasks())
                read += int(stage.inputBytes())
        return len(seen), tasks, read


class JvmProbe:
    """Collections, compilations and heap of a JVM, from one moment on.

    Seconds of collecting garbage and of compiling are of all threads.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._beans = jvm.java.lang.management.ManagementFactory
        self._heap = [p for p in self._beans.getMemoryPoolMXBeans() if str(p.getType().name()) == "HEAP"]
        for pool in self._heap:
            pool.resetPeakUsage()
        self._before = self._seconds()

    def since(self) -> dict[str, float]:
        """Seconds by kind of work, and the greatest use of the heap in bytes.

        The heap's parts have their greatest use at different times, so the heap has had no more than their sum.
        """
        after = self._seconds()
        spent = {kind: round(after[kind] - self._before[kind], 2) for kind in after}
        return {**spent, "peak_heap": float(sum(int(p.getPeakUsage().getUsed()) for p in self._heap))}

    def _seconds(self) -> dict[str, float]:
        """Seconds so far: collections, the JVM's compilers, and Spark's compiler of generated code."""
        generator = self._jvm.org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator
        return {
            "gc_seconds": sum(int(c.getCollectionTime()) for c in self._beans.getGarbageCollectorMXBeans()) / 1e3,
            "jit_seconds": int(self._beans.getCompilationMXBean().getTotalCompilationTime()) / 1e3,
            "janino_seconds": int(generator.compileTime()) / 1e9,
        }


def jvm_pid(spark: SparkSession) -> int:
    """The process id of Spark's JVM, which PySpark started."""
    return int(spark.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]


def _cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_cpu_seconds() -> float | None:
    """Processor seconds of all processes of this machine since it started."""
    try:
        fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    idle_and_waiting = fields[3] + fields[4]
    return (sum(fields[:8]) - idle_and_waiting) / os.sysconf("SC_CLK_TCK")


def _read_bytes(pid: int) -> int | None:
    return _number(f"/proc/{pid}/io", "rchar:")


def _peak_rss(pid: int) -> int | None:
    found = _number(f"/proc/{pid}/status", "VmHWM:")
    return None if found is None else found * 1024


def _reset_peak(pid: int) -> None:
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return  # the peak is then of the whole process so far


def _number(path: str, name: str) -> int | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)


@dataclass(frozen=True)
class Written:
    """Commits, data files (change data included) and bytes added to a Delta table."""

    commits: int = 0
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Written) -> Written:
        return Written(self.commits + other.commits, self.files + other.files, self.bytes + other.bytes)


def log_versions(table: str) -> set[int]:
    """The versions in a table's log; none where there is no table."""
    return {int(f.stem) for f in Path(table, "_delta_log").glob("*.json") if f.stem.isdigit()}


def written_since(table: str, before: set[int]) -> Written:
    """Files and bytes of new commits."""
    commits = sorted(log_versions(table) - before)
    files = size = 0
    for version in commits:
        for line in Path(table, "_delta_log", f"{version:020d}.json").read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            added = action.get("add") or action.get("cdc")
            if added:
                files += 1
                size += int(added.get("size") or 0)
    return Written(len(commits), files, size)


def quantile(values: list[float], share: float) -> float:
    """A quantile, linear between the two values next to it."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def live_heap(spark: SparkSession) -> float:
    """Megabytes of the driver's heap that are in use after collections.

    Python is collected first: it holds objects of Java. Spark drops blocks some time after Java has collected what they belong
    to, which makes more to collect.
    """
    jvm: Any = spark.sparkContext._jvm
    runtime, used = jvm.java.lang.Runtime.getRuntime(), list[float]()
    while len(used) < _COLLECTIONS[0] or (used[-1] < 0.99 * used[-2] and len(used) < _COLLECTIONS[1]):
        gc.collect()
        jvm.java.lang.System.gc()
        time.sleep(0.5)
        used.append(float(runtime.totalMemory() - runtime.freeMemory()) / 1e6)
    return min(used)
