"""Removal of segments: what goes, what stays, and who finishes what somebody was stopped in the middle of."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from diskless_core.config.tiering import TieringConfig
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.plugin.remote_log_metadata import (
    IllegalTransitionError,
    RemoteLogMetadata,
    RemoteLogMetadataServices,
)
from diskless_core.plugin.segment_compaction import SegmentPlan
from diskless_core.protocol.errors import ErrorCode
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.testing.fakes.remote_log_metadata import Operation as MetadataOperation
from diskless_core.testing.fakes.remote_storage import Operation, access_denied
from diskless_core.testing.remote_log_metadata_tools import segment
from diskless_core.tiering.copies import Copies, SegmentServices
from diskless_core.tiering.removal import DeletionMarks, SegmentRemover
from diskless_core.tiering.removal_rules import GRACE_MS, below_log_start
from diskless_core.tiering.retrying import Retries
from diskless_tiering.config import CoordinatorMetadataSettings
from diskless_tiering.coordinator_metadata import CoordinatorMetadata
from tests.support.guarantees import guarantee
from tests.support.produce_path import batch_of, key_of, records_of
from tests.support.shards import TOPIC
from tests.support.tiered_path import TieredPath
from tests.support.virtual_time import run

KEY = key_of(0)
TOPIC_ID = uuid.UUID(bytes=TOPIC)
SETTINGS = TieringConfig()


class Killed(BaseException):
    """The process ends here."""


def anywhere(_: TopicIdPartition) -> bool:
    return True


def services_of(path: TieredPath, metadata: RemoteLogMetadata | None = None) -> SegmentServices:
    return SegmentServices(
        node_id=1,
        clock=path.clock,
        clock_watch=path.node.shard.clock_watch,
        shards={0: path.node.shard},
        metadata=metadata or path.metadata,
        remote_storage=path.storage,
        retries=Retries(SETTINGS, path.clock),
        metrics=path.metrics,
    )


def remover_of(
    path: TieredPath, metadata: RemoteLogMetadata | None = None, *, copies: Copies | None = None
) -> SegmentRemover:
    """One of a process that starts now, which works on `copies`, or on none."""
    services = services_of(path, metadata)
    return SegmentRemover(services, copies or Copies(services), anywhere, SETTINGS)


def marks_of(path: TieredPath, metadata: RemoteLogMetadata | None = None) -> DeletionMarks:
    return DeletionMarks(metadata or path.metadata, 1, path.clock)


async def fill(path: TieredPath, *tiered_to: int, partition: int = 0, count: int = 20) -> None:
    """Batches of one record, in segments that end with these offsets."""
    for number in range(count):
        await path.produce((partition, batch_of(b"%d" % number)))
    for through in tiered_to:
        await path.tier(partition, through=through)


def starts(path: TieredPath) -> list[int]:
    """Where the segments begin that are in remote storage."""
    known = {
        segment.segment_id: segment.start_offset
        for segment_id in path.storage.segments
        for segment in path.metadata.ledger.log(segment_id.topic_id_partition).segments()
    }
    return sorted(known[segment_id] for segment_id in path.storage.segments)


@guarantee("Deletion and retention", "A segment goes when all of its records are below the log start, not before.")
def test_segments_go_when_they_lie_wholly_below_the_log_start() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4, 9, 14)
            remover = remover_of(path)
            for log_start, left in ((3, [0, 5, 10]), (4, [0, 5, 10]), (5, [5, 10]), (14, [10]), (15, []), (18, [])):
                await path.node.shard.delete_records(KEY, log_start)
                assert await remover.round()
                assert starts(path) == left
                [answer] = await path.fetch((0, log_start))
                assert records_of(answer)[0] == (log_start, b"%d" % log_start)
            assert not path.metadata.ledger.log(place()).segments()
            assert path.metrics.remote_delete_requests._value.get() == 3

    run(main)


def place(partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(TOPIC_ID, "t", partition)


def test_what_somebody_began_to_remove_is_finished_and_what_somebody_may_still_write_is_left_alone() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path)
            given_up, foreign = await path.copied(through=4), await path.copied(through=4)
            for copy, broker_id in ((given_up, 1), (foreign, 2)):
                log = path.metadata.ledger.log(place())
                log.put(replace(copy, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED, broker_id=broker_id))
            began = await path.copied(through=4)
            await path.note(began, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
            finished = await path.copied(through=4)
            copies = Copies(services_of(path))
            living = await copies.begin(path.node.shard, plan_of(given_up))
            assert living is not None
            path.storage.segments[living.segment_id] = path.storage.segments[given_up.segment_id]
            taken = await path.tier(through=9)
            await path.node.shard.delete_records(KEY, 5)
            remover = remover_of(path, copies=copies)
            assert await remover.round()
            assert set(path.storage.segments) == {living.segment_id, foreign.segment_id, taken.segment_id}
            assert path.metrics.remote_delete_lag_segments._value.get() == 2
            assert began.segment_id not in path.storage.segments
            assert finished.segment_id not in path.storage.segments
            await asyncio.sleep(GRACE_MS / 1000 + 1)
            assert await remover.round()
            assert set(path.storage.segments) == {living.segment_id, taken.segment_id}, "it is written, however long"
            copies.give_up([living.segment_id])
            assert await remover.round()
            assert set(path.storage.segments) == {taken.segment_id}
            assert path.metrics.remote_delete_lag_bytes._value.get() == 0

    run(main)


def plan_of(copy: RemoteLogSegmentMetadata) -> SegmentPlan:
    """The plan of a segment with the same records."""
    return SegmentPlan(
        partition=copy.segment_id.topic_id_partition,
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        size_bytes=copy.segment_size_bytes,
        max_timestamp_ms=copy.max_timestamp_ms,
        index_interval_bytes=4096,
        ranges=(),
    )


def test_it_tries_for_ever_less_and_less_often() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4)
            await path.node.shard.delete_records(KEY, 5)
            with path.storage.failing(Operation.DELETE, error=access_denied):
                task = asyncio.create_task(remover_of(path).run())
                await asyncio.sleep(3600)
                tried = path.storage.calls[Operation.DELETE]
                assert 100 < tried < 200  # every 30 seconds in the end
                assert path.metrics.remote_delete_errors._value.get() == tried
                assert path.metrics.remote_delete_lag_segments._value.get() == 1
            await asyncio.sleep(60)
            assert not path.storage.segments
            task.cancel()

    run(main)


def test_it_is_woken_by_what_happens() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4, 9)
            task = asyncio.create_task(remover_of(path).run())
            await asyncio.sleep(10)
            await path.node.shard.delete_records(KEY, 5)
            await asyncio.sleep(0.1)
            assert starts(path) == [5]
            task.cancel()

    run(main)


def test_a_copy_that_failed_goes_with_its_records_where_no_segment_was_taken() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            task = asyncio.create_task(remover_of(path).run())
            await fill(path)
            copy = await path.copied(through=4)
            log = path.metadata.ledger.log(place())
            log.put(replace(copy, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED))
            await path.node.shard.delete_records(KEY, 5)
            await asyncio.sleep(0.1)
            assert not path.storage.segments
            task.cancel()

    run(main)


def test_only_the_leader_removes() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4)
            remover = remover_of(path)
            await path.node.shard.delete_records(KEY, 5)
            path.shared.set_leader(path.node.shard_id, 2)
            await asyncio.sleep(1)
            assert await remover.round()
            assert starts(path) == [0]
            path.shared.set_leader(path.node.shard_id, 1)
            await path.node.shard.until_leading()
            assert await remover.round()
            assert starts(path) == []

    run(main)


@guarantee("Deletion and retention", "The segments of a deleted topic go, whoever is stopped at whatever step.")
def test_the_segments_of_a_deleted_topic_go() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4, 9)
            await fill(path, 5, partition=2)
            await marks_of(path).mark(path.node.shard, TOPIC_ID)
            marked = path.metadata.ledger.delete_states()
            assert {(one.topic_id_partition, one.state) for one in marked} == {
                (place(partition), RemotePartitionDeleteState.DELETE_PARTITION_MARKED) for partition in (0, 2)
            }
            assert await path.node.shard.delete_topic(TOPIC_ID) is ErrorCode.NONE
            assert await remover_of(path).round()
            assert not path.storage.segments
            assert not path.metadata.ledger.delete_states()
            states = [
                event.state
                for event in path.metadata.ledger.events
                if getattr(event, "topic_id_partition", 0) == place()
            ]
            assert states == list(RemotePartitionDeleteState)

    run(main)


def test_a_deletion_that_failed_is_tried_again_at_the_next_round() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4)
            await marks_of(path).mark(path.node.shard, TOPIC_ID)
            await path.node.shard.delete_topic(TOPIC_ID)
            remover = remover_of(path)
            for operation in (MetadataOperation.DELETING_PARTITIONS, MetadataOperation.UPDATE_PARTITION):
                path.metadata.fail_next(operation)
                assert not await remover.round()
            path.storage.fail_next(Operation.DELETE)
            assert not await remover.round()
            assert await remover.round()
            assert not path.storage.segments

    run(main)


def test_what_somebody_else_is_about_to_have_removed_is_left_to_the_next_round() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4)
            await marks_of(path).mark(path.node.shard, TOPIC_ID)
            await path.node.shard.delete_topic(TOPIC_ID)
            remover = remover_of(path)
            path.metadata.fail_next(
                MetadataOperation.UPDATE, times=2, error=lambda: IllegalTransitionError("it is being finished")
            )
            assert not await remover.round()
            assert path.metadata.calls[MetadataOperation.LIST] < 10
            assert not await remover.round()
            assert await remover.round()
            assert not path.storage.segments

    run(main)


def test_of_a_living_partition_goes_what_lies_below_its_log_start_and_what_is_being_removed_unless_it_is_read() -> None:
    finished, removing = RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED
    copies = [
        replace(segment(number, 10 * number, 10 * number + 9), state=state)
        for number, state in enumerate((finished, finished, finished, removing, removing))
    ]
    taken = {copies[number].segment_id.id.bytes for number in (2, 4)}
    for log_start, removed in ((9, [3]), (10, [0, 3]), (20, [0, 1, 3]), (30, [0, 1, 3])):
        found = below_log_start(copies, taken, log_start, lambda _: False)
        assert (list(found.now), list(found.later)) == ([copies[number] for number in removed], [])


def test_marks_are_retried_where_they_cannot_be_made_and_made_once() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            await fill(path, 4)
            marks = marks_of(path)
            for operation in (MetadataOperation.LIST, MetadataOperation.UPDATE_PARTITION):
                path.metadata.fail_next(operation)
                with pytest.raises(CoordinatorError):
                    await marks.mark(path.node.shard, TOPIC_ID)
            path.metadata.fail_next(MetadataOperation.UPDATE_PARTITION, takes_effect=True)
            with pytest.raises(CoordinatorError):
                await marks.mark(path.node.shard, TOPIC_ID)
            await marks.mark(path.node.shard, TOPIC_ID)
            with path.storage.failing(Operation.DELETE):
                assert not await remover_of(path).round()
            await marks.mark(path.node.shard, TOPIC_ID)  # its deletion has begun
            assert await remover_of(path).round()
            await marks.mark(path.node.shard, TOPIC_ID)  # and is over
            assert not path.metadata.ledger.delete_states()

    run(main)


class Doomed:
    """Ends the process before or after the n-th call of a backend that changes anything, or never."""

    def __init__(self, path: TieredPath, step: int | None, *, takes_effect: bool) -> None:
        self.calls = 0
        self._step = step
        self._takes_effect = takes_effect
        for backend, names in (
            (path.metadata, ("update", "update_partition", "list", "deleting_partitions")),
            (path.storage, ("delete",)),
        ):
            for name in names:
                setattr(backend, name, self._dooming(getattr(backend, name)))

    def _dooming(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def doomed(*arguments: Any) -> Any:
            if self._step is None:
                return await call(*arguments)
            self.calls += 1
            if self.calls == self._step and not self._takes_effect:
                raise Killed
            answer = await call(*arguments)
            if self.calls == self._step:
                raise Killed
            return answer

        return doomed

    def spare(self) -> None:
        self._step = None


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("deleted", ["records", "topic"])
def test_whoever_is_killed_at_any_step_is_followed_by_one_who_finishes(
    deleted: str, takes_effect: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diskless_core.tiering.removal.PARALLEL_DELETIONS", 1)
    monkeypatch.setattr("diskless_core.tiering.removal.PARALLEL_MARKS", 1)

    async def killed_at(step: int) -> bool:
        async with TieredPath() as path:
            await fill(path, 4, 9)
            if deleted == "records":
                await path.node.shard.delete_records(KEY, 10)
            doomed = Doomed(path, step, takes_effect=takes_effect)
            killed = await lives(path)
            assert readable_if_told(path)
            doomed.spare()
            assert not await lives(path)
            assert not path.storage.segments
            assert not path.metadata.ledger.log(place()).segments()
            assert not path.metadata.ledger.delete_states()
            return killed

    async def lives(path: TieredPath) -> bool:
        """A process that has a topic to delete, if it is there, and then removes segments. Whether it was killed."""
        was_killed = False
        try:
            if deleted == "topic" and path.node.shard.head(KEY) is not None:
                await marks_of(path).mark(path.node.shard, TOPIC_ID)
                await path.node.shard.delete_topic(TOPIC_ID)
            assert await remover_of(path).round()
        except* Killed:
            was_killed = True
        return was_killed

    def readable_if_told(path: TieredPath) -> bool:
        head = path.node.shard.head(KEY)
        told = {segment.segment_id for segment in path.node.shard.tiered(KEY)} if head is not None else set()
        return told <= {segment_id.id.bytes for segment_id in path.storage.segments} or deleted == "topic"

    step = 1
    while run(lambda: killed_at(step)):  # noqa: B023 - it is run at once
        step += 1
    assert step > (9 if deleted == "topic" else 7)


def test_with_the_coordinators_own_log_the_segments_of_a_deleted_topic_go() -> None:
    async def main() -> None:
        async with TieredPath() as path:
            placements = {key_of(0): 0, key_of(1): 0}
            ledger = CoordinatorLedger({0: path.node.shard}, placements.get)
            metadata = CoordinatorMetadata(cast("Any", None), CoordinatorMetadataSettings())
            await metadata.start(RemoteLogMetadataServices(cluster_id="c", ledger=ledger))
            path.metadata = metadata  # type: ignore[assignment]
            await fill(path, 4, 9)
            remover = remover_of(path, metadata)
            await path.node.shard.delete_records(KEY, 5)
            assert await remover.round()
            assert len(path.storage.segments) == 1
            placements.clear()  # the cluster has deleted the topic
            await marks_of(path, metadata).mark(path.node.shard, TOPIC_ID)
            await path.node.shard.delete_topic(TOPIC_ID)
            assert await remover.round()
            assert not path.storage.segments
            assert not await metadata.deleting_partitions()

    run(main)
