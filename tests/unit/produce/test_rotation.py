"""When objects are sealed: they grow where uploads or commits are slow, and none waits where both are quick."""

from __future__ import annotations

import asyncio
from statistics import quantiles

import pytest

from diskless_core.produce import writer
from diskless_core.protocol.errors import ErrorCode
from tests.support.produce_path import ProducePath, batch_of
from tests.support.virtual_time import run

GAP_S = 0.002
REQUESTS = 500


async def latencies_s(path: ProducePath, *, drain: bool = True) -> list[float]:
    """How long requests take that come every `GAP_S`."""
    loop = asyncio.get_running_loop()
    took: list[float] = []

    def send(number: int) -> None:
        begun = loop.time()
        answer = path.produce((0, batch_of(b"%d" % number)))
        answer.add_done_callback(lambda _: took.append(loop.time() - begun))

    for number in range(REQUESTS):
        send(number)
        await asyncio.sleep(GAP_S)
    if drain:
        await path.writer.drain()
    return took


def slow_down(path: ProducePath, *, upload_s: float, commit_s: float) -> None:
    path.objects.delay_of = lambda _: upload_s
    shard = path.node.shard
    commit_files = shard.commit_files

    async def slow_commit(requests):
        await asyncio.sleep(commit_s)
        return await commit_files(requests)

    shard.commit_files = slow_commit


def hold_up(path: ProducePath, *, partition: int) -> None:
    """Commits of this partition get no answer."""
    shard = path.node.shard
    commit_files = shard.commit_files

    async def held_up(requests):
        if any(batch.partition == partition for request in requests for batch in request.batches):
            await asyncio.Event().wait()
        return await commit_files(requests)

    shard.commit_files = held_up


@pytest.mark.parametrize(("upload_s", "commit_s"), [(0.01, 0.03), (0.03, 0.01), (0.02, 0.02)])
def test_requests_do_not_queue_before_the_slower_of_uploads_and_commits(upload_s: float, commit_s: float) -> None:
    async def main() -> None:
        async with ProducePath() as path:
            slow_down(path, upload_s=upload_s, commit_s=commit_s)
            took = await latencies_s(path)
            assert len(took) == REQUESTS
            slower = max(upload_s, commit_s)
            # It may have to wait for one object that is before it in each of the two, and then goes through both.
            assert quantiles(took, n=100)[98] < 4 * slower
            assert path.objects.puts <= REQUESTS * GAP_S / slower + 5

    run(main)


def test_where_both_are_quick_each_request_goes_alone() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            slow_down(path, upload_s=GAP_S / 4, commit_s=GAP_S / 4)
            assert max(await latencies_s(path)) < GAP_S
            assert path.objects.puts == REQUESTS

    run(main)


def test_a_partition_whose_commits_get_no_answer_holds_up_no_other() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            hold_up(path, partition=1)
            stuck = []
            for _ in range(2):  # the second waits for its turn
                stuck.append(path.produce((1, batch_of(b"stuck"))))
                await asyncio.sleep(GAP_S)
            assert max(await latencies_s(path, drain=False)) < GAP_S
            assert not any(answer.done() for answer in stuck)

    run(main)


def test_nothing_is_sealed_any_more_when_the_writer_is_aborted() -> None:
    async def main() -> None:
        async with ProducePath() as path:
            hold_up(path, partition=0)
            answers = []
            for number in range(3):  # the second waits for its turn, the third for an end of that
                answers.append(path.produce((0, batch_of(b"%d" % number))))
                await asyncio.sleep(GAP_S)
            assert path.objects.puts == 2
            path.writer.abort()
            await asyncio.sleep(1)
            assert path.objects.puts == 2
            assert not any(answer.done() for answer in answers)

    run(main)


def test_an_object_is_sealed_when_it_has_as_many_batches_as_one_may_have(monkeypatch):
    monkeypatch.setattr(writer, "MAX_COMMIT_BATCHES", 3)

    async def main():
        async with ProducePath(linger_ms=100) as path:
            answers = [path.produce((0, batch_of(b"%d" % number))) for number in range(2)]
            answers.append(path.produce((1, batch_of(b"2")), (0, batch_of(b"3"))))  # does not fit into the first
            answers.append(path.produce((0, batch_of(b"4"))))  # fills the second
            await asyncio.gather(*answers)
            assert path.objects.puts == 2
            assert asyncio.get_running_loop().time() < 0.1, "a full object does not linger"
            assert [value for _, value in await path.read(0)] == [b"0", b"1", b"3", b"4"]

    run(main)


def test_a_request_with_more_batches_than_an_object_may_have_goes_into_several_and_gets_one_answer(monkeypatch):
    monkeypatch.setattr(writer, "MAX_COMMIT_BATCHES", 3)

    async def main():
        async with ProducePath(linger_ms=5) as path:
            path.objects.delay_of = lambda number: 0.1 - 0.02 * number
            values = [b"%d" % number for number in range(8)]
            results = await path.produce(*((number % 2, batch_of(value)) for number, value in enumerate(values)))
            assert path.objects.puts == 3
            assert path.released == 1
            assert [(result.error, result.base_offset) for result in results] == [
                (ErrorCode.NONE, number // 2) for number in range(8)
            ]
            assert [value for _, value in await path.read(1)] == values[1::2]

    run(main)
