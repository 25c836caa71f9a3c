"""A node with a groups shard on fakes, spoken to in Kafka's wire format through the handlers."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.handlers import group_administration as administration
from diskless_core.broker.handlers import groups as handlers
from diskless_core.broker.handlers.find_coordinator import find_coordinator
from diskless_core.clock import SystemClock
from diskless_core.coordinator import shard_store
from diskless_core.coordinator.shard import ShardServices
from diskless_core.groups.coordinators import GroupCoordinators
from diskless_core.groups.settings import ConsumerTimes, GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.protocol import messages
from diskless_core.shards import GROUPS
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.store import MemoryCoordinatorStore
from tests.support.waiting import PATIENCE_S

SHARD = GROUPS.shard(0)
SETTINGS = GroupSettings(min_session_timeout_ms=1, initial_rebalance_delay_ms=0)
DEFAULT_TIMES = ConsumerTimes()

HANDLERS = {
    messages.FindCoordinatorRequest: (find_coordinator, messages.FindCoordinatorResponse),
    messages.JoinGroupRequest: (handlers.join_group, messages.JoinGroupResponse),
    messages.SyncGroupRequest: (handlers.sync_group, messages.SyncGroupResponse),
    messages.HeartbeatRequest: (handlers.heartbeat, messages.HeartbeatResponse),
    messages.LeaveGroupRequest: (handlers.leave_group, messages.LeaveGroupResponse),
    messages.OffsetCommitRequest: (handlers.offset_commit, messages.OffsetCommitResponse),
    messages.OffsetFetchRequest: (handlers.offset_fetch, messages.OffsetFetchResponse),
    messages.ListGroupsRequest: (administration.list_groups, messages.ListGroupsResponse),
    messages.DescribeGroupsRequest: (administration.describe_groups, messages.DescribeGroupsResponse),
    messages.DeleteGroupsRequest: (administration.delete_groups, messages.DeleteGroupsResponse),
    messages.ConsumerGroupHeartbeatRequest: (
        handlers.consumer_group_heartbeat,
        messages.ConsumerGroupHeartbeatResponse,
    ),
    messages.ConsumerGroupDescribeRequest: (
        administration.consumer_group_describe,
        messages.ConsumerGroupDescribeResponse,
    ),
    messages.OffsetDeleteRequest: (administration.offset_delete, messages.OffsetDeleteResponse),
}


class AdjustableClock(SystemClock):
    """Stands still on the wall until the test moves it. What it is moved by passes on the monotonic clock too."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.wall_ms = self._began_ms = 1_000_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return super().monotonic() + (self.wall_ms - self._began_ms) / 1000

    def jump(self, ms: int) -> None:
        """Move it on the wall, and let no time pass."""
        self.wall_ms += ms
        self._began_ms += ms


@dataclass
class Topics:
    """Topics by name, each with three partitions unless told otherwise.

    Attributes:
        unseen: what has happened to topics that the node will know when it has caught up.
        caught_up: how often it did.
    """

    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    unseen: list[Callable[[], Any]] = field(default_factory=list)
    caught_up: int = 0

    async def catch_up(self) -> None:
        self.caught_up += 1
        while self.unseen:
            self.unseen.pop(0)()

    def create(self, name: str, count: int = 3) -> uuid.UUID:
        self.ids[name], self.counts[name] = uuid.uuid4(), count
        return self.ids[name]

    def delete(self, name: str) -> None:
        del self.ids[name], self.counts[name]

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, one in self.ids.items() if one == topic_id), None)

    def id_of(self, name: str) -> uuid.UUID | None:
        return self.ids.get(name)

    def partition_count(self, name: str) -> int | None:
        return self.counts.get(name)

    def all(self) -> Iterator[Any]:
        return iter([SimpleNamespace(name=name) for name in self.ids])


