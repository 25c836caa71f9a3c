"""The groups of the shard while this node leads it: loads and drops them with the term, carries out their effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import WeakSet

import structlog

from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError, StoreBehindError
from diskless_core.coordinator.state_machine import Command
from diskless_core.groups.classic import ClassicGroup
from diskless_core.groups.consumer.model import ConsumerGroup
from diskless_core.groups.effects import (
    Answered,
    CancelTimer,
    GroupState,
    JoinAnswer,
    Moved,
    Persist,
    SetTimer,
    SyncAnswer,
    Timer,
)
from diskless_core.groups.model import PersistedGroup
from diskless_core.groups.offsets import OffsetIndex
from diskless_core.groups.records import GroupRecord, GroupsRecord
from diskless_core.groups.settings import GroupSettings
from diskless_core.groups.shard import GroupsShard
from diskless_core.groups.tables import CONSUMER_GROUPS, GROUP_OFFSETS, GROUPS
from diskless_core.groups.timers import GroupTimers
from diskless_core.protocol.errors import ErrorCode

_logger = structlog.get_logger(__name__)


class GroupRegistry:
    """Classic groups and offsets of one shard.

    What groups have in memory is worth something only within one term: when leadership is lost, everybody who waits
    is sent to look for the coordinator, and what the shard knows is loaded again when leadership comes back.

    Attributes:
        offsets: all committed offsets.
    """

    def __init__(self, shard: GroupsShard, settings: GroupSettings) -> None:
        self.offsets = OffsetIndex()
        self._shard = shard
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}
        self._timers: GroupTimers[Timer] = GroupTimers(self._timer_ran_out)
        self._term_listeners: list[Callable[[int | None], None]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._request_ids = count(1)
        self._dropped: WeakSet[ClassicGroup] = WeakSet()
        self._term: int | None = None
        self._follower: asyncio.Task[None] | None = None
        self._writes: set[asyncio.Task[None]] = set()
        shard.on_commit(self.offsets.apply)

    def on_term(self, listener: Callable[[int | None], None]) -> None:
        """Call `listener` with the term that begins, right after its groups are loaded; None when there is none."""
        self._term_listeners.append(listener)

    async def start(self) -> None:
        """Load the groups, now or whenever this node leads."""
        self._follow(self._shard.term)
        self._follower = asyncio.create_task(self._follow_terms(), name=f"{self._shard.id} groups")

    async def stop(self) -> None:
        """Send everybody away. Idempotent."""
        tasks = [*self._writes, *([self._follower] if self._follower is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._follow(None)

    # --- groups --------------------------------------------------------------------------------------------------

    @property
    def is_loaded(self) -> bool:
        """Whether the groups can be asked."""
        return self._term is not None and self._term == self._shard.term

    async def require_loaded(self) -> None:
        """Return at once if the groups can be asked; the caller must not suspend before it asks them.

        Raises:
            NotCoordinatorError: this node does not lead the shard.
            CoordinatorLoadingError: it does or will, but the groups are not there yet.
        """
        if not self.is_loaded:
            await self._shard.submit(_nothing)
            raise CoordinatorLoadingError("the groups are being loaded")

    def find_consumer(self, group_id: str) -> ConsumerGroup | None:
        """A group of the consumer protocol, as it will be when everything pending has committed."""
        return self._shard.state.get(CONSUMER_GROUPS, (group_id,))

    def find(self, group_id: str) -> ClassicGroup | None:
        """A group of the classic protocol, or one that exists only by its offsets."""
        if self.find_consumer(group_id) is not None:
            return None
        if group_id not in self._groups and group_id in self.offsets:
            return ClassicGroup(group_id, self._settings)
        return self._groups.get(group_id)

    def find_or_create(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def forget_if_idle(self, group_id: str) -> None:
        """Drop a group from memory if nobody is in it or expected."""
        group = self._groups.get(group_id)
        if group is not None and is_idle(group):
            self._forget(group)

    def forget_if_empty(self, group_id: str) -> None:
        """Drop a group from memory if nobody is in it. Who was given an id for it will be a stranger."""
        group = self._groups.get(group_id)
        if group is not None and group.state is GroupState.EMPTY:
            self._forget(group)

    def _forget(self, group: ClassicGroup) -> None:
        del self._groups[group.group_id]
        group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.perform(group)

    def __iter__(self) -> Iterator[str]:
        """The ids of all groups."""
        consumers = {key[0] for key in self._shard.state.keys(CONSUMER_GROUPS, ())}
        return iter({*self._groups, *self.offsets, *consumers})

    # --- events and effects --------------------------------------------------------------------------------------

    async def ask(self, group: ClassicGroup, event: Callable[[int], None]) -> Any:
        """Put a request to a group and wait for its answer. `event` gets the request's id."""
        request_id = next(self._request_ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = future
        try:
            event(request_id)
            self.perform(group)
            return await future
        finally:
            self._waiting.pop(request_id, None)

    def perform(self, group: ClassicGroup) -> None:
        """Carry out what an event left to do. To be called after each event."""
        for effect in group.take_effects():
            match effect:
                case Answered(request_id, answer):
                    self._answer(request_id, answer)
                case Persist():
                    self._spawn(self._persist(group, effect))
                case SetTimer(timer, delay_ms):
                    self._timers.set(group.group_id, timer, delay_ms)
                case CancelTimer(timer):
                    self._timers.cancel(group.group_id, timer)
                case Moved(state, generation, reason):
                    _logger.info("group", group=group.group_id, state=state, generation=generation, reason=reason)

    def _answer(self, request_id: int, answer: JoinAnswer | SyncAnswer) -> None:
        future = self._waiting.pop(request_id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def _timer_ran_out(self, group_id: str, timer: Timer) -> None:
        group = self._groups[group_id]
        group.expired(timer)
        self.perform(group)

    def _spawn(self, write: Coroutine[Any, Any, None]) -> None:
        # Tasks begin in the order of their creation, and a write takes its place in the log as soon as it begins.
        task = asyncio.create_task(write)
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)

    async def _persist(self, group: ClassicGroup, effect: Persist) -> None:
        def write(command: Command[GroupsRecord]) -> None:
            if group in self._dropped:
                return  # a write before this one was refused
            if command.get(CONSUMER_GROUPS, (group.group_id,)) is not None:
                return  # the group was empty, and has become one of the other protocol since
            value = replace(effect.group, state_timestamp_ms=command.now_ms)
            command.emit(GroupRecord(group_id=group.group_id, value=value))

        try:
            await self._shard.submit(write)
        except StoreBehindError as error:
            _logger.warning("a group could not be stored, and is read again", group=group.group_id, error=str(error))
            self._read_again(group)
            return
        except CoordinatorError as error:
            # The term is over with it, and with the term this group: see `_follow`.
            _logger.warning("a group could not be stored", group=group.group_id, error=str(error))
            return
        group.persisted(effect.token)
        self.perform(group)

    def _read_again(self, group: ClassicGroup) -> None:
        """Go on with a group as it is written down: who waits is told to try again, others find out by their next
        request."""
        self._dropped.add(group)
        if self._groups.get(group.group_id) is not group:
            return
        group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.perform(group)
        del self._groups[group.group_id]
        persisted = self._shard.state.get(GROUPS, (group.group_id,))
        if persisted is not None:
            self._restore(group.group_id, persisted)

    # --- terms ---------------------------------------------------------------------------------------------------

    async def _follow_terms(self) -> None:
        while True:
            self._follow(await self._shard.until_term_changes(self._term))

    def _follow(self, term: int | None) -> None:
        for group in self._groups.values():
            group.close(ErrorCode.NOT_COORDINATOR)
            self.perform(group)
        self._groups = {}
        self._term = term
        if term is not None:
            self._load()
        for listener in self._term_listeners:
            listener(term)

    def _load(self) -> None:
        self.offsets.reset(self._shard.state.rows(GROUP_OFFSETS))
        for key, persisted in self._shard.state.rows(GROUPS):
            self._restore(str(key[0]), persisted)
        _logger.info("groups are loaded", shard=str(self._shard.id), groups=len(list(self)))

    def _restore(self, group_id: str, persisted: PersistedGroup) -> None:
        group = self._groups[group_id] = ClassicGroup.restored(group_id, persisted, self._settings)
        self.perform(group)


def is_idle(group: ClassicGroup | None) -> bool:
    """Whether nobody is in a group, and nobody was given an id to come back with."""
    return group is None or (group.state is GroupState.EMPTY and not group.roster.expected)


def _nothing(_: Command[GroupsRecord]) -> None:
    """Only to hear from the shard why it can't be asked."""
