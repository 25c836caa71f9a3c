"""A cache that the brokers of a rack share: read once for all, and never believed without a look."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest

from diskless_core.coordinator.peers import PeerRequest
from diskless_core.diskless.commands import TimestampType
from diskless_core.fetch.object_reader import ReadRun
from diskless_core.fetch.peer_objects import LAST_WAIT_S, MAX_UNDER_WAY, TIMEOUT_S
from diskless_core.fetch.peer_patience import FIRST_WAIT_S, LATE_IN_A_ROW, PAUSE_AFTER_WRONG_BYTES_S, SHORTEST_PAUSE_S
from diskless_core.fetch.planner import MAX_RANGE_BYTES
from diskless_core.plugin.wal_object_store import ObjectNotFoundError, WalObjectStoreError
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessReadObjectRequest
from diskless_core.protocol.read_object import ReadObjectAnswer, unpack
from diskless_core.testing.fakes.objects import Operation
from diskless_core.wal.format import object_key
from diskless_core.wal.runs import Run
from tests.support.guarantees import guarantee
from tests.support.produce_path import RULES, ProducePath, batch_of, key_of
from tests.support.rack import Garble, RackNetwork, RackNode
from tests.support.virtual_time import START_MS, run

World = Callable[[ProducePath, RackNetwork], Awaitable[None]]


CACHE_BYTES = 1 << 20


def live(world: World, *, size: int = 3, cache_bytes: int = CACHE_BYTES) -> None:
    """Produce is another broker's, whose cache is not in the rack."""

    async def main() -> None:
        async with ProducePath() as path, RackNetwork(path, size, cache_bytes=cache_bytes) as rack:
            await world(path, rack)

    run(main)


async def produced(path: ProducePath, *values: bytes, partition: int = 0, **more: object) -> Run:
    """The run of a batch that was just produced."""
    [result] = await path.produce((partition, batch_of(*values)), **more)  # type: ignore[arg-type]
    assert result.error is ErrorCode.NONE
    [found] = (await path.node.shard.find(key_of(partition), result.base_offset, 1)).runs
    return found


def values_of(read: Sequence[ReadRun]) -> list[bytes | None]:
    """The records' values; all of them have to be readable."""
    found = []
    for one in read:
        assert one.failure is None, one.failure
        for position, header in record_batch.walk(one.data):
            assert record_batch.crc_is_valid(one.data, position, header)
            assert header.partition_leader_epoch == 0
            batch = one.data[position : position + header.size]
            found += [record.value for record in record_batch.records(batch)]
    return found


def gets(path: ProducePath) -> int:
    return path.objects.calls[Operation.GET]


def test_an_object_is_read_from_the_store_once_for_all_brokers_of_a_rack() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a", b"b")
        read = await asyncio.gather(*(node.reader.read([found]) for node in rack.nodes.values() for _ in range(3)))
        assert [values_of(one) for one in read] == [[b"a", b"b"]] * 9
        assert gets(path) == 1
        for node in rack.others(found.object_key):
            assert values_of(await node.reader.read([found])) == [b"a", b"b"]
            assert node.outcomes() == {"answered": 1}

    live(world)


def test_what_a_broker_has_just_uploaded_is_served_from_its_memory() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        for node in rack.nodes.values():
            key = object_key("wal", START_MS, node.fetch.new_object_id())
            node.reader.uploaded(key, memoryview(bytearray(path.objects.objects[found.object_key])))
            uploaded = found._replace(object_key=key)
            for reader in rack.nodes.values():
                assert values_of(await reader.reader.read([uploaded])) == [b"a"]
            assert node.requests() == {"memory": 2}
        assert gets(path) == 0

    live(world)


