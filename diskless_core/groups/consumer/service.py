"""The consumer protocol's part of the group coordinator: requests to groups of one shard, and members' timers.

A thin shell. What a heartbeat does to a group is decided in `heartbeat`; its records are one command of the shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError, StoreBehindError
from diskless_core.coordinator.state_machine import Command
from diskless_core.groups.consumer import timers, wire
from diskless_core.groups.consumer.changes import Circumstances, GroupChanges
from diskless_core.groups.consumer.heartbeat import heartbeat, leave
from diskless_core.groups.consumer.model import JOIN_EPOCH
from diskless_core.groups.consumer.records import tombstones
from diskless_core.groups.consumer.requests import Heartbeat, HeartbeatAnswer, HeartbeatRefusedError, validate
from diskless_core.groups.consumer.timers import MemberTimer, Timers
from diskless_core.groups.effects import GroupState
from diskless_core.groups.records import GroupRecord, GroupsRecord
from diskless_core.groups.registry import GroupRegistry
from diskless_core.groups.settings import ConsumerTimes, ConsumerTimesOf, GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUPS
from diskless_core.groups.timers import GroupTimers
from diskless_core.groups.topics import TopicCatalog
from diskless_core.protocol import messages
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.names import uuid_text

FENCED_AGAIN_MS = 1_000
"""After the shard's store was too far behind for a member to be taken out."""

_logger = structlog.get_logger(__name__)


