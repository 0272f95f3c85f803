"""TPC-H at a scale factor: generated once by tpchgen-cli, loaded once as Delta tables, in a folder that is kept.

::

    <data>/sf0.1/parquet/<table>.parquet    as generated
    <data>/sf0.1/base/<table>               Delta, change data feed on
    <data>/sf0.1/series/<name>/<table>      base and the changes of every epoch (benchmarks/series.py)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.queries import TABLES

#: Bytes of a data file, about: the target size of Spark's own writer on lakes of this size.
FILE_BYTES = 128 * 1024 * 1024
#: Rows of a row group, so that a scan can skip, and so that more than one core can read one file.
ROW_GROUP_ROWS = 128 * 1024


def default_data() -> Path:
    """``$RELSTATE_BENCH_DATA``, else a folder in the user's cache."""
    named = os.environ.get("RELSTATE_BENCH_DATA")
    return Path(named) if named else Path.home() / ".cache" / "relstate" / "tpch"


def sf_text(sf: float) -> str:
    """A scale factor as it is written in names: ``0.01``, ``1``."""
    return f"{sf:g}"


def sf_folder(data: Path, sf: float) -> Path:
    """Everything of one scale factor."""
    return data / f"sf{sf_text(sf)}"


def generate(data: Path, sf: float) -> Path:
    """The generated Parquet files of a scale factor; made if they are not there."""
    folder = sf_folder(data, sf) / "parquet"
    if all((folder / f"{t}.parquet").exists() for t in TABLES):
        return folder
    scratch = folder.with_name("parquet.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    beside = Path(sys.executable).with_name("tpchgen-cli")
    command = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if command is None:
        raise SystemExit("tpchgen-cli is not installed: pip install 'relstate-dagster[bench]'")
    subprocess.run([command, "parquet", "-s", sf_text(sf), "--output-dir", str(scratch)], check=True, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)
    return scratch.rename(folder)


def base_tables(data: Path, sf: float) -> Path:
    """The Delta tables of a scale factor, as they are before any change; made if they are not there."""
    folder = sf_folder(data, sf) / "base"
    if folder.exists():
        return folder
    parquet = generate(data, sf)
    scratch = folder.with_name("base.unfinished")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    for table in TABLES:
        write_table(scratch / table, parquet / f"{table}.parquet")
    return scratch.rename(folder)


def write_table(path: Path, parquet: Path) -> None:
    """A Parquet file as a Delta table with its change data feed on, batch by batch."""
    with pq.ParquetFile(parquet) as file:
        schema = plain_schema(file.schema_arrow)
        batches = (batch.cast(schema) for batch in file.iter_batches(ROW_GROUP_ROWS))
        deltalake.write_deltalake(
            str(path),
            pa.RecordBatchReader.from_batches(schema, batches),
            configuration={"delta.enableChangeDataFeed": "true"},
            target_file_size=FILE_BYTES,
            writer_properties=writer_properties(),
        )


def writer_properties() -> deltalake.WriterProperties:
    """How every source file is written."""
    return deltalake.WriterProperties(compression="SNAPPY", max_row_group_size=ROW_GROUP_ROWS)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with plain strings and without what the writer noted, as Delta has it."""
    views = {pa.string_view(): pa.string(), pa.large_string(): pa.string()}
    return pa.schema([pa.field(f.name, views.get(f.type, f.type)) for f in schema])


def plain(table: pa.Table) -> pa.Table:
    """A table with :func:`plain_schema`."""
    return table.cast(plain_schema(table.schema))
