"""What Diskless coordinators have to do once the cluster shard has decided about a topic, done until it is done.

A topic that was created, got partitions or was removed has a row in the cluster shard's tables `UNSETTLED` and
`REMOVED` until all its coordinators have followed; then a TopicSettled takes the row away. So the controller knows what
is left without asking anybody, and its successor knows it too. A topic's steps are independent of each other: one for
each coordinator that is concerned, and one for whoever is told of deletions. What fails is tried again with pauses that
grow, for all topics of that coordinator together: a coordinator without a leader holds up nothing but its own part.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import structlog

from diskless_core import shards
from diskless_core.background import end
from diskless_core.clock import Clock
from diskless_core.cluster import operations, topic_steps
from diskless_core.cluster.shard import ClusterShard
from diskless_core.cluster.tables import TOPICS, RemovedTopic
from diskless_core.cluster.topic_steps import LISTENERS, TopicSteps
from diskless_core.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutcomeUnknownError,
)
from diskless_core.coordinator.tables import Writes
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.retrying import Backoff
from diskless_core.side_by_side import side_by_side

RETRY = Backoff(first_ms=500, max_ms=1_000)
"""After a coordinator gave no answer, until it is asked about one topic again. If that works, the others follow."""

MOVING_S = 10.0
"""How long a client waits for a coordinator whose leader is changing, before it is told that a step failed."""

WHILE_MOVING = Backoff(first_ms=50, max_ms=1_000)
"""Until such a coordinator is asked again."""

RETRIES_AT_ONCE = 32
"""Topics that one coordinator is asked about at the same time, besides those that clients wait for."""

SETTLED_AT_ONCE = 1000
"""Topics that one command notes as settled, at most."""

START_S = 5.0
"""How long a start waits for topics that were left in the middle of a change."""

_SLICE = 1000
"""Rows that are looked at before others have their turn."""

_LEFT_TO_THE_NEXT = "it is decided, but this node leads the cluster's shard no more: the next leader does the rest"

DeletionListener = Callable[[Collection[uuid.UUID], Collection[str]], Awaitable[None]]
"""Told of the ids and the names of topics that are gone."""

Having = Callable[[Collection[DisklessShard]], AbstractAsyncContextManager[None]]
"""Has copies of shards that have caught up, as long as it lasts. It raises CoordinatorError where it cannot."""

_log = structlog.get_logger(__name__)


def as_they_are(_: Collection[DisklessShard]) -> AbstractAsyncContextManager[None]:
    """Where a node has copies of all shards."""
    return nullcontext()


@dataclass(slots=True, eq=False)
class _Work:
    """The steps of one topic, and who waits until none is left, or until one fails.

    Attributes:
        failures: of the steps that are to be tried again, why.
    """

    steps: TopicSteps
    waiters: list[asyncio.Future[None]] = field(default_factory=list)
    failures: dict[int, Exception] = field(default_factory=dict)

    def tell(self, error: Exception | None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(None)
            else:
                waiter.set_exception(error)
        self.waiters.clear()


class TopicSettling:
    """The topics that are not settled, while this node leads the cluster shard."""

    def __init__(
        self,
        cluster: ClusterShard,
        replicas: Mapping[int, DisklessShard],
        coordinators: Mapping[int, DisklessCoordinator],
        tell_of_deletions: DeletionListener,
        clock: Clock,
        having: Having = as_they_are,
    ) -> None:
        self._having = having
        self._cluster = cluster
        self._replicas = replicas
        self._coordinators = coordinators
        self._tell_of_deletions = tell_of_deletions
        self._clock = clock
        self._work: dict[bytes, _Work] = {}
        self._under_way: set[tuple[bytes, int]] = set()
        self._late: dict[int, dict[bytes, None]] = {}
        self._retries: dict[int, asyncio.Task[None]] = {}
        self._done: dict[bytes, int] = {}
        self._noting: asyncio.Task[None] | None = None
        self._first_attempts: set[asyncio.Task[bool]] = set()
        self._first_look: asyncio.Task[None] | None = None
        self._follower: asyncio.Task[None] | None = None
        self._strays: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        cluster.on_commit(self._committed)

    async def start(self) -> None:
        """Do what is left while this node leads the cluster shard: now, and whenever it comes to lead it.

        It is done when this returns, or goes on: a coordinator that another node leads may not be reached yet.
        """
        term = self._cluster.term
        if term is not None:
            self._first_look = asyncio.create_task(self._until_settled(), name="topics left at start")
            await asyncio.wait([self._first_look], timeout=START_S)
        self._follower = asyncio.create_task(self._follow_terms(term), name="topics")

    async def stop(self) -> None:
        """End what goes on in the background."""
        tasks = [
            self._first_look,
            self._follower,
            self._strays,
            self._noting,
            *self._retries.values(),
            *self._first_attempts,
        ]
        await end([task for task in tasks if task is not None])
        for topic_id in list(self._work):
            self._drop(topic_id)

    async def settled(self, topic_id: uuid.UUID) -> None:
        """Wait until nothing is left to do for a topic about which the cluster shard has decided.

        Raises:
            CoordinatorError: a step failed. It is tried again, here or at the next controller, whoever asks.
        """
        key = topic_id.bytes
        work = self._work.get(key)
        if work is not None:
            for failure in work.failures.values():
                raise failure
            waiter = asyncio.get_running_loop().create_future()
            work.waiters.append(waiter)
            await waiter
        elif self._is_left(key):
            raise OutcomeUnknownError(_LEFT_TO_THE_NEXT)

    def _is_left(self, key: bytes) -> bool:
        """Whether a topic is neither settled nor known to be, and nothing is done about that here."""
        state = self._cluster.state
        is_done = self._done.get(key) == topic_steps.partition_count(state, key)
        return not is_done and topic_steps.is_unsettled(state, key)

    # --- what there is to do -------------------------------------------------------------------------------------

    def _committed(self, writes: Writes) -> None:
        if not self._cluster.leading:
            return  # whoever leads begins with what is unsettled then
        for topic_id, steps in topic_steps.newly_decided(self._cluster.state, writes):
            self._take_up(topic_id, steps)
            for step in steps.left:
                until_s = self._clock.monotonic() + MOVING_S
                attempt = asyncio.create_task(self._attempt(step, topic_id, until_s), name="topic")
                self._first_attempts.add(attempt)
                attempt.add_done_callback(self._first_attempts.discard)

    async def _follow_terms(self, term: int | None) -> None:
        while True:
            term = await self._cluster.until_term_changes(term)
            if term is not None:
                await self._take_over()

    async def _take_over(self) -> None:
        """Take up what is unsettled. What an earlier term of this node left behind is among it, or is settled."""
        if self._strays is not None:
            self._strays.cancel()
        state = self._cluster.state
        for topic_id in [one for one in self._work if not topic_steps.is_unsettled(state, one)]:
            self._drop(topic_id)
        for topic_id, steps in topic_steps.all_unsettled(state):
            self._attempt_later(topic_id, steps)
        try:
            await self._take_up_strays()
        except CoordinatorError as error:
            _log.info("not looked for partitions of topics that are gone: the next controller does", reason=str(error))

    async def _until_settled(self) -> None:
        await self._take_over()
        await self._idle.wait()

    async def _take_up_strays(self) -> None:
        """Delete partitions of topics that are gone: a coordinator can be late to carry out what was given up long ago.

        Those of which there is no copy in time are looked into later.

        Raises:
            CoordinatorError: this node may not lead the cluster shard any more.
        """
        behind = await self._strays_taken_up(list(self._replicas))
        if behind:
            self._strays = asyncio.create_task(self._take_up_strays_later(behind), name="partitions of no topic")

    async def _take_up_strays_later(self, indexes: Sequence[int]) -> None:
        term, failures = self._cluster.term, 0
        while indexes:
            failures += 1
            await asyncio.sleep(RETRY.pause_s(failures, self._clock))
            if self._cluster.term is None or self._cluster.term != term:
                return  # the next controller looks
            try:
                indexes = await self._strays_taken_up(indexes)
            except CoordinatorError as error:
                _log.info("partitions of topics that are gone are looked for again", reason=str(error))

    async def _strays_taken_up(self, indexes: Sequence[int]) -> list[int]:
        """Look into coordinators; returns those that have to be looked into again."""
        known: dict[bytes, tuple[str, list[int]]] = {}
        behind: list[int] = []
        for index in indexes:
            replica = self._replicas[index]
            try:
                async with self._having([replica]):
                    for number, (topic_id, name) in enumerate(replica.topics()):
                        if number % _SLICE == _SLICE - 1:
                            await asyncio.sleep(0)
                        if self._cluster.state.committed(TOPICS, (topic_id.bytes,)) is None:
                            known.setdefault(topic_id.bytes, (name, []))[1].append(index)
            except CoordinatorError as error:
                _log.info("partitions of topics that are gone are looked for later", of=_of(index), reason=str(error))
                behind.append(index)
        if not known:
            return behind
        await self._cluster.barrier()  # all of these were created before: what the cluster shard lacks now, it removed
        for key, (name, owners) in known.items():
            work = self._work.get(key)
            if work is not None:
                behind += [index for index in owners if index not in work.steps.left and index not in behind]
            elif self._cluster.state.committed(TOPICS, (key,)) is None:
                self._attempt_later(key, topic_steps.deletion(RemovedTopic(name, tuple(owners))))
        return behind

    def _take_up(self, topic_id: bytes, steps: TopicSteps) -> None:
        self._idle.clear()
        work = self._work.get(topic_id)
        if work is None:
            self._work[topic_id] = _Work(steps)
        else:
            work.steps = steps
            work.failures.clear()

    def _attempt_later(self, topic_id: bytes, steps: TopicSteps) -> None:
        self._take_up(topic_id, steps)
        for step in steps.left:
            self._retry(step, topic_id, None)

    def _drop(self, topic_id: bytes) -> None:
        work = self._work.pop(topic_id, None)
        if work is not None:
            work.tell(OutcomeUnknownError(_LEFT_TO_THE_NEXT))
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._work:
            self._idle.set()

    # --- doing it ------------------------------------------------------------------------------------------------

    def _retry(self, step: int, topic_id: bytes, error: Exception | None) -> None:
        self._late.setdefault(step, {})[topic_id] = None
        running = self._retries.get(step)
        if running is not None and not running.done():
            return
        if error is not None:  # the first one of many: the operator is told once
            _log.warning("topics are not up to date yet; it is tried until they are", of=_of(step), error=str(error))
        retrying = self._retry_until_done(step, failures=0 if error is None else 1)
        self._retries[step] = asyncio.create_task(retrying, name="topics left")

    async def _retry_until_done(self, step: int, failures: int) -> None:
        """Ask about one topic until there is an answer, then about all the others."""
        late = self._late[step]
        while late:
            if failures:
                await asyncio.sleep(RETRY.pause_s(failures, self._clock))
            try:
                await self._cluster.barrier()
            except CoordinatorError:
                if not self._cluster.leading:
                    break
                failures += 1
                continue
            first = next(iter(late), None)
            if first is not None and not await self._attempt(step, first):
                failures += 1
                continue
            await side_by_side(partial(self._attempt, step), list(late), RETRIES_AT_ONCE)
            failures = 1
        else:
            _log.info("topics are up to date", of=_of(step))
        for topic_id in late:
            self._drop(topic_id)
        late.clear()

    async def _attempt(self, step: int, topic_id: bytes, patient_until_s: float = 0.0) -> bool:
        """Do a step of a topic, unless it is done or being done. False when it failed; then it is tried again."""
        self._late.get(step, {}).pop(topic_id, None)
        if (topic_id, step) in self._under_way:
            return True
        self._under_way.add((topic_id, step))
        try:
            while (work := self._work.get(topic_id)) is not None and step in work.steps.left:
                steps = work.steps
                work.failures.pop(step, None)
                await self._do_patiently(step, topic_id, steps, patient_until_s)
                steps.left.pop(step)  # others are in their place if more was decided meanwhile
        except Exception as error:
            self._failed(step, topic_id, error)
            return False
        finally:
            self._under_way.discard((topic_id, step))
        if work is not None and not work.steps.left:
            self._finish(topic_id, work)
        return True

    async def _do_patiently(self, step: int, topic_id: bytes, steps: TopicSteps, until_s: float) -> None:
        """Do a step once its coordinator has a leader, if it has one by `until_s`.

        A leader that was replaced in the middle may have done it: done again, it changes nothing.
        """
        failures = 0
        while True:
            try:
                return await self._do(step, topic_id, steps)
            except (CoordinatorLoadingError, NotCoordinatorError, OutcomeUnknownError):
                failures += 1
                pause_s = WHILE_MOVING.pause_s(failures, self._clock)
                if not self._cluster.leading or self._clock.monotonic() + pause_s > until_s:
                    raise
                await asyncio.sleep(pause_s)

    async def _do(self, step: int, topic_id: bytes, steps: TopicSteps) -> None:
        topic = uuid.UUID(bytes=topic_id)
        if step == LISTENERS:
            await self._tell_of_deletions([topic], [steps.name])
        elif steps.partition_count == 0:
            await self._coordinators[step].delete_topic(topic)
        else:
            replica, partitions = self._replicas[step], steps.left[step]
            missing = [one for one in partitions if replica.head(PartitionKey(topic_id, one)) is None]
            if missing:
                await self._coordinators[step].create_partitions(topic, steps.name, missing)

    def _failed(self, step: int, topic_id: bytes, error: Exception) -> None:
        work = self._work.get(topic_id)
        if work is None:
            return
        if not isinstance(error, CoordinatorError):
            _log.error("a defect of the broker: topics are not up to date", of=_of(step), exc_info=error)
        work.failures[step] = error
        work.tell(error)
        if self._cluster.leading:
            self._retry(step, topic_id, error)
        else:
            self._drop(topic_id)

    # --- noting that it is done ----------------------------------------------------------------------------------

    def _finish(self, topic_id: bytes, work: _Work) -> None:
        if self._work.get(topic_id) is not work:
            return
        del self._work[topic_id]
        work.tell(None)
        self._note_idle()
        self._done[topic_id] = work.steps.partition_count
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note_done(), name="settled topics")

    async def _note_done(self) -> None:
        """Let the cluster shard know. If it cannot, the next controller asks those coordinators in vain."""
        failures = 0
        while self._done:
            some = dict(list(self._done.items())[:SETTLED_AT_ONCE])
            try:
                await self._cluster.submit(partial(operations.settle_topics, settled=some))
            except CoordinatorError:
                if not self._cluster.leading:
                    self._done.clear()
                    return
                failures += 1
                await asyncio.sleep(RETRY.pause_s(failures, self._clock))
                continue
            failures = 0
            for topic_id, partition_count in some.items():
                if self._done.get(topic_id) == partition_count:
                    del self._done[topic_id]


def _of(step: int) -> str:
    return "listeners" if step == LISTENERS else f"{shards.DISKLESS.shard(step)}"
