"""The leader has producers forgotten that have expired; replicas look at no clock."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from diskless_core.coordinator import entries
from diskless_core.coordinator.entries import Entry
from diskless_core.coordinator.readers import Committed
from diskless_core.coordinator.tables import State, Transaction
from diskless_core.diskless import operations, producer_expiry, producer_state, records
from diskless_core.diskless.producer_expiry import ExpirationRules, ProducerExpiry
from diskless_core.diskless.producer_state import WindowBatch
from diskless_core.diskless.records import PartitionsCreated, ProducersExpired, TopicDeleted
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import PRODUCERS
from diskless_core.passed_time import Passed
from diskless_core.testing.fakes.log import SharedLog
from tests.support.guarantees import guarantee
from tests.support.shards import OTHER_TOPIC, SHARD_ID, TOPIC, ShardNode, batch, commit_of
from tests.support.virtual_time import VirtualClock, run

RULES = ExpirationRules(expiration_ms=60_000, check_interval_ms=10_000)
INTERVAL_S = RULES.check_interval_ms / 1000


class Pair:
    """A leader and a follower, each with its worker."""

    def __init__(self) -> None:
        self.shared = SharedLog()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.leader = ShardNode(self.shared, self.clock)
        self.follower = ShardNode(self.shared, self.clock, node_id=2, candidate=False)
        self._commits = 0

    async def commit(self, *batches: Any) -> None:
        self._commits += 1
        results = await self.leader.shard.commit_file(commit_of(f"object-{self._commits}", *batches))
        assert not any(result.error for result in results)

    def known(self) -> list[set[Any]]:
        return [{key for key, _ in node.shard.state.rows(PRODUCERS)} for node in (self.leader, self.follower)]

    async def stored(self) -> list[set[Any]]:
        found = []
        for node in (self.leader, self.follower):
            await node.shard.flush()
            rows = await node.shard.with_store(lambda store: store.scan(PRODUCERS.name))
            found.append({row[:3] for row in rows})
        return found

    def expired(self) -> list[Mapping[Any, Any]]:
        """What the records of the log say, entry by entry."""
        found = []
        for batch_in_log in self.shared.content(SHARD_ID):
            entry = entries.decode(batch_in_log.data)
            for data in entry.records if isinstance(entry, Entry) else ():
                record = records.decode(data) if data != entries.NO_OP else None
                if isinstance(record, ProducersExpired):
                    found.append(dict(record.partitions))
        return found


async def until(condition: Callable[[], bool]) -> None:
    """In virtual time, and not for ever."""
    for _ in range(6000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it does not become so")


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    place = Pair()
    await place.leader.start()
    await place.follower.start(lead=False)
    workers = [
        asyncio.create_task(ProducerExpiry(node.shard, RULES, place.clock).run())
        for node in (place.leader, place.follower)
    ]
    try:
        for topic in (TOPIC, OTHER_TOPIC):
            await place.leader.shard.create_partitions(uuid.UUID(bytes=topic), "t", [0, 1])
        yield place
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await place.follower.stop()
        await place.leader.stop()


def test_silent_producers_go_at_the_next_check_from_memory_and_store_of_all_replicas() -> None:
    async def main() -> None:
        async with pair() as place:
            await place.commit(batch(0, producer=(7, 0, 0)), batch(1, producer=(7, 0, 0)), batch(1, producer=(8, 0, 0)))
            for sequence in range(1, 8):
                await asyncio.sleep(INTERVAL_S)
                await place.commit(batch(1, producer=(8, 0, sequence)))
            await asyncio.sleep(INTERVAL_S)
            assert place.known() == [{(TOPIC, 1, 8)}] * 2
            assert await place.stored() == [{(TOPIC, 1, 8)}] * 2
            assert place.expired() == [{(TOPIC, 0): (7,), (TOPIC, 1): (7,)}]

    run(main)


def test_what_many_producers_leave_goes_in_entries_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_expiry, "ENTRY_PRODUCERS", 4)
    monkeypatch.setattr(producer_expiry, "LOOK_PRODUCERS", 3)

    async def main() -> None:
        async with pair() as place:
            await place.commit(*(batch(number % 2, producer=(number, 0, 0)) for number in range(10)))
            await asyncio.sleep(RULES.expiration_ms / 1000 + INTERVAL_S)
            assert place.known() == [set(), set()]
            sizes = [sum(map(len, partitions.values())) for partitions in place.expired()]
            assert sizes == [4, 4, 2]

    run(main)


def test_the_producers_of_a_deleted_topic_go_at_once() -> None:
    async def main() -> None:
        async with pair() as place:
            await place.commit(batch(0, producer=(7, 0, 0)), batch(0, topic=OTHER_TOPIC, producer=(7, 0, 0)))
            asked_s = asyncio.get_running_loop().time()
            await place.leader.shard.delete_topic(uuid.UUID(bytes=TOPIC))
            await until(lambda: place.known() == [{(OTHER_TOPIC, 0, 7)}] * 2)
            assert asyncio.get_running_loop().time() - asked_s < 1

    run(main)


def test_deletions_of_topics_have_no_living_producer_looked_at_and_put_no_check_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = set[Any]()
    has_expired = operations.has_expired

    def spy(reader: Any, producer: Any, passed: Passed, expiration_ms: int) -> bool:
        looked_at.add(producer)
        return has_expired(reader, producer, passed, expiration_ms)

    monkeypatch.setattr(operations, "has_expired", spy)

    async def main() -> None:
        async with pair() as place:
            await place.commit(batch(0, producer=(7, 0, 0)), batch(0, topic=OTHER_TOPIC, producer=(8, 0, 0)))
            await place.leader.shard.delete_topic(uuid.UUID(bytes=TOPIC))
            await until(lambda: len(place.known()[0]) == 1)
            assert looked_at == {(TOPIC, 0, 7)}
            for number in range(RULES.expiration_ms // RULES.check_interval_ms * 2 + 3):
                topic_id = uuid.UUID(int=number + 1)
                await place.leader.shard.create_partitions(topic_id, "other", [0])
                await place.leader.shard.delete_topic(topic_id)
                await asyncio.sleep(INTERVAL_S / 2)
            assert place.known() == [set(), set()]

    run(main)


def test_a_timer_that_ends_a_little_early_is_not_set_again_and_again() -> None:
    class Behind(VirtualClock):
        """Loses less in an interval than the loop's timers are exact to."""

        def monotonic(self) -> float:
            return (super().monotonic() - long_s) * (1 - 5e-14)

    long_s = 10_000

    async def main() -> None:
        async with pair() as place:
            await asyncio.sleep(long_s)
            expiry = ProducerExpiry(place.leader.shard, RULES, Behind(asyncio.get_running_loop()))
            checking = asyncio.create_task(expiry.run())
            await asyncio.sleep(2 * INTERVAL_S)
            checking.cancel()

    run(main)


