"""The keepers of segments' metadata that come with Diskless keep the contract, and the suite finds those that don't."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from diskless_core.clock import SystemClock
from diskless_core.diskless.ledger import CoordinatorLedger
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import (
    IllegalTransitionError,
    RemoteLogMetadataError,
    RemoteLogMetadataServices,
)
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
    partition_of,
)
from diskless_core.testing.fakes.log import SharedLog
from diskless_core.testing.fakes.remote_log_metadata import MemoryLedger, MemoryRemoteLogMetadata, Operation
from diskless_core.testing.remote_log_metadata import REMOVED, REMOVING, RemoteLogMetadataContract
from diskless_core.testing.remote_log_metadata_lookups import DELETING, FINISHED, MakeMetadata
from diskless_core.testing.remote_log_metadata_tools import CLUSTER_ID, segment
from diskless_tiering.config import CoordinatorMetadataSettings
from diskless_tiering.coordinator_metadata import CoordinatorMetadata
from tests.support.shards import ShardNode


class TestFake(RemoteLogMetadataContract):
    @pytest.fixture
    def make_metadata(self) -> MakeMetadata:
        ledger = MemoryLedger()
        return lambda: MemoryRemoteLogMetadata(ledger)


class TestCoordinator(RemoteLogMetadataContract):
    @pytest.fixture
    def make_metadata(self, tmp_path: Path) -> MakeMetadata:
        context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
        return lambda: CoordinatorMetadata(context, CoordinatorMetadataSettings())


class LedgerOfAll(CoordinatorLedger):
    """Every partition is there as soon as something is said of it."""

    async def append(self, event):
        topic_id, topic, partition = partition_of(event)
        await self._shards[0].create_partitions(topic_id, topic, [partition])
        await super().append(event)


class TestCoordinatorInItsLog(TestCoordinator):
    """With the ledger that the broker has, on a shard of its own."""

    @pytest_asyncio.fixture
    async def services(self) -> AsyncIterator[RemoteLogMetadataServices]:
        node = ShardNode(SharedLog(), SystemClock())
        await node.start()
        yield RemoteLogMetadataServices(cluster_id=CLUSTER_ID, ledger=LedgerOfAll({0: node.shard}, lambda _: 0))
        await node.stop()


class Permissive(MemoryRemoteLogMetadata):
    """Wrong: what does not follow is dropped without a word, as Kafka's own cache does."""

    async def add(self, metadata):
        with suppress(IllegalTransitionError):
            await super().add(metadata)

    async def update(self, update):
        with suppress(IllegalTransitionError):
            await super().update(update)

    async def update_partition(self, update):
        with suppress(IllegalTransitionError):
            await super().update_partition(update)


class Strict(MemoryRemoteLogMetadata):
    """Wrong: after a lost answer a call has to be possible again."""

    async def add(self, metadata):
        await super().add(metadata)
        await self._once(metadata)

    async def update(self, update):
        await super().update(update)
        await self._once(update)

    async def _once(self, event):
        seen = self.__dict__.setdefault("seen", [])
        if event in seen:
            raise IllegalTransitionError("once is enough")
        seen.append(event)


class FindsWhatIsBeingDeleted(MemoryRemoteLogMetadata):
    async def find(self, partition, leader_epoch, offset):
        listed = await self.list(partition, leader_epoch)
        return next((one for one in listed if one.start_offset <= offset <= one.end_offset), None)


class FindsTheNearestStart(MemoryRemoteLogMetadata):
    """Wrong where copies overlap."""

    async def find(self, partition, leader_epoch, offset):
        listed = [
            one
            for one in await self.list(partition, leader_epoch)
            if one.start_offset <= offset and one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        ]
        return listed[-1] if listed and offset <= listed[-1].end_offset else None


class KnowsNoEpochs(MemoryRemoteLogMetadata):
    async def find(self, partition, leader_epoch, offset):
        for epoch in range(leader_epoch + 1):
            if found := await super().find(partition, epoch, offset):
                return found
        return None


class ForgetsWhatIsReplaced(MemoryRemoteLogMetadata):
    async def list(self, partition, leader_epoch=None):
        return list({one.start_offset: one for one in await super().list(partition, leader_epoch)}.values())


class AnswersTooEarly(MemoryRemoteLogMetadata):
    async def update(self, update):
        self.late = asyncio.create_task(super().update(update))
        self.late.add_done_callback(lambda task: task.exception())


