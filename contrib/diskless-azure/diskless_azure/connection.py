"""Azure's asynchronous client, set up from settings. Importing this imports the library, which takes a second."""

from __future__ import annotations

from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.pipeline.transport import AioHttpTransport
from azure.identity.aio import DefaultAzureCredential
from azure.storage.blob.aio import ContainerClient

from diskless_azure.config import AzureConnection
from diskless_core.plugin.wal_object_store import WalObjectStoreError

_ALWAYS_ONE_REQUEST = 1 << 50
"""Sizes up to which the library reads and writes a blob in one request: what is larger is split by the store."""

_LARGE_BODY_BYTES = 256 << 10


class _Transport(AioHttpTransport):  # type: ignore[misc] # imported lazily by its package, untyped
    """Has large bodies sent in pieces, between which others have their turn: aiohttp sends bytes in one go."""

    async def send(self, request: Any, **options: Any) -> Any:
        if isinstance(request.data, bytes) and len(request.data) > _LARGE_BODY_BYTES:
            request.set_streamed_data_body(BytesIO(request.data))
        return await super().send(request, **options)


class Connection:
    """A client of one container with its sessions. Made on any thread, then used on one event loop."""

    def __init__(self, settings: AzureConnection) -> None:
        self._settings = settings
        self._exits = AsyncExitStack()
        self._container: ContainerClient | None = None
        self._credential = _credential(settings)

    @property
    def container(self) -> ContainerClient:
        if self._container is None:
            raise RuntimeError("the connection is not open")
        return self._container

    async def open(self) -> None:
        """Make the client. Nothing is sent."""
        settings = self._settings
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=settings.max_connections),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=True,
        )
        self._exits.push_async_callback(session.close)
        _send_once(session)
        if isinstance(self._credential, DefaultAzureCredential):
            self._exits.push_async_callback(self._credential.close)
        options: dict[str, Any] = {
            "transport": _Transport(session=session, session_owner=False),
            "retry_total": 0,
            "permit_redirects": False,
            "connection_timeout": settings.connect_timeout_ms / 1000,
            "read_timeout": settings.request_timeout_ms / 1000,
            "max_single_put_size": _ALWAYS_ONE_REQUEST,
            "max_single_get_size": _ALWAYS_ONE_REQUEST,
        }
        if settings.connection_string is not None:
            connection_string = settings.connection_string.get_secret_value()
            self._container = ContainerClient.from_connection_string(connection_string, settings.container, **options)
        else:
            self._container = ContainerClient(
                settings.account_url, settings.container, credential=self._credential, **options
            )

    async def close(self) -> None:
        """Close the sessions. Idempotent."""
        self._container = None
        await self._exits.aclose()


def _send_once(session: aiohttp.ClientSession) -> None:
    """Keep aiohttp from sending a PUT again whose connection broke: there is no public way to.

    A conditional write that took effect would be refused the second time, because of itself.
    """
    if not hasattr(session, "_retry_connection"):
        raise WalObjectStoreError(
            f"aiohttp {aiohttp.__version__} cannot be kept from sending requests twice: install another version",
            retriable=False,
        )
    session._retry_connection = False  # noqa: SLF001


def _credential(
    settings: AzureConnection,
) -> AzureNamedKeyCredential | AzureSasCredential | DefaultAzureCredential | None:
    if settings.connection_string is not None:
        return None
    if settings.sas_token is not None:
        return AzureSasCredential(settings.sas_token.get_secret_value())
    if settings.account_key is not None:
        return AzureNamedKeyCredential(_account_name(settings.account_url), settings.account_key.get_secret_value())
    return DefaultAzureCredential()


def _account_name(url: str) -> str:
    """The account of https://ACCOUNT.blob.core.windows.net, or of http://127.0.0.1:10000/ACCOUNT."""
    parts = urlsplit(url)
    return parts.path.strip("/").partition("/")[0] or (parts.hostname or "").partition(".")[0]
