"""Producers, consumers and administrators of a simulated world: they ask any broker, and the checker hears all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.commands import BatchResult, PartitionKey
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.record_batch import RecordData
from tests.simulation.broker import Broker
from tests.simulation.checker import Checker, Sent
from tests.simulation.history import History
from tests.simulation.network import Network, NetworkError
from tests.simulation.truth import name_of
from tests.support.produce_path import records_of

T = TypeVar("T")

REQUEST_S = 6.0
MAX_IN_FLIGHT = 5
NO_ANSWER = (NetworkError, CoordinatorError, CoordinatorStoreError, WalObjectStoreError)
_GONE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class Town(Protocol):
    """What clients see of the world."""

    checker: Checker
    history: History
    network: Network
    active: bool

    def any_broker(self, source: random.Random) -> Broker | None: ...

    def now_ms(self) -> int: ...

    def is_deleted(self, key: PartitionKey) -> bool: ...


async def ask(town: Town, broker: Broker | None, work: Callable[[Broker], Awaitable[T]]) -> T:
    """A client's request to a broker.

    Raises:
        NetworkError: no answer. Otherwise what the broker raised.
    """
    if broker is None:
        raise NetworkError("no broker is up")
    return await town.network.ask(
        Network.CLIENT, broker.node_id, broker.process, lambda: broker.answer(work), REQUEST_S
    )


class Producer:
    """Sends numbered records to one partition, some requests at a time, again until each is acknowledged.

    Like Kafka's clients it has several requests in flight to one broker, or to two when a partition's leader has just
    changed, and sends what failed again in order. One that is not idempotent has one in flight. Of one that is, the
    first is sent alone: of a producer that it does not know, a coordinator takes any batch for the first, as Apache
    Kafka does, also one behind an object that it refused. So one that may be forgotten has one in flight, too. What is
    out of order has it send all that has no answer with a new epoch, as librdkafka does: had any of this been under way
    elsewhere, it would be there twice.
    """

    def __init__(
        self,
        town: Town,
        source: random.Random,
        producer_id: int,
        key: PartitionKey,
        *,
        idempotent: bool,
        in_flight: int,
    ) -> None:
        self._town = town
        self._random = source
        self._id = producer_id
        self._key = key
        self._idempotent = idempotent
        self._most_in_flight = in_flight
        self._next = 0
        self._epoch = 0
        self._first_of_epoch = 0
        self._is_out_of_order = False
        self._sticky: Broker | None = None

    async def run(self) -> None:
        while self._town.active and not self._town.is_deleted(self._key):
            in_flight = self._random.randint(1, self._most_in_flight) if self._most_in_flight > 1 and self._next else 1
            batches = [self._new_batch() for _ in range(in_flight)]
            await self._send_until_acknowledged(batches)
            await asyncio.sleep(self._random.choice([0.0, 0.05, 0.4, 2.0]))

    def _new_batch(self) -> list[Sent]:
        count = self._random.randint(1, 3)
        first, self._next = self._next, self._next + count
        return [Sent(self._id, first + number, self._idempotent, self._town.now_ms()) for number in range(count)]

    async def _send_until_acknowledged(self, batches: Sequence[list[Sent]]) -> None:
        pending = list(batches)
        while pending and not self._town.is_deleted(self._key):
            if self._sticky is None or self._random.random() < 0.2:
                self._sticky = self._town.any_broker(self._random)
            answers = await self._send_by_one_or_two(self._sticky, pending)
            pending = [batch for batch, acknowledged in zip(pending, answers, strict=True) if not acknowledged]
            if pending:
                self._begin_epoch_if_out_of_order(pending[0][0].number)
                self._sticky = None
                await asyncio.sleep(self._random.uniform(0.05, 0.5))

    async def _send_by_one_or_two(self, broker: Broker | None, batches: Sequence[list[Sent]]) -> list[bool]:
        """Which of them were acknowledged. The later ones may go to another broker while the first are under way."""
        if len(batches) == 1 or self._random.random() < 0.8:
            return await self._send(broker, batches)
        first = self._random.randint(1, len(batches) - 1)
        self._sticky = self._town.any_broker(self._random)
        return list(
            chain(*await asyncio.gather(self._send(broker, batches[:first]), self._send(self._sticky, batches[first:])))
        )

    def _begin_epoch_if_out_of_order(self, number: int) -> None:
        if self._is_out_of_order:
            self._is_out_of_order = False
            self._epoch += 1
            self._first_of_epoch = number

    async def _send(self, broker: Broker | None, batches: Sequence[list[Sent]]) -> list[bool]:
        """Which of them were acknowledged."""
        data = [self._encoded(batch) for batch in batches]
        try:
            results = await ask(self._town, broker, lambda one: one.produce(self._key, data))
        except NetworkError:
            return [False] * len(batches)
        return [self._heard(batch, result) for batch, result in zip(batches, results, strict=True)]

    def _heard(self, batch: list[Sent], result: BatchResult | BaseException) -> bool:
        if isinstance(result, BaseException):
            return False
        self._note(batch, result)
        if result.error is ErrorCode.NONE:
            self._town.checker.acknowledged_batch(self._key, result.base_offset, batch)
        elif result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._is_out_of_order = True
        elif result.error not in (*_GONE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS):
            self._town.history.violated(f"a producer of {name_of(self._key)} is refused with {result.error.name}")
        return result.error is ErrorCode.NONE

    def _note(self, batch: list[Sent], result: BatchResult) -> None:
        numbers = f"{batch[0].number}..{batch[-1].number}"
        again = " again" if result.is_duplicate else ""
        outcome = f"@{result.base_offset}{again}" if result.error is ErrorCode.NONE else result.error.name
        self._town.history.note(f"producer-{self._id}", f"{name_of(self._key)} {numbers}: {outcome}")

    def _encoded(self, batch: Sequence[Sent]) -> bytes:
        identity = (
            {
                "producer_id": batch[0].producer,
                "producer_epoch": self._epoch,
                "base_sequence": batch[0].number - self._first_of_epoch,
            }
            if batch[0].is_idempotent
            else {}
        )
        values = [RecordData(key=None, value=one.value()) for one in batch]
        return record_batch.build(values, timestamp_ms=batch[0].sent_ms, **identity)


class Reader:
    """Reads one partition from any broker and goes on where it was; resets to the beginning when that is gone."""

    def __init__(self, town: Town, name: str, key: PartitionKey, offset: int) -> None:
        self.offset = offset
        self._town = town
        self._name = name
        self._key = key

    async def poll(self, broker: Broker | None) -> None:
        """Fetch once."""
        offset = self.offset
        try:
            answer = await ask(self._town, broker, lambda one: one.fetch(self._key, offset, 500))
        except NO_ANSWER:
            return
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._town.history.note(self._name, f"{name_of(self._key)}@{offset} is out of range")
            self._town.checker.out_of_range(self._key, offset)
            self.offset = self._town.checker.truth.partitions[self._key].log_start_offset
        elif records := records_of(answer):
            self._town.checker.fetched(self._key, offset, records)
            self.offset = records[-1][0] + 1
            self._town.history.note(self._name, f"{name_of(self._key)} {offset}..{self.offset - 1}")


class Consumer:
    """Reads one partition from its beginning on, by itself."""

    def __init__(self, town: Town, source: random.Random, number: int, key: PartitionKey) -> None:
        self._town = town
        self._random = source
        self._key = key
        self._reader = Reader(town, f"consumer-{number}", key, 0)

    async def run(self) -> None:
        while self._town.active and not self._town.is_deleted(self._key):
            broker = self._town.any_broker(self._random)
            if self._random.random() < 0.9:
                await self._ask_for_the_end(broker)
            await self._reader.poll(broker)
            await asyncio.sleep(self._random.choice([0.1, 0.5, 2.0]))

    async def _ask_for_the_end(self, broker: Broker | None) -> None:
        at_least = self._town.checker.acknowledged_end(self._key)
        try:
            end = await ask(self._town, broker, lambda one: one.list_end(self._key))
        except NO_ANSWER:
            return
        if end is not None:
            self._town.checker.listed_end(self._key, at_least, end)


class RecordDeleter:
    """Deletes records of a partition from its beginning on, now and then."""

    def __init__(self, town: Town, source: random.Random, keys: Sequence[PartitionKey]) -> None:
        self._town = town
        self._random = source
        self._keys = keys

    async def run(self) -> None:
        while self._town.active:
            await asyncio.sleep(self._random.uniform(0.5, 6))
            key = self._random.choice(self._keys)
            partition = self._town.checker.truth.partitions[key]
            if partition.deleted:
                continue
            end = partition.high_watermark
            offset = self._random.choice([end, self._random.randint(partition.log_start_offset, end)])
            self._town.checker.wants_start(key, offset)
            broker = self._town.any_broker(self._random)
            try:
                answer = await ask(self._town, broker, lambda one: one.delete_records(key, offset))  # noqa: B023
            except NO_ANSWER:
                continue
            self._town.history.note(
                "deleter", f"{name_of(key)} begins at {answer.log_start_offset} {answer.error.name}"
            )
