"""What becomes of a request when the service or the network does not do as it should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from azure.storage.blob import ContainerClient
from azurite import ACCOUNT, KEY, Azurite
from faults import Fault, FaultyServer, Request, answer, refusal

from diskless_azure.config import AzureRemoteStorageSettings, AzureSettings
from diskless_azure.container import AzureContainer
from diskless_azure.factory import make_remote_storage, make_store
from diskless_azure.object_store import AzureObjectStore
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import RemoteStorageError
from diskless_core.plugin.wal_object_store import ConditionFailedError, ObjectNotFoundError, WalObjectStoreError
from diskless_core.testing.remote_storage_tools import assert_absent, assert_stored, copied, make_segment
from diskless_core.testing.wal_object_store_tools import body, listed

TIMEOUT_S = 60.0
LISTED = """<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://127.0.0.1/"
ContainerName="c"><Blobs><Blob><Name>{name}</Name>{more}<Properties><Last-Modified>Mon, 01 Jan 2024 00:00:00 GMT
</Last-Modified><Etag>0x1</Etag><Content-Length>1</Content-Length><BlobType>BlockBlob</BlobType></Properties></Blob>
</Blobs><NextMarker /></EnumerationResults>"""


@pytest_asyncio.fixture
async def server(azurite: Azurite) -> AsyncIterator[FaultyServer]:
    async with FaultyServer(azurite.port, ACCOUNT).running() as running:
        yield running


@pytest.fixture
def settings(server: FaultyServer, container: ContainerClient) -> dict[str, Any]:
    return {
        "account_url": server.account_url,
        "container": container.container_name,
        "prefix": "p",
        "account_key": KEY,
        "request_timeout_ms": 20_000,
    }


@pytest_asyncio.fixture
async def store(settings: dict[str, Any], context: PluginContext) -> AsyncIterator[AzureObjectStore]:
    store = make_store(context, AzureSettings(**settings))
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def on(method: str, what: Fault | bytes, part: str = "") -> Callable[[Request], Fault | bytes | None]:
    """A rule for requests of this method whose target has this part."""
    return lambda request: what if request.method == method and part in request.target else None


def sent(server: FaultyServer, method: str) -> int:
    return sum(request.method == method for request in server.requests)


def blobs(container: ContainerClient) -> dict[str, bytes]:
    return {name: container.download_blob(name).readall() for name in container.list_blob_names()}


@pytest.mark.parametrize(
    ("status", "code", "retriable"),
    [
        ("503 Busy", "ServerBusy", True),
        ("500 Error", "InternalError", True),
        ("429 Slow", "TooManyRequests", True),
        ("409 Conflict", "ContainerBeingDeleted", True),
        ("412 Leased", "LeaseIdMissing", False),
        ("403 Forbidden", "AuthorizationPermissionMismatch", False),
        ("409 Conflict", "BlobImmutableDueToPolicy", False),
        ("501 No", "NotImplemented", False),
    ],
)
async def test_a_refusal_says_whether_the_same_call_can_succeed_later(
    server: FaultyServer, store: AzureObjectStore, status: str, code: str, retriable: bool
) -> None:
    for method, call in (
        ("PUT", lambda: store.put("key", b"x")),
        ("PUT", lambda: store.create("key", b"x")),
        ("GET", lambda: store.get("key", 0, 10)),
        ("GET", lambda: store.get_versioned("key")),
        ("GET", lambda: listed(store)),
        ("DELETE", lambda: store.delete(["key"])),
    ):
        server.requests.clear()
        server.rule = on(method, refusal(status, code))
        with pytest.raises(WalObjectStoreError) as caught:
            await call()
        assert caught.value.retriable is retriable
        assert not isinstance(caught.value, ConditionFailedError | ObjectNotFoundError)
        assert code in str(caught.value)
        assert "hush" not in str(caught.value)
        assert len(server.requests) == 1, "the library has sent it again"


@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden"])
async def test_the_page_of_a_load_balancer_is_waited_for_and_says_nothing_of_blobs(
    server: FaultyServer, store: AzureObjectStore, status: str
) -> None:
    page = answer(status, "Content-Type: text/html", body="<html><body><br>lost</body></html>")
    for method, call in (
        ("PUT", lambda: store.put("key", b"x")),
        ("GET", lambda: store.get("key", 0, 10)),
        ("GET", lambda: store.get_versioned("key")),
        ("GET", lambda: listed(store)),
    ):
        server.rule = on(method, page)
        with pytest.raises(WalObjectStoreError, match="in an answer that is not the service's") as caught:
            await call()
        assert not isinstance(caught.value, ConditionFailedError | ObjectNotFoundError)
        assert caught.value.retriable


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.RESET])
async def test_a_write_whose_answer_is_lost_is_sent_once_and_its_outcome_is_unknown(
    server: FaultyServer, store: AzureObjectStore, container: ContainerClient, fault: Fault
) -> None:
    took_place = fault is Fault.LOSE_ANSWER
    server.rule = on("PUT", fault)
    for write in (partial(store.create, "key"), partial(store.put, "other")):
        server.requests.clear()
        with pytest.raises(WalObjectStoreError) as caught:
            await write(b"mine")
        assert caught.value.retriable
        assert not isinstance(caught.value, ConditionFailedError)
        assert sent(server, "PUT") == 1
    assert blobs(container) == ({"p/key": b"mine", "p/other": b"mine"} if took_place else {})
    server.rule = on("", Fault.RESET)
    if took_place:
        with pytest.raises(ConditionFailedError):
            await store.create("key", b"again")
        assert (await store.get_versioned("key")).data == b"mine"
    else:
        await store.create("key", b"again")


async def test_a_replace_whose_answer_is_lost_is_found_by_its_bytes(
    server: FaultyServer, store: AzureObjectStore
) -> None:
    version = await store.create("key", b"first")
    server.rule = on("PUT", Fault.LOSE_ANSWER)
    with pytest.raises(WalObjectStoreError) as caught:
        await store.replace("key", b"second", version)
    assert not isinstance(caught.value, ConditionFailedError)
    found = await store.get_versioned("key")
    assert found.data == b"second"
    assert found.version != version


async def test_a_request_that_hangs_is_given_up(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext
) -> None:
    store = make_store(context, AzureSettings(**settings | {"request_timeout_ms": 5_000}))
    await store.start()
    try:
        server.rule = on("PUT", Fault.HANG)
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(WalObjectStoreError, match=r"timed out|Timeout") as caught:
                await store.put("key", b"x")
        assert caught.value.retriable
    finally:
        await store.stop()


@pytest.mark.parametrize("size_bytes", [10, 200_000])
async def test_a_cancelled_put_ends_at_once_and_leaves_nothing(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext, container: ContainerClient, size_bytes: int
) -> None:
    made = AzureContainer(AzureSettings(**settings | {"request_timeout_ms": 600_000}), context.clock)
    store = AzureObjectStore(made, single_put_bytes=100_000, block_bytes=65_536)
    await store.start()
    try:
        server.rule = on("PUT", Fault.HANG, "blockid=" if size_bytes > 100_000 else "")
        putting = asyncio.create_task(store.put("key", body(size_bytes)))
        async with asyncio.timeout(TIMEOUT_S):
            await server.hangs.wait()
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
    finally:
        await store.stop()
    assert blobs(container) == {}


async def test_what_is_under_way_when_the_store_stops_ends_with_an_error_of_the_store(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext
) -> None:
    store = make_store(context, AzureSettings(**settings | {"request_timeout_ms": 600_000, "max_connections": 2}))
    await store.start()
    server.rule = on("PUT", Fault.HANG)
    putting = [asyncio.create_task(store.put(f"key/{number}", b"x")) for number in range(4)]
    async with asyncio.timeout(TIMEOUT_S):
        await server.hangs.wait()
        await store.stop()
        outcomes = await asyncio.gather(*putting, return_exceptions=True)
    assert all(isinstance(outcome, WalObjectStoreError) for outcome in outcomes), outcomes


async def test_a_store_may_stop_at_any_turn_of_a_write(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext
) -> None:
    server.rule = on("PUT", Fault.HANG)
    for turns in range(60):
        store = make_store(context, AzureSettings(**settings | {"request_timeout_ms": 600_000, "max_connections": 2}))
        await store.start()
        putting = [asyncio.create_task(store.put(f"key/{number}", b"x")) for number in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)  # no time passes: one turn of the loop
        async with asyncio.timeout(TIMEOUT_S):
            await store.stop()
            outcomes = await asyncio.gather(*putting, return_exceptions=True)
        assert all(isinstance(outcome, WalObjectStoreError) for outcome in outcomes), (turns, outcomes)


async def test_a_block_that_is_lost_leaves_nothing(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext, container: ContainerClient
) -> None:
    store = AzureObjectStore(
        AzureContainer(AzureSettings(**settings), context.clock), single_put_bytes=100_000, block_bytes=65_536
    )
    await store.start()
    try:
        server.rule = on("PUT", refusal("503 Busy", "ServerBusy"), "comp=blocklist")
        with pytest.raises(WalObjectStoreError):
            await store.create("key", body(200_000))
        assert blobs(container) == {}
        assert await listed(store) == {}
        server.rule = on("PUT", Fault.LOSE_ANSWER, "comp=blocklist")
        with pytest.raises(WalObjectStoreError) as caught:
            await store.create("key", body(200_000))
        assert not isinstance(caught.value, ConditionFailedError)
        assert blobs(container) == {"p/key": body(200_000)}
    finally:
        await store.stop()


async def test_a_container_that_is_not_there_is_told_from_a_blob_that_is_not(
    store: AzureObjectStore, settings: dict[str, Any], context: PluginContext, container: ContainerClient
) -> None:
    absent = make_store(context, AzureSettings(**settings | {"container": "no-such-container"}))
    with pytest.raises(WalObjectStoreError, match="no such container; create it") as caught:
        await absent.start()
    assert not caught.value.retriable
    await absent.stop()
    container.delete_container()
    for call in (
        lambda: store.get("key", 0, 1),
        lambda: store.get("key", 0, 0),
        lambda: store.get_versioned("key"),
        lambda: store.put("key", b"x"),
        lambda: store.replace("key", b"x", '"0x1"'),
        lambda: store.delete(["key"]),
    ):
        with pytest.raises(WalObjectStoreError, match="no such container") as caught:
            await call()
        assert not isinstance(caught.value, ConditionFailedError | ObjectNotFoundError)


async def test_start_may_be_tried_again(server: FaultyServer, settings: dict[str, Any], context: PluginContext) -> None:
    store = make_store(context, AzureSettings(**settings))
    server.rule = on("GET", refusal("503 Busy", "ServerBusy"))
    for _ in range(2):
        with pytest.raises(WalObjectStoreError) as caught:
            await store.start()
        assert caught.value.retriable
    server.rule = on("", Fault.RESET)
    await store.start()
    await store.put("key", b"x")
    await store.stop()


async def test_of_several_deletes_those_that_are_refused_are_not_said_to_be_gone(
    server: FaultyServer, store: AzureObjectStore
) -> None:
    for key in ("a", "b", "c"):
        await store.put(key, b"x")
    server.rule = on("DELETE", Fault.RESET, "p/b")
    assert set(await store.delete(["a", "b", "c", "absent"])) == {"a", "c", "absent"}
    assert set(await listed(store)) == {"b"}


async def test_what_cannot_be_a_key_is_left_alone(store: AzureObjectStore, container: ContainerClient) -> None:
    for name in ("p/good", "p/a//b", "p/bäd", "p/folder/", "placeholder", "elsewhere/x"):
        container.upload_blob(name, b"x")
    assert set(await listed(store)) == {"good"}


async def test_a_listing_with_names_from_elsewhere_is_refused(server: FaultyServer, store: AzureObjectStore) -> None:
    listing = answer("200 OK", "Content-Type: application/xml", body=LISTED.format(name="elsewhere/x", more=""))
    server.rule = on("GET", listing)
    with pytest.raises(WalObjectStoreError, match="listed 'elsewhere/x', asked for 'p/'") as caught:
        await listed(store)
    assert not caught.value.retriable


async def test_an_account_that_keeps_versions_is_told(server: FaultyServer, store: AzureObjectStore) -> None:
    assert await store.unbounded_versions("log/") is None
    version = "<VersionId>2024-01-01T00:00:00.0000000Z</VersionId>"
    listing = answer("200 OK", "Content-Type: application/xml", body=LISTED.format(name="p/log/x", more=version))
    server.rule = on("GET", listing, "include=versions")
    with pytest.raises(WalObjectStoreError, match="lifecycle management"):
        await store.unbounded_versions("log/")


async def test_an_account_that_lists_folders_is_refused(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext
) -> None:
    server.rule = on("GET", answer("200 OK", "x-ms-is-hns-enabled: true"), "comp=properties")
    store = make_store(context, AzureSettings(**settings))
    with pytest.raises(WalObjectStoreError, match="hierarchical namespace") as caught:
        await store.start()
    assert not caught.value.retriable


async def test_connections_are_bounded(server: FaultyServer, settings: dict[str, Any], context: PluginContext) -> None:
    store = make_store(context, AzureSettings(**settings | {"max_connections": 3, "request_timeout_ms": 600_000}))
    await store.start()
    server.rule = on("PUT", Fault.HANG)
    server.requests.clear()
    putting = [asyncio.create_task(store.put(f"key/{number}", b"x")) for number in range(10)]
    async with asyncio.timeout(TIMEOUT_S):
        await server.hangs.wait()
    await asyncio.wait(putting, timeout=0.3)
    assert 1 <= sent(server, "PUT") <= 3
    for task in putting:
        task.cancel()
    await asyncio.wait(putting)
    await store.stop()


async def test_a_copy_that_fails_leaves_no_log_and_can_be_repeated(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext, container: ContainerClient
) -> None:
    storage = make_remote_storage(context, AzureRemoteStorageSettings(**settings))
    await storage.start()
    try:
        for part, size_bytes in ((".index", 10_000), (".log", 10_000), ("blocklist", 20 << 20), ("blockid", 20 << 20)):
            segment = make_segment(size_bytes)
            server.rule = on("PUT", refusal("503 Busy", "ServerBusy"), part)
            with pytest.raises(RemoteStorageError) as caught:
                await storage.copy(segment.metadata, segment.data())
            assert caught.value.retriable
            assert not any(name.endswith(".log") for name in container.list_blob_names())
            server.rule = on("", Fault.RESET)
            await assert_stored(storage, await copied(storage, segment))
            await storage.delete(segment.metadata)
            await assert_absent(storage, segment)
            assert blobs(container) == {}
    finally:
        await storage.stop()


async def test_what_is_cancelled_while_it_is_published_waits_for_the_request_that_is_under_way(
    server: FaultyServer, settings: dict[str, Any], context: PluginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No longer than the grace: a service that does not answer does not hold up who cancels."""
    monkeypatch.setattr("diskless_azure.tasks.settled.__defaults__", (0.2,))
    storage = make_remote_storage(context, AzureRemoteStorageSettings(**settings | {"request_timeout_ms": 600_000}))
    await storage.start()
    try:
        segment = replace(make_segment(10_000), indexes={})
        server.rule = on("PUT", Fault.HANG, ".log")
        copying = asyncio.create_task(storage.copy(segment.metadata, segment.data()))
        async with asyncio.timeout(TIMEOUT_S):
            await server.hangs.wait()
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying
        server.rule = on("", Fault.RESET)
        await storage.delete(segment.metadata)
        await assert_absent(storage, segment)
    finally:
        await storage.stop()
