"""Access to Azure Storage, for Spark, delta-rs and Arrow alike.

Given once, in the names that Azure's tools and delta-rs know.

====================================  =============================================================================
``AZURE_STORAGE_ACCOUNT_NAME``        the account, where an address does not name it
``AZURE_STORAGE_ACCOUNT_KEY``         its key, or
``AZURE_CLIENT_ID``                   with ``AZURE_CLIENT_SECRET`` and ``AZURE_TENANT_ID``: a service principal
``AZURE_STORAGE_USE_EMULATOR``        ``true`` for Azurite, at ``AZURITE_BLOB_STORAGE_URL`` (http://127.0.0.1:10000)
====================================  =============================================================================

Without a key or a principal delta-rs and Arrow use the identity of the machine, and Spark the settings that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from pyarrow import fs

_ACCOUNT: Final = "AZURE_STORAGE_ACCOUNT_NAME"
_KEY: Final = "AZURE_STORAGE_ACCOUNT_KEY"
_PRINCIPAL: Final = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
_EMULATOR: Final = "AZURE_STORAGE_USE_EMULATOR"
_EMULATOR_URL: Final = "AZURITE_BLOB_STORAGE_URL"
NAMES: Final = (_ACCOUNT, _KEY, *_PRINCIPAL, _EMULATOR, _EMULATOR_URL)
#: What every Azurite has, and its documentation tells everybody.
_OF_AZURITE: Final = {
    _ACCOUNT: "devstoreaccount1",
    _KEY: "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    _EMULATOR_URL: "http://127.0.0.1:10000",
}


def delta_rs_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of delta-rs.

    It knows these names, and puts commits that fail where there is one already.
    """
    return _complete(options)


def arrow_filesystem(options: Mapping[str, str], authority: str) -> fs.FileSystem:
    """Arrow's file system of an account; ``authority`` is ``container@account.dfs.core.windows.net``, as in addresses."""
    return _filesystem(tuple(sorted(_complete(options).items())), account_of(authority))


@lru_cache(maxsize=8)
def _filesystem(given: tuple[tuple[str, str], ...], account: str) -> fs.FileSystem:
    options = dict(given)
    name = account or options.get(_ACCOUNT, "")
    if _is_emulator(options):
        scheme, _, host = options[_EMULATOR_URL].partition("://")
        return fs.AzureFileSystem(
            account_name=name,
            account_key=options[_KEY],
            blob_storage_authority=host,
            blob_storage_scheme=scheme,
            dfs_storage_authority=host,
            dfs_storage_scheme=scheme,
        )
    if _KEY in options:
        return fs.AzureFileSystem(account_name=name, account_key=options[_KEY])
    principal = dict(zip(("tenant_id", "client_id", "client_secret"), map(options.get, _PRINCIPAL), strict=True))
    return fs.AzureFileSystem(account_name=name, **{key: value for key, value in principal.items() if value})


def spark_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Settings by which Spark reaches the account as the others do."""
    options = _complete(options)
    found: dict[str, str] = {}
    if _KEY in options:
        found = {"fs.azure.account.auth.type": "SharedKey", "fs.azure.account.key": options[_KEY]}
    elif all(name in options for name in _PRINCIPAL):
        tenant, client, secret = (options[name] for name in _PRINCIPAL)
        found = {
            "fs.azure.account.auth.type": "OAuth",
            "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            "fs.azure.account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{tenant}/oauth2/token",
            "fs.azure.account.oauth2.client.id": client,
            "fs.azure.account.oauth2.client.secret": secret,
        }
    if _is_emulator(options):
        found |= {
            "fs.azure.abfs.endpoint": options[_EMULATOR_URL].partition("://")[2],
            "fs.azure.always.use.https": "false",
            # Azurite has Azure's interface of blobs, and not that of folders.
            "fs.azure.account.hns.enabled": "false",
            "fs.azure.fns.account.service.type": "BLOB",
            "fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        }
    return {f"spark.hadoop.{name}": value for name, value in found.items()}


def account_of(authority: str) -> str:
    """The account in ``container@account.dfs.core.windows.net``; empty where there is only a container."""
    return authority.partition("@")[2].partition(".")[0]


def container_of(authority: str) -> str:
    """The container in an authority."""
    return authority.partition("@")[0]


def _complete(options: Mapping[str, str]) -> dict[str, str]:
    return {**_OF_AZURITE, **options} if _is_emulator(options) else dict(options)


def _is_emulator(options: Mapping[str, str]) -> bool:
    return options.get(_EMULATOR, "").lower() in ("true", "1")
