"""Errors from outside, as the one line that people are told."""

from __future__ import annotations

import pytest

from relstate_dagster.jobs.epoch.explained import explained, reason_of
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
