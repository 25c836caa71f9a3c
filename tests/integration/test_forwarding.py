"""Whatever the controller decides can be asked of any broker, which sends it there and sees what came of it at once."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DeleteTopicsRequest

from diskless_core.broker.handlers import topics as topic_handlers
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest
from diskless_core.protocol.envelope import pack_address, pack_user
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import EnvelopeRequest, UnregisterBrokerRequest
from diskless_core.shards import CLUSTER_SHARD
from tests.support.admin_requests import (
    BROKER,
    GROUP,
    SET,
    TOPIC,
    alter,
    alter_configs_request,
    create_partitions,
    describe_configs,
    grown,
)
from tests.support.batches import batch_of
from tests.support.cluster import BROKERS, Cluster, in_thread, until
from tests.support.requests import append, create_topic, create_topics, delete_topic, metadata_request, new_topic
from tests.support.wire import WireClient

CREATED, EXISTS = ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS


def partitions(wire: WireClient, name: str, *, create: bool = False) -> tuple[int, int]:
    """The error of a topic's metadata, and how many partitions it has."""
    [topic] = wire.call(metadata_request(name, create=create), 12).topics
    return topic.error_code, len(topic.partitions)


async def test_whatever_is_changed_through_another_broker_is_seen_there_at_once(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def change() -> None:
            with cluster.connect(2) as two:
                for number in range(10):
                    [created] = create_topics(two, new_topic(f"t{number}", 2, {"retention.ms": "7000"}))
                    assert (created.error_code, created.num_partitions) == (CREATED, 2)
                    assert partitions(two, f"t{number}") == (CREATED, 2)
                assert append(two, "t0", batch_of(b"a"), partition=1) == [0]
                assert create_partitions(two, grown("t0", 3)) == [(CREATED, None)]
                assert partitions(two, "t0") == (CREATED, 3)
                assert alter(two, TOPIC, "t0", ("retention.ms", SET, "8000")) == (CREATED, None)
                assert describe_configs(two, TOPIC, "t0")["retention.ms"].value == "8000"
                [answer] = two.call(alter_configs_request(TOPIC, "t0", {"retention.bytes": "5"}), 2).responses
                assert answer.error_code == 0
                described = describe_configs(two, TOPIC, "t0")
                assert (described["retention.bytes"].value, described["retention.ms"].value) == ("5", "604800000")
                assert alter(two, GROUP, "g", ("consumer.session.timeout.ms", SET, "46000")) == (CREATED, None)
                assert describe_configs(two, GROUP, "g")["consumer.session.timeout.ms"].value == "46000"
                assert delete_topic(two, "t0") == 0
                assert partitions(two, "t0") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)

        await in_thread(change)
        assert cluster.answered(1, "Envelope") == 15


