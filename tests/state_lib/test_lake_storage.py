"""Access to S3: given once, for all three that read and write; nothing of it where nobody asks for it."""

from __future__ import annotations

import pytest

from relstate_dagster import settings
from relstate_dagster.state_lib.lake import azure, storage
from relstate_dagster.state_lib.lake.address import Address

_NAMES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID")


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*_NAMES, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(storage, "_given", {})


def test_what_is_given_goes_before_the_environment_and_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    storage.use_options({"AWS_ACCESS_KEY_ID": "given", "AWS_ENDPOINT_URL": "http://store:9000"})
    given = Address.parse("s3a://b/w").options
    assert given is not None
    assert (given["AWS_ACCESS_KEY_ID"], given["AWS_ENDPOINT_URL"], given["AWS_ALLOW_HTTP"]) == (
        "given",
        "http://store:9000",
        "true",
    )
    of_spark = storage.spark_settings()
    assert of_spark["spark.hadoop.fs.s3a.access.key"] == "given"
    assert of_spark["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert of_spark["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert of_spark["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    filesystem, bucket = storage.arrow_filesystem("s3", "b")
    assert (filesystem.region, bucket) == ("eu-central-1", "b")


def test_other_addresses_are_told_nothing() -> None:
    assert Address.parse("/tmp/w").options is None
    assert Address.parse("gs://b/w").options is None
    assert storage.arrow_filesystem("gs", "b") is None
    assert not storage.is_s3_configured()


def test_spark_reaches_s3_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "has_s3a_jars", lambda: False)
    assert settings.needs_s3("s3://b/w")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    # A variable of AWS is set on many machines: nothing is fetched for it.
    assert not settings.needs_s3("/tmp/w")
    monkeypatch.setattr(settings, "has_s3a_jars", lambda: True)
    assert settings.needs_s3("/tmp/w")


def test_azure_has_a_key_or_a_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in azure.NAMES:
        monkeypatch.delenv(name, raising=False)
    address = Address.parse("abfss://c@account.dfs.core.windows.net/w")
    assert (address.is_azure, address.is_s3, address.is_local) == (True, False, False)
    assert address.options == {}
    assert not storage.is_azure_configured()
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert storage.azure_spark_settings() == {
        "spark.hadoop.fs.azure.account.auth.type": "SharedKey",
        "spark.hadoop.fs.azure.account.key": "a2V5",
    }
    assert address.options == {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    filesystem, container = storage.arrow_filesystem("abfss", "c@account.dfs.core.windows.net")
    assert (filesystem.type_name, container) == ("abfs", "c")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    storage.use_options({"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s"})
    of_spark = storage.azure_spark_settings()
    assert of_spark["spark.hadoop.fs.azure.account.auth.type"] == "OAuth"
    assert (
        of_spark["spark.hadoop.fs.azure.account.oauth2.client.endpoint"] == "https://login.microsoftonline.com/t/oauth2/token"
    )
    assert storage.storage_options("s3") == {"conditional_put": "etag"}, "S3 is told nothing of it"


def test_spark_reaches_azure_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "has_azure_jars", lambda: True)
    assert settings.needs_azure("abfss://c@account.dfs.core.windows.net/w")
    assert not settings.needs_azure("/tmp/w")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert settings.needs_azure("/tmp/w")
