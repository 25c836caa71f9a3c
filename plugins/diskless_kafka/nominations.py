"""Who should lead a shard: the member of a consumer group that has the shard's partition.

The node that is assigned the partition commits an offset for it: the next *generation*, with its node id as the
offset's metadata. Kafka takes that only from a member of the group's current generation, so the committed offset is
a register that all nodes read, and that outlives them. Nothing is consumed: the partitions stay paused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from diskless_core.plugin import kafka_client
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.kafka_client import KafkaClientError
from diskless_kafka.log_reader import Place

_POLL_S = 0.1
_ANSWER_S = 3.0
_WITHDRAW_S = 2.0
_RETRY_S = 1.0

logger = logging.getLogger(__name__)


OnCommit = Callable[[KafkaError | None, Sequence[TopicPartition]], None]
OpenMember = Callable[[OnCommit], Consumer]


class Nomination:
    """One node's part in the group of one shard, on a thread of its own.

    Args:
        prepare: sees that the topic is there; raises CoordinatorLogError.
        open_member: makes a consumer as `kafka_client.open_member` does, with this `on_commit`.
        tell: called on the thread with each new hint.
    """

    def __init__(
        self,
        prepare: Callable[[], None],
        open_member: OpenMember,
        place: Place,
        node_id: int,
        tell: Callable[[LeadershipHint], None],
    ) -> None:
        self._prepare = prepare
        self._open_member = open_member
        self._place = place
        self._node_id = node_id
        self._tell = tell
        self._is_candidate = False
        self._is_standing = False
        self._is_assigned = False
        self._announcing: int | None = None
        self._announced: int | None = None
        self._hint = LeadershipHint(None, generation=0)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"nomination-{self}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Leave the group. Blocks. Idempotent."""
        self._stopping.set()
        self._thread.join()

    def stand(self, *, candidate: bool) -> None:
        """Say whether this node may be nominated. Any thread."""
        self._is_candidate = candidate

    def __str__(self) -> str:
        return "-".join(map(str, self._place))

    # --- the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        consumer = self._prepared()
        if consumer is None:
            return
        try:
            while not self._stopping.is_set():
                self._step(consumer)
            self._withdraw(consumer)
        except Exception:
            logger.exception("Nominations for %s have ended", self)
        finally:
            consumer.close()

    def _prepared(self) -> Consumer | None:
        """A consumer, once the topic is there; None if that is stopped for."""
        while not self._stopping.is_set():
            try:
                self._prepare()
                return self._open_member(self._committed)
            except (CoordinatorLogError, KafkaClientError, OSError) as error:
                logger.warning("Nobody can be nominated for %s, it is tried again: %s", self, error)
            self._stopping.wait(_RETRY_S)
        return None

    def _step(self, consumer: Consumer) -> None:
        if self._is_candidate and not self._is_standing:
            self._is_standing = True
            topic, _ = self._place
            consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        elif self._is_standing and not self._is_candidate:
            self._withdraw(consumer)
            self._is_standing = False
            consumer.unsubscribe()
        consumer.poll(_POLL_S)
        try:
            self._look(consumer)
        except KafkaClientError as error:
            logger.debug("It is not known at the moment who was nominated for %s: %s", self, error)

    def _look(self, consumer: Consumer) -> None:
        """Read the register; enter this node if it was assigned the partition; say what has changed."""
        registered = self._registered(consumer)
        if self._is_assigned and self._announced is None and self._announcing is None:
            self._announce(consumer, self._node_id, self._next_generation(consumer, registered))
        if self._announced is not None and self._is_assigned and self._announced >= registered.generation:
            self._say(LeadershipHint(self._node_id, self._announced))
        elif registered.node_id == self._node_id:
            # of an earlier life of this node, or not its own any more
            self._say(LeadershipHint(None, registered.generation))
        else:
            self._say(registered)

    def _registered(self, consumer: Consumer) -> LeadershipHint:
        with kafka_client.errors():
            (found,) = consumer.committed([TopicPartition(*self._place)], timeout=_ANSWER_S)
            if found.error is not None:
                raise kafka_client.failure(found.error)
        if found.offset < 0:
            return LeadershipHint(None, generation=0)
        node_id = found.metadata or ""
        return LeadershipHint(int(node_id) if node_id.isdecimal() else None, found.offset)

    def _next_generation(self, consumer: Consumer, registered: LeadershipHint) -> int:
        if registered.generation:
            return registered.generation + 1
        # Kafka forgets the register of a group that nobody was in for a week; each nomination has led to entries since
        with kafka_client.errors():
            _, end = consumer.get_watermark_offsets(TopicPartition(*self._place), timeout=_ANSWER_S)
        return end + 1

    def _announce(self, consumer: Consumer, node_id: int | None, generation: int) -> None:
        metadata = "" if node_id is None else str(node_id)
        self._announcing = generation
        try:
            with kafka_client.errors():
                consumer.commit(offsets=[TopicPartition(*self._place, generation, metadata)], asynchronous=True)
        except KafkaClientError:
            self._announcing = None
            raise

    def _committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Whether the register was written."""
        failed = error or next((partition.error for partition in partitions if partition.error is not None), None)
        if failed is None:
            self._announced = self._announcing
        else:
            logger.debug("Who is nominated for %s was not written: %s", self, failed)
        self._announcing = None

    def _withdraw(self, consumer: Consumer) -> None:
        """Leave a register that names nobody, if it names this node."""
        if not (self._is_assigned and self._announced is not None):
            return
        generation = self._announced + 1
        try:
            self._announce(consumer, None, generation)
        except KafkaClientError as error:
            logger.debug("That nobody is nominated for %s was not written: %s", self, error)
        for _ in range(round(_WITHDRAW_S / _POLL_S)):
            if self._announcing is None:
                break
            consumer.poll(_POLL_S)
        self._is_assigned, self._announced, self._announcing = False, None, None
        self._say(LeadershipHint(None, generation))

    def _say(self, hint: LeadershipHint) -> None:
        if hint != self._hint and hint.generation >= self._hint.generation:
            self._hint = hint
            self._tell(hint)

    # --- what the group says ---------------------------------------------------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.incremental_assign([TopicPartition(one.topic, one.partition, OFFSET_END) for one in partitions])
        consumer.pause(list(partitions))
        if self._has_place(partitions):
            self._is_assigned, self._announced = True, None

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        consumer.incremental_unassign(list(partitions))
        if self._has_place(partitions):
            self._is_assigned, self._announced = False, None
            self._say(LeadershipHint(None, self._hint.generation))

    def _has_place(self, partitions: Sequence[TopicPartition]) -> bool:
        return any((one.topic, one.partition) == self._place for one in partitions)
