"""What librdkafka's clients and their threads do for one broker, as seen from its event loop, on a modelled Kafka.

Whatever a broker would have to do by itself waits while its process is frozen; what it has sent goes on without it.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from diskless_core.plugin.coordinator_log import CoordinatorLogError, LogBounds, LogOffsetPrunedError
from diskless_core.plugin.kafka_client import KafkaClientError, failure
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_producer import DeliveryReport
from diskless_kafka.log_reader import Delivery, Place, ReadMessage
from diskless_kafka.log_topics import topic_name
from diskless_kafka.nominations import Nomination, OnCommit
from tests.simulation.modelled_kafka import Group, GroupMember, ModelledKafka, Partition
from tests.simulation.processes import later_outside

SEND_S = 0.001
MOST_AT_ONCE = 500
MOST_IN_FLIGHT = 5
_RESEND_S = 0.1
_READ_ERRORS = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED)


@dataclass(slots=True, eq=False)
class _Message:
    place: Place
    value: bytes
    own_key: bytes

    def key(self) -> bytes:
        """As of confluent-kafka's."""
        return self.own_key


class ModelledProducer:
    """An idempotent producer: what it sends lands once and in order, or not at all, and perhaps after it gave up.

    `on_error` hears of what was not known to be written in time.
    """

    def __init__(self, kafka: ModelledKafka, timeout_s: float, on_error: DeliveryReport) -> None:
        self.client = self
        self._kafka = kafka
        self._timeout_s = timeout_s
        self._on_error = on_error
        self._queue: deque[_Message] = deque()
        self._sent: deque[_Message] = deque()
        self._process = contextvars.copy_context()
        self._is_travelling = False
        self._is_closed = False
        self._is_broken = False

    def produce(self, topic: str, value: bytes, *, key: bytes, partition: int) -> None:
        """As confluent-kafka's."""
        message = _Message((topic, partition), value, key)
        self._queue.append(message)
        loop = asyncio.get_running_loop()
        loop.call_later(SEND_S, self._send)
        loop.call_later(self._timeout_s, self._give_up, message)

    def close(self) -> None:
        """Send nothing more. What is on its way may land."""
        self._is_closed = True
        self._queue.clear()

    def _send(self) -> None:
        """In the broker's process."""
        while self._queue and len(self._sent) < MOST_IN_FLIGHT:
            self._sent.append(self._queue.popleft())
        self._go_on()

    def _go_on(self) -> None:
        """Outside: the first of what was sent is on its way."""
        if not self._sent or self._is_travelling:
            return
        self._is_travelling = True
        kafka, delay_s = self._kafka, self._kafka.delay_s()
        if kafka.fails():
            if kafka.random.random() < 0.3:
                self._is_broken = True  # nothing after what was lost for good is taken
            delay_s = kafka.random.uniform(0.1, 2.5 * self._timeout_s)
        later_outside(delay_s, self._arrive)

    def _arrive(self) -> None:
        message = self._sent[0]
        if not self._is_broken:
            self._kafka.append(message.place, message.own_key, message.value, self._landed)

    def _landed(self, stayed: bool) -> None:
        """The first that was sent is committed, or was lost with a leader and is sent again."""
        if not stayed:
            if not self._is_closed:
                later_outside(_RESEND_S, self._arrive)
            return
        self._sent.popleft()
        self._is_travelling = False
        self._go_on()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._send, context=self._process)

    def _give_up(self, message: _Message) -> None:
        """In the broker's process: the delivery has taken too long."""
        if not self._is_closed and (message in self._queue or message in self._sent):
            self._on_error(KafkaError(KafkaError._MSG_TIMED_OUT), message)  # type: ignore[arg-type]


class ModelledReader:
    """The thread that follows the ends of partitions, in the place of `LogReader`."""

    def __init__(self, kafka: ModelledKafka, node_id: int, deliver: Delivery) -> None:
        self._kafka = kafka
        self._node_id = node_id
        self._deliver = deliver
        self._positions: dict[Place, int] = {}
        self._following: dict[Place, asyncio.Task[None]] = {}

    def follow(self, place: Place, offset: int, begin: Callable[[], None]) -> Future[None]:
        """As the real one's."""
        followed: Future[None] = Future()

        def assign() -> None:
            self._positions[place] = offset
            if place in self._following:
                self._following[place].cancel()
            work = self._read(place, self._kafka.partition(place))
            self._following[place] = asyncio.get_running_loop().create_task(work, name=f"reader of {place}")
            followed.set_result(None)
            begin()

        asyncio.get_running_loop().call_later(self._kafka.delay_s(), assign)
        return followed

    def unfollow(self, place: Place) -> None:
        """As the real one's."""

        following = self._following.get(place)

        def unassign() -> None:
            if following is not None and self._following.get(place) is following:
                self._following.pop(place).cancel()

        asyncio.get_running_loop().call_later(self._kafka.delay_s(), unassign)

    async def stop(self) -> None:
        for task in self._following.values():
            task.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)

    async def _read(self, place: Place, partition: Partition) -> None:
        while True:
            while self._node_id in self._kafka.paused:
                await self._kafka.resumed.wait()
            offset, changed = self._positions[place], partition.changed
            if offset < partition.start:
                self._deliver({}, {place: failure(KafkaError(KafkaError._AUTO_OFFSET_RESET))})
                self._positions[place] = partition.start
                continue
            if partition.high_watermark <= offset:
                await changed.wait()
                await asyncio.sleep(self._kafka.delay_s())
                continue
            if self._kafka.random.random() < self._kafka.error_rate / 4:
                error = KafkaError(self._kafka.random.choice(_READ_ERRORS))
                self._deliver({}, {place: failure(error)})
                await asyncio.sleep(self._kafka.delay_s())
                continue
            read = partition.read(offset, MOST_AT_ONCE)
            self._positions[place] = read[-1].next_offset
            self._deliver({place: read}, {})
            await asyncio.sleep(0)