class Node:
    """One broker, as far as groups go."""

    def __init__(
        self,
        log: SharedLog,
        topics: Topics,
        settings: GroupSettings,
        clock: AdjustableClock,
        store: MemoryCoordinatorStore,
        times: dict[str, ConsumerTimes],
        shards: int,
    ) -> None:
        self.shared_log = log
        self.topics = topics
        self.clock = clock
        self.log = log.node(1)
        services = ShardServices(node_id=1, clock=clock, log=self.log, store=store)
        self.config = SimpleNamespace(node_id=1)
        self.shards = [GroupsShard(GROUPS.shard(index), services) for index in range(shards)]
        self.shard = self.shards[0]
        self.groups = GroupCoordinators(
            self.shards, clock, settings, lambda group: times.get(group, DEFAULT_TIMES), topics.catch_up
        )

    @contextmanager
    def store_behind(self) -> Iterator[None]:
        """As long as it lasts the shard takes no records: its store lacks too much."""
        flusher = self.shard._replica.flusher
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shard_store, "MAX_UNSTORED_ROWS", 0)
            flusher._look_for_room()
            yield
        flusher._look_for_room()

    async def expire_offsets(self) -> None:
        await self.groups.of("g").expire_offsets()

    def reached(self, node_id: int, listener: str) -> tuple[int, str, int]:
        return node_id, f"{listener}.example", 9092

    async def ask(self, request: Any, version: int) -> Any:
        """What a client gets that sends `request` in this version."""
        handler, response_class = HANDLERS[type(request)]
        decoded = type(request).decode(request.encode(version=version), version=version)
        context = SimpleNamespace(
            api_version=version, client_id="app", client_host="10.0.0.1", listener="client", services=self
        )
        response = await handler(context, decoded)
        return response_class.decode(response.encode(version=version), version=version)

    # --- the usual requests --------------------------------------------------------------------------------------

    async def join(self, version: int = 9, group: str = "g", member_id: str = "", **fields: Any) -> Any:
        """JoinGroup, with the second one that newer versions need."""
        protocol = messages.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"meta")
        request = messages.JoinGroupRequest(
            **{
                "group_id": group,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 10_000,
                "member_id": member_id,
                "protocol_type": "consumer",
                "protocols": [protocol],
                **fields,
            }
        )
        answer = await self.ask(request, version)
        if answer.error_code == 79:
            return await self.join(version, group, answer.member_id, **fields)
        return answer

    async def sync(self, joined: Any, version: int = 5, group: str = "g", **assign: bytes) -> Any:
        """SyncGroup; `assign` by member id."""
        assignment_class = messages.SyncGroupRequest.SyncGroupRequestAssignment
        request = messages.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=[assignment_class(member_id=one, assignment=data) for one, data in assign.items()],
        )
        return await self.ask(request, version)

    async def stable(self, group: str = "g", **fields: Any) -> Any:
        """A group of one member that has its assignment; the member's JoinGroup answer."""
        joined = await self.join(group=group, **fields)
        synced = await self.sync(joined, group=group, **{joined.member_id: b"all"})
        assert synced.error_code == 0
        return joined

    async def beat(self, joined: Any, version: int = 4, group: str = "g") -> int:
        request = messages.HeartbeatRequest(
            group_id=group, generation_id=joined.generation_id, member_id=joined.member_id
        )
        return int((await self.ask(request, version)).error_code)

    async def commit(
        self,
        offsets: dict[tuple[Any, int], int],
        version: int = 9,
        group: str = "g",
        joined: Any = None,
        metadata: str | None = None,
        **fields: Any,
    ) -> list[int]:
        """OffsetCommit by topic name, from version 10 on by id; the error codes."""
        topic_class = messages.OffsetCommitRequest.OffsetCommitRequestTopic
        topics = [
            topic_class(
                **({"topic_id": topic} if version >= 10 else {"name": topic}),
                partitions=[
                    topic_class.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=0,
                        committed_metadata=metadata,
                    )
                ],
            )
            for (topic, partition), offset in offsets.items()
        ]
        member: dict[str, Any] = (
            {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id} if joined else {}
        )
        request = messages.OffsetCommitRequest(group_id=group, topics=topics, **member, **fields)
        answer = await self.ask(request, version)
        return [part.error_code for topic in answer.topics for part in topic.partitions]

    async def fetch(self, *topics: Any, version: int = 9, group: str = "g", everything: bool = False) -> Any:
        """OffsetFetch of partitions 0 and 1: `(topic, partition) -> (offset, metadata, error)`."""
        answer = await self.fetch_raw(*topics, version=version, group=group, everything=everything)
        of_group = answer.groups[0] if version >= 8 else answer
        return {
            ((topic.topic_id if version >= 10 else topic.name), part.partition_index): (
                part.committed_offset,
                part.metadata,
                part.error_code,
            )
            for topic in of_group.topics
            for part in topic.partitions
        }

    async def fetch_raw(self, *topics: Any, version: int, group: str = "g", everything: bool = False) -> Any:
        request_class = messages.OffsetFetchRequest
        if version < 8:
            flat = [request_class.OffsetFetchRequestTopic(name=one, partition_indexes=[0, 1]) for one in topics]
            return await self.ask(request_class(group_id=group, topics=None if everything else flat), version)
        group_class = request_class.OffsetFetchRequestGroup
        wanted = [
            group_class.OffsetFetchRequestTopics(
                **({"topic_id": one} if version >= 10 else {"name": one}), partition_indexes=[0, 1]
            )
            for one in topics
        ]
        grouped = group_class(group_id=group, topics=None if everything else wanted)
        return await self.ask(request_class(groups=[grouped]), version)

    async def until(self, condition: Any) -> None:
        """Ask again until it holds."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if await condition():
                    return
                await asyncio.sleep(0.005)


@asynccontextmanager
async def running_node(
    log: SharedLog | None = None,
    topics: Topics | None = None,
    settings: GroupSettings = SETTINGS,
    clock: AdjustableClock | None = None,
    store: MemoryCoordinatorStore | None = None,
    times: dict[str, ConsumerTimes] | None = None,
    shards: int = 1,
) -> AsyncIterator[Node]:
    """A node that leads. Starting another one on the same log is what a restart is; `times` may change meanwhile."""
    node = Node(
        log or SharedLog(),
        topics or Topics(),
        settings,
        clock or AdjustableClock(),
        store or MemoryCoordinatorStore(),
        times if times is not None else {},
        shards,
    )
    await node.log.start()
    await asyncio.gather(*(shard.start() for shard in node.shards))
    await node.groups.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(shard.until_leading() for shard in node.shards))
        await node.until(node_is_loaded(node))
        yield node
    finally:
        await node.groups.stop()
        await asyncio.gather(*(shard.stop() for shard in node.shards))
        await node.log.stop()


def node_is_loaded(node: Node) -> Any:
    async def loaded() -> bool:
        return bool((await node.ask(messages.ListGroupsRequest(states_filter=[], types_filter=[]), 5)).error_code == 0)

    return loaded