async def test_an_answer_that_was_sent_on_is_the_controllers_with_its_errors(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def refused() -> None:
            with cluster.connect(2) as two:
                create_topic(two, "t")
                [again] = create_topics(two, new_topic("t"))
                assert (again.error_code, again.error_message) == (EXISTS, "Topic 't' already exists.")
                assert delete_topic(two, "nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                code, message = alter(two, TOPIC, "t", ("retention.ms", SET, "soon"))
                assert code == ErrorCode.INVALID_CONFIG
                assert "soon" in (message or "")
                for version in range(2, 8):
                    [answer] = create_topics(two, new_topic("t"), version=version)
                    assert answer.error_code == EXISTS
                for version in range(1, 7):
                    asked = DeleteTopicsRequest.DeleteTopicState(name="nowhere")
                    request = DeleteTopicsRequest(topics=[asked], topic_names=["nowhere"], timeout_ms=10_000)
                    [gone] = two.call(request, version).responses
                    assert (gone.name, gone.error_code) == ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                unregister = UnregisterBrokerRequest(broker_id=7)
                assert two.call(unregister, 0).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

        await in_thread(refused)


async def test_settings_of_a_broker_are_altered_through_itself_and_through_the_controller(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def change() -> None:
            with cluster.connect(1) as one, cluster.connect(2) as two:
                assert alter(two, BROKER, "2", ("message.max.bytes", SET, "2000000")) == (0, None)
                assert describe_configs(two, BROKER, "2")["message.max.bytes"].value == "2000000"
                assert describe_configs(one, BROKER, "1")["message.max.bytes"].value != "2000000"
                code, message = alter(one, BROKER, "7", ("message.max.bytes", SET, "2000000"))
                assert (code, message) == (
                    ErrorCode.INVALID_REQUEST,
                    "Unexpected broker id, expected 1, 2, but received 7",
                )

        await in_thread(change)


@pytest.mark.parametrize("wait", ["true", "false"])
async def test_a_topic_is_created_because_a_client_of_another_broker_asks_for_it(tmp_path: Path, wait: str):
    properties = {"diskless.auto.create.topics.wait": wait, "num.partitions": "2"}
    async with Cluster(tmp_path, {0: 1}, properties=properties) as cluster:

        def ask() -> tuple[int, int]:
            with cluster.connect(2) as two:
                return partitions(two, "wanted", create=True)

        first = await in_thread(ask)
        assert first == ((CREATED, 2) if wait == "true" else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0))
        topics = cluster.nodes[2]._parts.cluster.topics
        await until(lambda: topics.by_name("wanted") is not None)
        assert await in_thread(ask) == (CREATED, 2)


async def test_a_request_follows_the_controller_when_another_broker_comes_to_be_it(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def create(node_id: int, name: str) -> int:
            with cluster.connect(node_id) as wire:
                [created] = create_topics(wire, new_topic(name))
            code: int = created.error_code
            return code

        assert await in_thread(lambda: create(2, "before")) == CREATED
        cluster.shared.set_leader(CLUSTER_SHARD, None)
        waiting = asyncio.create_task(in_thread(lambda: create(2, "meanwhile")))
        await asyncio.sleep(0)
        cluster.shared.set_leader(CLUSTER_SHARD, 2)
        assert await waiting in (CREATED, ErrorCode.NOT_CONTROLLER, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        await until(lambda: cluster.nodes[2]._parts.coordinators.cluster.leading)
        assert await in_thread(lambda: create(1, "after")) == CREATED
        assert await in_thread(lambda: create(2, "here")) == CREATED


class LosesAnswers:
    """Carries requests to the controller and loses what it answers."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.lost = 0

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        await self._transport.send(node_id, request, timeout_s)
        self.lost += 1
        raise AnswerLostError("the connection broke")


async def test_a_lost_answer_is_told_as_such_and_the_request_is_not_repeated(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:
        calls = cluster.nodes[2]._parts.forwarding._calls
        calls._transport = losing = LosesAnswers(calls._transport)

        def change() -> None:
            with cluster.connect(2) as two:
                [created] = create_topics(two, new_topic("t"))
                assert created.error_code == ErrorCode.REQUEST_TIMED_OUT
                assert "the connection broke" in created.error_message

        await in_thread(change)
        assert losing.lost == 1
        assert cluster.nodes[1]._parts.cluster.topics.by_name("t") is not None


def enveloped(frame: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=frame, request_principal=pack_user("alice"), client_host_address=pack_address("10.0.0.7")
    )


def unframed(wire: WireClient, request: Any, version: int) -> bytes:
    return wire.frame(request, version)[4:]


async def test_the_controller_takes_in_envelopes_what_it_decides_and_nothing_else(tmp_path: Path):
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def ask() -> None:
            with cluster.connect(1, BROKERS) as one, cluster.connect(2, BROKERS) as two:
                wanted = unframed(one, UnregisterBrokerRequest(broker_id=7), 0)
                answer = one.call(enveloped(wanted), 0)
                assert answer.error_code == 0
                assert answer.response_data[:4] == wanted[4:8], "the correlation id"
                assert two.call(enveloped(wanted), 0).error_code == ErrorCode.NOT_CONTROLLER
                for frame, error in (
                    (unframed(one, enveloped(wanted), 0), ErrorCode.INVALID_REQUEST),
                    (unframed(one, metadata_request("t"), 12), ErrorCode.INVALID_REQUEST),
                    (wanted[:2] + struct.pack(">h", 9) + wanted[4:], ErrorCode.UNSUPPORTED_VERSION),
                    (wanted[:-2], ErrorCode.INVALID_REQUEST),
                    (b"", ErrorCode.INVALID_REQUEST),
                ):
                    answer = one.call(enveloped(frame), 0)
                    assert (answer.error_code, answer.response_data) == (error, None)
                nobodys = EnvelopeRequest(request_data=wanted, request_principal=None, client_host_address=bytes(4))
                assert one.call(nobodys, 0).error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
            with cluster.connect(1) as client:
                client.send(enveloped(wanted), 0, is_answered=False)
                assert client.is_closed(), "clients cannot send envelopes"

        await in_thread(ask)


async def test_the_controller_knows_whose_request_it_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[Any] = []
    create = topic_handlers._create

    async def creating(context: Any, *args: Any, **named: Any) -> Any:
        seen.append((*context.caller, context.client_id))
        return await create(context, *args, **named)

    monkeypatch.setattr(topic_handlers, "_create", creating)
    async with Cluster(tmp_path, {0: 1}) as cluster:

        def ask() -> None:
            with cluster.connect(2) as two:
                create_topic(two, "t")

        await in_thread(ask)
    assert seen == [("ANONYMOUS", "127.0.0.1", "PLAINTEXT", "wire")]
