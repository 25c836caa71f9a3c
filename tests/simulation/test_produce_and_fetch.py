"""From a Produce request to what a Fetch returns, with an object store that is slow, fails, or comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.produce.accumulator import Submission
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.log import AppendFault
from diskless_core.testing.fakes.objects import Operation, access_denied
from tests.support.produce_path import PARTITIONS, ProducePath, batch_of
from tests.support.virtual_time import run


def test_what_is_acknowledged_is_read_back_at_its_offset() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            results = await path.produce((0, batch_of(b"a", b"b")), (1, batch_of(b"c")))
            assert [(result.error, result.base_offset) for result in results] == [(ErrorCode.NONE, 0)] * 2
            results = await path.produce((0, batch_of(b"d")))
            assert results[0].base_offset == 2
            assert await path.read(0) == [(0, b"a"), (1, b"b"), (2, b"d")]
            assert await path.read(1) == [(0, b"c")]
            assert path.released == 2

    run(main)


def test_what_left_the_cache_is_read_back_from_the_store() -> None:
    async def main() -> None:
        async with ProducePath(cache_bytes=0) as path:
            for value in (b"a", b"b"):
                await path.produce((0, batch_of(value)))
            assert await path.read(0) == [(0, b"a"), (1, b"b")]
            assert path.objects.calls[Operation.GET] > 0

    run(main)


def test_a_slow_upload_holds_up_only_what_shares_its_partitions() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda number: 10.0 if number == 0 else 0.0
            slow = path.produce((0, batch_of(b"slow")))
            path.writer.rotate()
            same = path.produce((0, batch_of(b"behind")), (1, batch_of(b"too")))
            path.writer.rotate()
            third = path.produce((1, batch_of(b"third")))
            path.writer.rotate()
            other = path.produce((2, batch_of(b"free")))
            path.writer.rotate()
            await other
            assert not slow.done()
            await asyncio.sleep(5)
            assert not same.done()
            assert not third.done()
            await asyncio.gather(slow, same, third)
            assert await path.read(0) == [(0, b"slow"), (1, b"behind")]
            assert await path.read(1) == [(0, b"too"), (1, b"third")]

    run(main)


def test_an_object_that_the_store_refuses_does_not_let_later_ones_pass_those_before_it() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda number: 10.0 if number == 0 else 0.0
            first = path.produce((0, batch_of(b"first")))
            path.writer.rotate()
            path.objects.fail_next(Operation.PUT, error=access_denied)
            refused = path.produce((0, batch_of(b"refused")))
            path.writer.rotate()
            with pytest.raises(WalObjectStoreError, match="403"):
                await refused
            third = path.produce((0, batch_of(b"third")))
            path.writer.rotate()
            await asyncio.sleep(1)
            assert not first.done()
            assert not third.done()
            await asyncio.gather(first, third)
            assert await path.read(0) == [(0, b"first"), (1, b"third")]

    run(main)


def test_a_store_that_is_down_for_a_while_costs_time_and_nothing_else() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            with path.objects.failing(Operation.PUT):
                answers = [path.produce((number % PARTITIONS, batch_of(b"%d" % number))) for number in range(8)]
                await asyncio.sleep(60)
                assert not any(answer.done() for answer in answers)
            await asyncio.wait_for(asyncio.gather(*answers), 30)
            assert await path.read(0) == [(0, b"0"), (1, b"4")]
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_an_upload_whose_answer_was_lost_is_repeated_and_counts_once() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.fail_next(Operation.PUT, takes_effect=True)
            await path.produce((0, batch_of(b"a")))
            assert len(path.objects.objects) == 1
            assert await path.read(0) == [(0, b"a")]

    run(main)


@pytest.mark.parametrize("fault", AppendFault)
def test_a_commit_whose_outcome_is_unknown_is_sent_again_and_counts_once(fault: AppendFault) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            await path.produce((0, batch_of(b"before")))
            path.shared.fail_next_append(fault)
            first = path.produce((0, batch_of(b"unknown")), (1, batch_of(b"x")))
            path.writer.rotate()
            second = path.produce((0, batch_of(b"after")))
            assert [result.base_offset for result in await first] == [1, 0]
            assert [result.base_offset for result in await second] == [2]
            assert await path.read(0) == [(0, b"before"), (1, b"unknown"), (2, b"after")]

    run(main)


class _Broken(OffsetAssignment):
    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        return [next_offset - 1] * len(record_counts)


class _TooFew(OffsetAssignment):
    def assign(self, next_offset: int, record_counts: Sequence[int]) -> Sequence[int]:
        return [next_offset] * (len(record_counts) - 1)


@pytest.mark.parametrize("assignment", [_Broken(), _TooFew()])
def test_a_defect_in_a_policy_is_answered_and_does_not_stop_others(assignment: OffsetAssignment) -> None:
    async def main() -> None:
        async with ProducePath(assignment=assignment) as path:
            for _ in range(2):
                [result] = await asyncio.wait_for(path.produce((0, batch_of(b"a"))), 10)
                assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
            assert path.writer.backlog.size_bytes == 0
            assert await path.read(0) == []

    run(main)


def test_a_coordinator_store_that_cannot_be_read_delays_commits_and_loses_none() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            store = path.node.shard._replica.store._store
            assert store is not None
            failures = iter([True, True, False])
            get = store.get

            def failing_get(table: str, key: tuple[object, ...]) -> object:
                if next(failures, False):
                    raise CoordinatorStoreError("injected: the disk is unreadable")
                return get(table, key)

            store.get = failing_get
            [result] = await asyncio.wait_for(path.produce((0, batch_of(b"a"))), 10)
            assert result.error is ErrorCode.NONE
            assert await path.read(0) == [(0, b"a")]

    run(main)


def test_a_request_without_batches_is_settled_and_spoils_nobody_elses() -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=100) as path:
            good = path.produce((0, batch_of(b"a")))
            settled: list[object] = []
            path.writer.append(Submission(batches=[], release=lambda: None, settle=settled.append))
            other = path.produce((1, batch_of(b"b")))
            await asyncio.wait_for(asyncio.gather(good, other), 10)
            assert settled == [[]]

    run(main)


def test_a_full_backlog_asks_to_wait_and_says_when_there_is_room_again() -> None:
    async def main() -> None:
        async with ProducePath(inflight_max_bytes=100) as path:
            resumed: list[str] = []
            assert not path.writer.backlog.wait_if_full(lambda: resumed.append("never asked to wait"))
            with path.objects.hold(Operation.PUT) as hold:
                answer = path.produce((0, batch_of(b"x" * 200)))
                assert path.writer.backlog.wait_if_full(lambda: resumed.append("one"))
                assert path.writer.backlog.wait_if_full(lambda: resumed.append("two"))
                await hold.reached()
                assert resumed == []
            await answer
            assert resumed == ["one", "two"]

    run(main)


def test_a_connection_that_resumes_and_fills_the_backlog_lets_the_next_wait_on() -> None:
    async def main() -> None:
        async with ProducePath(inflight_max_bytes=100) as path:
            resumed: list[str] = []
            answers = [path.produce((0, batch_of(b"x" * 200)))]

            def resume() -> None:
                resumed.append("first")
                answers.append(path.produce((1, batch_of(b"y" * 200))))

            path.writer.backlog.wait_if_full(resume)
            path.writer.backlog.wait_if_full(lambda: resumed.append("second"))
            await answers[0]
            assert resumed == ["first"]
            await answers[1]
            assert resumed == ["first", "second"]

    run(main)


def test_draining_settles_everything_that_was_appended() -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=200) as path:
            path.objects.delay_of = lambda number: 3.0 - number
            answers = []
            for number in range(3):
                answers.append(path.produce((0, batch_of(b"%d" % number))))
                if number < 2:
                    path.writer.rotate()
            await path.writer.drain()
            assert [answer.result()[0].base_offset for answer in answers] == [0, 1, 2]
            assert await path.read(0) == [(0, b"0"), (1, b"1"), (2, b"2")]

    run(main)


def test_an_object_is_sealed_when_it_is_full_or_at_the_interval_or_when_nothing_is_under_way() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with ProducePath(linger_ms=20, buffer_max_bytes=1000) as path:
            begun = loop.time()
            await path.produce((0, batch_of(b"x" * 1000)))
            assert loop.time() - begun < 0.001
            begun = loop.time()
            await path.produce((0, batch_of(b"lingers")))
            assert 0.019 < loop.time() - begun < 0.03
            path.objects.delay_of = lambda number: 10.0 if number == 2 else 0.0
            blocking = path.produce((1, batch_of(b"x" * 1000)))
            begun = loop.time()
            await path.produce((0, batch_of(b"waits for the interval")))
            assert 0.24 < loop.time() - begun < 0.26
            await blocking

    run(main)


delays = st.floats(0, 2, allow_nan=False)


@settings(max_examples=25, deadline=None)
@given(
    uploads=st.lists(delays, min_size=1, max_size=12),
    pauses=st.lists(st.floats(0, 0.4), min_size=1, max_size=12),
    appends=st.lists(st.floats(0, 0.5), min_size=1, max_size=6),
    failing_puts=st.sets(st.integers(0, 20), max_size=5),
    faults=st.lists(st.sampled_from(AppendFault), max_size=3),
    targets=st.lists(
        st.lists(st.integers(0, PARTITIONS - 1), min_size=1, max_size=3, unique=True), min_size=1, max_size=20
    ),
)
def test_whatever_the_delays_each_partition_has_a_producers_batches_in_order_and_once(
    uploads: list[float],
    pauses: list[float],
    appends: list[float],
    failing_puts: set[int],
    faults: list[AppendFault],
    targets: list[list[int]],
) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda number: uploads[number % len(uploads)]
            waits = iter(appends)
            path.shared.append_delay_s = lambda: next(waits, 0.0)
            for fault in faults:
                path.shared.fail_next_append(fault)
            answers = []
            expected: dict[int, list[bytes]] = {}
            sequences: dict[int, int] = {}
            for number, partitions in enumerate(targets):
                if number in failing_puts:
                    path.objects.fail_next(Operation.PUT, takes_effect=number % 2 == 0)
                value = b"%d" % number
                batches = []
                for partition in partitions:
                    sequence = sequences.get(partition, 0)
                    sequences[partition] = sequence + 1
                    expected.setdefault(partition, []).append(value)
                    made = batch_of(value, producer_id=1, producer_epoch=0, base_sequence=sequence)
                    batches.append((partition, made))
                answers.append((partitions, value, path.produce(*batches)))
                await asyncio.sleep(pauses[number % len(pauses)])
            for partitions, value, answer in answers:
                results = await asyncio.wait_for(answer, 100)
                for partition, result in zip(partitions, results, strict=True):
                    assert result.error is ErrorCode.NONE
                    assert expected[partition][result.base_offset] == value
            for partition, values in expected.items():
                assert await path.read(partition) == list(enumerate(values))

    run(main)


def test_a_store_that_stays_down_does_not_keep_a_broker_from_ending() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            with path.objects.failing(Operation.PUT):
                answer = path.produce((0, batch_of(b"a")))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(path.writer.drain(), 60)
                path.writer.abort()
                await asyncio.wait_for(path.writer.drain(), 1)
            assert not answer.done()
            assert await path.read(0) == []

    run(main)
