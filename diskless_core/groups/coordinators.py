"""All group coordinators of a node: a request goes to the one that has the group, or to several.

Each answers for itself where to go while another node leads its shard. What is asked of several groups at once is
answered for each; what is asked of all groups, for those that this node leads, as in Apache Kafka: a client asks all
brokers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.groups.administration import ListedGroup
from diskless_core.groups.offset_fetch import AnsweredGroup, AskedGroup
from diskless_core.groups.routing import shard_index
from diskless_core.groups.service import GroupCoordinator
from diskless_core.groups.settings import ConsumerTimesOf, GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.topics import CatchUp, TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.side_by_side import side_by_side

_GROUPS_IN_OFFSET_FETCH_SINCE = 8

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")


class GroupCoordinators:
    """One coordinator for each of a node's groups shards, which are given by index.

    Args:
        catch_up: awaited before a name of a topic is looked up that a client knows better, perhaps.
    """

    def __init__(
        self,
        shards: Sequence[GroupsShard],
        clock: Clock,
        settings: GroupSettings,
        consumer_times: ConsumerTimesOf,
        catch_up: CatchUp,
    ) -> None:
        self._shards = shards
        self._coordinators = [GroupCoordinator(shard, clock, settings, consumer_times, catch_up) for shard in shards]

    async def start(self) -> None:
        """Begin to coordinate. The shards have been started."""
        await asyncio.gather(*(coordinator.start() for coordinator in self._coordinators))

    async def stop(self) -> None:
        """Answer everybody who waits with a retriable error. Idempotent; to be called before the shards stop."""
        await asyncio.gather(*(coordinator.stop() for coordinator in self._coordinators))

    def of(self, group_id: str) -> GroupCoordinator:
        """The coordinator that has a group, whoever leads its shard."""
        return self._coordinators[shard_index(group_id, len(self._coordinators))]

    def shard_of(self, group_id: str) -> GroupsShard:
        """The shard that has a group."""
        return self._shards[shard_index(group_id, len(self._shards))]

    # --- requests for several groups -----------------------------------------------------------------------------

    async def list(self, request: messages.ListGroupsRequest) -> messages.ListGroupsResponse:
        """ListGroups: the groups that this node leads, by id. An error of one coordinator is that of the answer."""
        found = await asyncio.gather(*(one.administration.list(request) for one in self._coordinators))
        groups: list[ListedGroup] = []
        for listed in found:
            if listed is ErrorCode.NOT_COORDINATOR:
                continue
            if isinstance(listed, ErrorCode):
                return messages.ListGroupsResponse(throttle_time_ms=0, error_code=listed, groups=[])
            groups += listed
        groups.sort(key=lambda group: group.group_id)
        return messages.ListGroupsResponse(throttle_time_ms=0, error_code=0, groups=groups)

    async def describe(self, request: messages.DescribeGroupsRequest, version: int) -> messages.DescribeGroupsResponse:
        """DescribeGroups."""
        with_operations = request.include_authorized_operations
        groups = await self._one_by_one(
            request.groups,
            lambda group_id: self.of(group_id).administration.describe(group_id, version, with_operations),
        )
        return messages.DescribeGroupsResponse(throttle_time_ms=0, groups=groups)

    async def consumer_group_describe(
        self, request: messages.ConsumerGroupDescribeRequest, topics: TopicCatalog
    ) -> messages.ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe 0 and 1."""
        with_operations = request.include_authorized_operations
        groups = await self._one_by_one(
            request.group_ids,
            lambda group_id: self.of(group_id).consumer_group_describe(group_id, topics, with_operations),
        )
        return messages.ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)

    async def delete(self, request: messages.DeleteGroupsRequest) -> messages.DeleteGroupsResponse:
        """DeleteGroups: groups without members, their offsets too. Answered once that is committed."""
        group_ids = list(dict.fromkeys(request.groups_names))
        errors = await side_by_side(lambda group_id: self.of(group_id).administration.delete(group_id), group_ids)
        result_class = messages.DeleteGroupsResponse.DeletableGroupResult
        return messages.DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                result_class(group_id=group_id, error_code=error)
                for group_id, error in zip(group_ids, errors, strict=True)
            ],
        )

    async def offset_fetch(
        self, request: messages.OffsetFetchRequest, version: int, topics: TopicCatalog
    ) -> messages.OffsetFetchResponse:
        """OffsetFetch 1 to 10. Sees every offset whose commit was answered, by whichever node."""
        if version < _GROUPS_IN_OFFSET_FETCH_SINCE:
            return await self.of(request.group_id).offset_fetch(request, version, topics)

        async def fetch(coordinator: GroupCoordinator, asked: Sequence[AskedGroup]) -> Sequence[AnsweredGroup]:
            return await coordinator.offset_fetch_of_groups(asked, version, topics)

        groups = await self._by_coordinator(request.groups, lambda group: group.group_id, fetch)
        return messages.OffsetFetchResponse(groups=groups)

    async def _one_by_one(
        self, group_ids: Sequence[str], answer: Callable[[str], Awaitable[AnswerT]]
    ) -> Sequence[AnswerT]:
        """An answer for each group, each coordinator's one after the other: there may be very many."""

        async def answers(_: GroupCoordinator, asked: Sequence[str]) -> Sequence[AnswerT]:
            found = []
            for group_id in asked:
                found.append(await answer(group_id))
                await asyncio.sleep(0)
            return found

        return await self._by_coordinator(group_ids, lambda group_id: group_id, answers)

    async def _by_coordinator(
        self,
        asked: Sequence[AskedT],
        group_of: Callable[[AskedT], str],
        answers: Callable[[GroupCoordinator, Sequence[AskedT]], Awaitable[Sequence[AnswerT]]],
    ) -> Sequence[AnswerT]:
        """All answers in the order in which they were asked for, by one question to each coordinator."""
        parts: dict[int, list[AskedT]] = {}
        indexes = [shard_index(group_of(one), len(self._coordinators)) for one in asked]
        for index, one in zip(indexes, asked, strict=True):
            parts.setdefault(index, []).append(one)
        found = await asyncio.gather(*(answers(self._coordinators[index], part) for index, part in parts.items()))
        in_turn = dict(zip(parts, map(iter, found), strict=True))
        return [next(in_turn[index]) for index in indexes]

    # --- topics --------------------------------------------------------------------------------------------------

    async def topics_deleted(self, topic_ids: Collection[uuid.UUID], names: Collection[str]) -> None:
        """Delete the offsets of topics that are gone, in all groups that this node leads.

        Args:
            names: those that the topics had. Newer topics of these names are not touched.

        Raises:
            CoordinatorError: not all are deleted; the rest is invisible once a name has another id, and expires.
        """
        outcomes = await asyncio.gather(
            *(one.topics_deleted(topic_ids, names) for one in self._coordinators), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, NotCoordinatorError):
                raise outcome
