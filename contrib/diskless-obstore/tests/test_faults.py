"""What becomes of a request when the service does not do as it should, and that no message has a secret."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from threading import Event
from typing import Any

import pytest
import pytest_asyncio
from pydantic import ValidationError
from s3 import Answer, Gate, refusal

from diskless_core.plugin.wal_object_store import ConditionFailedError, ObjectNotFoundError, WalObjectStoreError
from diskless_core.testing.wal_object_store_tools import listed
from diskless_obstore.config import ObstoreSettings
from diskless_obstore.store import ObstoreObjectStore

TIMEOUT_S = 60.0
SECRET = "a-secret-that-nobody-sees"


@pytest.fixture
def settings(endpoint: str, bucket: str) -> dict[str, Any]:
    return {
        "url": f"s3://{bucket}/p",
        "endpoint_url": endpoint,
        "region": "us-east-1",
        "key": "test-key",
        "secret": SECRET,
    }


@pytest_asyncio.fixture
async def store(settings: dict[str, Any]) -> AsyncIterator[ObstoreObjectStore]:
    store = ObstoreObjectStore(ObstoreSettings(**settings))
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def on(gate: Gate, method: str, what: Answer | Event) -> None:
    gate.requests.clear()
    gate.rule = lambda request: what if request.method == method else None


@pytest.mark.parametrize(
    ("status", "code", "retriable"),
    [
        ("503 Busy", "SlowDown", True),
        ("500 Error", "InternalError", True),
        ("429 Slow", "TooManyRequests", True),
        ("403 Forbidden", "RequestTimeTooSkewed", True),
        ("403 Forbidden", "AccessDenied", False),
        ("400 Bad", "InvalidArgument", False),
    ],
)
async def test_a_refusal_says_whether_the_same_call_can_succeed_later(
    gate: Gate, store: ObstoreObjectStore, status: str, code: str, retriable: bool
) -> None:
    for method, call in (
        ("PUT", partial(store.put, "key", b"x")),
        ("PUT", partial(store.create, "key", b"x")),
        ("GET", partial(store.get_versioned, "key")),
        ("GET", partial(listed, store)),
        ("POST", partial(store.delete, ["key"])),
    ):
        on(gate, method, refusal(status, code))
        with pytest.raises(WalObjectStoreError) as caught:
            await call()
        assert caught.value.retriable is retriable
        assert not isinstance(caught.value, ConditionFailedError | ObjectNotFoundError)
        assert SECRET not in str(caught.value)
        assert len(gate.requests) == 1, "obstore has sent it again"


@pytest.mark.parametrize("body", ["<html><body><br>lost</body></html>", ""], ids=["a page", "nothing"])
async def test_what_a_load_balancer_answers_is_waited_for_and_says_nothing_of_objects(
    gate: Gate, store: ObstoreObjectStore, body: str
) -> None:
    version = await store.create("key", b"x")
    for method, call in (
        ("PUT", partial(store.put, "key", b"x")),
        ("PUT", partial(store.replace, "key", b"x", version)),
        ("GET", partial(store.get, "key", 0, 1)),
        ("GET", partial(store.get_versioned, "key")),
        ("GET", partial(listed, store)),
    ):
        on(gate, method, Answer("404 Not Found", body))
        with pytest.raises(WalObjectStoreError, match="404, in an answer that is not the store's") as caught:
            await call()
        assert type(caught.value) is WalObjectStoreError
        assert caught.value.retriable


async def test_a_redirect_that_names_no_region_says_what_to_set(gate: Gate, store: ObstoreObjectStore) -> None:
    on(gate, "PUT", refusal("301 Moved", "PermanentRedirect"))
    with pytest.raises(WalObjectStoreError, match="set region and endpoint") as caught:
        await store.put("key", b"x")
    assert not caught.value.retriable


async def test_a_create_whose_answer_is_lost_is_sent_once_and_its_outcome_is_unknown(
    gate: Gate, store: ObstoreObjectStore
) -> None:
    on(gate, "PUT", refusal("500 Error", "InternalError", late=True))
    with pytest.raises(WalObjectStoreError) as caught:
        await store.create("key", b"mine")
    assert caught.value.retriable
    assert not isinstance(caught.value, ConditionFailedError)
    assert len(gate.requests) == 1
    assert (await store.get_versioned("key")).data == b"mine"
    gate.rule = lambda _: None
    with pytest.raises(ConditionFailedError):
        await store.create("key", b"again")


async def test_a_conflict_with_another_write_under_way_is_no_failed_condition(
    gate: Gate, store: ObstoreObjectStore
) -> None:
    """S3 answers so while it deals with another conditional write of that key, which may fail yet."""
    version = await store.create("there", b"x")
    on(gate, "PUT", refusal("409 Conflict", "ConditionalRequestConflict"))
    for call in (partial(store.create, "key", b"x"), partial(store.replace, "there", b"y", version)):
        with pytest.raises(WalObjectStoreError) as caught:
            await call()
        assert not isinstance(caught.value, ConditionFailedError)
        assert caught.value.retriable
    gate.rule = lambda _: None
    await store.create("key", b"x")
    await store.replace("there", b"y", version)


async def test_a_request_that_hangs_is_given_up(gate: Gate, settings: dict[str, Any]) -> None:
    store = ObstoreObjectStore(ObstoreSettings(**settings | {"request_timeout_ms": 3_000}))
    await store.start()
    released = Event()
    on(gate, "PUT", released)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            with pytest.raises(WalObjectStoreError) as caught:
                await store.put("key", b"x")
        assert caught.value.retriable
    finally:
        released.set()
        await store.stop()


async def test_a_cancelled_put_ends_at_once_though_its_memory_is_used_again(
    gate: Gate, settings: dict[str, Any]
) -> None:
    """What the service has got is what was given, whatever the caller does with the memory."""
    store = ObstoreObjectStore(ObstoreSettings(**settings | {"request_timeout_ms": 600_000}))
    await store.start()
    released, data = Event(), bytearray(b"x" * 1_000_000)
    on(gate, "PUT", released)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            putting = asyncio.create_task(store.put("key", data))
            await asyncio.to_thread(gate.held.wait, TIMEOUT_S)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            data[:] = b"y" * len(data)
    finally:
        released.set()
        await store.stop()
    assert {bytes(request.body).count(b"y") for request in gate.requests} == {0}


@pytest.mark.parametrize("method", ["PUT", "GET", "HEAD", "POST"])
async def test_requests_under_way_are_bounded_and_what_waits_is_not_sent_once_it_is_cancelled(
    gate: Gate, settings: dict[str, Any], method: str
) -> None:
    store = ObstoreObjectStore(ObstoreSettings(**settings | {"max_requests": 3, "request_timeout_ms": 600_000}))
    await store.start()
    await store.put("key", b"0123456789")
    released = Event()
    on(gate, method, released)
    calls = {
        "PUT": partial(store.put, "key", b"x"),
        "GET": partial(store.get, "key", 0, 5),
        "HEAD": partial(store.get, "key", 0, 0),
        "POST": partial(store.delete, ["key"]),
    }
    under_way = [asyncio.create_task(calls[method]()) for _ in range(10)]
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.to_thread(gate.held.wait, TIMEOUT_S)
            await asyncio.wait(under_way, timeout=0.3)
            assert 1 <= len(gate.requests) <= 3
            for waiting in under_way[3:]:
                waiting.cancel()
            await asyncio.wait(under_way[3:])
            released.set()
            await asyncio.gather(*under_way[:3])
        assert len(gate.requests) == 3
    finally:
        released.set()
        await store.stop()


async def test_a_bucket_that_is_not_there_is_told_from_an_object_that_is_not(settings: dict[str, Any]) -> None:
    store = ObstoreObjectStore(ObstoreSettings(**settings | {"url": "s3://no-such-bucket/p"}))
    with pytest.raises(WalObjectStoreError, match="no such bucket; create it") as caught:
        await store.start()
    assert not caught.value.retriable


async def test_start_may_be_tried_again(gate: Gate, settings: dict[str, Any]) -> None:
    store = ObstoreObjectStore(ObstoreSettings(**settings))
    on(gate, "GET", refusal("503 Busy", "SlowDown"))
    for _ in range(2):
        with pytest.raises(WalObjectStoreError) as caught:
            await store.start()
        assert caught.value.retriable
    gate.rule = lambda _: None
    await store.start()
    await store.put("key", b"x")
    await store.stop()


async def test_an_unreachable_service_is_retriable_and_its_message_has_no_secret(settings: dict[str, Any]) -> None:
    store = ObstoreObjectStore(ObstoreSettings(**settings | {"endpoint_url": "http://127.0.0.1:1"}))
    with pytest.raises(WalObjectStoreError) as caught:
        await store.start()
    assert caught.value.retriable
    assert SECRET not in str(caught.value)


async def test_what_is_elsewhere_is_left_alone_and_what_cannot_be_a_key_is_refused(
    store: ObstoreObjectStore, client: Any, bucket: str
) -> None:
    for name in ("p/good", "placeholder", "elsewhere/x", "elsewhere/a//b"):
        client.put_object(Bucket=bucket, Key=name, Body=b"x")
    assert set(await listed(store)) == {"good"}
    client.put_object(Bucket=bucket, Key="p/a//b", Body=b"x")
    with pytest.raises(WalObjectStoreError, match="p/a//b") as caught:
        await listed(store)
    assert not caught.value.retriable


@pytest.mark.parametrize(
    "settings",
    [
        {"url": f"s3://key:{SECRET}@bucket"},
        {"url": f"gs://{SECRET}"},
        {"url": "s3://bucket", "endpoint_url": f"https://key:{SECRET}@host"},
        {"url": "s3://bucket", "secret": SECRET},
        {},
    ],
)
def test_settings_that_are_refused_do_not_repeat_secrets(settings: dict[str, str]) -> None:
    with pytest.raises(ValidationError) as caught:
        ObstoreSettings(**settings)
    assert SECRET not in str(caught.value)
