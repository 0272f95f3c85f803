"""Access to Google Cloud Storage, for Spark, delta-rs and Arrow alike.

Given once, in the names that Google's tools know.

====================================  =============================================================================
``GOOGLE_APPLICATION_CREDENTIALS``    the file of a service account's key, or of a user's credentials
``GOOGLE_SERVICE_ACCOUNT``            the file of a service account's key, by delta-rs's name; it goes before the other
``STORAGE_EMULATOR_HOST``             an emulator, such as ``http://127.0.0.1:4443``; no credentials are used then
====================================  =============================================================================

Without these the file that ``gcloud auth application-default login`` writes is used, else the identity of the machine.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from pyarrow import fs

from relstate_dagster.state_lib.errors import EnvironmentProblem

_CREDENTIALS: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_SERVICE_ACCOUNT: Final = "GOOGLE_SERVICE_ACCOUNT"
_EMULATOR: Final = "STORAGE_EMULATOR_HOST"
NAMES: Final = (_CREDENTIALS, _SERVICE_ACCOUNT, _EMULATOR)

_OF_SERVICE_ACCOUNT: Final = "service_account"
_OF_USER: Final = "authorized_user"
#: What a file has to hold, by its kind.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    _OF_SERVICE_ACCOUNT: ("client_email", "private_key"),
    _OF_USER: ("client_id", "client_secret", "refresh_token"),
}
_WANTED: Final = "name the JSON file of a service account's key"
#: As long as delta-rs tries; Arrow itself tries for 15 minutes.
_RETRIED_FOR: Final = timedelta(minutes=3)
#: Google's connector. Hadoop has one of its own, under the same settings, with sizes such as `64m` that this one cannot read.
_CONNECTOR: Final = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
    "fs.gs.block.size": str(64 << 20),
    "fs.gs.inputstream.inplace.seek.limit": str(8 << 20),
    "fs.gs.inputstream.min.range.request.size": str(2 << 20),
    "fs.gs.outputstream.buffer.size": str(8 << 20),
    "fs.gs.rewrite.max.chunk.size": str(512 << 20),
}
_environment_lock = threading.Lock()


class _Credentials(NamedTuple):
    """A file of credentials: its path, and what is in it."""

    path: str
    content: Mapping[str, str]


def delta_rs_options(options: Mapping[str, str]) -> dict[str, str]:
    """delta-rs's options. It puts commits that fail where there is one already.

    Raises
    ------
    EnvironmentProblem : the file of credentials cannot be used, and why.
    """
    emulator = _emulator(options)
    if emulator is not None:
        if _SERVICE_ACCOUNT in options:
            raise EnvironmentProblem(
                f"{_EMULATOR} and {_SERVICE_ACCOUNT} are both set, which delta-rs refuses: unset one of them"
            )
        of_nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        key = json.dumps({"gcs_base_url": emulator, "disable_oauth": True, **of_nobody})
        return {"google_service_account_key": key, "allow_http": "true"}
    credentials = _credentials(options)
    if credentials is None:
        return {}
    is_of_user = credentials.content["type"] == _OF_USER
    return {"google_application_credentials" if is_of_user else "google_service_account": credentials.path}


def arrow_filesystem(options: Mapping[str, str]) -> fs.FileSystem:
    """Arrow's file system. Raises as :func:`delta_rs_options`."""
    credentials = None if _emulator(options) else _credentials(options)
    return _filesystem(_emulator(options), None if credentials is None else credentials.path)


@lru_cache(maxsize=8)
def _filesystem(emulator: str | None, credentials: str | None) -> fs.FileSystem:
    if emulator is not None:
        scheme, _, host = emulator.partition("://")
        return fs.GcsFileSystem(anonymous=True, scheme=scheme, endpoint_override=host, retry_time_limit=_RETRIED_FOR)
    if credentials is None:
        return fs.GcsFileSystem(retry_time_limit=_RETRIED_FOR)
    # Arrow takes a file from this variable alone, when the file system is made.
    with _environment_lock:
        before = os.environ.get(_CREDENTIALS)
        os.environ[_CREDENTIALS] = credentials
        try:
            return fs.GcsFileSystem(retry_time_limit=_RETRIED_FOR)
        finally:
            os.environ.pop(_CREDENTIALS)
            os.environ |= {} if before is None else {_CREDENTIALS: before}


def spark_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings by which Spark reaches the store as the others do. Raises as :func:`delta_rs_options`."""
    return {f"spark.hadoop.{name}": value for name, value in (_CONNECTOR | _access_of_spark(options)).items()}


def _access_of_spark(options: Mapping[str, str]) -> dict[str, str]:
    emulator = _emulator(options)
    if emulator is not None:
        return {"fs.gs.storage.root.url": emulator, "fs.gs.auth.type": "UNAUTHENTICATED"}
    credentials = _credentials(options)
    if credentials is None:
        return {"fs.gs.auth.type": "COMPUTE_ENGINE"}
    if credentials.content["type"] == _OF_SERVICE_ACCOUNT:
        return {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": credentials.path}
    of_user = {f"fs.gs.auth.{name.replace('_', '.')}": credentials.content[name] for name in _NEEDED[_OF_USER]}
    return {"fs.gs.auth.type": "USER_CREDENTIALS", **of_user}


def _emulator(options: Mapping[str, str]) -> str | None:
    host = options.get(_EMULATOR, "").rstrip("/")
    return (host if "://" in host else f"http://{host}") if host else None


def _credentials(options: Mapping[str, str]) -> _Credentials | None:
    """The file that is named, else the one of ``gcloud``; ``None`` where there is none."""
    if _SERVICE_ACCOUNT in options:
        return _read(options[_SERVICE_ACCOUNT], _SERVICE_ACCOUNT, (_OF_SERVICE_ACCOUNT,))
    if _CREDENTIALS in options:
        return _read(options[_CREDENTIALS], _CREDENTIALS)
    of_gcloud = Path.home() / ".config" / "gcloud" / "application_default_credentials.json"
    return _read(str(of_gcloud), "the file of gcloud") if of_gcloud.is_file() else None


@lru_cache(maxsize=8)
def _read(path: str, name: str, kinds: tuple[str, ...] = tuple(_NEEDED)) -> _Credentials:
    subject = f"{name} is {path}, which"
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise EnvironmentProblem(f"{subject} cannot be read ({problem}): {_WANTED}") from problem
    kind = content.get("type") if isinstance(content, dict) else None
    if kind not in kinds:
        raise EnvironmentProblem(
            f"{subject} has credentials of the kind {kind}, and delta-rs reads {' or '.join(kinds)}: {_WANTED}"
        )
    missing = [key for key in _NEEDED[kind] if not content.get(key)]
    if missing:
        raise EnvironmentProblem(f"{subject} has no {missing[0]}: {_WANTED}")
    return _Credentials(path, content)
