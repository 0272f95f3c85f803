"""Raw files as Delta tables, with a version of each table for each batch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import deltalake
from pyspark.sql import SparkSession

from benchmarks.data import sf_folder, sf_text
from benchmarks.harness import start_spark
from benchmarks.pipeline.raw_files import VERSION, Load, loads
from benchmarks.series import Series, read_series
from relstate_dagster.jobs.declare import Project, SourceDeclaration, load_project
from relstate_dagster.jobs.registration.sync import create_source_table

PROJECT: Final = Path(__file__).with_name("project")
_MANIFEST: Final = "series.json"


def pipeline(views: Collection[str] = ()) -> Project:
    """Sources and views, views in dependency order.

    Parameters
    ----------
    views : only these, and those that they read; all by default.
    """
    project = load_project(PROJECT, exists=lambda _name: False)
    if not views:
        return project
    wanted = {project.view(view).name for view in views}
    for view in reversed(project.views):
        if view.name in wanted:
            wanted |= set(project.reads[view.name])
    return replace(
        project,
        views=tuple(view for view in project.views if view.name in wanted),
        sources=tuple(source for source in project.sources if source.name in wanted),
        reads={name: reads for name, reads in project.reads.items() if name in wanted},
    )


def build_stages(
    data: Path, sf: float, batches: int, spark: Callable[[], SparkSession], tell: Callable[[str], None] = lambda _said: None
) -> Series:
    """The tables of some batches, made if they are not there.

    Parameters
    ----------
    batches : the historical load, and those after it.
    spark : what writes them; asked for if it is needed.
    """
    folder = stages_folder(data, sf, batches)
    if not (folder / _MANIFEST).exists():
        write_stages(folder, pipeline().sources, sf, batches, spark(), tell)
    return read_series(folder)


def write_stages(
    folder: Path,
    sources: Sequence[SourceDeclaration],
    sf: float,
    batches: int,
    spark: SparkSession,
    tell: Callable[[str], None] = lambda _said: None,
) -> None:
    """Write some tables into a folder, emptied first, with their versions after each batch."""
    shutil.rmtree(folder, ignore_errors=True)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    named = {source.name: source for source in sources}
    for source in sources:
        create_source_table(session, str(folder / source.name), source)
    versions, rows = [], []
    for number in range(1, batches + 1):
        tell(f"writing batch {number} of {batches}")
        wanted = [load for load in loads(sf, number) if load.table in named]
        rows.append({load.table: _write(session, folder, named[load.table], load) for load in wanted})
        versions.append({name: int(deltalake.DeltaTable(str(folder / name)).version()) for name in named})
    (folder / _MANIFEST).write_text(json.dumps({"versions": versions, "rows": rows[1:]}), encoding="utf-8")


def stages_folder(data: Path, sf: float, batches: int) -> Path:
    """Folder of the tables of some batches."""
    return sf_folder(data, sf) / f"pipeline-{VERSION}-{batches}"


def _write(spark: SparkSession, folder: Path, source: SourceDeclaration, load: Load) -> int:
    """Write rows to a table, and return their number."""
    names = [column.name for column in source.columns]
    types = spark.read.format("delta").load(str(folder / load.table)).schema
    found = spark.sql(load.query).toDF(*names)
    found = found.select(*(found[field.name].cast(field.dataType) for field in types))
    path = str(folder / load.table)
    if load.kind == "merge":
        found.createOrReplaceTempView("changed")
        on = " AND ".join(f"t.{column} = s.{column}" for column in source.primary_key)
        spark.sql(
            f"MERGE INTO delta.`{path}` t USING changed s ON {on} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return int(found.count())
    mode = "append" if load.kind == "append" else "overwrite"
    found.coalesce(1).write.format("delta").mode(mode).save(path)
    last = deltalake.DeltaTable(path).history(1)[0]
    return int(last["operationMetrics"]["numOutputRows"])


def read_stages(data: Path, sf: float, batches: int, memory: str) -> Series:
    """Tables of some batches, made by a process of its own.

    No Spark is left in this one.
    """
    command = [sys.executable, "-m", "benchmarks.pipeline.stages", str(data), sf_text(sf), str(batches), memory]
    if not (stages_folder(data, sf, batches) / _MANIFEST).exists():
        subprocess.run(command, check=True, cwd=PROJECT.parents[2])
    return read_series(stages_folder(data, sf, batches))


if __name__ == "__main__":
    build_stages(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), lambda: start_spark(sys.argv[4]), print)
