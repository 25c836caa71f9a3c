"""A coordinator that does not answer holds up its own partitions only, in bounded memory and in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.diskless.commands import BatchResult, CommitFile, PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.produce.accumulator import Submission
from diskless_core.produce.committer import STALLED_S
from diskless_core.produce.part import Produce, ProduceNeighbours, ProduceSettings
from diskless_core.produce.validation import ValidBatch
from diskless_core.produce.writer import WriterSettings
from diskless_core.protocol.errors import ErrorCode
from diskless_core.testing.fakes.objects import MemoryWalObjectStore
from tests.support.guarantees import guarantee
from tests.support.virtual_time import VirtualClock, run

TOPIC = b"T" * 16
HEALTHY, STUCK, UNKNOWN = (PartitionKey(TOPIC, shard) for shard in range(3))
OTHER_STUCK = PartitionKey(b"U" * 16, 1)
"""The number of a partition is that of its coordinator."""

COMMIT_S = 0.02
TIMEOUT_S = 30.0
BATCH_BYTES = 100


class Coordinator:
    """Gives offsets in the order of its commits, when it is up. Those of the topic `unanswered` get no answer."""

    def __init__(self) -> None:
        self.is_up = True
        self.unanswered: bytes | None = None
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.committed: list[int] = []
        self._answers: dict[str, list[BatchResult]] = {}

    async def commit_files(self, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        await asyncio.sleep(COMMIT_S)
        await self.goes_on.wait()
        topics = {batch.topic_id for request in requests for batch in request.batches}
        if not self.is_up or self.unanswered in topics:
            raise NotCoordinatorError("no leader")
        return list(map(self._committed, requests))

    def _committed(self, request: CommitFile) -> list[BatchResult]:
        if request.object_key not in self._answers:
            answers = []
            for batch in request.batches:
                answers.append(BatchResult(base_offset=len(self.committed)))
                self.committed.append(batch.base_sequence)
            self._answers[request.object_key] = answers
        return self._answers[request.object_key]


class World:
    """A produce path before two coordinators, of which one can be taken away."""

    def __init__(self, inflight_max_bytes: int = 1 << 20) -> None:
        self.loop = asyncio.get_running_loop()
        clock = VirtualClock(self.loop)
        self.healthy, self.stuck = Coordinator(), Coordinator()
        self.objects = MemoryWalObjectStore(clock)
        writer = WriterSettings(
            commit_interval_ms=250,
            linger_ms=0,
            buffer_max_bytes=1 << 20,
            inflight_max_bytes=inflight_max_bytes,
            object_prefix="wal",
        )
        self.produce = Produce(
            ProduceSettings(writer=writer, upload_parallelism=4, shutdown_timeout_ms=60_000),
            ProduceNeighbours(
                node_id=1,
                objects=self.objects,
                coordinators={0: self.healthy, 1: self.stuck},  # type: ignore[dict-item]  # all that is asked for
                shard_of=lambda key: key.partition if key.partition < 2 else None,
                is_awaited=lambda _: False,
                on_uploaded=lambda *_: None,
                clock=clock,
                metrics=Metrics(),
            ),
        )
        self.writer = self.produce.writer
        self.released = 0
        self.sent = dict.fromkeys((HEALTHY, STUCK, UNKNOWN, OTHER_STUCK), 0)

    def send(
        self, *keys: PartitionKey, known: dict[int, BatchResult] | None = None
    ) -> asyncio.Future[list[BatchResult]]:
        """One request with the next batch of each partition; `known` is filled with what is known early."""
        answer: asyncio.Future[list[BatchResult]] = self.loop.create_future()
        batches = []
        for key in keys:
            data = memoryview(bytes(BATCH_BYTES))
            batches.append((key, ValidBatch(data, 1, 0, 0, 7, 0, self.sent[key], 0)))
            self.sent[key] += 1

        def settle(outcome: Sequence[BatchResult] | BaseException) -> None:
            if isinstance(outcome, BaseException):
                answer.set_exception(outcome)
            else:
                answer.set_result(list(outcome))

        def release() -> None:
            self.released += 1

        learn = None if known is None else known.__setitem__
        deadline_s = self.loop.time() + TIMEOUT_S
        self.writer.append(
            Submission(batches=batches, release=release, settle=settle, deadline_s=deadline_s, learn=learn)
        )
        return answer

    async def waited_s(self, key: PartitionKey, for_s: float, every_s: float = 0.1) -> list[float]:
        """How long each batch of a partition waited for its answer; those that still do are not in it."""
        waited: list[float] = []
        end = self.loop.time() + for_s
        while self.loop.time() < end:
            begun = self.loop.time()
            self.send(key).add_done_callback(lambda _, begun=begun: waited.append(self.loop.time() - begun))
            await asyncio.sleep(every_s)
        return waited


@asynccontextmanager
async def world(**settings: int) -> AsyncIterator[World]:
    made = World(**settings)
    yield made
    made.writer.abort()


@guarantee(
    "Offsets", "A coordinator without a leader holds up its own partitions only, and keeps the order of their batches."
)
@pytest.mark.parametrize("hangs", [False, True])
def test_producers_of_the_other_coordinator_hear_as_soon_as_ever_and_the_stalled_ones_when_it_is_back(
    hangs: bool,
) -> None:
    async def main() -> None:
        async with world() as w:
            w.stuck.is_up = hangs
            if hangs:
                w.stuck.goes_on.clear()
            stuck = asyncio.create_task(w.waited_s(STUCK, 40))
            took = await w.waited_s(HEALTHY, 20)
            assert len(took) >= 198
            assert max(took) < 0.4
            assert not any(one > 0.1 for one in took[30:]), "what waits is in no object, and holds up none"
            assert w.stuck.committed == []
            w.stuck.is_up = True
            w.stuck.goes_on.set()
            assert len(await stuck) >= 398
            await w.writer.drain()
            assert w.stuck.committed == list(range(w.sent[STUCK]))
            assert w.healthy.committed == list(range(w.sent[HEALTHY]))
            assert w.writer.backlog.size_bytes == 0
            assert w.released == w.sent[STUCK] + w.sent[HEALTHY]

    run(main)


def test_one_object_is_settled_with_each_coordinator_by_itself() -> None:
    async def main() -> None:
        async with world() as w:
            w.stuck.is_up = False
            healthy, stuck = w.send(HEALTHY), w.send(STUCK)
            assert (await healthy)[0].error is ErrorCode.NONE
            assert len(w.objects.objects) == 1
            assert w.loop.time() < 2 * COMMIT_S
            again = w.send(HEALTHY)
            await again
            assert w.healthy.committed == [0, 1]
            assert not stuck.done()
            w.stuck.is_up = True
            assert (await stuck)[0] == BatchResult(base_offset=0)

    run(main)


def test_a_request_for_both_tells_early_what_is_known_and_is_settled_once_with_all() -> None:
    async def main() -> None:
        async with world() as w:
            w.stuck.is_up = False
            known: dict[int, BatchResult] = {}
            answer = w.send(STUCK, HEALTHY, UNKNOWN, HEALTHY, known=known)
            await asyncio.sleep(1)
            assert {index: (one.error, one.base_offset) for index, one in known.items()} == {
                1: (ErrorCode.NONE, 0),
                2: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
                3: (ErrorCode.NONE, 1),
            }
            assert not answer.done()
            w.stuck.is_up = True
            results = await answer
            assert [one.error for one in results] == [
                ErrorCode.NONE,
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.NONE,
            ]
            assert w.released == 1

    run(main)


def test_a_later_batch_waits_for_the_earlier_one_of_its_partition_also_after_an_object_is_settled_in_part() -> None:
    async def main() -> None:
        async with world() as w:
            w.stuck.is_up = False
            answers = []
            for _ in range(40):
                answers.append(w.send(HEALTHY, STUCK))
                answers.append(w.send(STUCK))
                await asyncio.sleep(0.1)
            w.stuck.is_up = True
            await asyncio.gather(*answers)
            assert w.stuck.committed == list(range(80))
            assert w.healthy.committed == list(range(40))

    run(main)


def test_what_waits_takes_half_of_the_memory_and_more_is_refused_so_that_a_client_tries_again() -> None:
    async def main() -> None:
        limit = 100 * BATCH_BYTES
        async with world(inflight_max_bytes=limit) as w:
            w.stuck.is_up = False
            w.send(STUCK)
            await asyncio.sleep(STALLED_S + 0.1)
            stuck = [w.send(STUCK) for _ in range(50)]
            assert not any(one.done() for one in stuck)
            refused, both = w.send(STUCK), w.send(STUCK, HEALTHY)
            assert (await refused)[0].error is ErrorCode.NOT_ENOUGH_REPLICAS
            assert [one.error for one in await both] == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]
            assert not w.writer.backlog.is_full
            assert len(await w.waited_s(HEALTHY, 5)) >= 48
            w.stuck.is_up = True
            await asyncio.gather(*stuck)
            assert w.stuck.committed == list(range(51))
            assert (await w.send(STUCK))[0].error is ErrorCode.NONE
            assert w.writer.backlog.size_bytes == 0

    run(main)


def test_what_came_before_the_stall_was_noticed_stops_no_connection_for_good() -> None:
    """It may be as much as the broker's memory may have."""

    async def main() -> None:
        async with world(inflight_max_bytes=100 * BATCH_BYTES) as w:
            w.stuck.is_up = False
            stuck = [w.send(STUCK) for _ in range(100)]
            resumed: list[float] = []
            assert w.writer.backlog.wait_if_full(lambda: resumed.append(w.loop.time()))
            await asyncio.sleep(10)
            assert resumed
            assert resumed[0] < STALLED_S + 0.1
            assert len(await w.waited_s(HEALTHY, 5)) >= 48
            w.stuck.is_up = True
            await asyncio.gather(*stuck)
            assert w.writer.backlog.size_bytes == 0

    run(main)