def test_offset_epoch_and_append_time_are_the_readers_own() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
        found = await produced(path, b"a", rules=rules)
        owner, reader = rack.owner_of(found.object_key), rack.others(found.object_key)[0]
        elsewhere = found._replace(base_offset=70, last_offset=70, append_time=found.append_time + 5)
        await owner.reader.read([elsewhere])  # prepared as nobody else has it
        [read] = await reader.reader.read([found])
        header = record_batch.read_header(read.data)
        assert (header.base_offset, header.partition_leader_epoch) == (found.base_offset, 0)
        assert (header.max_timestamp, header.is_log_append_time) == (found.append_time, True)
        assert reader.outcomes() == {"answered": 1}
        assert gets(path) == 1

    live(world)


def flipped(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    data = bytearray(answer.data)
    data[-1] ^= 1
    return replace(answer, data=data)


def truncated(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    return replace(answer, data=answer.data[:-1])


def padded(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    return replace(answer, data=bytes(answer.data) + b"\0")


def of_another_key(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    return replace(answer, object_key=answer.object_key + "0")


def from_elsewhere(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    return replace(answer, start=answer.start + 1)


def of_another_object(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    """As many bytes and records, and sound, but of another moment."""
    return replace(answer, data=batch_of(b"x", timestamp_ms=START_MS + 1))


def zeros(answer: ReadObjectAnswer) -> ReadObjectAnswer:
    return replace(answer, data=bytes(len(answer.data)))


@guarantee("Reads", "Damaged bytes from another broker's cache reach no consumer: the object store is read instead.")
@pytest.mark.parametrize(
    "garble", [flipped, truncated, padded, of_another_key, from_elsewhere, of_another_object, zeros]
)
def test_a_broker_that_sends_other_bytes_is_not_believed(garble: Garble) -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        owner, (reader, *_) = rack.owner_of(found.object_key), rack.others(found.object_key)
        rack.garble[owner.node_id] = garble
        assert values_of(await reader.reader.read([found])) == [b"a"]
        assert reader.outcomes()["wrong"] == 1
        assert gets(path) == 2
        assert values_of(await reader.reader.read([found])) == [b"a"]
        assert gets(path) == 2

    live(world)


def test_a_broker_that_sent_other_bytes_is_not_asked_for_a_minute() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        reader, liar = rack.nodes[1], rack.nodes[2]
        rack.garble[2] = flipped
        first, second, third = await lent_by(path, rack, liar, 3)
        for found in (first, second):
            assert values_of(await reader.reader.read([found])) == [b"v"]
        assert rack.sent[2] == 1
        del rack.garble[2]
        await asyncio.sleep(PAUSE_AFTER_WRONG_BYTES_S)
        assert values_of(await reader.reader.read([third])) == [b"v"]
        assert reader.outcomes() == {"answered": 2, "skipped": 1, "wrong": 1}

    live(world)


async def lent_by(path: ProducePath, rack: RackNetwork, owner: RackNode, count: int) -> list[Run]:
    """Runs of so many objects that a node reads for the others."""
    found = []
    while len(found) < count:
        one = await produced(path, b"v")
        if rack.owner_of(one.object_key) is owner:
            found.append(one)
    return found


def test_a_malformed_answer_is_as_good_as_none() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        rack.raw[rack.owner_of(found.object_key).node_id] = b"\xff" * 40
        assert values_of(await rack.others(found.object_key)[0].reader.read([found])) == [b"a"]

    live(world)


def test_bytes_that_nobody_looked_at_when_they_came_are_looked_at_when_they_are_wanted() -> None:
    """One answer has the batches of two partitions; the one that was wanted is sound."""

    async def world(path: ProducePath, rack: RackNetwork) -> None:
        answers = [path.produce((partition, batch_of(b"%d" % partition))) for partition in range(3)]
        await asyncio.gather(*answers)
        runs = [(await path.node.shard.find(key_of(partition), 0, 1)).runs[0] for partition in range(3)]
        key = runs[0].object_key
        if {one.object_key for one in runs} != {key}:
            raise AssertionError("the batches are in one object")
        (reader, *_) = rack.others(key)

        def damaged(answer: ReadObjectAnswer) -> ReadObjectAnswer:
            data = bytearray(answer.data)
            data[runs[2].byte_offset - answer.start - 1] ^= 1
            return replace(answer, data=data)

        rack.garble[rack.owner_of(key).node_id] = damaged
        assert values_of(await reader.reader.read([runs[0], runs[2]])) == [b"0", b"2"]
        assert reader.outcomes() == {"answered": 1}
        for _ in range(2):
            assert values_of(await reader.reader.read([runs[1]])) == [b"1"]
        assert reader.outcomes() == {"answered": 1, "wrong": 1, "skipped": 1}

    live(world)


def test_a_slow_broker_is_bypassed_after_a_while() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        owner, (reader, *_) = rack.owner_of(found.object_key), rack.others(found.object_key)
        rack.delay_s[owner.node_id] = 3.0
        began = path.clock.monotonic()
        assert values_of(await reader.reader.read([found])) == [b"a"]
        assert path.clock.monotonic() - began == pytest.approx(FIRST_WAIT_S)
        assert reader.outcomes() == {"late": 1}

    live(world)


def test_a_broker_that_is_always_slow_is_not_asked_any_more() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        reader, slow = rack.nodes[1], rack.nodes[2]
        rack.delay_s[2] = 3.0
        for found in await lent_by(path, rack, slow, LATE_IN_A_ROW + 1):
            assert values_of(await reader.reader.read([found])) == [b"v"]
        assert rack.sent[2] == LATE_IN_A_ROW
        assert reader.outcomes()["skipped"] == 1

    live(world)


def test_a_broker_that_has_fallen_silent_holds_up_many_readers_once_and_one_from_then_on() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        reader = rack.nodes[1].reader
        runs = await lent_by(path, rack, rack.nodes[2], 3 * MAX_UNDER_WAY)
        rack.delay_s[2] = 100.0
        began = path.clock.monotonic()
        await asyncio.gather(*(reader.read([found]) for found in runs[:MAX_UNDER_WAY]))
        assert path.clock.monotonic() - began == pytest.approx(LAST_WAIT_S)
        await asyncio.sleep(2 * SHORTEST_PAUSE_S + TIMEOUT_S)
        sent = rack.sent[2]
        await asyncio.gather(*(reader.read([found]) for found in runs[MAX_UNDER_WAY : 2 * MAX_UNDER_WAY]))
        assert rack.sent[2] == sent + 1
        began = path.clock.monotonic()
        await asyncio.gather(*(reader.read([found]) for found in runs[2 * MAX_UNDER_WAY :]))
        assert rack.sent[2] == sent + 1
        assert path.clock.monotonic() - began < FIRST_WAIT_S

    live(world)


def test_however_many_readers_come_at_once_only_so_many_requests_to_a_broker_are_under_way() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        reader = rack.nodes[1]
        runs = await lent_by(path, rack, rack.nodes[2], MAX_UNDER_WAY + 4)
        read = await asyncio.gather(*(reader.reader.read([found]) for found in runs))
        assert [values_of(one) for one in read] == [[b"v"]] * len(runs)
        assert rack.sent[2] == MAX_UNDER_WAY
        assert reader.outcomes() == {"answered": MAX_UNDER_WAY, "crowded": 4}

    live(world)


def test_a_late_answer_is_used_if_the_object_store_is_later_still() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        owner, (reader, *_) = rack.owner_of(found.object_key), rack.others(found.object_key)
        assert values_of(await owner.reader.read([found])) == [b"a"]
        rack.delay_s[owner.node_id] = 0.2
        path.objects.delay(Operation.GET, 2.0)
        began = path.clock.monotonic()
        assert values_of(await reader.reader.read([found])) == [b"a"]
        assert path.clock.monotonic() - began == pytest.approx(0.2)

    live(world)


def test_what_a_broker_has_in_memory_outlives_an_outage_of_the_object_store() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        owner, (reader, *_) = rack.owner_of(found.object_key), rack.others(found.object_key)
        assert values_of(await owner.reader.read([found])) == [b"a"]
        rack.delay_s[owner.node_id] = 2 * FIRST_WAIT_S
        with path.objects.failing(Operation.GET):
            assert values_of(await reader.reader.read([found])) == [b"a"]

    live(world)


def test_a_broker_that_cannot_be_reached_costs_nothing_but_a_try() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        reader, dead = rack.nodes[1], rack.nodes[2]
        rack.down.add(2)
        began = path.clock.monotonic()
        for found in await lent_by(path, rack, dead, 3):
            assert values_of(await reader.reader.read([found])) == [b"v"]
        assert rack.sent[2] == 1
        assert reader.outcomes() == {"failed": 1, "skipped": 2}
        assert path.clock.monotonic() - began < FIRST_WAIT_S

    live(world)


def test_that_another_broker_finds_no_object_only_means_that_the_store_is_asked() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        (reader, *_) = rack.others(found.object_key)
        path.objects.fail_next(Operation.GET, error=lambda: ObjectNotFoundError(found.object_key))
        assert values_of(await reader.reader.read([found])) == [b"a"]
        assert reader.outcomes() == {"refused": 1}
        del path.objects.objects[found.object_key]
        gone = found._replace(byte_offset=found.byte_offset + 1)
        [read] = await reader.reader.read([gone])
        assert isinstance(read.failure, ObjectNotFoundError)

    live(world)


def test_when_nobody_can_read_an_object_its_reader_is_told() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        (reader, *_) = rack.others(found.object_key)
        with path.objects.failing(Operation.GET):
            [read] = await reader.reader.read([found])
        assert isinstance(read.failure, WalObjectStoreError)

    live(world)


def test_who_is_asked_never_asks_another_broker() -> None:
    """Brokers that disagree about the live set ask each other for the same object, and neither waits for the other."""

    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        first, second = rack.nodes[1], rack.nodes[2]
        first.rack, second.rack = (2,), (1,)
        path.objects.delay(Operation.GET, FIRST_WAIT_S / 2)
        read = await asyncio.gather(first.reader.read([found]), second.reader.read([found]))
        assert [values_of(one) for one in read] == [[b"a"]] * 2
        assert rack.sent == {1: 1, 2: 1}
        assert gets(path) == 2

    live(world)


def test_readers_of_all_parts_of_an_object_cost_few_requests() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        values = [b"%03d" % number + bytes(2_000) for number in range(64)]
        whole = b"".join(batch_of(value) for value in values)
        key = object_key("wal", START_MS, rack.nodes[2].fetch.new_object_id())
        path.objects.objects[key] = whole
        size = len(whole) // len(values)
        runs = [Run(n, n, key, n * size, size, 0, START_MS, 0) for n in range(len(values))]
        for number, found in enumerate(runs):
            reader = rack.nodes[1 + 2 * (number % 2)]
            assert values_of(await reader.reader.read([found])) == [values[number]]
        assert gets(path) <= 6

    live(world)


SLOW_STORES: dict[str, Callable[[int], float]] = {
    "quick": lambda _: 0.05,
    "slow": lambda _: 1.6 * FIRST_WAIT_S,
    "very slow": lambda _: 0.9 * LAST_WAIT_S,
    "slower each time": lambda number: 0.02 * number,
}
"""How long reads of the object store take, by how many came before."""


@guarantee("Reads", "A cache that a rack shares costs one consumer of an idle cluster no more reads of the store.")
@pytest.mark.parametrize("taken_s", SLOW_STORES.values(), ids=SLOW_STORES.keys())
def test_a_single_consumer_costs_as_many_reads_of_the_store_as_without_a_shared_cache(
    taken_s: Callable[[int], float],
) -> None:
    objects, at_once = 60, 6

    async def world(path: ProducePath, rack: RackNetwork) -> None:
        runs = [await produced(path, b"%d" % number) for number in range(objects)]
        for first in range(0, objects, at_once):
            path.objects.delay(Operation.GET, taken_s(first))
            read = await rack.nodes[1].reader.read(runs[first : first + at_once])
            assert values_of(read) == [b"%d" % number for number in range(first, first + at_once)]
        assert objects <= gets(path) <= 1.05 * objects

    live(world)


def test_a_broker_alone_in_its_rack_asks_nobody() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        node = rack.nodes[1]
        for members in ((), (1,)):
            node.rack = members
            assert values_of(await node.reader.read([await produced(path, b"a")])) == [b"a"]
        assert not rack.sent

    live(world, size=2)


def asked(key: str, start: int, end: int) -> PeerRequest:
    request = DisklessReadObjectRequest(object_key=key, start=start, end=end)
    return PeerRequest(DisklessReadObjectRequest.API_KEY, 0, bytes(request.encode(version=0)))


def test_only_ranges_of_wal_objects_are_lent() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        found = await produced(path, b"a")
        lender, key = rack.nodes[1].fetch.lender, found.object_key
        path.objects.objects["secrets"] = b"of others"
        wrong = [("secrets", 0, 9), (f"wal/../{key}", 0, 9), (key, 5, 5), (key, -1, 5), (key, 0, MAX_RANGE_BYTES + 1)]
        for place in wrong:
            answer = unpack(await lender.answer(asked(*place)))
            assert (answer.error_code, answer.data) == (ErrorCode.INVALID_REQUEST, b"")
        assert gets(path) == 0
        answer = unpack(await lender.answer(asked(key, 0, 1 << 20)))
        assert bytes(answer.data) == path.objects.objects[key]

    live(world)


def test_a_broker_refuses_to_read_more_for_others_than_it_has_memory_for() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        runs = [await produced(path, b"a") for _ in range(2)]
        lender = rack.nodes[1].fetch.lender
        with path.objects.hold(Operation.GET) as hold:
            first = asyncio.create_task(lender.answer(asked(runs[0].object_key, 0, 2_000)))
            await hold.reached()
            refused = unpack(await lender.answer(asked(runs[1].object_key, 0, 2_000)))
            hold.release()
            assert unpack(await first).error_code == ErrorCode.NONE
        assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert unpack(await lender.answer(asked(runs[1].object_key, 0, 2_000))).error_code == ErrorCode.NONE

    live(world, cache_bytes=10_000)


def test_no_more_than_is_wanted_is_read_for_others_while_much_is_being_read() -> None:
    objects, first, block = 40, 4_096, 16_384

    async def world(path: ProducePath, rack: RackNetwork) -> None:
        lender = rack.nodes[1].fetch.lender
        keys = [object_key("wal", START_MS, path.clock.new_uuid()) for _ in range(objects)]
        for key in keys:
            path.objects.objects[key] = bytes(2 * block)
            await lender.answer(asked(key, 0, first))
        read_before = store_bytes_read(rack.nodes[1])
        with path.objects.hold(Operation.GET) as hold:
            asking = [asyncio.create_task(lender.answer(asked(key, block, block + 1))) for key in keys]
            await hold.reached(objects)
            hold.release()
            answers = [unpack(await answer) for answer in asking]
        assert [bytes(answer.data) for answer in answers] == [b"\0"] * objects
        widened = store_bytes_read(rack.nodes[1]) - read_before
        assert block < widened <= CACHE_BYTES // 4 + block + objects

    live(world)


def store_bytes_read(node: RackNode) -> int:
    return int(node.metrics.registry.get_sample_value("diskless_store_bytes_read_total") or 0)


def test_the_caches_bounds_hold_for_what_others_send() -> None:
    async def world(path: ProducePath, rack: RackNetwork) -> None:
        for _ in range(30):
            found = await produced(path, bytes(500))
            for node in rack.nodes.values():
                assert values_of(await node.reader.read([found])) == [bytes(500)]
                assert node.metrics.registry.get_sample_value("diskless_cache_bytes") <= 2_000

    live(world, cache_bytes=2_000)
