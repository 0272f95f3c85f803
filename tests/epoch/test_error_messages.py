"""Errors from outside, as the one line that people are told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from relstate_dagster.jobs.engine.logs import LogSettings
from relstate_dagster.jobs.view_epoch.error_messages import explained, reason_of
from relstate_dagster.state_lib.errors import EnvironmentProblem, first_line

#: As delta-rs writes an error, colours included.
_WITHOUT_CREDENTIALS = """Kernel error -> Generic GCS error
          \x1b[31m↳\x1b[0m Error performing token request
           \x1b[31m↳\x1b[0m Error performing GET http://metadata/computeMetadata/v1/token, after 10 retries, max_retries
            \x1b[31m↳\x1b[0m 10
"""


@pytest.mark.parametrize(
    ("missing", "option"),
    [
        ("org.apache.hadoop.fs.s3a.S3AFileSystem", "--s3"),
        ("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem", "--azure"),
        ("org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", "--gcs"),
    ],
)
def test_missing_jars_of_a_store_name_how_to_fetch_them(missing: str, option: str) -> None:
    error = explained("v", 3, RuntimeError(f"java.lang.ClassNotFoundException: Class {missing} not found"))
    assert isinstance(error, EnvironmentProblem)
    assert f"relstate prepare {option}," in str(error)


def test_causes_of_an_error_of_delta_rs_are_in_its_line() -> None:
    line = first_line(OSError("Kernel error -> Generic S3 error\n  \x1b[31m↳\x1b[0m Error performing list request\n"))
    assert line == "Kernel error -> Generic S3 error: Error performing list request"


def test_missing_credentials_of_google_name_the_variable() -> None:
    said = reason_of(OSError(_WITHOUT_CREDENTIALS))
    assert said.startswith("there are no credentials for Google Cloud Storage, set GOOGLE_APPLICATION_CREDENTIALS (")
    assert said.endswith("after 10 retries, max_retries: 10)")


def test_a_file_that_is_not_there_is_not_said_to_be_vacuumed() -> None:
    said = str(explained("v", 3, FileNotFoundError(2, "No such file or directory", "/w/_relstate/logs/spark.log")))
    assert "spark.log" in said
    assert "VACUUM" not in said
    assert "it reads" not in said


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        RuntimeError("java.io.IOException: No space left on device"),
        OSError("Kernel error: Arrow error: External: Generic LocalFileSystem error\n ↳ write failed (os error 28)"),
    ],
)
def test_a_full_disk_is_named(error: Exception) -> None:
    found = explained("v", 3, error)
    assert isinstance(found, EnvironmentProblem)
    assert "a disk is full" in str(found)


def test_a_log_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "spark.log"
    settings, logger = LogSettings("off", file), logging.getLogger("py4j")
    before = list(logger.handlers)
    try:
        settings.apply_to_python()
        logger.error("written though its folder was not there")
        assert "written" in file.read_text(encoding="utf-8")
        file.unlink()
        file.parent.rmdir()
        for handler in logger.handlers:
            handler.close()
        file.parent.write_text("a file in place of the folder")
        logger.error("left out")
    finally:
        logger.handlers = before
