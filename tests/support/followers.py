"""Replicas of one shard that follow each other over a network, on a log that counts what is read of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

from diskless_core.coordinator.feeds import ShardFeeds
from diskless_core.coordinator.peers import AnswerLostError, PeerRequest, PeerUnavailableError
from diskless_core.coordinator.snapshots import Snapshots
from diskless_core.protocol import follow_shard
from diskless_core.protocol.follow_shard import FollowShardAnswer
from diskless_core.protocol.messages import DisklessFollowShardRequest
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.shards import SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

LATENCY_S = 0.001
PATIENCE_S = 120.0
STEP_S = 0.0005

Forge = Callable[[DisklessFollowShardRequest, FollowShardAnswer], FollowShardAnswer]


class Following:
    """Nodes by id. Node 1 leads.

    Attributes:
        down: nodes that cannot be reached.
        silent: nodes that never answer.
        asked: requests that arrived, by the node that was asked.
        answered_bytes: in all answers.
        forge: what becomes of each answer on its way.
    """

    def __init__(self, node_ids: tuple[int, ...] = (1, 2)) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.shared = SharedLog()
        self.objects = MemoryWalObjectStore(self.clock)
        self.snapshots = Snapshots(self.objects, "snapshots", self.clock)
        self.down: set[int] = set()
        self.silent: set[int] = set()
        self.asked: list[int] = []
        self.forge: Forge = lambda _, answer: answer
        self.nodes = {node_id: self._node(node_id) for node_id in node_ids}
        self.feeds: dict[int, ShardFeeds] = {}
        self.committed = 0

    def _node(self, node_id: int) -> ShardNode:
        return ShardNode(self.shared, self.clock, node_id, snapshots=self.snapshots, transport=self)

    async def start(self) -> None:
        self.shared.set_leader(SHARD_ID, 1)
        for node_id in self.nodes:
            await self.start_node(node_id)
        await self.nodes[1].shard.until_leading()
        await self.nodes[1].name_log()
        await self.nodes[1].shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        await self.until_alike()
        await self.until_followed()

    async def start_node(self, node_id: int) -> None:
        shard = await self.nodes[node_id].start(lead=False)
        self.feeds[node_id] = ShardFeeds([shard], self.clock)

    async def stop(self) -> None:
        for node in self.nodes.values():
            await node.stop()

    async def send(self, node_id: int, request: PeerRequest, timeout_s: float) -> bytes:
        if node_id in self.down:
            raise PeerUnavailableError(f"node {node_id} is down")
        self.asked.append(node_id)
        await asyncio.sleep(LATENCY_S)
        if node_id in self.silent:
            await asyncio.sleep(timeout_s)
            raise AnswerLostError("there was no answer in time")
        message = DisklessFollowShardRequest.decode(request.body, version=request.api_version)
        answer = self.forge(message, await self.feeds[node_id].follow(message))
        await asyncio.sleep(LATENCY_S)
        return b"".join(follow_shard.pack(answer))

    async def commit(self, count: int = 1, *, at: int = 1) -> None:
        for _ in range(count):
            await self.nodes[at].commit(commit_of(f"object-{self.committed:04d}", batch()))
            self.committed += 1

    async def commit_together(self, count: int) -> None:
        """So many commits that are under way at once."""
        first, self.committed = self.committed, self.committed + count
        leader = self.nodes[1]
        numbers = range(first, self.committed)
        await asyncio.gather(*(leader.commit(commit_of(f"object-{number:04d}", batch())) for number in numbers))

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = self.clock.monotonic() + PATIENCE_S
        while not condition():
            for node in self.nodes.values():
                assert node.shard.failure is None, node.shard.failure
            assert self.clock.monotonic() < deadline, "it never happened"
            await asyncio.sleep(STEP_S)

    async def until_alike(self) -> None:
        """Everybody has taken what is in the log, and the same."""
        end = self.shared.state(SHARD_ID)
        await self.until(lambda: all(node.shard.next_offset == end.end for node in self.nodes.values()))
        first, *others = self.nodes.values()
        for other in others:
            assert other.shard._replica.acceptance == first.shard._replica.acceptance
            assert other.tables() == first.tables()

    async def until_followed(self) -> None:
        """Every follower waits for an answer of the leader."""
        leader = next(node for node in self.nodes.values() if node.shard.leading)
        await self.until(lambda: leader.shard.tail._waiting == len(self.nodes) - 1)

    async def lead_again(self, node_id: int) -> None:
        """Whoever leads is deposed, and then this node leads, in a term of its own."""
        leader = next(node for node in self.nodes.values() if node.shard.leading)
        self.shared.set_leader(SHARD_ID, None)
        await self.until(lambda: not leader.shard.leading)
        self.shared.set_leader(SHARD_ID, node_id)
        await self.nodes[node_id].shard.until_leading()

    def streamed(self, node_id: int) -> float:
        """Entries that a node got from a leader."""
        return self.figure(node_id, "diskless_coordinator_streamed_entries_total")

    def differences(self, node_id: int) -> float:
        return self.figure(node_id, "diskless_coordinator_differences_total")

    def figure(self, node_id: int, name: str) -> float:
        registry = self.nodes[node_id].metrics.registry
        return registry.get_sample_value(name, {"shard": str(SHARD_ID)}) or 0.0


def follow(story: Callable[[Following], Awaitable[None]], node_ids: tuple[int, ...] = (1, 2)) -> None:
    """Live through a story in virtual time, which begins when all follow node 1."""

    async def main() -> None:
        world = Following(node_ids)
        await world.start()
        try:
            await story(world)
        finally:
            await world.stop()

    run(main)