class MixesPartitionsUp(MemoryRemoteLogMetadata):
    async def find(self, partition, leader_epoch, offset):
        for number in range(10):
            if found := await super().find(partition._replace(partition=number), leader_epoch, offset):
                return found
        return None


class NeverEndsADeletion(MemoryRemoteLogMetadata):
    async def deleting_partitions(self):
        return [event for event in self.ledger.events if isinstance(event, RemotePartitionDeleteMetadata)][-1:]


SUITE = RemoteLogMetadataContract()
PARTITION = TopicIdPartition(uuid.UUID(int=7), "t", 3)


@pytest.mark.parametrize(
    ("broken", "test", "arguments"),
    [
        (Permissive, SUITE.test_an_unknown_segment_cannot_be_updated, {"state": FINISHED}),
        (Permissive, SUITE.test_a_copy_can_only_be_added_as_begun, {"state": FINISHED}),
        (Permissive, SUITE.test_an_id_stands_for_one_copy, {}),
        (
            Permissive,
            SUITE.test_a_segment_comes_into_the_states_that_kip_405_allows_and_into_no_other,
            {"old": DELETING, "new": FINISHED},
        ),
        (Permissive, SUITE.test_the_deletion_of_a_partition_goes_one_way, {"old": None, "new": REMOVING}),
        (Permissive, SUITE.test_of_two_copies_that_claim_one_id_at_once_one_gets_it, {}),
        (Strict, SUITE.test_to_add_the_same_again_changes_nothing, {}),
        (Strict, SUITE.test_the_same_event_at_once_from_several_is_noted_once, {}),
        (
            FindsWhatIsBeingDeleted,
            SUITE.test_a_segment_is_found_once_it_is_copied_and_listed_until_it_is_deleted,
            {"state": DELETING, "is_found": False, "is_listed": True},
        ),
        (FindsWhatIsBeingDeleted, SUITE.test_when_one_of_two_copies_is_deleted_the_other_is_found, {}),
        (FindsTheNearestStart, SUITE.test_no_copy_hides_records_that_only_another_has, {"order": (1, 2, 3)}),
        (FindsTheNearestStart, SUITE.test_each_leader_epoch_has_its_own_offsets, {}),
        (KnowsNoEpochs, SUITE.test_offsets_beside_the_segments_are_in_none, {}),
        (ForgetsWhatIsReplaced, SUITE.test_records_that_were_copied_twice_are_found_and_both_copies_listed, {}),
        (AnswersTooEarly, SUITE.test_what_a_call_has_returned_from_every_later_read_shows, {}),
        (MixesPartitionsUp, SUITE.test_partitions_know_nothing_of_each_other, {}),
        (NeverEndsADeletion, SUITE.test_the_deletion_of_a_partition_goes_one_way, {"old": REMOVING, "new": REMOVED}),
    ],
)
async def test_the_suite_fails_for_a_broken_plugin(broken, test, arguments) -> None:
    with pytest.raises((AssertionError, IllegalTransitionError, pytest.fail.Exception)):
        await test(metadata=broken(), partition=PARTITION, **arguments)


async def test_the_suite_fails_for_a_plugin_that_forgets() -> None:
    services = RemoteLogMetadataServices(cluster_id="c", ledger=MemoryLedger())
    with pytest.raises(AssertionError):
        await SUITE.test_a_new_instance_knows_all_that_was_noted_and_goes_on_from_there(
            make_metadata=MemoryRemoteLogMetadata, services=services, partition=PARTITION
        )


async def test_the_coordinators_metadata_is_not_asked_before_it_is_started(tmp_path) -> None:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    metadata = CoordinatorMetadata(context, CoordinatorMetadataSettings())
    with pytest.raises(RemoteLogMetadataError, match="not started") as failure:
        await metadata.list(PARTITION)
    assert not failure.value.retriable


async def test_the_coordinators_metadata_tells_of_a_ledger_without_answer(tmp_path) -> None:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    metadata, ledger = CoordinatorMetadata(context, CoordinatorMetadataSettings()), MemoryLedger()
    await metadata.start(RemoteLogMetadataServices(cluster_id="c", ledger=ledger))
    begun = segment(1, 0, 9, partition=PARTITION)
    ledger.fail_next(Operation.APPEND)
    ledger.fail_next(Operation.APPEND, takes_effect=True)
    for listed in ([], [begun]):
        with pytest.raises(RemoteLogMetadataError, match="no answer"):
            await metadata.add(begun)
        assert await metadata.list(PARTITION) == listed
    await metadata.add(begun)
    assert ledger.events == [begun]
