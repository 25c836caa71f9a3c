"""Nodes with Diskless shards and a network between them that loses what it is told to, on any event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from diskless_core.clock import Clock
from diskless_core.coordinator.feeds import ShardFeeds
from diskless_core.coordinator.peers import (
    AnswerLostError,
    PeerAddress,
    PeerMap,
    PeerRequest,
    PeerUnavailableError,
)
from diskless_core.diskless.clients import CoordinatorClients
from diskless_core.diskless.commands import ListedOffset, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.diskless.service import CoordinatorService
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.errors import ErrorCode
from diskless_core.shards import DISKLESS
from diskless_core.testing.fakes.log import SharedLog
from tests.support.shards import ShardNode


async def latest(shard: DisklessShard, partition: PartitionKey, timestamp: int) -> ListedOffset:
    """What stands for the look-up by timestamp: the high watermark, and the timestamp that was asked for."""
    head = shard.head(partition)
    if head is None:
        return ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return ListedOffset(timestamp=timestamp, offset=head.next_offset)


class NetworkNode:
    """One node: a replica of each shard, what it answers to others, and the coordinators as it reaches them."""

    def __init__(self, node_id: int, network: Network, clock: Clock, shards: int) -> None:
        self.node_id = node_id
        self.replicas = [
            ShardNode(network.shared, clock, node_id, shard_id=DISKLESS.shard(index)) for index in range(shards)
        ]
        self.peers = PeerMap(node_id)
        self._network = network
        self._clock = clock
        self.shards: dict[int, DisklessShard] = {}
        self.feeds: ShardFeeds
        self.service: CoordinatorService
        self.directory: CoordinatorClients

    async def start(self) -> None:
        purgatory = Purgatory()
        for index, replica in enumerate(self.replicas):
            self.shards[index] = shard = await replica.start(lead=False)
            shard.find_offsets_with(latest)
            shard.on_head_moved(purgatory.wake)
        self.feeds = ShardFeeds(self.shards.values(), self._clock)
        self.service = CoordinatorService(
            self.node_id, self.shards, self.peers, purgatory, self.feeds, self._clock, object_prefix="wal"
        )
        network = self._network
        self.directory = CoordinatorClients(
            self.node_id, self.shards, InOrder(network), self.peers, lambda: InOrder(network)
        )

    async def stop(self) -> None:
        await self.directory.stop()
        for replica in self.replicas:
            await replica.stop()


class InOrder:
    """A `PeerTransport` with one connection to each node: answers come in the order of the requests, as over TCP."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._last: dict[int, asyncio.Task[bytes]] = {}

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        asked = asyncio.create_task(self._network.send(node_id, request, timeout_s))
        turn = self._last[node_id] = asyncio.create_task(_after(self._last.get(node_id), asked))
        return await asyncio.shield(turn)


async def _after(before: asyncio.Task[bytes] | None, asked: asyncio.Task[bytes]) -> bytes:
    if before is not None:
        await asyncio.wait([before])
    return await asked


class Network:
    """A `PeerTransport`. All nodes know each other's addresses.

    Attributes:
        sent: node id and api key of each request that arrived.
        down: nodes that cannot be reached.
        losing: nodes whose answers get lost.
        silent: nodes that get requests and never answer.
    """

    def __init__(self, clock: Clock, leaders: Mapping[int, int], node_ids: tuple[int, ...] = (1, 2)) -> None:
        self.shared = SharedLog()
        self.sent: list[tuple[int, int]] = []
        self.down: set[int] = set()
        self.losing: set[int] = set()
        self.silent: set[int] = set()
        for shard, leader in leaders.items():
            self.shared.set_leader(DISKLESS.shard(shard), leader)
        self.nodes = {node_id: NetworkNode(node_id, self, clock, len(leaders)) for node_id in node_ids}
        self._leaders = leaders

    async def __aenter__(self) -> Network:
        for node in self.nodes.values():
            for node_id in self.nodes:
                node.peers.learn(node_id, PeerAddress(f"node-{node_id}", 9000 + node_id))
            await node.start()
        for shard, leader in self._leaders.items():
            await self.nodes[leader].shards[shard].until_leading()
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.stop()

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        if node_id in self.down or node_id not in self.nodes:
            raise PeerUnavailableError(f"node {node_id} is down")
        self.sent.append((node_id, request.api_key))
        if node_id in self.silent:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("there was no answer in time")
        answer = await self.nodes[node_id].service.answer(request)
        if node_id in self.losing:
            raise AnswerLostError("the connection broke")
        return answer
