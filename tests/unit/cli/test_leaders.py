"""Work that is done at the leaders of all coordinators, while these move."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from diskless_core.cli.admin_client import AdminClientError, NoAnswerError, RefusedError
from diskless_core.cli.cluster_compaction import is_lost
from diskless_core.cli.compaction_reports import CompactionReports, done_shards
from diskless_core.cli.leaders import MAX_TRIES, MovedError, Portion, WorkAtLeaders
from diskless_core.cluster.view import BrokerView, ClusterView, ShardView
from tests.support.virtual_time import VirtualClock, run

PATIENCE_S = 60.0
MISDIRECTED = RefusedError("not here", "not here", 421, may_retry=True)


class Cluster:
    """Tells who leads which Diskless coordinator, or that nobody answers."""

    patience_s = PATIENCE_S

    def __init__(self, leaders: Sequence[int | None]) -> None:
        self.leaders = list(leaders)
        self.is_silent = False

    def view(self) -> ClusterView:
        if self.is_silent:
            raise NoAnswerError("no broker answers")
        names = [f"diskless-{index}" for index in range(len(self.leaders))]
        return ClusterView(
            node_id=1,
            cluster_id="c",
            controller=1,
            brokers=[BrokerView(node_id=1, rack=None, is_fenced=False, http=None)],
            shards=[ShardView(shard="cluster-0", leader=9, term=0)]
            + [ShardView(shard=name, leader=leader, term=0) for name, leader in zip(names, self.leaders, strict=True)],
        )

    def not_at(self, url: str) -> None:
        """Nobody has another address here."""

    def url_of(self, node_id: int) -> str:
        return f"http://broker-{node_id}"


def at_leaders_of(cluster: Cluster) -> WorkAtLeaders:
    stands_in: Any = cluster
    return WorkAtLeaders(stands_in, VirtualClock(asyncio.get_running_loop()))


def do(cluster: Cluster, work: Callable[[Portion], Awaitable[Collection[int]]]) -> float:
    """Do work at the leaders of a cluster; how many seconds it took."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        await at_leaders_of(cluster).do(work)
        return loop.time()

    return run(main)


def test_each_leader_does_what_it_leads_and_all_do_it_at_once() -> None:
    seen: list[Portion] = []

    async def work(portion: Portion) -> Collection[int]:
        seen.append(portion)
        await asyncio.sleep(100)
        return portion.shards

    assert do(Cluster([2, 3, 2]), work) == 100
    assert [(one.node_id, one.url, one.shards) for one in seen] == [
        (2, "http://broker-2", (0, 2)),
        (3, "http://broker-3", (1,)),
    ]


@pytest.mark.parametrize("loss", [NoAnswerError("gone"), MovedError("gone"), MISDIRECTED], ids=str)
def test_what_a_broker_has_lost_is_done_by_the_next_leader_once(loss: AdminClientError) -> None:
    cluster, done = Cluster([1, 2]), list[tuple[int, int]]()

    async def work(portion: Portion) -> Collection[int]:
        if portion.node_id == 1:
            cluster.leaders[0] = 3
            raise loss
        done.extend((shard, portion.node_id) for shard in portion.shards)
        return portion.shards

    assert do(cluster, work) < 10
    assert sorted(done) == [(0, 3), (1, 2)]


def test_a_coordinator_that_moved_before_its_turn_is_done_where_it_is_led_then() -> None:
    cluster, done = Cluster([1, 1]), list[tuple[int, int]]()

    async def work(portion: Portion) -> Collection[int]:
        cluster.leaders[1] = 2
        led = [shard for shard in portion.shards if cluster.leaders[shard] == portion.node_id]
        done.extend((shard, portion.node_id) for shard in led)
        return led

    do(cluster, work)
    assert done == [(0, 1), (1, 2)]


def test_a_coordinator_without_a_leader_is_waited_for() -> None:
    cluster = Cluster([None])

    async def work(portion: Portion) -> Collection[int]:
        return portion.shards

    async def main() -> float:
        loop = asyncio.get_running_loop()
        loop.call_later(20, cluster.leaders.__setitem__, 0, 1)
        await at_leaders_of(cluster).do(work)
        return loop.time()

    assert 20 <= run(main) < 25


def test_a_coordinator_that_nobody_leads_for_long_is_an_error() -> None:
    async def work(_portion: Portion) -> Collection[int]:
        raise AssertionError("nobody leads it")

    with pytest.raises(AdminClientError, match="nobody leads diskless-0, as broker 1 sees it"):
        do(Cluster([None]), work)


def test_a_broker_that_dies_after_hours_of_work_is_waited_for_as_long_as_any() -> None:
    cluster, begun = Cluster([1]), list[float]()

    async def work(portion: Portion) -> Collection[int]:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) == 1:
            await asyncio.sleep(10_000)
        if len(begun) < 10:
            raise NoAnswerError("gone")
        return portion.shards

    assert 10_000 < do(cluster, work) < 10_000 + PATIENCE_S


@pytest.mark.parametrize("silent", [False, True])
def test_a_broker_that_does_not_come_back_is_an_error_in_the_end(silent: bool) -> None:
    cluster = Cluster([1])

    async def work(_portion: Portion) -> Collection[int]:
        cluster.is_silent = silent
        raise NoAnswerError("no broker answers at broker-1")

    with pytest.raises(NoAnswerError, match="no broker answers"):
        do(cluster, work)


