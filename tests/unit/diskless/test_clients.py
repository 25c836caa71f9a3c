"""Coordinators that other nodes lead: the answers are those of the shard itself, and no failure is taken for one."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from diskless_core.coordinator.errors import (
    ClockSkewError,
    CoordinatorError,
    CoordinatorLoadingError,
    NotCoordinatorError,
    OutcomeUnknownError,
    RequestRefusedError,
)
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import BatchResult, CommitFile, FoundRuns, HandOver, ListedOffset, PartitionKey
from diskless_core.diskless.operations import HORIZON_AGE_MS
from diskless_core.diskless.remote import RemoteCoordinator
from diskless_core.diskless.service import DISKLESS_REQUESTS
from diskless_core.diskless.service_commits import LEAST_WAIT_S, MOST_WAIT_S, wait_s
from diskless_core.files.trimmer import Trimmer
from diskless_core.protocol.commit_file import CommitFileRequest, ShardPart
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    DisklessCommitFileRequest,
    DisklessListOffsetsRequest,
    FindCoordinatorRequest,
)
from diskless_core.shards import DISKLESS
from diskless_core.wal.format import object_key
from tests.support.guarantees import guarantee
from tests.support.peer_network import Network
from tests.support.shards import TOPIC, batch, commit_of, wal_key
from tests.support.virtual_time import VirtualClock, run

TOPIC_ID = uuid.UUID(bytes=TOPIC)
KEY = PartitionKey(TOPIC, 0)
SHARD_0 = DISKLESS.shard(0)
COMMIT = DisklessCommitFileRequest.API_KEY
FIND = FindCoordinatorRequest.API_KEY
LIST = DisklessListOffsetsRequest.API_KEY

Ask = Callable[[DisklessCoordinator], Awaitable[object]]


def on_network(
    test: Callable[[Network], Awaitable[None]],
    leaders: dict[int, int] | None = None,
    node_ids: tuple[int, ...] = (1, 2),
) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        async with Network(clock, leaders or {0: 1}, node_ids) as network:
            await test(network)

    run(main)


def remote(network: Network, shard: int = 0, *, asker: int = 2, asked: int = 1) -> RemoteCoordinator:
    directory = network.nodes[asker].directory
    return RemoteCoordinator(shard, asked, directory.calls, directory.commits)


async def commit(coordinator: DisklessCoordinator, request: CommitFile) -> list[BatchResult]:
    return (await coordinator.commit_files([request]))[0]


async def commit_parts(network: Network, key: str, shards: list[int]) -> list[list[BatchResult]]:
    """Commit one object with several coordinators at once, as node 2 does."""
    whole = replace(commit_of(wal_key(key), *map(batch, shards)), owner_ids=tuple(shards))
    parts = [replace(whole, batches=[one]) for one in whole.batches]
    coordinators = [as_seen_by(network, 2, shard) for shard in shards]
    return await asyncio.gather(
        *(commit(coordinator, part) for coordinator, part in zip(coordinators, parts, strict=True))
    )


def as_seen_by(network: Network, node_id: int, shard: int = 0) -> DisklessCoordinator:
    return network.nodes[node_id].directory.coordinators[shard]


def test_every_operation_is_answered_as_by_the_shard_itself() -> None:
    async def test(network: Network) -> None:
        coordinator, shard = remote(network), network.nodes[1].shards[0]
        await coordinator.create_partitions(TOPIC_ID, "t", [0, 3])
        assert set(shard.heads()) == {KEY, PartitionKey(TOPIC, 3)}

        clock = network.nodes[1].replicas[0].clock
        key = object_key("wal", clock.now_ms(), clock.new_uuid())
        request = commit_of(key, batch(count=3, max_timestamp=5), batch(9), batch(producer=(7, 0, 0)))
        results = await commit(coordinator, request)
        assert [(one.error, one.base_offset) for one in results] == [
            (ErrorCode.NONE, 0),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.NONE, 3),
        ]
        assert [one._replace(log_start_offset=-1) for one in results] == await shard.commit_file(request)

        found = await shard.find(KEY, 0, 1 << 20)
        assert await coordinator.find(KEY, 0, 1 << 20) == found._replace(
            runs=[one._replace(bytes_before=0) for one in found.runs]
        )
        assert await coordinator.find(KEY, 9, 1) == FoundRuns(ErrorCode.OFFSET_OUT_OF_RANGE, 0, 4, [], 0)
        assert await coordinator.list_offsets(KEY, 77) == ListedOffset(timestamp=77, offset=4)
        assert await coordinator.describe_files([key, "unknown"]) == {key: True}
        assert await coordinator.oldest_file_ms() == await shard.oldest_file_ms() is not None
        assert await coordinator.delete_records(KEY, 4) == (ErrorCode.NONE, 4)
        await Trimmer(shard, clock, on_dead_files=lambda: None).trim()
        assert await coordinator.describe_files([key, "unknown"]) == {key: False}
        assert await coordinator.delete_records(KEY, 5) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        await coordinator.hand_over([HandOver(wal_key("late"), (0,), 1, 2)])
        with pytest.raises(RequestRefusedError, match="no such coordinators"):
            await coordinator.hand_over([HandOver(wal_key("far"), (0, 7), 1, 2)])
        [late] = await commit(coordinator, commit_of(wal_key("late"), batch()))
        assert late.error is not ErrorCode.NONE
        assert await coordinator.delete_topic(TOPIC_ID) is ErrorCode.NONE
        assert await coordinator.delete_topic(TOPIC_ID) is ErrorCode.UNKNOWN_TOPIC_ID
        await coordinator.raise_horizon(clock.now_ms() - HORIZON_AGE_MS)
        with pytest.raises(ClockSkewError):
            await coordinator.raise_horizon(clock.now_ms())

    on_network(test)


def test_a_commit_elsewhere_tells_where_the_log_starts_of_refused_batches_too() -> None:
    async def test(network: Network) -> None:
        coordinator = as_seen_by(network, 2)
        await coordinator.create_partitions(TOPIC_ID, "t", [0])
        await commit(coordinator, commit_of(wal_key("first"), batch(count=3)))
        await coordinator.delete_records(KEY, 2)

        results = await commit(coordinator, commit_of(wal_key("second"), batch(), batch(9), batch(producer=(7, 0, 5))))

        assert [(one.error, one.log_start_offset) for one in results] == [
            (ErrorCode.NONE, 2),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
            (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2),
        ]

    on_network(test)


QUESTIONS: dict[str, Ask] = {
    "create partitions": lambda coordinator: coordinator.create_partitions(TOPIC_ID, "t", [0]),
    "delete a topic": lambda coordinator: coordinator.delete_topic(TOPIC_ID),
    "commit a file": lambda coordinator: commit(coordinator, commit_of(wal_key("f"), batch())),
    "delete records": lambda coordinator: coordinator.delete_records(KEY, 0),
    "list offsets": lambda coordinator: coordinator.list_offsets(KEY, -1),
    "describe files": lambda coordinator: coordinator.describe_files(["f"]),
    "the oldest file": lambda coordinator: coordinator.oldest_file_ms(),
    "raise the horizon": lambda coordinator: coordinator.raise_horizon(1),
    "hand over": lambda coordinator: coordinator.hand_over([HandOver(wal_key("f"), (0,), 1, 2)]),
}
each_question = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


@each_question
def test_a_node_that_does_not_lead_says_so(ask: Ask) -> None:
    async def test(network: Network) -> None:
        with pytest.raises(NotCoordinatorError):
            await ask(remote(network, asker=1, asked=2))

    on_network(test)


@each_question
def test_a_node_that_is_about_to_lead_says_so(ask: Ask) -> None:
    async def test(network: Network) -> None:
        network.shared.pause_reads(2)
        network.shared.set_leader(SHARD_0, 2)
        await asyncio.sleep(1)
        with pytest.raises(CoordinatorLoadingError):
            await ask(remote(network, asker=1, asked=2))

    on_network(test)


@each_question
def test_an_answer_that_is_lost_leaves_the_outcome_open(
    ask: Ask,
) -> None:
    async def test(network: Network) -> None:
        network.losing.add(1)
        with pytest.raises(OutcomeUnknownError):
            await ask(as_seen_by(network, 2))

    on_network(test)


@each_question
def test_a_node_that_cannot_be_reached_gives_no_answer(ask: Ask) -> None:
    async def test(network: Network) -> None:
        network.down.add(1)
        with pytest.raises(CoordinatorError):
            await ask(as_seen_by(network, 2))

    on_network(test)


@each_question
def test_a_log_that_hangs_is_given_up_in_time_and_the_outcome_is_open(
    ask: Ask,
) -> None:
    async def test(network: Network) -> None:
        network.shared.hold_high_watermark(SHARD_0)
        pending = asyncio.create_task(network.nodes[1].shards[0].create_partitions(TOPIC_ID, "t", [1]))
        await asyncio.sleep(0)
        with pytest.raises(OutcomeUnknownError):
            await asyncio.wait_for(ask(as_seen_by(network, 2)), 30)
        network.shared.release_high_watermark(SHARD_0)
        await pending

    on_network(test)


@each_question
def test_somebody_who_may_not_ask_changes_nothing(ask: Ask) -> None:
    async def test(network: Network) -> None:
        node = network.nodes[1]
        node.service = node.service.refusing
        before = len(network.shared.content(SHARD_0))
        with pytest.raises(CoordinatorError, match="CLUSTER_AUTHORIZATION_FAILED"):
            await ask(as_seen_by(network, 2))
        assert len(network.shared.content(SHARD_0)) == before

    on_network(test)


def test_every_api_has_an_answer_for_somebody_who_may_not_ask() -> None:
    async def test(network: Network) -> None:
        for request in DISKLESS_REQUESTS:
            if request.API_KEY != COMMIT:
                assert await network.nodes[1].service.refusing.handle(request.API_KEY, request()) is not None

    on_network(test)


def test_a_commit_whose_answer_was_lost_gets_its_first_answer_when_it_comes_again() -> None:
    async def test(network: Network) -> None:
        coordinator = as_seen_by(network, 2)
        await coordinator.create_partitions(TOPIC_ID, "t", [0])
        network.losing.add(1)
        with pytest.raises(OutcomeUnknownError):
            await commit(coordinator, commit_of(wal_key("f"), batch(count=2)))
        network.losing.clear()
        [result] = await commit(coordinator, commit_of(wal_key("f"), batch(count=2)))
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
        assert await coordinator.list_offsets(KEY, -1) == ListedOffset(timestamp=-1, offset=2)

    on_network(test)


def test_a_list_of_objects_is_committed_in_order_and_in_one_entry_and_is_answered_again_as_before() -> None:
    async def test(network: Network) -> None:
        coordinator = as_seen_by(network, 2)
        await coordinator.create_partitions(TOPIC_ID, "t", [0])
        producer = [commit_of(wal_key(f"object-{n}"), batch(producer=(7, 0, n)), batch(9)) for n in range(3)]
        requests = [*producer, commit_of(wal_key("repeats"), batch(producer=(7, 0, 1)))]
        entries = len(network.shared.content(SHARD_0))
        answers = await coordinator.commit_files(requests)
        assert len(network.shared.content(SHARD_0)) == entries + 1
        assert [(one.error, one.base_offset) for [one, *_] in answers] == [(ErrorCode.NONE, n) for n in (0, 1, 2, 1)]
        assert answers[3][0].is_duplicate
        assert {one.error for [_, one] in answers[:3]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        again = await coordinator.commit_files(requests)
        assert [[one.base_offset for one in some] for some in again] == [[n.base_offset for n in a] for a in answers]
        assert await coordinator.list_offsets(KEY, -1) == ListedOffset(timestamp=-1, offset=3)

    on_network(test)


def test_a_node_that_knows_no_lists_is_sent_the_objects_one_by_one() -> None:
    async def test(network: Network) -> None:
        coordinator = as_seen_by(network, 2)
        await coordinator.create_partitions(TOPIC_ID, "t", [0])
        service, requests = network.nodes[1].service, list[CommitFileRequest]()
        handle = service.handle

        async def of_the_release_before(api_key: int, message: Any) -> Any:
            if api_key == COMMIT:
                requests.append(message)
                message = replace(message, others=())
            return await handle(api_key, message)

        service.handle = of_the_release_before
        answers = await coordinator.commit_files([commit_of(wal_key(f"object-{n}"), batch()) for n in range(3)])
        assert [one.base_offset for [one] in answers] == [0, 1, 2]
        assert [(one.object_key, len(one.others)) for one in requests] == [
            (wal_key("object-0"), 2),
            (wal_key("object-1"), 0),
            (wal_key("object-2"), 0),
        ]

    on_network(test)


def test_a_defect_in_one_shard_is_no_other_shards_business() -> None:
    async def test(network: Network) -> None:
        for shard in (0, 1):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        network.nodes[1].shards[0].commit_files = broken
        [first], [second] = await commit_parts(network, "f", [0, 1])
        assert first.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert second.error is ErrorCode.NONE

    async def broken(_: object) -> None:
        raise ZeroDivisionError

    on_network(test, {0: 1, 1: 1})


# --- who is asked -----------------------------------------------------------------------------------------------------


def test_a_coordinator_that_this_node_leads_is_asked_without_any_wire() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 1).create_partitions(TOPIC_ID, "t", [0])
        assert network.sent == []
        await as_seen_by(network, 2).create_partitions(TOPIC_ID, "t", [1])
        assert [node_id for node_id, _ in network.sent] == [1]

    on_network(test)


def test_the_question_follows_the_log_to_a_new_leader() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 1).create_partitions(TOPIC_ID, "t", [0])
        network.shared.set_leader(SHARD_0, 2)
        await network.nodes[2].shards[0].until_leading()
        for node_id in (1, 2):
            assert await as_seen_by(network, node_id).list_offsets(KEY, -1) == ListedOffset(timestamp=-1, offset=0)
        assert network.sent == [(2, LIST)]

    on_network(test)


def test_a_leader_that_only_another_node_knows_of_is_found_and_remembered() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 1).create_partitions(TOPIC_ID, "t", [0])
        network.shared.set_leader(SHARD_0, 2, seen_by=[1, 2])
        await network.nodes[2].shards[0].until_leading()
        for _ in range(2):
            assert (await as_seen_by(network, 3).list_offsets(KEY, -1)).offset == 0
        assert network.sent == [(1, LIST), (1, FIND), (2, LIST), (2, LIST)]

    on_network(test, node_ids=(1, 2, 3))


def test_without_any_hint_of_the_log_the_peers_are_asked() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 2).create_partitions(TOPIC_ID, "t", [0])
        network.shared.set_leader(SHARD_0, None, seen_by=[3])
        await asyncio.sleep(1)
        network.sent.clear()
        network.down.add(1)
        assert (await as_seen_by(network, 3).list_offsets(KEY, -1)).offset == 0
        assert network.sent == [(2, FIND), (2, LIST)]

    on_network(test, {0: 2}, node_ids=(1, 2, 3))


def test_where_nobody_leads_nobody_answers() -> None:
    async def test(network: Network) -> None:
        network.shared.set_leader(SHARD_0, None)
        await asyncio.sleep(1)
        for node_id in (1, 2):
            with pytest.raises(NotCoordinatorError):
                await as_seen_by(network, node_id).describe_files(["f"])

    on_network(test)


# --- bundles ----------------------------------------------------------------------------------------------------------


def test_parts_of_an_object_for_one_node_are_one_request() -> None:
    async def test(network: Network) -> None:
        for shard in range(4):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        network.sent.clear()
        results = await commit_parts(network, "f", [0, 1, 2, 3])
        assert [(one.error, one.base_offset) for [one] in results] == [(ErrorCode.NONE, 0)] * 4
        assert sorted(network.sent) == [(1, COMMIT), (3, COMMIT)], "shard 1 is led by the node that asks"

    on_network(test, {0: 1, 1: 2, 2: 1, 3: 3}, node_ids=(1, 2, 3))


def test_of_two_objects_each_is_a_request_of_its_own() -> None:
    async def test(network: Network) -> None:
        for shard in range(2):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        network.sent.clear()
        await asyncio.gather(commit_parts(network, "f", [0, 1]), commit_parts(network, "g", [0, 1]))
        assert network.sent == [(1, COMMIT)] * 2

    on_network(test, {0: 1, 1: 1})


def test_a_part_whose_coordinator_has_moved_goes_there_and_the_others_are_not_repeated() -> None:
    async def test(network: Network) -> None:
        for shard in range(2):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        network.shared.set_leader(DISKLESS.shard(1), 3, seen_by=[1, 3])
        await network.nodes[3].shards[1].until_leading()
        network.sent.clear()
        results = await commit_parts(network, "f", [0, 1])
        assert [one.error for [one] in results] == [ErrorCode.NONE] * 2
        assert network.sent == [(1, COMMIT), (1, FIND), (3, COMMIT)]

    on_network(test, {0: 1, 1: 1}, node_ids=(1, 2, 3))


def test_a_bundle_whose_answer_is_lost_leaves_the_outcome_of_each_part_open() -> None:
    async def test(network: Network) -> None:
        for shard in range(2):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        network.losing.add(1)
        parts = [replace(commit_of(wal_key("f"), batch(shard)), owner_ids=(0, 1)) for shard in (0, 1)]
        outcomes = await asyncio.gather(
            *(commit(as_seen_by(network, 2, shard), part) for shard, part in enumerate(parts)),
            return_exceptions=True,
        )
        assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError] * 2

    on_network(test, {0: 1, 1: 1})


def test_who_gives_up_his_part_takes_nothing_from_the_others() -> None:
    async def test(network: Network) -> None:
        for shard in range(2):
            await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
        parts = [replace(commit_of(wal_key("f"), batch(shard)), owner_ids=(0, 1)) for shard in (0, 1)]
        first, second = (
            asyncio.create_task(commit(as_seen_by(network, 2, shard), part)) for shard, part in enumerate(parts)
        )
        await asyncio.sleep(0)
        first.cancel()
        assert [one.error for one in await second] == [ErrorCode.NONE]

    on_network(test, {0: 1, 1: 1})


# --- a coordinator that stalls ----------------------------------------------------------------------------------------

TWO_COORDINATORS = {0: 1, 1: 1}


async def created(network: Network, *shards: int) -> None:
    """Each shard has the partition of its own number."""
    for shard in shards:
        await as_seen_by(network, 2, shard).create_partitions(TOPIC_ID, "t", [shard])
    network.sent.clear()


def begin_parts(network: Network, key: str, shards: list[int]) -> list[asyncio.Task[list[BatchResult]]]:
    """Begin to commit one object with several coordinators at once, as node 2 does."""
    whole = replace(commit_of(wal_key(key), *map(batch, shards)), owner_ids=tuple(shards))
    return [
        asyncio.create_task(commit(as_seen_by(network, 2, shard), replace(whole, batches=[one])))
        for shard, one in zip(shards, whole.batches, strict=True)
    ]


async def answers_within(limit_s: float, *asked: asyncio.Task[list[BatchResult]]) -> list[tuple[ErrorCode, int]]:
    async with asyncio.timeout(limit_s):
        return [(one.error, one.base_offset) for task in asked for one in await task]


@guarantee(
    "Offsets",
    "A coordinator that stalls holds up commits of other coordinators for a second at most, or twice as long as recent "
    "commits took, though one broker leads all of them and gets their commits in one request.",
)
def test_a_coordinator_that_stalls_does_not_hold_up_another_one_that_the_same_node_leads() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1)
        network.shared.hold_high_watermark(DISKLESS.shard(1))
        healthy, stalled = begin_parts(network, "object-0", [0, 1])
        assert await answers_within(LEAST_WAIT_S + 0.1, healthy) == [(ErrorCode.NONE, 0)]
        stalled_ones = [stalled]
        for number in range(1, 5):
            healthy, stalled = begin_parts(network, f"object-{number}", [0, 1])
            assert await answers_within(0.1, healthy) == [(ErrorCode.NONE, number)]
            stalled_ones.append(stalled)
        await asyncio.sleep(3)
        assert not any(task.done() for task in stalled_ones)
        network.shared.release_high_watermark(DISKLESS.shard(1))
        assert await answers_within(1, *stalled_ones) == [(ErrorCode.NONE, number) for number in range(5)]
        partition = PartitionKey(TOPIC, 1)
        assert (await as_seen_by(network, 2, 1).list_offsets(partition, -1)).offset == 5, "each object once"

    on_network(test, TWO_COORDINATORS)


def test_what_is_asked_of_a_stalled_coordinator_alone_holds_up_nothing_of_another_one() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1)
        network.shared.hold_high_watermark(DISKLESS.shard(1))
        stalled = as_seen_by(network, 2, 1)
        of_list = [commit_of(wal_key(f"list-{number}"), batch(1), owner_ids=(1,)) for number in range(2)]
        under_way = [
            *begin_parts(network, "alone", [1]),
            asyncio.create_task(stalled.commit_files(of_list)),
            asyncio.create_task(stalled.list_offsets(PartitionKey(TOPIC, 1), -1)),
        ]
        await asyncio.sleep(0)
        assert await answers_within(0.1, *begin_parts(network, "object", [0])) == [(ErrorCode.NONE, 0)]
        async with asyncio.timeout(0.1):
            assert (await as_seen_by(network, 2).list_offsets(KEY, -1)).offset == 1
        network.shared.release_high_watermark(DISKLESS.shard(1))
        await asyncio.gather(*under_way)

    on_network(test, TWO_COORDINATORS)


def test_a_bundle_of_stalled_coordinators_holds_up_the_next_one_for_a_second_at_most() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1, 2)
        for shard in (1, 2):
            network.shared.hold_high_watermark(DISKLESS.shard(shard))
        stalled = begin_parts(network, "first", [1, 2])
        healthy, also_stalled = begin_parts(network, "second", [0, 2])
        assert await answers_within(MOST_WAIT_S + 0.1, healthy) == [(ErrorCode.NONE, 0)]
        for shard in (1, 2):
            network.shared.release_high_watermark(DISKLESS.shard(shard))
        assert await answers_within(1, *stalled, also_stalled) == [(ErrorCode.NONE, n) for n in (0, 0, 1)]

    on_network(test, {0: 1, 1: 1, 2: 1})


def test_a_coordinator_that_was_late_and_answers_again_is_in_bundles_again() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1)
        network.shared.hold_high_watermark(DISKLESS.shard(1))
        late = begin_parts(network, "first", [0, 1])
        await asyncio.sleep(3)
        assert network.sent == [(1, COMMIT)] * 2, "the part is asked for once more, and waits then"
        network.shared.release_high_watermark(DISKLESS.shard(1))
        assert await answers_within(1, *late) == [(ErrorCode.NONE, 0)] * 2
        network.sent.clear()
        assert await answers_within(1, *begin_parts(network, "second", [0, 1])) == [(ErrorCode.NONE, 1)] * 2
        assert network.sent == [(1, COMMIT)]

    on_network(test, TWO_COORDINATORS)


def test_coordinators_of_a_slow_log_are_waited_for_and_each_object_is_committed_once() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1)
        network.shared.append_delay_s = lambda: 3.0
        assert await answers_within(3.1, *begin_parts(network, "object", [0, 1])) == [(ErrorCode.NONE, 0)] * 2
        assert network.sent == [(1, COMMIT)] * 3, "each part is asked for once more, alone"
        network.sent.clear()
        assert await answers_within(3.1, *begin_parts(network, "next", [0, 1])) == [(ErrorCode.NONE, 1)] * 2
        assert network.sent == [(1, COMMIT)], "that commits take long is known by now"

    on_network(test, TWO_COORDINATORS)


def test_nothing_is_kept_of_a_part_that_is_late_however_often_it_comes() -> None:
    async def test(network: Network) -> None:
        await created(network, 0, 1)
        network.shared.hold_high_watermark(DISKLESS.shard(1))
        entries = len(network.shared.content(DISKLESS.shard(1)))
        parts = [replace(commit_of(wal_key("f"), batch(shard)), owner_ids=(0, 1)) for shard in (0, 1)]
        request = CommitFileRequest(
            object_key=parts[0].object_key,
            object_format=parts[0].object_format,
            file_size=parts[0].file_size,
            owner_ids=[0, 1],
            batches=[one for part in parts for one in part.batches],
            shards=[ShardPart(0, 1), ShardPart(1, 1)],
            uploader_id=parts[0].uploader_id,
        )
        service, tasks = network.nodes[1].service, len(asyncio.all_tasks())
        for _ in range(50):
            results = (await service.handle(COMMIT, request)).results
            assert [one.error for one in results] == [ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT]
        await asyncio.sleep(0.1)
        assert len(asyncio.all_tasks()) <= tasks
        network.shared.release_high_watermark(DISKLESS.shard(1))
        results = (await service.handle(COMMIT, request)).results
        assert [(one.error, one.base_offset) for one in results] == [(ErrorCode.NONE, 0)] * 2
        assert len(network.shared.content(DISKLESS.shard(1))) == entries + 1

    on_network(test, TWO_COORDINATORS)


@pytest.mark.parametrize(
    ("done_s", "longest_s", "waits_s"),
    [
        (None, 0.3, MOST_WAIT_S),
        (0.01, 0.3, LEAST_WAIT_S),
        (0.3, 0.3, 0.6),
        (0.7, 0.3, MOST_WAIT_S),
        (None, 3.0, 6.0),
        (0.3, 3.0, 0.6),
        (3.2, 3.0, 6.0),
    ],
)
def test_a_bundle_waits_for_its_late_parts_twice_as_long_as_the_others_took(
    done_s: float | None, longest_s: float, waits_s: float
) -> None:
    assert wait_s(done_s, longest_s) == waits_s


def test_stopping_leaves_the_outcome_of_what_is_under_way_open() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 2).create_partitions(TOPIC_ID, "t", [0])
        network.shared.hold_high_watermark(SHARD_0)
        under_way = asyncio.create_task(commit(as_seen_by(network, 2), commit_of(wal_key("f"), batch())))
        await asyncio.sleep(1)
        await network.nodes[2].directory.stop()
        with pytest.raises(OutcomeUnknownError):
            await under_way
        network.shared.release_high_watermark(SHARD_0)

    on_network(test)


def test_a_leader_out_of_reach_is_not_waited_for_once_another_one_leads() -> None:
    async def test(network: Network) -> None:
        await as_seen_by(network, 3).create_partitions(TOPIC_ID, "t", [0])
        network.silent.add(1)
        begun = asyncio.get_running_loop().time()
        asked = asyncio.create_task(commit(as_seen_by(network, 3), commit_of(wal_key("f"), batch())))
        await asyncio.sleep(1)
        network.shared.set_leader(SHARD_0, 2)
        with pytest.raises(OutcomeUnknownError):
            await asked
        assert asyncio.get_running_loop().time() - begun < 5
        [result] = await commit(as_seen_by(network, 3), commit_of(wal_key("f"), batch()))
        assert result.error is ErrorCode.NONE

    on_network(test, node_ids=(1, 2, 3))