class ModelledHistory:
    """In the place of `LogHistory`."""

    def __init__(self, kafka: ModelledKafka, node_id: int, place: Place, offset: int) -> None:
        self._kafka = kafka
        self._node_id = node_id
        self._place = place
        self._offset = offset

    def read(self) -> Sequence[ReadMessage]:
        """As the real one's, at once."""
        if self._node_id in self._kafka.paused:
            return ()
        partition = self._kafka.partition(self._place)
        if self._kafka.fails():
            raise CoordinatorLogError(f"{self._place} cannot be read: the connection was lost")
        if self._offset < partition.start:
            raise LogOffsetPrunedError(f"{self._place} does not have what lies behind offset {self._offset}")
        found = partition.read(self._offset, MOST_AT_ONCE)
        if found:
            self._offset = found[-1].next_offset
        return found


class ModelledTopics:
    """In the place of `LogTopics`: every topic is there, and as it has to be."""

    def __init__(self, kafka: ModelledKafka, prefix: str) -> None:
        self._kafka = kafka
        self._prefix = prefix

    def ensure(self, shard: ShardId) -> None:
        """It is there."""

    def is_there(self, shard: ShardId) -> bool:
        """It is there."""
        return True

    def verify(self, shard: ShardId) -> None:
        """It is still the same."""

    def bounds(self, shard: ShardId) -> LogBounds:
        partition = self._partition(shard)
        return LogBounds(min(partition.start, partition.known_watermark), partition.known_watermark)

    def prune(self, shard: ShardId, before: int) -> int:
        return self._partition(shard).delete_records(before)

    def _partition(self, shard: ShardId) -> Partition:
        return self._kafka.partition((topic_name(shard, self._prefix), shard.index))


class ModelledMember:
    """A consumer that is a member of the group of one partition, as `Nomination` uses one."""

    def __init__(
        self,
        kafka: ModelledKafka,
        place: Place,
        name: str,
        session_s: float,
        now_s: Callable[[], float],
        told: OnCommit,
    ) -> None:
        self._kafka = kafka
        self._place = place
        self._member = GroupMember(name, session_s)
        self._now_s = now_s
        self._told = told
        self._listens: Mapping[str, Callable[..., None]] | None = None
        self._is_assigned = False
        self._moves = 0
        self._commits: deque[tuple[KafkaError | None, list[TopicPartition]]] = deque()

    @property
    def _group(self) -> Group:
        return self._kafka.group(self._place)

    def subscribe(self, topics: Sequence[str], **listeners: Callable[..., None]) -> None:
        del topics
        self._listens = listeners

    def unsubscribe(self) -> None:
        self._group.leave(self._member)
        self._change_assignment(False, "on_revoke")
        self._listens = None

    def poll(self, timeout: float) -> None:
        """A heartbeat, and what became of commits."""
        del timeout
        if self._listens is not None:
            self._group.join(self._member, self._now_s())
            if self._moves != self._group.moves:
                self._moves = self._group.moves
                self._change_assignment(False, "on_lost")
                self._change_assignment(self._group.assigned is self._member, "on_assign")
        while self._commits:
            self._told(*self._commits.popleft())

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        del timeout
        found = self._group.committed
        (one,) = partitions
        if found is None:
            return [TopicPartition(one.topic, one.partition)]
        return [TopicPartition(one.topic, one.partition, found[0], found[1])]

    def commit(self, *, offsets: Sequence[TopicPartition], asynchronous: bool) -> None:
        del asynchronous
        (one,) = offsets
        is_lost = self._kafka.fails()
        taken = not (is_lost and self._kafka.random.random() < 0.5) and self._group.commit(
            self._member, one.offset, one.metadata or ""
        )
        error = None if taken and not is_lost else KafkaError(KafkaError.ILLEGAL_GENERATION)
        self._commits.append((error, list(offsets)))

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        del timeout
        found = self._kafka.partition((partition.topic, partition.partition))
        return found.start, found.high_watermark

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is consumed."""

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is consumed."""

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing is consumed."""

    def close(self) -> None:
        self._group.leave(self._member)

    def _change_assignment(self, is_assigned: bool, listener: str) -> None:
        if is_assigned != self._is_assigned and self._listens is not None:
            self._is_assigned = is_assigned
            self._listens[listener](self, [TopicPartition(*self._place)])


class SteppedNomination(Nomination):
    """A nomination whose thread is a task that takes a step now and then."""

    def __init__(self, *arguments: Any, step_s: float) -> None:
        super().__init__(*arguments)
        self._step_s = step_s
        self._stepping = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._consumer: Any = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._take_steps(), name=f"nomination {self}")

    def stop(self) -> None:
        with self._stepping:
            self._stopping.set()
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                self._withdraw(consumer)
                consumer.close()

    async def _take_steps(self) -> None:
        while not self._stopping.is_set():
            with self._stepping, suppress(KafkaClientError):
                if self._consumer is None and not self._stopping.is_set():
                    self._consumer = self._prepared()
                if self._consumer is not None:
                    self._step(self._consumer)
            await asyncio.sleep(self._step_s)
