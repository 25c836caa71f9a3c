"""A spell in which the object store or the coordinator log is slow, refuses or hangs leaves no backlog when it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from diskless_core.diskless.commands import CommitFile
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.produce import second_writes
from diskless_core.produce.accumulator import Accumulator
from diskless_core.protocol import record_batch
from diskless_core.protocol.errors import ErrorCode
from tests.support.produce_path import TIMEOUT_S, ProducePath, batch_of
from tests.support.virtual_time import run

EVERY_S = 0.05
RECORD_BYTES = 4750
"""A record each 50 ms: 95 KB/s, of one producer."""

INTERVAL_S = 0.25
QUICK_S = 0.05
SPELL_S = 40.0

IN_FLIGHT = 5
"""Requests that an idempotent producer has under way at most."""


class Client:
    """A producer without idempotence: what has no answer in time, or a retriable error, it sends again."""

    def __init__(self, path: ProducePath, *, idempotent: bool = False) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._idempotent = idempotent
        self._in_flight = asyncio.Semaphore(IN_FLIGHT if idempotent else 1_000_000)
        self._sent = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.first_sent_s: dict[bytes, float] = {}
        self.took: list[tuple[float, float]] = []

    async def send_for(self, seconds: float) -> None:
        end = self._loop.time() + seconds
        while self._loop.time() < end:
            if not self._in_flight.locked():
                await self._in_flight.acquire()
                self._tasks.add(asyncio.create_task(self._send(self._sent)))
                self._sent += 1
            await asyncio.sleep(EVERY_S)

    async def _send(self, number: int) -> None:
        begun = self._loop.time()
        self.first_sent_s[b"%d" % number] = begun
        value = b"%d" % number + b" " * RECORD_BYTES
        more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if self._idempotent else {}
        while True:
            answer = self._path.produce((number % 4 if not self._idempotent else 0, batch_of(value, **more)))
            await asyncio.wait([answer], timeout=TIMEOUT_S)
            if answer.done() and answer.result()[0].error is ErrorCode.NONE:
                break
        self.took.append((begun, self._loop.time() - begun))
        self._in_flight.release()

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks)

    def longest_s(self, since_s: float, until_s: float) -> float:
        return max(took for begun, took in self.took if since_s <= begun < until_s)

    async def stored(self) -> Counter[bytes]:
        records = [await self._path.read(partition) for partition in range(4)]
        return Counter(value.strip() for found in records for _, value in found if value is not None)

    async def require_all_stored(self) -> Counter[bytes]:
        stored = await self.stored()
        assert set(stored) == {b"%d" % number for number in range(self._sent)}
        return stored


def slow_appends(path: ProducePath, append_s: Callable[[], float]) -> list[list[CommitFile]]:
    """Let each commit take so long, one after the other, as the appends of a bucket log do. Returns the commits."""
    shard, lists, appending = path.node.shard, list[list[CommitFile]](), asyncio.Lock()
    commit_files = shard.commit_files

    async def slow(requests):  # type: ignore[no-untyped-def]
        lists.append(list(requests))
        async with appending:
            await asyncio.sleep(append_s())
            return await commit_files(requests)

    shard.commit_files = slow  # type: ignore[method-assign]
    return lists


def first_sealed_s(monkeypatch: pytest.MonkeyPatch) -> dict[bytes, float]:
    """When each record was first in a sealed object."""
    sealed: dict[bytes, float] = {}
    seal = Accumulator.seal

    def noted(self, allocate):  # type: ignore[no-untyped-def]
        for _, batch, _ in self._entries:
            [record] = record_batch.records(batch.data)
            sealed.setdefault(record.value.strip(), asyncio.get_running_loop().time())
        return seal(self, allocate)

    monkeypatch.setattr(Accumulator, "seal", noted)
    return sealed


@pytest.mark.parametrize("put_s", [0.4, 1.5, 2.5])
def test_the_delay_stays_bounded_while_each_write_takes_long(put_s: float) -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=250) as path:
            path.objects.delay_of = lambda _: put_s
            slow_appends(path, lambda: put_s)
            client = Client(path)
            await client.send_for(60)
            await client.finish()
            assert client.longest_s(0, 1e9) < 3 * put_s + 2 * put_s + INTERVAL_S
            assert set((await client.require_all_stored()).values()) == {1}

    run(main)


@pytest.mark.parametrize("trouble", ["slow", "refuses", "hangs"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_ten_seconds_after_a_spell_everything_is_as_before(
    trouble: str, idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with ProducePath(linger_ms=250, buffer_max_bytes=8 << 20) as path:
            path.objects.may_put_twice = True
            loop, quick_again = asyncio.get_running_loop(), asyncio.Event()
            quick_again.set()
            put = path.objects.put

            async def troubled(key, data):  # type: ignore[no-untyped-def]
                if quick_again.is_set():
                    await asyncio.sleep(QUICK_S)
                elif trouble == "slow":
                    await asyncio.sleep(2.5)
                elif trouble == "refuses":
                    raise WalObjectStoreError("503 Slow Down")
                else:
                    await asyncio.Event().wait()
                await put(key, data)

            path.objects.put = troubled  # type: ignore[method-assign]
            slow_appends(path, lambda: QUICK_S if quick_again.is_set() else 2.5)
            sealed = first_sealed_s(monkeypatch)
            client = Client(path, idempotent=idempotent)
            await client.send_for(20)
            before = client.longest_s(0, 20)
            in_objects = path.objects.puts
            quick_again.clear()
            await client.send_for(SPELL_S)
            quick_again.set()
            ended = loop.time()
            await client.send_for(20)
            await client.finish()
            assert client.longest_s(ended + 10, ended + 20) <= before + 2 * QUICK_S
            assert path.objects.puts - in_objects < 4 * (SPELL_S + 20)
            stored = await client.require_all_stored()
            for value, count in stored.items():
                sent_s, sealed_s = client.first_sent_s[value], sealed[value]
                assert count == 1 or (not idempotent and sealed_s <= sent_s + TIMEOUT_S), "it was in no object yet"

    run(main)


def test_what_waited_for_a_slow_commit_goes_in_one_list_and_in_order() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            append_s = 2.0
            lists = slow_appends(path, lambda: append_s)
            answers = []
            for number in range(30):
                answers.append(path.produce((0, batch_of(b"%d" % number)), (1, batch_of(b"%d" % number))))
                await asyncio.sleep(0.26)
            await asyncio.gather(*answers)
            assert max(len(requests) for requests in lists) > 3
            for partition in (0, 1):
                assert [value for _, value in await path.read(partition)] == [b"%d" % number for number in range(30)]

    run(main)


def test_a_write_without_an_answer_is_sent_again_and_the_first_attempt_that_succeeds_counts() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.may_put_twice = True
            path.objects.delay_of = lambda number: 1e6 if number == 0 else QUICK_S
            [result] = await path.produce((0, batch_of(b"a")))
            assert result.error is ErrorCode.NONE
            assert asyncio.get_running_loop().time() < second_writes.LEAST_PATIENCE_S + 1
            assert path.objects.puts == 2
            assert [value for _, value in await path.read(0)] == [b"a"]

    run(main)


@pytest.mark.parametrize("put_s", [8.0, 11.0, 30.0])
def test_a_write_that_takes_long_is_not_given_up_for_another_that_takes_as_long(put_s: float) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.may_put_twice = True
            path.objects.delay_of = lambda _: put_s
            for number in range(3):
                begun_s = path.clock.monotonic()
                await path.produce((0, batch_of(b"%d" % number)), timeout_s=600)
                assert path.clock.monotonic() - begun_s < put_s + 0.1
            before = path.objects.puts
            await path.produce((0, batch_of(b"last")), timeout_s=600)
            assert path.objects.puts == before + 1, "it is known by now how long writes take"

    run(main)


def test_while_all_writes_have_no_answer_one_of_them_has_a_second_attempt() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.may_put_twice = True
            path.objects.delay_of = lambda _: 1e6
            for partition in range(4):
                path.produce((partition, batch_of(b"stuck")))
                await asyncio.sleep(INTERVAL_S + 0.01)
            await asyncio.sleep(60)
            writes = path.writer._uploader._second_writes
            under_way = [task for task in asyncio.all_tasks() if "SecondWrites._timed" in repr(task)]
            assert len(under_way) == 5
            assert writes._late == set()

    run(main)


def test_a_store_that_takes_no_second_write_is_asked_once() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda _: 20.0
            await path.produce((0, batch_of(b"a")))
            assert path.objects.puts == 1

    run(main)


def test_batches_of_acks_0_are_never_dropped() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda number: 60.0 if number < 4 else 0.0
            for _ in range(4):  # each of the upload slots gets an object
                path.produce((0, batch_of(b"stuck")))
                await asyncio.sleep(INTERVAL_S + 0.01)
            unanswered = path.produce((1, batch_of(b"no answer wanted")), timeout_s=float("inf"))
            late = path.produce((2, batch_of(b"given up")), timeout_s=1)
            behind = path.produce((1, batch_of(b"behind it")), timeout_s=1)
            await asyncio.sleep(10)
            assert [one.error for one in await late] == [ErrorCode.REQUEST_TIMED_OUT]
            assert not behind.done()
            assert not unanswered.done()
            assert [one.error for one in (*await unanswered, *await behind)] == [ErrorCode.NONE] * 2
            assert [value for _, value in await path.read(1)] == [b"no answer wanted", b"behind it"]
            assert await path.read(2) == []
            await path.writer.drain()
            assert path.writer.backlog.size_bytes == 0

    run(main)


def test_a_batch_of_an_idempotent_producer_is_not_dropped_while_a_later_one_waits_for_its_coordinator() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            path.objects.delay_of = lambda number: 0.0 if number == 3 else 20.0
            commit_files, goes_on = path.node.shard.commit_files, asyncio.Event()

            async def stalled(requests):  # type: ignore[no-untyped-def]
                await goes_on.wait()
                return await commit_files(requests)

            path.node.shard.commit_files = stalled  # type: ignore[method-assign]
            for partition in (2, 2, 2, 1, 2):  # the fourth one gets to its commit, so that all upload slots are taken
                path.produce((partition, batch_of(b"stuck")))
                await asyncio.sleep(INTERVAL_S + 0.01)
            sent = {"producer_id": 7, "producer_epoch": 0}
            path.produce((0, batch_of(b"0", base_sequence=0, **sent)), timeout_s=1)
            await asyncio.sleep(1.2)
            assert path.writer._committer.stalled
            later = path.produce((0, batch_of(b"1", base_sequence=1, **sent)))
            await asyncio.sleep(10)
            path.produce((0, batch_of(b"0", base_sequence=0, **sent)))
            goes_on.set()
            await later
            await path.writer.drain()
            assert [value for _, value in await path.read(0)] == [b"0", b"1"]

    run(main)


def test_a_coordinator_on_a_slow_log_does_not_count_as_stalled_once_it_is_known_to_be_slow() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            slow_appends(path, lambda: 2.0)
            for number in range(3):
                await path.produce((0, batch_of(b"%d" % number)))
            committer = path.writer._committer
            answer = path.produce((0, batch_of(b"last")))
            await asyncio.sleep(1.9)
            assert not committer.stalled
            await answer

    run(main)
