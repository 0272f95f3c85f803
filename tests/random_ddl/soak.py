"""Random declarations, changes and damage for some minutes: ``python -m tests.random_ddl.soak --minutes 10 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from relstate_dagster.jobs.engine import SparkSettings, create_session
from tests.random_ddl.world import World


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    spark = create_session(SparkSettings(master="local[2]", driver_memory="3g", shuffle_partitions=2))
    until, seed, failed = time.monotonic() + 60 * given.minutes, given.seed, 0
    while time.monotonic() < until:
        with tempfile.TemporaryDirectory() as folder:
            world: World | None = None
            try:
                world = World(spark, Path(folder), seed)
                world.steps(given.steps)
            except Exception as error:
                failed += 1
                sys.stdout.write(f"FAILED {error}\n")
            sys.stdout.write(f"seed {seed}: {len(world.done) if world else 0} happenings\n")
            sys.stdout.flush()
        seed += 1
    sys.stdout.write(f"{seed - given.seed} seeds, {failed} failed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
