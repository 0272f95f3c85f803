"""Access to object stores, for Spark, delta-rs and Arrow alike.

Given once, in the names of AWS's own environment variables.

===========================  ======================================================================
``AWS_ENDPOINT_URL``         where a store lies that is not Amazon's; ``AWS_ENDPOINT_URL_S3`` goes before it
``AWS_REGION``               or ``AWS_DEFAULT_REGION``
``AWS_ACCESS_KEY_ID``        with ``AWS_SECRET_ACCESS_KEY`` and, if it is one of a session, ``AWS_SESSION_TOKEN``
``AWS_ALLOW_HTTP``           ``true`` where the endpoint has no TLS; an ``http://`` endpoint says so, too
===========================  ======================================================================

Without keys each of the three looks where it always does (profiles, roles of the machine). Azure's are in
:mod:`.state_lib.lake.azure`, Google's in :mod:`.state_lib.lake.gcs`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from pyarrow import fs

from relstate_dagster.state_lib.lake import azure, gcs

#: An object store that is given access by options.
Store: TypeAlias = Literal["s3", "azure", "gcs"]
#: By the schemes of addresses.
STORE_OF: Final[Mapping[str, Store]] = {"s3": "s3", "s3a": "s3", "abfs": "azure", "abfss": "azure", "gs": "gcs"}
STORES: Final = tuple(dict.fromkeys(STORE_OF.values()))

#: Options that this process was given besides its environment: they go before it.
_given: dict[str, str] = {}

_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_NAMES: Final = (*_KEYS, "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP")
_NAMES_OF: Final[Mapping[Store, Collection[str]]] = {"s3": _NAMES, "azure": azure.NAMES, "gcs": gcs.NAMES}


def use_options(options: Mapping[str, str]) -> None:
    """Take options that go before those of the environment, for the rest of this process."""
    _given.update(options)


def options_of(store: Store) -> dict[str, str]:
    """Options of a store, from the environment or given ones."""
    names = _NAMES_OF[store]
    found = {name: os.environ[name] for name in names if os.environ.get(name)}
    return {**found, **{name: value for name, value in _given.items() if name in names}}


def storage_options(scheme: str) -> dict[str, str] | None:
    """Options of delta-rs for a store; ``None`` where it needs none."""
    store = STORE_OF.get(scheme)
    if store is None:
        return None
    options = options_of(store)
    if store == "azure":
        return azure.delta_rs_options(options)
    if store == "gcs":
        return gcs.delta_rs_options(options)
    endpoint = _endpoint(options)
    if endpoint is not None:
        options["AWS_ENDPOINT_URL"] = endpoint
        if endpoint.startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
    # By a put that fails where there is a file already; of old S3 that could not do so delta-rs wanted a lock elsewhere.
    return {**options, "conditional_put": "etag"}


def arrow_filesystem(scheme: str, authority: str) -> tuple[fs.FileSystem, str] | None:
    """Arrow's file system of a store, and its bucket or container.

    ``None`` of others, which Arrow finds by addresses.
    """
    store = STORE_OF.get(scheme)
    if store is None:
        return None
    options = options_of(store)
    if store == "azure":
        return azure.arrow_filesystem(options, authority), azure.container_of(authority)
    return (gcs.arrow_filesystem(options) if store == "gcs" else _s3(tuple(sorted(options.items())))), authority


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


def pyiceberg_options(scheme: str) -> dict[str, str]:
    """Options of PyIceberg for a store.

    None for Azure and Google, where it looks for access itself.
    """
    if STORE_OF.get(scheme) != "s3":
        return {}
    options = options_of("s3")
    keys = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
    found = {name: options.get(variable) for name, variable in zip(keys, _KEYS, strict=True)}
    found |= {"s3.endpoint": _endpoint(options), "s3.region": _region(options)}
    return {name: setting for name, setting in found.items() if setting is not None}


def spark_settings(store: Store) -> dict[str, str]:
    """Settings by which Spark reaches a store as the others do."""
    options = options_of(store)
    if store == "azure":
        return azure.spark_settings(options)
    return gcs.spark_settings(options) if store == "gcs" else _s3_spark_settings(options)


def _s3_spark_settings(options: Mapping[str, str]) -> dict[str, str]:
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


def _endpoint(options: Mapping[str, str]) -> str | None:
    return options.get("AWS_ENDPOINT_URL_S3") or options.get("AWS_ENDPOINT_URL")


def _region(options: Mapping[str, str]) -> str | None:
    return options.get("AWS_REGION") or options.get("AWS_DEFAULT_REGION") or ("us-east-1" if _endpoint(options) else None)