def test_a_coordinator_that_answers_one_commit_and_then_none_stalls_again() -> None:
    """The commit that still waits has told of the first stall, and those behind it are never sent."""

    async def main() -> None:
        async with world(inflight_max_bytes=100 * BATCH_BYTES) as w:
            w.stuck.is_up = False
            w.stuck.unanswered = OTHER_STUCK.topic_id
            waiting = [w.send(OTHER_STUCK)]
            await asyncio.sleep(0.1)
            first = w.send(STUCK)
            await asyncio.sleep(STALLED_S + 0.5)
            w.stuck.is_up = True
            await first
            waiting += [w.send(OTHER_STUCK) for _ in range(100)]
            resumed: list[float] = []
            answered_s = w.loop.time()
            assert w.writer.backlog.wait_if_full(lambda: resumed.append(w.loop.time()))
            await asyncio.sleep(10)
            assert resumed
            assert resumed[0] - answered_s < STALLED_S + 0.1
            w.stuck.unanswered = None
            await asyncio.gather(*waiting)

    run(main)


def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    async def main() -> None:
        async with world() as w:
            w.stuck.is_up = False
            w.send(STUCK)
            await asyncio.sleep(STALLED_S + 0.1)
            answer = w.send(STUCK)
            assert (await answer)[0].error is ErrorCode.REQUEST_TIMED_OUT
            assert 30 < w.loop.time() < 60
            assert w.writer.backlog.size_bytes == BATCH_BYTES, "the first one is in an object"

    run(main)


def test_a_stop_waits_for_what_a_stalled_coordinator_has_to_take() -> None:
    async def main() -> None:
        w = World()
        w.stuck.is_up = False
        answers = [w.send(STUCK)]
        await asyncio.sleep(STALLED_S + 0.1)
        answers += [w.send(STUCK) for _ in range(3)]
        stopping = asyncio.create_task(w.produce.stop())
        await asyncio.sleep(5)
        w.stuck.is_up = True
        await stopping
        assert all(answer.done() for answer in answers)
        assert w.stuck.committed == list(range(4))

    run(main)
