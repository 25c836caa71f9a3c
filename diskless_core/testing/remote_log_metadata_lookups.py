"""The part of the `remote_log_metadata` contract that is about finding segments, and the fixtures of all of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

import pytest
import pytest_asyncio

from diskless_core.clock import SystemClock
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadata, RemoteLogMetadataServices
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger
from diskless_core.testing.remote_log_metadata_tools import (
    CLUSTER_ID,
    PARTITION,
    brought_to,
    copies_found,
    copies_listed,
    finished,
    segment,
    update,
)

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED
DELETED = RemoteLogSegmentState.DELETE_SEGMENT_FINISHED

MakeMetadata = Callable[[], RemoteLogMetadata]


@pytest.mark.asyncio
class SegmentLookupContract:
    """Finding and listing; `RemoteLogMetadataContract` includes it."""

    @pytest.fixture
    def make_metadata(self) -> MakeMetadata:
        """Makes instances, not started, as nodes of one cluster have them. Tests may leave things behind in it."""
        raise NotImplementedError("give this fixture in the subclass")

    @pytest.fixture
    def services(self) -> RemoteLogMetadataServices:
        """What every instance of a test is started with."""
        return RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=MemoryLedger())

    @pytest.fixture
    def partition(self) -> TopicIdPartition:
        """A partition that nobody has heard of."""
        return PARTITION._replace(topic_id=SystemClock().new_uuid())

    @pytest_asyncio.fixture
    async def metadata(
        self, make_metadata: MakeMetadata, services: RemoteLogMetadataServices
    ) -> AsyncIterator[RemoteLogMetadata]:
        made = make_metadata()
        await made.start(services)
        try:
            yield made
        finally:
            await made.stop()

    async def test_of_an_unknown_partition_nothing_is_known(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        assert await metadata.find(partition, 0, 0) is None
        assert await metadata.highest_offset(partition, 0) is None
        assert list(await metadata.list(partition)) == []
        assert list(await metadata.list(partition, 0)) == []

    @pytest.mark.parametrize(
        ("state", "is_found", "is_listed"),
        [(STARTED, False, True), (FINISHED, True, True), (DELETING, False, True), (DELETED, False, False)],
    )
    async def test_a_segment_is_found_once_it_is_copied_and_listed_until_it_is_deleted(
        self,
        metadata: RemoteLogMetadata,
        partition: TopicIdPartition,
        state: RemoteLogSegmentState,
        is_found: bool,
        is_listed: bool,
    ) -> None:
        copied = await brought_to(metadata, segment(1, 10, 19, partition=partition), state)
        assert await metadata.find(partition, 0, 15) == (copied if is_found else None)
        assert await metadata.highest_offset(partition, 0) == (19 if is_found else None)
        assert list(await metadata.list(partition)) == ([copied] if is_listed else [])
        assert list(await metadata.list(partition, 0)) == ([copied] if is_listed else [])

    async def test_every_field_comes_back_as_it_was_given(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        given = replace(
            segment(2**128 - 1, 2**40, 2**41, epochs={3: 2**40, 7: 2**40 + 5, 300: 2**41}, partition=partition),
            max_timestamp_ms=-1,
            broker_id=2**31 - 1,
            event_timestamp_ms=2**42,
            segment_size_bytes=2**31 - 1,
            custom_metadata=bytes(range(256)),
            txn_index_empty=False,
        )
        await metadata.add(given)
        assert list(await metadata.list(partition)) == [given]

    async def test_custom_metadata_is_what_the_last_update_had_of_it(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        begun = segment(1, 0, 9, partition=partition)
        await metadata.add(begun)
        await metadata.update(update(begun, FINISHED, custom_metadata=b"place"))
        found = await metadata.find(partition, 0, 5)
        assert found is not None
        assert found.custom_metadata == b"place"
        await metadata.update(update(begun, DELETING))
        (listed,) = await metadata.list(partition)
        assert listed.custom_metadata == b"place"

    async def test_an_update_says_who_made_it_and_when(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        begun = segment(1, 0, 9, partition=partition)
        await metadata.add(begun)
        change = update(begun, FINISHED, after_ms=50, broker_id=8)
        await metadata.update(change)
        found = await metadata.find(partition, 0, 5)
        assert found == replace(
            begun, state=FINISHED, event_timestamp_ms=change.event_timestamp_ms, broker_id=change.broker_id
        )

    async def test_offsets_beside_the_segments_are_in_none(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        await self.note_finished(metadata, [segment(1, 10, 19), segment(2, 30, 39)], partition)
        found = await copies_found(metadata, partition, 0, [0, 9, 10, 19, 20, 29, 30, 39, 40])
        assert found == [None, None, 1, 1, None, None, 2, 2, None]
        assert await copies_found(metadata, partition, 1, [15]) == [None]
        assert await metadata.highest_offset(partition, 0) == 39
        assert await metadata.highest_offset(partition, 1) is None

    async def test_each_leader_epoch_has_its_own_offsets(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        segments = [segment(1, 0, 29, epochs={2: 0, 3: 10, 5: 20}), segment(2, 30, 39, epochs={5: 30})]
        await self.note_finished(metadata, segments, partition)
        assert await copies_found(metadata, partition, 2, [0, 9, 10]) == [1, 1, None]
        assert await copies_found(metadata, partition, 3, [9, 10, 19, 20]) == [None, 1, 1, None]
        assert await copies_found(metadata, partition, 5, [19, 20, 30, 39, 40]) == [None, 1, 2, 2, None]
        assert [await metadata.highest_offset(partition, epoch) for epoch in range(1, 7)] == [
            None,
            9,
            19,
            None,
            39,
            None,
        ]
        assert await copies_listed(metadata, partition, 3) == [1]
        assert await copies_listed(metadata, partition, 5) == [1, 2]
        assert await copies_listed(metadata, partition, 4) == []

    async def test_the_same_offsets_may_be_of_two_leader_epochs(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        """As after an unclean election: what the leader of epoch 1 had copied, the one of epoch 2 never had."""
        segments = [segment(1, 0, 9, epochs={0: 0, 1: 5}), segment(2, 0, 12, epochs={0: 0, 2: 5})]
        await self.note_finished(metadata, segments, partition)
        assert await copies_found(metadata, partition, 1, [4, 5, 9, 10]) == [None, 1, 1, None]
        assert await copies_found(metadata, partition, 2, [4, 5, 9, 12, 13]) == [None, 2, 2, 2, None]

    async def test_lists_are_by_start_offset_whatever_came_first(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        for copy, start in ((1, 200), (2, 0), (3, 300), (4, 100)):
            await metadata.add(segment(copy, start, start + 99, partition=partition))
        assert await copies_listed(metadata, partition) == [2, 4, 1, 3]
        assert await copies_listed(metadata, partition, 0) == [2, 4, 1, 3]

    async def test_records_that_were_copied_twice_are_found_and_both_copies_listed(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        await self.note_finished(metadata, [segment(1, 0, 9), segment(2, 0, 9)], partition)
        assert set(await copies_found(metadata, partition, 0, range(10))) <= {1, 2}
        assert sorted(await copies_listed(metadata, partition)) == [1, 2]

    @pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
    async def test_no_copy_hides_records_that_only_another_has(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition, order: tuple[int, ...]
    ) -> None:
        ranges = {1: (0, 99), 2: (0, 49), 3: (20, 29)}
        await self.note_finished(metadata, [segment(copy, *ranges[copy]) for copy in order], partition)
        for offset in range(100):
            found = await metadata.find(partition, 0, offset)
            assert found is not None
            assert found.start_offset <= offset <= found.end_offset
        assert await metadata.highest_offset(partition, 0) == 99

    async def test_when_one_of_two_copies_is_deleted_the_other_is_found(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        for gone, kept in ((1, 2), (2, 1)):
            place = partition._replace(partition=gone)
            await self.note_finished(metadata, [segment(1, 0, 9), segment(2, 0, 9)], place)
            await metadata.update(update(segment(gone, 0, 9, partition=place), DELETING))
            assert await copies_found(metadata, place, 0, [0, 9]) == [kept, kept]
            await metadata.update(update(segment(gone, 0, 9, partition=place), DELETED))
            assert await copies_found(metadata, place, 0, [0, 9]) == [kept, kept]
            assert await copies_listed(metadata, place) == [kept]

    async def test_partitions_know_nothing_of_each_other(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        places = [partition, partition._replace(partition=4), PARTITION._replace(topic_id=SystemClock().new_uuid())]
        for number, place in enumerate(places):
            await self.note_finished(metadata, [segment(1, number * 10, number * 10 + 9)], place)
        await metadata.update(update(segment(1, 0, 9, partition=partition), DELETING))
        assert await copies_found(metadata, places[0], 0, [0, 10, 20]) == [None, None, None]
        assert await copies_found(metadata, places[1], 0, [0, 10, 20]) == [None, 1, None]
        assert await copies_found(metadata, places[2], 0, [0, 10, 20]) == [None, None, 1]
        assert [metadata_.start_offset for place in places for metadata_ in await metadata.list(place)] == [0, 10, 20]

    async def note_finished(
        self, metadata: RemoteLogMetadata, segments: Iterable[RemoteLogSegmentMetadata], partition: TopicIdPartition
    ) -> None:
        """Note that segments were copied to a partition, one after the other."""
        for after_ms, begun in enumerate(segments, 1):
            await finished(metadata, begun, partition, after_ms=after_ms)
