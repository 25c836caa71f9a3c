"""Metadata of a topic that is not there: whether it is created, and whether the answer waits for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from diskless_core.broker import auto_creation
from diskless_core.broker.authorization import Caller
from diskless_core.broker.auto_creation import AutoCreation
from diskless_core.broker.forwarding import Forwarding
from diskless_core.broker.handlers.metadata import metadata
from diskless_core.cluster.leader_choice import Leaders
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.peers import PeerUnavailableError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import MetadataRequest
from diskless_core.testing.fakes.log import AppendFault, SharedLog
from tests.support.virtual_time import run
from tests.unit.cluster.test_topics import CLUSTER, ClusterNode

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


CALLER = Caller("ANONYMOUS", "127.0.0.1", "PLAINTEXT")


class NoPeers:
    """A transport that reaches nobody."""

    async def send(self, node_id, request, timeout_s):
        raise PeerUnavailableError("there is no other node")


class CreatingNode(ClusterNode):
    """A node that creates topics for clients that ask for them."""

    def __init__(self, shared):
        super().__init__(shared)
        forwarding = Forwarding(1, self.cluster, NoPeers(), self.clock, max_bytes=1 << 20)
        self.auto_creation = AutoCreation(self.topics, forwarding)

    async def stop(self):
        await self.auto_creation.stop()
        await super().stop()


async def ask(node, *, allowed=True, **properties):
    """The error of topic `t`, its number of partitions, and whether it has an id."""
    services = SimpleNamespace(
        topics=node.topics,
        auto_creation=node.auto_creation,
        config=BrokerConfig.model_validate(properties),
        cluster_id="c",
        known_brokers=lambda _: [],
        controller_for=lambda _: 1,
    )
    asked = MetadataRequest.MetadataRequestTopic(name="t")
    request = MetadataRequest(topics=[asked], allow_auto_topic_creation=allowed)
    context = SimpleNamespace(
        services=services, api_version=12, listener="PLAINTEXT", caller=CALLER, leaders=lambda _: Leaders({}, 1)
    )
    [topic] = (await metadata(context, request)).topics
    return topic.error_code, len(topic.partitions), topic.topic_id is not None


def on_a_node(scene):
    async def play():
        node = CreatingNode(SharedLog())
        await node.start()
        try:
            return await scene(node)
        finally:
            await node.stop()

    return run(play)


def test_the_first_answer_has_the_topic_that_it_creates():
    async def scene(node):
        assert await ask(node, num_partitions=3) == (0, 3, True)

    on_a_node(scene)


def test_on_demand_the_first_answer_is_that_of_kafka_and_a_later_one_has_the_topic():
    async def scene(node):
        first = [await ask(node, num_partitions=3, diskless_auto_create_topics_wait=False) for _ in range(3)]
        assert first == [(UNKNOWN, 0, False)] * 3
        await node.settled()
        assert await ask(node, num_partitions=3, diskless_auto_create_topics_wait=False) == (0, 3, True)
        assert [info.name for info in node.topics.all()] == ["t"]

    on_a_node(scene)


def test_a_creation_that_fails_is_tried_again_when_the_client_asks_again():
    async def scene(node):
        node.shared.fail_next_append(AppendFault.NOTHING_APPENDED, shard=CLUSTER)
        answers = []
        async with asyncio.timeout(60):
            while (0, 1, True) not in answers:
                answers.append(await ask(node, diskless_auto_create_topics_wait=False))
                await node.settled()
        assert answers[:2] == [(UNKNOWN, 0, False)] * 2

    on_a_node(scene)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("refused_by", [{"allowed": False}, {"auto_create_topics_enable": False}])
def test_nothing_is_created_where_the_client_or_the_broker_forbids_it(wait, refused_by):
    async def scene(node):
        assert await ask(node, diskless_auto_create_topics_wait=wait, **refused_by) == (UNKNOWN, 0, False)
        await node.settled()
        assert list(node.topics.all()) == []

    on_a_node(scene)


def test_however_many_ask_for_a_missing_topic_at_once_it_is_created_once():
    async def scene(node):
        found = await asyncio.gather(*(node.auto_creation.ensure("t", 1, CALLER) for _ in range(10)))
        assert len({info.topic_id for info in found}) == 1
        assert len(list(node.topics.all())) == 1

    on_a_node(scene)


def test_on_demand_only_so_many_topics_are_being_created_at_once(monkeypatch):
    monkeypatch.setattr(auto_creation, "MAX_CREATIONS", 3)

    async def scene(node):
        for number in range(10):
            node.auto_creation.begin(f"t{number}", 1, CALLER)
        await node.settled()
        assert sorted(info.name for info in node.topics.all()) == ["t0", "t1", "t2"]
        node.auto_creation.begin("t9", 1, CALLER)
        await node.settled()
        assert node.topics.by_name("t9") is not None

    on_a_node(scene)