class ConsumerGroups:
    """Answers ConsumerGroupHeartbeat and ConsumerGroupDescribe, and fences members whose time is over."""

    def __init__(
        self,
        shard: GroupsShard,
        registry: GroupRegistry,
        clock: Clock,
        settings: GroupSettings,
        times_of: ConsumerTimesOf,
    ) -> None:
        self._shard = shard
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._times_of = times_of
        self._timers: Timers = GroupTimers(self._timer_ran_out)
        self._regexes_refreshed_ms: dict[str, int] = {}
        self._unheard: set[tuple[str, str]] = set()
        self._fencing: set[asyncio.Task[None]] = set()
        registry.on_term(self._follow_term)

    async def stop(self) -> None:
        """Fence nobody any more. Idempotent."""
        self._timers.cancel_all()
        tasks = list(self._fencing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- requests ------------------------------------------------------------------------------------------------

    async def heartbeat(
        self,
        message: messages.ConsumerGroupHeartbeatRequest,
        version: int,
        client_id: str | None,
        client_host: str,
        topics: TopicCatalog,
    ) -> messages.ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat 0 and 1. Answered once what it changes is committed to the shard."""
        request = wire.heartbeat_of(
            message,
            version,
            new_member_id=uuid_text(self._clock.new_uuid()),
            client_id=client_id or "",
            client_host=f"/{client_host}",
        )
        try:
            validate(request, version, self._settings.consumer_assignors)
            await self._registry.require_loaded()
            times = self._times_of(request.group_id)
            answer = await self._shard.submit(partial(self._beat, request, times, topics))
        except HeartbeatRefusedError as error:
            return wire.refused(error)
        except CoordinatorError as error:
            return wire.heartbeat_error(error.code, str(error))
        return wire.heartbeat_response(answer, times.heartbeat_interval_ms)

    def _beat(
        self, request: Heartbeat, times: ConsumerTimes, topics: TopicCatalog, command: Command[GroupsRecord]
    ) -> HeartbeatAnswer:
        group_id = request.group_id
        group = command.get(CONSUMER_GROUPS, (group_id,))
        if group is None:
            self._require_creatable(request)
        changes = GroupChanges(group_id, group)
        if request.leaves:
            answer = leave(changes, request)
        else:
            answer = heartbeat(changes, request, self._circumstances(changes, request, topics, command))
        if group is None and command.get(GROUPS, (group_id,)) is not None:
            command.emit(GroupRecord(group_id=group_id, value=None))
        self._carry_out(changes, command)
        if group is None:
            command.then(partial(self._registry.forget_if_empty, group_id))
        if not request.leaves:
            timeout_ms = times.session_timeout_ms
            command.then(partial(timers.start_session, self._timers, group_id, answer.member_id, timeout_ms))
        return answer

    def _require_creatable(self, request: Heartbeat) -> None:
        """A group begins with a member that joins, and only where no member of the classic protocol is."""
        classic = self._registry.find(request.group_id)
        if classic is not None and classic.state is not GroupState.EMPTY:
            message = f"Group {request.group_id} is not a consumer group."
            raise HeartbeatRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)
        if request.epoch != JOIN_EPOCH:
            message = f"Consumer group {request.group_id} not found."
            raise HeartbeatRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def _circumstances(
        self, changes: GroupChanges, request: Heartbeat, topics: TopicCatalog, command: Command[GroupsRecord]
    ) -> Circumstances:
        now_ms = command.now_ms
        refreshed_ms = self._regexes_refreshed_ms.get(changes.group_id)
        is_old = refreshed_ms is None or abs(now_ms - refreshed_ms) >= self._settings.consumer_regex_refresh_ms
        is_due = is_old and bool(changes.group.regexes)
        if is_due:
            command.then(partial(self._regexes_refreshed_ms.__setitem__, changes.group_id, now_ms))
        member = changes.group_id, request.member_id
        command.then(partial(self._unheard.discard, member))
        return Circumstances(
            topics=topics,
            now_ms=now_ms,
            max_size=self._settings.consumer_max_size,
            assignors=self._settings.consumer_assignors,
            refresh_regexes=is_due,
            may_have_missed=member in self._unheard,
        )

    def _carry_out(self, changes: GroupChanges, command: Command[GroupsRecord]) -> None:
        for record in changes.records:
            command.emit(record)
        command.then(partial(timers.follow, self._timers, changes.group_id, changes.group, changes.records))

    async def describe(
        self, group_id: str, topics: TopicCatalog, operations: Collection[int] | None
    ) -> wire.DescribedGroup:
        """What is committed of a group of this protocol: its part of ConsumerGroupDescribe 0 and 1."""
        try:
            await self._registry.require_loaded()
        except CoordinatorError as error:
            return wire.not_described(group_id, error.code)
        return self._describe(group_id, topics, operations)

    def _describe(self, group_id: str, topics: TopicCatalog, operations: Collection[int] | None) -> wire.DescribedGroup:
        if not group_id:
            return wire.not_described(group_id, ErrorCode.INVALID_GROUP_ID)
        group = self._shard.state.committed(CONSUMER_GROUPS, (group_id,))
        if group is not None:
            return wire.described(group_id, group, self._settings.consumer_assignors, topics, operations)
        is_classic = self._registry.find(group_id) is not None
        message = f"Group {group_id} is not a consumer group." if is_classic else f"Group {group_id} not found."
        return wire.not_described(group_id, ErrorCode.GROUP_ID_NOT_FOUND, message)

    # --- the other protocol --------------------------------------------------------------------------------------

    async def make_way(self, group_id: str) -> bool:
        """Let a group without members become one of the classic protocol; False when it has members.

        Raises:
            CoordinatorError: as the shard's `submit`.
        """
        return await self._shard.submit(partial(delete_if_empty, group_id))

    # --- timers --------------------------------------------------------------------------------------------------

    def _timer_ran_out(self, group_id: str, timer: MemberTimer) -> None:
        task = asyncio.create_task(self._fence(group_id, timer))
        self._fencing.add(task)
        task.add_done_callback(self._fencing.discard)

    async def _fence(self, group_id: str, timer: MemberTimer) -> None:
        try:
            if await self._shard.submit(partial(self._remove_failed, group_id, timer)):
                _logger.info("member fenced", group=group_id, member=timer.member_id, reason=f"{timer.kind} timeout")
        except StoreBehindError:
            # The term goes on, and nobody else would look after the member again.
            if not self._timers.is_running(group_id, timer):
                self._timers.set(group_id, timer, FENCED_AGAIN_MS)
        except CoordinatorError as error:
            # The term is over; members get their time anew with the next one.
            _logger.warning("a member could not be fenced", group=group_id, error=str(error))

    def _remove_failed(self, group_id: str, timer: MemberTimer, command: Command[GroupsRecord]) -> bool:
        group = command.get(CONSUMER_GROUPS, (group_id,))
        was_prolonged = self._timers.is_running(group_id, timer)
        if group is None or was_prolonged or not timers.has_failed(group, timer):
            return False
        changes = GroupChanges(group_id, group)
        changes.remove_member(timer.member_id)
        self._carry_out(changes, command)
        return True

    def _follow_term(self, term: int | None) -> None:
        self._timers.cancel_all()
        self._regexes_refreshed_ms.clear()
        self._unheard.clear()
        if term is None:
            return
        for (group_id,), group in self._shard.state.rows(CONSUMER_GROUPS):
            # The answer that an assignment was in may have ended with the term, and not all clients ask for it again.
            self._unheard.update((group_id, member_id) for member_id in group.members)
            timers.restart(self._timers, group_id, group, self._times_of(group_id).session_timeout_ms)


def delete_if_empty(group_id: str, command: Command[GroupsRecord]) -> bool:
    """Emit the deletion of a group of the consumer protocol, if there is one; False when it has members."""
    group = command.get(CONSUMER_GROUPS, (group_id,))
    if group is not None and group.members:
        return False
    for record in tombstones(group_id, group) if group is not None else ():
        command.emit(record)
    return True