def test_what_moves_again_and_again_is_given_up() -> None:
    tries = 0

    async def work(_portion: Portion) -> Collection[int]:
        nonlocal tries
        tries += 1
        await asyncio.sleep(1000)
        raise MISDIRECTED

    with pytest.raises(RefusedError):
        do(Cluster([1]), work)
    assert tries == MAX_TRIES


def test_an_answer_that_does_not_pass_ends_all_at_once() -> None:
    ended: list[int] = []

    async def work(portion: Portion) -> Collection[int]:
        if portion.node_id == 1:
            await asyncio.sleep(1)
            raise RefusedError("no such topic", "no such topic", 404)
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(portion.node_id)
        return portion.shards

    with pytest.raises(RefusedError, match="no such topic"):
        do(Cluster([1, 2]), work)
    assert ended == [2]


def test_nobody_there_to_begin_with_is_told_at_once() -> None:
    cluster = Cluster([1])
    cluster.is_silent = True

    async def work(_portion: Portion) -> Collection[int]:
        raise AssertionError("there is nobody")

    with pytest.raises(NoAnswerError):
        do(cluster, work)


def test_what_is_interrupted_begins_nothing_more() -> None:
    async def main() -> None:
        cluster = Cluster([1, None])
        at_leaders = at_leaders_of(cluster)

        async def work(portion: Portion) -> Collection[int]:
            at_leaders.interrupt()
            cluster.leaders[1] = 2
            assert portion.node_id == 1
            return portion.shards

        await at_leaders.do(work)

    with pytest.raises(AdminClientError, match="interrupted"):
        run(main)


# --- reports ---------------------------------------------------------------------------------------------------------


def job(job_id: str, node_id: int, state: str, shards: Sequence[int], **more: Any) -> dict[str, Any]:
    return {
        "id": job_id,
        "node_id": node_id,
        "shards": list(shards),
        "moved": [],
        "state": state,
        "engine": "inline",
        "begun_at_ms": 10 * node_id,
        "ended_at_ms": 100 * node_id,
        "bytes_expected": 0,
        "bytes_planned": 7,
        "bytes_copied": 7,
        "segments": 1,
        "skipped": 0,
        "topics": {"t": {"partitions": 2, "segments": 1, "size_bytes": 7, "segments_lost": 0}},
        "failures": [],
    } | more


def test_reports_of_all_leaders_are_one() -> None:
    reports = CompactionReports()
    for one in (job("a", 1, "running", [0]), job("a", 1, "finished", [0]), job("a", 2, "finished", [1])):
        reports.note(one)
    merged = reports.merged()
    assert (merged["state"], merged["segments"], merged["bytes_copied"]) == ("finished", 2, 14)
    assert merged["topics"] == {"t": {"partitions": 4, "segments": 2, "size_bytes": 14, "segments_lost": 0}}
    assert (merged["begun_at_ms"], merged["ended_at_ms"]) == (10, 200)
    assert [(one["node_id"], one["shards"]) for one in merged["jobs"]] == [(1, [0]), (2, [1])]


def test_what_others_went_on_with_counts_its_segments_and_not_its_failures_and_partitions() -> None:
    reports = CompactionReports()
    moved = job("a", 1, "failed", [0], moved=[0], failures=["node 1 does not lead it"])
    for one in (moved, job("b", 2, "running", [1]), job("c", 3, "finished", [0, 1])):
        reports.note(one)
    reports.lost(2, "b")
    reports.lost(2, "unknown")
    merged = reports.merged()
    assert (merged["state"], merged["failures"], merged["segments"]) == ("finished", [], 3)
    assert merged["topics"]["t"]["partitions"] == 2
    assert [one["state"] for one in merged["jobs"]] == ["failed", "lost", "finished"]
    assert done_shards(moved) == []


def test_a_job_that_failed_where_nothing_moved_is_a_failure() -> None:
    reports, failed = CompactionReports(), job("a", 1, "failed", [0], failures=["the disk is full"])
    reports.note(failed)
    assert (reports.merged()["state"], reports.merged()["failures"]) == ("failed", ["the disk is full"])
    assert done_shards(failed) == [0]


def test_progress_is_that_of_all_jobs() -> None:
    reports = CompactionReports()
    reports.note(job("a", 1, "finished", [0]))
    reports.note(job("b", 2, "waiting", [1], bytes_planned=0, bytes_copied=0))
    assert reports.progress() == ("waiting", 7, 7)
    reports.note(job("b", 2, "running", [1], bytes_expected=100, bytes_copied=3))
    assert reports.progress() == ("running", 10, 114)
    reports.lost(2, "b")
    assert reports.progress() == ("finished", 10, 10)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (NoAnswerError("x"), True),
        (MISDIRECTED, True),
        (RefusedError("x", "there is no such job", 404), True),
        (RefusedError("x", "it has ended", 409), True),
        (RefusedError("x", "x", 500), False),
        (AdminClientError("another broker answers there"), False),
    ],
)
def test_which_answers_mean_that_a_job_is_lost(error: AdminClientError, lost: bool) -> None:
    assert is_lost(error) is lost
