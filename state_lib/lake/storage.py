"""Access to object stores: given once, in the names of AWS's own environment variables, for Spark, delta-rs and Arrow alike.

===========================  ======================================================================
``AWS_ENDPOINT_URL``         where a store lies that is not Amazon's; ``AWS_ENDPOINT_URL_S3`` goes before it
``AWS_REGION``               or ``AWS_DEFAULT_REGION``
``AWS_ACCESS_KEY_ID``        with ``AWS_SECRET_ACCESS_KEY`` and, if it is one of a session, ``AWS_SESSION_TOKEN``
``AWS_ALLOW_HTTP``           ``true`` where the endpoint has no TLS; an ``http://`` endpoint says so, too
===========================  ======================================================================

Without keys each of the three looks where it always does (profiles, roles of the machine).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyarrow import fs

#: Options that this process was given besides its environment: they go before it.
_given: dict[str, str] = {}

_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NAMES: Final = (*_KEYS, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP")
#: Schemes of addresses whose stores these options are for.
OF_S3: Final = ("s3", "s3a")


def use_options(options: Mapping[str, str]) -> None:
    """Take options that go before those of the environment, for the rest of this process."""
    _given.update(options)


def is_s3_configured() -> bool:
    """Whether the environment or the given options say anything about S3."""
    return bool(_options())


def storage_options(scheme: str) -> dict[str, str] | None:
    """delta-rs's options for a store; ``None`` of one that is not AWS's, or of this machine's disks."""
    if scheme not in OF_S3:
        return None
    options = _options()
    endpoint = _endpoint(options)
    if endpoint is not None:
        options["AWS_ENDPOINT_URL"] = endpoint
        if endpoint.startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    # By a put that fails where there is a file already; of old S3 that could not do so delta-rs wanted a lock elsewhere.
    return {**options, "conditional_put": "etag"}


def arrow_filesystem(scheme: str) -> fs.FileSystem | None:
    """Arrow's file system of AWS's stores; ``None`` of others, which Arrow finds by their addresses."""
    return _s3(tuple(sorted(_options().items()))) if scheme in OF_S3 else None


@lru_cache(maxsize=8)
def _s3(given: tuple[tuple[str, str], ...]) -> fs.FileSystem:
    options = dict(given)
    endpoint = _endpoint(options)
    keys = {
        name: options[variable]
        for name, variable in zip(("access_key", "secret_key", "session_token"), _KEYS, strict=True)
        if variable in options
    }
    scheme, _, host = (endpoint or "").partition("://")
    where = {} if endpoint is None else {"scheme": scheme, "endpoint_override": host}
    return fs.S3FileSystem(region=_region(options), **keys, **where)


def spark_settings() -> dict[str, str]:
    """Settings by which Spark reaches AWS's stores as the others do, and commits to Delta tables there safely."""
    options = _options()
    endpoint, region = _endpoint(options), _region(options)
    found = {
        # What is written are Delta's own files: nobody makes a file of a folder's name.
        "spark.hadoop.fs.s3a.performance.flags": "create,mkdir",
        "spark.hadoop.fs.s3a.create.conditional.enabled": "true",
    }
    names = ("fs.s3a.access.key", "fs.s3a.secret.key", "fs.s3a.session.token")
    found |= {f"spark.hadoop.{name}": options[key] for name, key in zip(names, _KEYS, strict=True) if key in options}
    if region is not None:
        found["spark.hadoop.fs.s3a.endpoint.region"] = region
    if endpoint is not None:
        found["spark.hadoop.fs.s3a.endpoint"] = endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(endpoint.startswith("https://")).lower()
    return found


def _options() -> dict[str, str]:
    found = {name: os.environ[name] for name in _NAMES if os.environ.get(name)}
    return {**found, **_given}


def _endpoint(options: Mapping[str, str]) -> str | None:
    return options.get("AWS_ENDPOINT_URL_S3") or options.get("AWS_ENDPOINT_URL")


def _region(options: Mapping[str, str]) -> str | None:
    return options.get("AWS_REGION") or options.get("AWS_DEFAULT_REGION") or ("us-east-1" if _endpoint(options) else None)