def test_a_leader_that_comes_into_office_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_expiry, "ENTRY_PRODUCERS", 2)

    async def main() -> None:
        async with pair() as place:
            await place.commit(*(batch(producer=(number, 0, 0)) for number in range(6)))
            await asyncio.sleep(RULES.expiration_ms / 1000 - 2 * INTERVAL_S)
            place.shared.set_leader(SHARD_ID, None)
            await until(lambda: not place.leader.shard.leading)
            await asyncio.sleep(4 * INTERVAL_S)
            assert list(map(len, place.known())) == [6, 6]
            place.shared.set_leader(SHARD_ID, 1)
            await until(lambda: place.known() == [set(), set()])

    run(main)


DAY_MS = 86_400_000


class Takers:
    """Two nodes with clocks of their own; the second one takes over from the first."""

    def __init__(self, *, keeps_store: bool = True) -> None:
        self.shared = SharedLog()
        loop = asyncio.get_running_loop()
        self.clocks = [VirtualClock(loop), VirtualClock(loop)]
        self.nodes = [ShardNode(self.shared, clock, node_id) for node_id, clock in enumerate(self.clocks, start=1)]
        self.keeps_store = keeps_store

    async def write(self) -> None:
        first = self.nodes[0]
        self.shared.set_leader(SHARD_ID, 1)
        await first.start()
        await first.shard.create_partitions(uuid.UUID(bytes=TOPIC), "t", [0])
        for sequence in range(3):
            await first.commit(commit_of(f"object-{sequence}", batch(producer=(7, 0, sequence))))

    async def taken_over_later(self) -> ShardNode:
        """By a process that starts when the first one has ended, as after a restart of everything."""
        await self.write()
        await self.nodes[0].stop()
        self.clocks[1].skew_ms += DAY_MS
        self.shared.set_leader(SHARD_ID, 2)
        await self.nodes[1].start()
        return self.nodes[1]

    async def taken_over_at_once(self) -> ShardNode:
        """By one that has followed the first one."""
        self.clocks[1].skew_ms += DAY_MS
        self.shared.set_leader(SHARD_ID, 1)
        await self.nodes[1].start(lead=False)
        await self.write()
        self.shared.set_leader(SHARD_ID, 2)
        await self.nodes[1].shard.until_leading()
        await self.nodes[0].stop()
        return self.nodes[1]

    async def restarted(self) -> ShardNode:
        """By the first one itself, with its store, or without."""
        await self.write()
        await self.nodes[0].stop()
        self.clocks[0].skew_ms += DAY_MS
        if not self.keeps_store:
            self.nodes[0].store.disk = self.nodes[0].store.disk.empty()
        await self.nodes[0].start()
        return self.nodes[0]

    async def jumped(self) -> ShardNode:
        """By nobody: the clock of the first one jumps."""
        await self.write()
        self.clocks[0].skew_ms += DAY_MS
        return self.nodes[0]


