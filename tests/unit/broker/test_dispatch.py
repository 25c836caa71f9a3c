"""One entry makes an API: it is decoded, handled, answered and advertised."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diskless_core.broker import dispatch
from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.broker.connection import CloseConnectionError
from diskless_core.broker.dispatch import Api, ApiDispatcher, RequestContext, by_key
from diskless_core.broker.handlers.api_versions import api_versions
from diskless_core.metrics import Metrics
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.protocol.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)

VERSION = 3


async def add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    del context
    topics = [
        AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult.AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=0
                )
                for index in topic.partitions
            ],
        )
        for topic in request.v3_and_below_topics
    ]
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=topics)


def dispatcher() -> ApiDispatcher:
    clock = SimpleNamespace(monotonic=time.monotonic)
    services: Any = SimpleNamespace(metrics=Metrics(), clock=clock)
    added = Api(AddPartitionsToTxnRequest, VERSION, add_partitions_to_txn)
    return ApiDispatcher(services, by_key([*CLIENT_APIS.values(), added]))


def frame(request: Any, version: int) -> Any:
    request.API_VERSION = version
    request.with_header(correlation_id=7, client_id="app")
    return SimpleNamespace(view=memoryview(bytes(request.encode(version=version, header=True))))


def request() -> AddPartitionsToTxnRequest:
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="t", partitions=[0, 2])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[topic],
    )


async def test_an_entry_is_all_that_a_request_needs_to_be_decoded_handled_and_answered() -> None:
    connection: Any = None
    answer: Any = dispatcher().dispatch(frame(request(), VERSION), connection)

    body = b"".join(await answer)[struct.calcsize(">iix") :]
    [topic] = AddPartitionsToTxnResponse.decode(body, version=VERSION).results_by_topic_v3_and_below
    assert [one.partition_index for one in topic.results_by_partition] == [0, 2]


def test_an_entry_is_all_that_an_api_needs_to_be_advertised() -> None:
    served = by_key(
        [Api(ApiVersionsRequest, 4, api_versions), Api(AddPartitionsToTxnRequest, 3, add_partitions_to_txn)]
    )
    cluster_shard = SimpleNamespace(level=1, supported_levels=LevelRange(1, 1))
    context: Any = SimpleNamespace(api_version=0, apis=served, services=SimpleNamespace(cluster_shard=cluster_shard))

    response: ApiVersionsResponse = api_versions(context, ApiVersionsRequest())

    listed = [(one.api_key, one.min_version, one.max_version) for one in response.api_keys]
    assert listed == [(18, 0, 4), (AddPartitionsToTxnRequest.API_KEY, 0, 3)]


@pytest.mark.parametrize("version", [VERSION + 1, 99])
def test_a_version_beyond_that_of_the_entry_ends_the_connection(version: int) -> None:
    sent = frame(request(), VERSION)
    sent.view = memoryview(sent.view[:2].tobytes() + struct.pack(">h", version) + sent.view[4:].tobytes())
    connection: Any = None

    with pytest.raises(CloseConnectionError, match=f"version {version} of api key 24 is not served"):
        dispatcher().dispatch(sent, connection)


class HeldFrame:
    """A frame that counts who reads it."""

    def __init__(self, data: bytes) -> None:
        self.view = memoryview(data)
        self.holders = 1
        self.released = asyncio.Event()

    def hold(self) -> None:
        self.holders += 1

    def release(self) -> None:
        self.holders -= 1
        if not self.holders:
            self.released.set()


def large_metadata(monkeypatch: pytest.MonkeyPatch, seen: list[str]) -> tuple[ApiDispatcher, HeldFrame]:
    """A dispatcher to which a Metadata request is a large one, with a handler that notes where it runs; a request."""
    monkeypatch.setattr(dispatch, "LARGE_FRAME_BYTES", 1)
    decode = dispatch._decode

    def noted(*arguments: Any) -> Any:
        seen.append(f"decoded in {'the loop' if threading.current_thread() is threading.main_thread() else 'a thread'}")
        return decode(*arguments)

    monkeypatch.setattr(dispatch, "_decode", noted)

    async def metadata(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        del context
        seen.append(f"handled {request.topics[0].name}")
        return MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=[])

    services: Any = SimpleNamespace(metrics=Metrics(), clock=SimpleNamespace(monotonic=time.monotonic))
    topic = MetadataRequest.MetadataRequestTopic(name="orders", topic_id=None)
    asked = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    data = frame(asked, 12).view.tobytes()
    return ApiDispatcher(services, by_key([Api(MetadataRequest, 13, metadata)])), HeldFrame(data)


async def test_a_large_read_is_decoded_in_a_thread_which_holds_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    dispatched, sent = large_metadata(monkeypatch, seen)
    connection: Any = None
    answer: Any = dispatched.dispatch(cast("Any", sent), connection)
    sent.release()  # as the connection does at once
    assert sent.holders == 1
    assert MetadataResponse.decode(b"".join(await answer)[struct.calcsize(">iix") :], version=12).cluster_id == "c"
    assert (seen, sent.holders) == (["decoded in a thread", "handled orders"], 0)


async def test_a_large_read_that_is_malformed_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    dispatched, sent = large_metadata(monkeypatch, [])
    sent.view = sent.view[:-4]
    connection: Any = None
    answer: Any = dispatched.dispatch(cast("Any", sent), connection)
    with pytest.raises(CloseConnectionError, match="malformed"):
        await answer
    assert sent.holders == 1


async def test_the_frame_of_a_large_read_stays_until_the_thread_has_ended_though_its_connection_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatched, sent = large_metadata(monkeypatch, seen := [])
    begun, may_end, decode = threading.Event(), threading.Event(), dispatch._decode

    def slowly(*arguments: Any) -> Any:
        begun.set()
        may_end.wait()
        return decode(*arguments)

    monkeypatch.setattr(dispatch, "_decode", slowly)
    connection: Any = None
    answer = asyncio.ensure_future(dispatched.dispatch(cast("Any", sent), connection))  # type: ignore[arg-type]
    sent.release()
    await asyncio.to_thread(begun.wait)
    answer.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answer
    assert sent.holders == 1
    may_end.set()
    async with asyncio.timeout(60):
        await sent.released.wait()
    assert seen == ["decoded in a thread"]
