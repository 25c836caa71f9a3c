"""Credentials: which there are, that they work, and that no message repeats them."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import pytest
from azure.identity import CredentialUnavailableError
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas
from azurite import ACCOUNT, KEY, Azurite
from pydantic import ValidationError

from diskless_azure.config import AzureSettings
from diskless_azure.connection import Connection
from diskless_azure.errors import translated
from diskless_azure.factory import make_store
from diskless_core.clock import SystemClock
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.wal_object_store_tools import listed

OTHER_KEY = "c2VjcmV0LWtleS10aGF0LW11c3Qtbm90LWJlLXNlZW4="
URL = "https://name.blob.core.windows.net"
SAS = "sv=2024-01-01&sig=aHVzaCBodXNo%2BtheSignature%3D&sp=racwdl"
STRING = f"DefaultEndpointsProtocol=https;AccountName=name;AccountKey={OTHER_KEY};EndpointSuffix=core.windows.net"
SECRETS = (OTHER_KEY, "aHVzaCBodXNo")


class LateClock(SystemClock):
    def now_ms(self) -> int:
        return super().now_ms() + 3_600_000


def sas(container: ContainerClient, permission: str = "racwdl", **options: Any) -> str:
    token: str = generate_container_sas(
        ACCOUNT,
        container.container_name,
        account_key=KEY,
        permission=ContainerSasPermissions.from_string(permission),
        expiry=datetime.now(UTC) + options.pop("life", timedelta(hours=1)),
        **options,
    )
    return token


async def uses(context: PluginContext, **settings: Any) -> None:
    """Go through all that a store does."""
    store = make_store(context, AzureSettings(prefix="p", **settings))
    await store.start()
    try:
        version = await store.create("key", b"data")
        await store.replace("key", b"other", version)
        assert await store.get("key", 1, 3) == b"th"
        assert set(await listed(store)) == {"key"}
        assert await store.unbounded_versions("") is None
        assert list(await store.delete(["key"])) == ["key"]
    finally:
        await store.stop()


async def test_a_sas_token_is_enough(azurite: Azurite, container: ContainerClient, context: PluginContext) -> None:
    for token in (sas(container), "?" + sas(container)):
        await uses(context, account_url=azurite.account_url, container=container.container_name, sas_token=token)


async def test_a_connection_string_is_enough(
    azurite: Azurite, container: ContainerClient, context: PluginContext
) -> None:
    for credential in (f"AccountKey={KEY}", f"SharedAccessSignature={sas(container)}"):
        string = f"AccountName={ACCOUNT};{credential};BlobEndpoint={azurite.account_url};"
        await uses(context, connection_string=string, container=container.container_name)


async def test_nothing_of_a_key_or_a_token_is_in_a_message_or_in_the_log(
    azurite: Azurite, container: ContainerClient, context: PluginContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    reading, expired = sas(container, "r"), sas(container, life=timedelta(hours=-1))
    place = {"account_url": azurite.account_url, "container": container.container_name}
    for credential in ({"account_key": OTHER_KEY}, {"sas_token": reading}, {"sas_token": expired}):
        store = make_store(context, AzureSettings(**place, **credential))
        with pytest.raises(WalObjectStoreError, match="access denied") as caught:
            await store.start()
        assert not caught.value.retriable
        [secret] = credential.values()
        signature = secret if secret == OTHER_KEY else parse_qs(secret)["sig"][0]
        for text in (str(caught.value), repr(caught.value), caplog.text):
            assert secret not in text
            assert signature not in text


async def test_a_token_of_an_unreachable_account_is_in_no_message(context: PluginContext) -> None:
    store = make_store(context, AzureSettings(account_url="http://127.0.0.1:1/name", container="abc", sas_token=SAS))
    with pytest.raises(WalObjectStoreError) as caught:
        await store.start()
    assert caught.value.retriable
    assert not any(secret in str(caught.value) for secret in SECRETS)


async def test_a_clock_that_is_wrong_is_told(
    azurite: Azurite, container: ContainerClient, context: PluginContext
) -> None:
    settings = AzureSettings(account_url=azurite.account_url, container=container.container_name, account_key=OTHER_KEY)
    store = make_store(replace(context, clock=LateClock()), settings)
    with pytest.raises(WalObjectStoreError, match=r"clock is (59|60) minutes ahead of the service's") as caught:
        await store.start()
    assert caught.value.retriable


@pytest.mark.parametrize(
    "settings",
    [
        {"account_url": f"{URL}/?{SAS}"},
        {"account_url": URL, "sas_token": f"{URL}?{SAS.replace('sig', 'gis')}"},
        {"account_url": URL, "sas_token": SAS, "account_key": OTHER_KEY},
        {"account_url": URL, "connection_string": STRING},
        {"account_url": f"https://name:{OTHER_KEY}@host"},
        {"account_url": OTHER_KEY},
        {"connection_string": OTHER_KEY},
        {"connection_string": STRING, "account_key": OTHER_KEY},
        {"account_url": URL, "container": f"c?{SAS}"},
        {"account_url": URL, "prefix": f"a//{OTHER_KEY}"},
        {},
    ],
)
def test_settings_that_are_refused_do_not_repeat_secrets(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        AzureSettings(**{"container": "abc"} | settings)
    assert not any(secret in str(caught.value) for secret in SECRETS)


def test_settings_do_not_show_secrets() -> None:
    for settings in (
        AzureSettings(account_url=URL, container="abc", sas_token=SAS),
        AzureSettings(account_url=URL, container="abc", account_key=OTHER_KEY),
        AzureSettings(connection_string=STRING, container="abc"),
        AzureSettings(connection_string=f"BlobEndpoint={URL};SharedAccessSignature={SAS}", container="abc"),
    ):
        assert not any(secret in repr(settings) + str(settings) for secret in SECRETS)
        assert any(secret.startswith(SECRETS) for secret in settings.secrets())


async def test_without_a_key_the_default_credential_is_used() -> None:
    connection = Connection(AzureSettings(account_url=URL, container="abc"))
    await connection.open()
    assert connection.container.url == f"{URL}/abc"
    await connection.close()
    await connection.close()


@pytest.mark.parametrize("has_worked", [False, True])
def test_missing_credentials_are_told_and_those_that_worked_may_come_back(has_worked: bool) -> None:
    error = translated(
        CredentialUnavailableError(f"no token from {OTHER_KEY}"),
        "cannot use it",
        now_ms=0,
        secrets=[OTHER_KEY],
        has_worked=has_worked,
    )
    assert "Storage Blob Data Contributor" in str(error)
    assert OTHER_KEY not in str(error)
    assert error.retriable is has_worked