@guarantee(
    "Idempotence",
    "A leader whose clock is a day ahead forgets no producer before its time: not after a failover, not after a "
    "restart, and not when the clock jumps.",
)
@pytest.mark.parametrize("keeps_store", [True, False])
@pytest.mark.parametrize(
    "come_to_lead", [Takers.taken_over_later, Takers.taken_over_at_once, Takers.restarted, Takers.jumped]
)
def test_a_retry_is_recognised_by_a_leader_whose_clock_is_a_day_ahead(come_to_lead: Any, keeps_store: bool) -> None:
    async def main() -> None:
        leader: ShardNode = await come_to_lead(Takers(keeps_store=keeps_store))
        expiry = ProducerExpiry(leader.shard, RULES, leader.clock)
        await expiry.look()
        await asyncio.sleep(RULES.expiration_ms / 1000 - 10)
        await expiry.look()
        [retried] = await leader.commit(commit_of("retry", batch(producer=(7, 0, 2))))
        assert (retried.base_offset, retried.is_duplicate) == (2, True)
        await asyncio.sleep(30)
        await expiry.look()
        assert not leader.shard.state.row_count(PRODUCERS)
        await leader.stop()

    run(main)


class Unlooked(bytes):
    """A topic id that nobody may compare with another one."""

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise AssertionError("a row of another topic was looked at")

    __hash__ = bytes.__hash__


def test_a_deletion_looks_at_no_row_of_another_topic() -> None:
    machine = DisklessMachine()
    state = State(machine.tables)
    tx = Transaction(state)
    machine.replay(PartitionsCreated(topic_id=TOPIC, name="t", partitions=[0]), tx)
    window = producer_state.extend(None, 0, WindowBatch(0, 0, 0, 0))
    unlooked = Unlooked(OTHER_TOPIC)
    for producer in range(3):
        tx.put(PRODUCERS, (unlooked, 0, producer), window)
    state.commit(tx.writes)
    tx = Transaction(Committed(state))

    machine.replay(TopicDeleted(topic_id=TOPIC), tx)
    state.commit(tx.writes)

    assert state.row_count(PRODUCERS) == 3
    assert list(state.keys(PRODUCERS, (TOPIC, 0))) == []
