"""Resources of a server: memory, Java heap, and threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def process_bytes(pid: int) -> int | None:
    """Resident memory of a process in bytes; None if the system hides it."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


class JavaMemory:
    """Of the JVM that a session runs in."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        management = jvm.java.lang.management.ManagementFactory
        self._memory, self._threads = management.getMemoryMXBean(), management.getThreadMXBean()
        self._pid = int(management.getRuntimeMXBean().getName().split("@")[0])

    def process_bytes(self) -> int | None:
        """Return the JVM's resident memory in bytes; None where the system does not say."""
        return process_bytes(self._pid)

    def heap_bytes(self) -> int:
        """Return the bytes of the heap that are in use, garbage included."""
        return int(self._memory.getHeapMemoryUsage().getUsed())

    def threads(self) -> int:
        """Return how many threads there are."""
        return int(self._threads.getThreadCount())
