"""Access to S3: given once, for all three that read and write; nothing of it where nobody asks for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from relstate_dagster import settings
from relstate_dagster.state_lib.errors import EnvironmentProblem
from relstate_dagster.state_lib.lake import azure, gcs, storage
from relstate_dagster.state_lib.lake.address import Address

_NAMES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID")


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (*_NAMES, "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ALLOW_HTTP", *azure.NAMES, *gcs.NAMES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(storage, "_given", {})
    # No file of gcloud's either.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


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
    of_spark = storage.spark_settings("s3")
    assert of_spark["spark.hadoop.fs.s3a.access.key"] == "given"
    assert of_spark["spark.hadoop.fs.s3a.endpoint"] == "http://store:9000"
    assert of_spark["spark.hadoop.fs.s3a.endpoint.region"] == "eu-central-1"
    assert of_spark["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    filesystem, bucket = storage.arrow_filesystem("s3", "b")
    assert (filesystem.region, bucket) == ("eu-central-1", "b")


def test_other_addresses_are_told_nothing() -> None:
    for address in ("/tmp/w", "hdfs://host/w"):
        assert Address.parse(address).options is None
        assert Address.parse(address).store is None
    assert storage.arrow_filesystem("hdfs", "host") is None
    assert not storage.options_of("s3")


@pytest.mark.parametrize(
    ("address", "variable"),
    [
        ("s3://b/w", "AWS_REGION"),
        ("abfss://c@account.dfs.core.windows.net/w", "AZURE_STORAGE_ACCOUNT_KEY"),
        ("gs://b/w", "GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_spark_reaches_a_store_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, address: str, variable: str) -> None:
    monkeypatch.setattr(settings, "has_jars_of", lambda _: False)
    store = Address.parse(address).store
    assert settings.stores_for(address) == (store,)
    assert settings.stores_for("/tmp/w") == ()
    monkeypatch.setenv(variable, "a value")
    # A variable of a store is set on many machines: nothing is fetched for it.
    assert settings.stores_for("/tmp/w") == ()
    monkeypatch.setattr(settings, "has_jars_of", lambda _: True)
    assert settings.stores_for("/tmp/w") == (store,)


def test_azure_has_a_key_or_a_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    address = Address.parse("abfss://c@account.dfs.core.windows.net/w")
    assert (address.store, address.is_local) == ("azure", False)
    assert address.options == {}
    assert not storage.options_of("azure")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert storage.spark_settings("azure") == {
        "spark.hadoop.fs.azure.account.auth.type": "SharedKey",
        "spark.hadoop.fs.azure.account.key": "a2V5",
    }
    assert address.options == {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    filesystem, container = storage.arrow_filesystem("abfss", "c@account.dfs.core.windows.net")
    assert (filesystem.type_name, container) == ("abfs", "c")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    storage.use_options({"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "i", "AZURE_CLIENT_SECRET": "s"})
    of_spark = storage.spark_settings("azure")
    assert of_spark["spark.hadoop.fs.azure.account.auth.type"] == "OAuth"
    assert (
        of_spark["spark.hadoop.fs.azure.account.oauth2.client.endpoint"] == "https://login.microsoftonline.com/t/oauth2/token"
    )
    assert storage.storage_options("s3") == {"conditional_put": "etag"}, "S3 is told nothing of it"


def test_google_has_a_service_account_a_user_or_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = Address.parse("gs://b/w")
    assert (address.store, address.options) == ("gcs", {})
    assert _google_auth() == {"type": "COMPUTE_ENGINE"}

    key = _file(tmp_path / "key.json", type="service_account", client_email="a@b", private_key="k")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", key)
    assert address.options == {"google_service_account": key}
    assert _google_auth() == {"type": "SERVICE_ACCOUNT_JSON_KEYFILE", "service.account.json.keyfile": key}

    user = {"client_id": "i", "client_secret": "s", "refresh_token": "t"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", _file(tmp_path / "user.json", type="authorized_user", **user))
    assert address.options == {"google_application_credentials": str(tmp_path / "user.json")}
    assert _google_auth() == {"type": "USER_CREDENTIALS", "client.id": "i", "client.secret": "s", "refresh.token": "t"}
    filesystem, bucket = storage.arrow_filesystem("gs", "b") or (None, None)
    assert filesystem is not None
    assert (filesystem.type_name, bucket) == ("gcs", "b")

    storage.use_options({"GOOGLE_SERVICE_ACCOUNT": key})
    assert address.options == {"google_service_account": key}
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == str(tmp_path / "user.json")


def test_googles_file_of_a_user_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "home" / ".config" / "gcloud"
    folder.mkdir(parents=True)
    content = {"client_id": "i", "client_secret": "s", "refresh_token": "t"}
    path = _file(folder / "application_default_credentials.json", type="authorized_user", **content)
    assert Address.parse("gs://b/w").options == {"google_application_credentials": path}


@pytest.mark.parametrize(
    ("variable", "content", "said"),
    [
        ("GOOGLE_APPLICATION_CREDENTIALS", None, "cannot be read"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "{", "cannot be read"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "[]", "of the kind None"),
        ("GOOGLE_APPLICATION_CREDENTIALS", '{"type": "external_account"}', "of the kind external_account"),
        ("GOOGLE_APPLICATION_CREDENTIALS", '{"type": "service_account", "client_email": "a@b"}', "has no private_key"),
        ("GOOGLE_SERVICE_ACCOUNT", '{"type": "authorized_user"}', "delta-rs reads service_account: name"),
    ],
)
def test_a_file_that_gives_no_access_to_google_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, content: str | None, said: str
) -> None:
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv(variable, str(path))
    for ask in (
        lambda: Address.parse("gs://b/w").options,
        lambda: storage.arrow_filesystem("gs", "b"),
        lambda: storage.spark_settings("gcs"),
    ):
        with pytest.raises(EnvironmentProblem, match=said):
            ask()
    assert storage.storage_options("s3") == {"conditional_put": "etag"}, "S3 is told nothing of it"


def test_an_emulator_of_google_takes_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:4443")
    assert _google_auth() == {"type": "UNAUTHENTICATED"}
    assert storage.spark_settings("gcs")["spark.hadoop.fs.gs.storage.root.url"] == "http://127.0.0.1:4443"
    options = Address.parse("gs://b/w").options
    assert options is not None
    assert json.loads(options["google_service_account_key"])["gcs_base_url"] == "http://127.0.0.1:4443"
    monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", "/tmp/key.json")
    with pytest.raises(EnvironmentProblem, match="unset one of them"):
        storage.storage_options("gs")


def _google_auth() -> dict[str, str]:
    """What Spark is told of credentials."""
    prefix = "spark.hadoop.fs.gs.auth."
    told = storage.spark_settings("gcs").items()
    return {name.removeprefix(prefix): value for name, value in told if name.startswith(prefix)}


def _file(path: Path, **content: str) -> str:
    path.write_text(json.dumps(content))
    return str(path)
