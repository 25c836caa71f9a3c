"""Members of a consumer group of a simulated world: they share a topic, and commit how far they have come."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

from diskless_core.diskless.commands import PartitionKey
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from tests.simulation.broker import Broker
from tests.simulation.clients import NO_ANSWER, Reader, Town, ask
from tests.simulation.network import NetworkError
from tests.simulation.truth import OffsetPlace, name_of

GROUP = "group"
BEYOND_SESSION_S = 5.0
"""How long each member does nothing, once, before it commits what it had, and finds that it is out."""

_HEARTBEAT = messages.ConsumerGroupHeartbeatRequest
_COMMITTED_TOPIC = messages.OffsetCommitRequest.OffsetCommitRequestTopic
_NOT_A_MEMBER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)


class Found(NamedTuple):
    """A committed offset; without an offset there is none. `mark` is what the commit was sent with."""

    error: ErrorCode
    offset: int = -1
    mark: str = ""


class Member:
    """Reads what it is assigned, goes on where the group was, and commits that.

    A commit's metadata say whose it is: the member, how often it was given the partition, and its number.
    """

    def __init__(self, town: Town, source: random.Random, number: int, topic: str) -> None:
        self._town = town
        self._random = source
        self._name = f"member-{number}"
        self._topic = topic
        self._id = str(number)
        self._epoch = 0
        self._owned: dict[PartitionKey, _Share] = {}
        self._coordinator: Broker | None = None
        self._shares = count()
        self._turns_to_rest = source.randint(3, 10)

    async def run(self) -> None:
        while self._town.active:
            await self._heartbeat()
            if self._owned:
                key = self._random.choice(sorted(self._owned))
                self._turns_to_rest -= 1
                await self._work(key, self._owned[key])
            await asyncio.sleep(self._random.choice([0.05, 0.1, 0.4]))

    async def _heartbeat(self) -> None:
        request = _HEARTBEAT(
            group_id=GROUP,
            member_id=self._id,
            member_epoch=self._epoch,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[self._topic],
            topic_partitions=[
                _HEARTBEAT.TopicPartitions(topic_id=uuid.UUID(bytes=key.topic_id), partitions=[key.partition])
                for key in sorted(self._owned)
            ],
        )
        answer = await self._ask(lambda one: one.group_heartbeat(request))
        if answer is None or self._goes_elsewhere(answer.error_code):
            return
        if answer.error_code in _NOT_A_MEMBER:
            self._is_out(answer.error_code)
        elif answer.error_code == ErrorCode.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._take(answer.assignment)

    def _take(self, assignment: Any) -> None:
        keys = {
            PartitionKey(topic.topic_id.bytes, partition)
            for topic in assignment.topic_partitions
            for partition in topic.partitions
        }
        for key in [key for key in self._owned if key not in keys]:
            del self._owned[key]
        for key in sorted(keys - self._owned.keys()):
            self._owned[key] = _Share(f"{self._id}.{next(self._shares)}")
        self._town.history.note(self._name, f"has {[name_of(key) for key in self._owned]}")

    def _is_out(self, error: ErrorCode) -> None:
        self._town.history.note(self._name, f"is out: {error}")
        self._epoch = 0
        self._owned = {}

    async def _work(self, key: PartitionKey, share: _Share) -> None:
        if share.reader is None:
            found = await self._fetch_offset(key)
            if found is None or found.error is not ErrorCode.NONE:
                return
            share.reader = Reader(self._town, self._name, key, max(0, found.offset))
            self._town.history.note(self._name, f"goes on with {name_of(key)} at {found.offset}")
        if self._random.random() < 0.2:
            await self._fetch_offset(key)
        before = share.reader.offset
        await share.reader.poll(self._town.any_broker(self._random))
        if share.reader.offset != before:
            await self._commit(key, share)
        if self._turns_to_rest == 0:
            await asyncio.sleep(BEYOND_SESSION_S)
            for one, of_one in list(self._owned.items()):
                if self._owned.get(one) is of_one:
                    await self._commit(one, of_one)

    async def _commit(self, key: PartitionKey, share: _Share) -> None:
        if share.reader is None:
            return
        mark, offset = share.next_mark(), share.reader.offset
        partition = _COMMITTED_TOPIC.OffsetCommitRequestPartition(
            partition_index=key.partition, committed_offset=offset, committed_leader_epoch=0, committed_metadata=mark
        )
        request = messages.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._id,
            topics=[_COMMITTED_TOPIC(topic_id=uuid.UUID(bytes=key.topic_id), partitions=[partition])],
        )
        answer = await self._ask(lambda one: one.commit_offsets(request))
        if answer is None:
            return
        error = ErrorCode(answer.topics[0].partitions[0].error_code)
        if self._goes_elsewhere(error):
            return
        self._town.history.note(self._name, f"commits {name_of(key)} at {offset} as {mark}: {error.name}")
        if error is ErrorCode.NONE:
            self._town.checker.offset_acknowledged(self._place_of(key), mark, offset)
        elif error in _NOT_A_MEMBER:
            self._is_out(error)

    async def _fetch_offset(self, key: PartitionKey) -> Found | None:
        place = self._place_of(key)
        seen = self._town.checker.offsets_seen(place)
        found = found_in(await self._ask(lambda one: one.committed_offset(offset_request(key, self._id, self._epoch))))
        if found is None or self._goes_elsewhere(found.error):
            return None
        if found.error is ErrorCode.NONE:
            self._town.checker.offset_found(place, seen, found.mark, found.offset)
        return found

    def _place_of(self, key: PartitionKey) -> OffsetPlace:
        return OffsetPlace(GROUP, self._topic, key.partition)

    async def _ask(self, work: Callable[[Broker], Any]) -> Any:
        """The coordinator's answer; None without one."""
        if self._coordinator is None:
            self._coordinator = self._town.any_broker(self._random)
        try:
            return await ask(self._town, self._coordinator, work)
        except (NetworkError, *NO_ANSWER):
            self._coordinator = None
            return None

    def _goes_elsewhere(self, error: int) -> bool:
        elsewhere = error in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if elsewhere:
            self._coordinator = None
        return elsewhere


class _Share:
    """A partition for as long as a member has it. `reader` is None until it is known where to go on."""

    def __init__(self, token: str) -> None:
        self.reader: Reader | None = None
        self._token = token
        self._numbers = count()

    def next_mark(self) -> str:
        return f"{self._token}.{next(self._numbers)}"


def offset_request(key: PartitionKey, member_id: str | None = None, epoch: int = -1) -> Any:
    """OffsetFetch of one partition, by a member or by somebody else."""
    group_class = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    topic = group_class.OffsetFetchRequestTopics(
        topic_id=uuid.UUID(bytes=key.topic_id), partition_indexes=[key.partition]
    )
    group = group_class(group_id=GROUP, member_id=member_id, member_epoch=epoch, topics=[topic])
    return messages.OffsetFetchRequest(groups=[group])


def found_in(answer: Any) -> Found | None:
    """What an answer to that request says; None where there is none."""
    if answer is None:
        return None
    [group] = answer.groups
    if group.error_code:
        return Found(ErrorCode(group.error_code))
    [partition] = group.topics[0].partitions
    return Found(ErrorCode(partition.error_code), partition.committed_offset, partition.metadata)
