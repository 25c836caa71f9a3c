"""Contract suite of the noun `remote_log_metadata`: what every keeper of segments' metadata has to pass.

Subclass `RemoteLogMetadataContract` in a test module and give it the fixture `make_metadata`; needs pytest and
pytest-asyncio.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import product
from typing import ClassVar

import pytest

from diskless_core.plugin.remote_log_metadata import (
    IllegalTransitionError,
    RemoteLogMetadata,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import RemoteLogSegmentState, RemotePartitionDeleteState, TopicIdPartition
from diskless_core.testing.patience import within
from diskless_core.testing.remote_log_metadata_life import MetadataLifeContract
from diskless_core.testing.remote_log_metadata_lookups import (
    DELETED,
    DELETING,
    FINISHED,
    STARTED,
    MakeMetadata,
)
from diskless_core.testing.remote_log_metadata_tools import (
    brought_to,
    copies_found,
    copies_listed,
    deletion,
    deletion_of,
    finished,
    marked_to,
    segment,
    update,
)

MARKED = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
REMOVING = RemotePartitionDeleteState.DELETE_PARTITION_STARTED
REMOVED = RemotePartitionDeleteState.DELETE_PARTITION_FINISHED

ALLOWED = {(STARTED, FINISHED), (STARTED, DELETING), (FINISHED, DELETING), (DELETING, DELETED)}
ALLOWED_OF_PARTITIONS = {(None, MARKED), (MARKED, REMOVING), (REMOVING, REMOVED)}
_POLL_S = 0.01


@pytest.mark.asyncio
class RemoteLogMetadataContract(MetadataLifeContract):
    """A plugin passes if a subclass with `make_metadata`, and `services` where it needs others, overridden does.

    Fixtures and attributes of `MetadataLifeContract` may be given too.

    Attributes:
        outlives_instance: whether a new instance knows what an earlier one noted.
        is_shared: whether several instances at once know what each of them notes.
    """

    outlives_instance: ClassVar[bool] = True
    is_shared: ClassVar[bool] = True

    async def test_stop_may_be_called_twice_and_before_start(
        self, make_metadata: MakeMetadata, services: RemoteLogMetadataServices
    ) -> None:
        made = make_metadata()
        await made.stop()
        await made.start(services)
        await made.stop()
        await made.stop()

    # -- states of a segment ----------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("old", "new"), list(product(RemoteLogSegmentState, RemoteLogSegmentState)))
    async def test_a_segment_comes_into_the_states_that_kip_405_allows_and_into_no_other(
        self,
        metadata: RemoteLogMetadata,
        partition: TopicIdPartition,
        old: RemoteLogSegmentState,
        new: RemoteLogSegmentState,
    ) -> None:
        known = await brought_to(metadata, segment(1, 0, 9, partition=partition), old)
        before = list(await metadata.list(partition))
        change = update(known, new, after_ms=1_000)
        if (old, new) in ALLOWED:
            await metadata.update(change)
            after = [] if new is DELETED else [replace(known, state=new, event_timestamp_ms=change.event_timestamp_ms)]
            assert list(await metadata.list(partition)) == after
        elif old is new and new is not STARTED:
            await metadata.update(change)
            assert list(await metadata.list(partition)) == before
        else:
            with pytest.raises(IllegalTransitionError):
                await metadata.update(change)
            assert list(await metadata.list(partition)) == before

    @pytest.mark.parametrize("state", [STARTED, FINISHED, DELETING])
    async def test_an_unknown_segment_cannot_be_updated(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition, state: RemoteLogSegmentState
    ) -> None:
        with pytest.raises(IllegalTransitionError):
            await metadata.update(update(segment(1, 0, 9, partition=partition), state))
        assert list(await metadata.list(partition)) == []

    @pytest.mark.parametrize("state", [FINISHED, DELETING, DELETED])
    async def test_a_copy_can_only_be_added_as_begun(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition, state: RemoteLogSegmentState
    ) -> None:
        with pytest.raises(IllegalTransitionError):
            await metadata.add(replace(segment(1, 0, 9, partition=partition), state=state))
        assert list(await metadata.list(partition)) == []

    async def test_to_add_the_same_again_changes_nothing(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        begun = segment(1, 0, 9, partition=partition, custom_metadata=b"x")
        for _ in range(3):
            await metadata.add(begun)
        assert list(await metadata.list(partition)) == [begun]

    async def test_an_id_stands_for_one_copy(self, metadata: RemoteLogMetadata, partition: TopicIdPartition) -> None:
        begun = segment(1, 0, 9, partition=partition)
        await metadata.add(begun)
        for other in (segment(1, 0, 8, partition=partition), segment(1, 20, 29, partition=partition)):
            with pytest.raises(IllegalTransitionError):
                await metadata.add(other)
        assert list(await metadata.list(partition)) == [begun]
        await metadata.update(update(begun, FINISHED))
        with pytest.raises(IllegalTransitionError):
            await metadata.add(begun)
        assert await copies_found(metadata, partition, 0, [5]) == [1]

    # -- deletion of a partition ------------------------------------------------------------------------------------

    @pytest.mark.parametrize(("old", "new"), list(product([None, *RemotePartitionDeleteState], repeat=2)))
    async def test_the_deletion_of_a_partition_goes_one_way(
        self,
        metadata: RemoteLogMetadata,
        partition: TopicIdPartition,
        old: RemotePartitionDeleteState | None,
        new: RemotePartitionDeleteState | None,
    ) -> None:
        before = await marked_to(metadata, partition, old)
        assert await deletion_of(metadata, partition) == before
        if new is None:
            return
        change = deletion(new, partition, after_ms=1_000)
        gone = old in (None, REMOVED)
        if (old, new) in ALLOWED_OF_PARTITIONS:
            await metadata.update_partition(change)
            assert await deletion_of(metadata, partition) == (None if new is REMOVED else change)
        elif old is new or (gone and new is REMOVED):
            await metadata.update_partition(change)
            assert await deletion_of(metadata, partition) == before
        elif old is not REMOVED:
            with pytest.raises(IllegalTransitionError):
                await metadata.update_partition(change)
            assert await deletion_of(metadata, partition) == before

    async def test_the_segments_of_a_partition_that_is_deleted_can_be_deleted_one_after_the_other(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        made = [segment(copy, copy * 10, copy * 10 + 9, partition=partition) for copy in range(3)]
        for begun in made:
            await finished(metadata, begun, partition)
        await marked_to(metadata, partition, REMOVING)
        for left in (2, 1, 0):
            assert await copies_listed(metadata, partition) == [0, 1, 2][2 - left :]
            await metadata.update(update(made[2 - left], DELETING))
            await metadata.update(update(made[2 - left], DELETED))
        await metadata.update_partition(deletion(REMOVED, partition))
        assert list(await metadata.list(partition)) == []
        assert await deletion_of(metadata, partition) is None

    async def test_other_partitions_are_not_deleted_along(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        other = partition._replace(partition=partition.partition + 1)
        await finished(metadata, segment(1, 0, 9), other)
        await marked_to(metadata, partition, REMOVED)
        assert await deletion_of(metadata, other) is None
        assert await copies_found(metadata, other, 0, [5]) == [1]

    # -- many at once -----------------------------------------------------------------------------------------------

    async def test_many_segments_are_noted_at_once(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        places = [partition._replace(partition=number) for number in range(4)]
        async with within("segments are noted that come at once"):
            await asyncio.gather(
                *(
                    finished(metadata, segment(copy, copy * 10, copy * 10 + 9), place)
                    for place in places
                    for copy in range(25)
                )
            )
        for place in places:
            assert await copies_listed(metadata, place) == list(range(25))
            assert await copies_found(metadata, place, 0, range(5, 250, 10)) == list(range(25))

    async def test_of_two_copies_that_claim_one_id_at_once_one_gets_it(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        rivals = [segment(1, 0, end, partition=partition) for end in range(10, 15)]
        async with within("of several that claim one id at once one gets it"):
            results = await asyncio.gather(*(metadata.add(rival) for rival in rivals), return_exceptions=True)
        assert sorted(map(type, results), key=str) == sorted([type(None), *[IllegalTransitionError] * 4], key=str)
        winner = rivals[results.index(None)]
        assert list(await metadata.list(partition)) == [winner]

    async def test_the_same_event_at_once_from_several_is_noted_once(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        begun = segment(1, 0, 9, partition=partition)
        async with within("an event that comes from several at once is noted once"):
            await asyncio.gather(*(metadata.add(begun) for _ in range(5)))
            await asyncio.gather(*(metadata.update(update(begun, FINISHED)) for _ in range(5)))
        assert [listed.state for listed in await metadata.list(partition)] == [FINISHED]

    async def test_whoever_is_first_a_segment_that_is_being_deleted_is_not_copied_any_more(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        for number, states in enumerate(((FINISHED, DELETING), (DELETING, FINISHED))):
            place = partition._replace(partition=number)
            begun = segment(1, 0, 9, partition=place)
            await metadata.add(begun)
            async with within("a segment is deleted whoever is first"):
                results = await asyncio.gather(
                    *(metadata.update(update(begun, state)) for state in states), return_exceptions=True
                )
            assert results[states.index(DELETING)] is None
            assert isinstance(results[states.index(FINISHED)], IllegalTransitionError | None)
            assert [listed.state for listed in await metadata.list(place)] == [DELETING]

    # -- what is noted stays ----------------------------------------------------------------------------------------

    async def test_what_a_call_has_returned_from_every_later_read_shows(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        for copy in range(10):
            begun = segment(copy, copy * 10, copy * 10 + 9, partition=partition)
            await metadata.add(begun)
            assert begun in await metadata.list(partition)
            await metadata.update(update(begun, FINISHED))
            assert await copies_found(metadata, partition, 0, [copy * 10]) == [copy]
            assert await metadata.highest_offset(partition, 0) == copy * 10 + 9

    async def test_a_change_of_leaders_loses_nothing(
        self, metadata: RemoteLogMetadata, partition: TopicIdPartition
    ) -> None:
        await metadata.on_leadership_changes([partition], [])
        await finished(metadata, segment(1, 0, 9), partition)
        await metadata.on_leadership_changes([], [partition])
        assert await copies_found(metadata, partition, 0, [5]) == [1]
        await metadata.on_leadership_changes([partition], [])
        await finished(metadata, segment(2, 10, 19), partition)
        assert await copies_found(metadata, partition, 0, [5, 15]) == [1, 2]

    async def test_a_new_instance_knows_all_that_was_noted_and_goes_on_from_there(
        self, make_metadata: MakeMetadata, services: RemoteLogMetadataServices, partition: TopicIdPartition
    ) -> None:
        if not self.outlives_instance:
            pytest.skip("this plugin does not claim to know what an earlier instance noted (outlives_instance)")
        before = make_metadata()
        await before.start(services)
        states = (STARTED, FINISHED, DELETING, DELETED)
        made = [segment(copy, copy * 10, copy * 10 + 9, partition=partition) for copy in range(len(states))]
        for begun, state in zip(made, states, strict=True):
            await brought_to(before, begun, state)
        await marked_to(before, partition, MARKED)
        listed = list(await before.list(partition))
        assert len(listed) == 3
        await before.stop()
        after = make_metadata()
        await after.start(services)
        try:
            assert list(await after.list(partition)) == listed
            assert await copies_found(after, partition, 0, [5, 15, 25, 35]) == [None, 1, None, None]
            assert await deletion_of(after, partition) == deletion(MARKED, partition)
            with pytest.raises(IllegalTransitionError):
                await after.update(update(made[2], FINISHED))
            await after.update(update(made[2], DELETED))
            await after.update(update(made[0], FINISHED))
            await after.update_partition(deletion(REMOVING, partition))
            assert await copies_listed(after, partition) == [0, 1]
            assert await copies_found(after, partition, 0, [5]) == [0]
        finally:
            await after.stop()

    async def test_another_node_sees_it_soon(
        self,
        metadata: RemoteLogMetadata,
        make_metadata: MakeMetadata,
        services: RemoteLogMetadataServices,
        partition: TopicIdPartition,
    ) -> None:
        if not self.is_shared:
            pytest.skip("this plugin does not claim to be shared by several nodes (is_shared)")
        other = make_metadata()
        await other.start(services)
        try:
            await finished(metadata, segment(1, 0, 9), partition)
            await finished(other, segment(2, 10, 19), partition)
            async with within("another node sees what is noted"):
                for node in (metadata, other):
                    while await copies_found(node, partition, 0, [5, 15]) != [1, 2]:  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_S)
        finally:
            await other.stop()
