"""One entry makes an API: it is decoded, handled, answered and advertised."""

from __future__ import annotations

import struct
import time
from types import SimpleNamespace
from typing import Any

import pytest

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
