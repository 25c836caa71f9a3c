"""What a broker that starts finds of the storage that the controller writes to."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from diskless_core.broker.awaited_objects import SILENCE_S
from diskless_core.broker.errors import StartError
from diskless_core.broker.storage_probe import PATIENCE_S, WRITE_LIMIT_S, StorageProbe
from diskless_core.coordinator.errors import NotCoordinatorError
from diskless_core.coordinator.log_identity import LogName
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation, access_denied
from diskless_core.testing.fakes.remote_storage import MemoryRemoteStorage
from diskless_core.testing.fakes.remote_storage import Operation as RemoteOperation
from tests.support.virtual_time import VirtualClock, run

LOG = LogName(uuid.UUID(int=1))
MOVED = LogName(uuid.UUID(int=2), moved_from=LOG.log_id)


class ClusterTerms:
    """The replicas of the cluster shard: who leads in which term of which log."""

    def __init__(self, name: LogName = LOG) -> None:
        self.name = name
        self.term, self.leader = -1, 0
        self._changed = asyncio.Event()

    def leads(self, term: int, leader: int) -> None:
        self.term, self.leader = term, leader
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def seen_by(self, node_id: int) -> Replica:
        return Replica(self, node_id)


class Replica:
    def __init__(self, terms: ClusterTerms, node_id: int) -> None:
        self._terms = terms
        self._node_id = node_id
        self.is_candidate = True

    def stand_aside(self) -> None:
        self.is_candidate = False

    def stand_again(self) -> None:
        self.is_candidate = True

    @property
    def term(self) -> int | None:
        return self._terms.term if self._terms.leader == self._node_id else None

    @property
    def latest_term(self) -> int:
        return self._terms.term

    @property
    def log_name(self) -> LogName | None:
        return self._terms.name

    async def barrier(self) -> None:
        if self.term is None:
            raise NotCoordinatorError("this node does not lead")

    async def until_term_changes(self, term: int | None) -> int | None:
        while self.term == term:
            await self._terms._changed.wait()
        return self.term


class World:
    """The controller is broker 1; all brokers have the same storage unless they are given their own."""

    def __init__(self) -> None:
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.objects = self.new_objects()
        self.segments = MemoryRemoteStorage(custom_metadata=b"where it is")
        self.terms = ClusterTerms()
        self.writers: list[asyncio.Task[None]] = []

    def new_objects(self) -> MemoryWalObjectStore:
        return MemoryWalObjectStore(self.clock)

    def probe(
        self,
        node_id: int,
        *,
        objects: MemoryWalObjectStore | None = None,
        cluster_id: str = "ours",
        has_segments: bool = False,
        replica: Replica | None = None,
    ) -> StorageProbe:
        return StorageProbe(
            objects or self.objects,
            replica or self.terms.seen_by(node_id),
            self.clock,
            prefix="wal-probe",
            node_id=node_id,
            cluster_id=cluster_id,
            has_segments=has_segments,
        )

    def write(
        self, node_id: int, *, objects: MemoryWalObjectStore | None = None, segments: RemoteStorage | None = None
    ) -> None:
        """What a broker does for as long as it runs."""
        probe = self.probe(node_id, objects=objects, has_segments=segments is not None)
        self.writers.append(asyncio.create_task(probe.write_objects()))
        if segments is not None:
            self.writers.append(asyncio.create_task(probe.write_segments(segments)))

    async def second(self) -> StorageProbe:
        """That of a broker that has found what the controller wrote."""
        self.terms.leads(7, 1)
        self.write(1, segments=self.segments)
        probe = self.probe(2)
        await probe.read_object()
        await probe.read_segment(self.segments)
        return probe


def story(told: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await told(world)
        finally:
            for writer in world.writers:
                writer.cancel()
            await asyncio.gather(*world.writers, return_exceptions=True)

    run(main)


def test_a_broker_with_the_same_storage_starts() -> None:
    async def told(world: World) -> None:
        await world.second()

    story(told)


def test_a_broker_whose_objects_are_its_own_does_not_start_even_if_it_once_was_the_controller() -> None:
    async def told(world: World) -> None:
        own = world.new_objects()
        world.write(1)
        world.write(2, objects=own)
        world.terms.leads(7, 2)
        await asyncio.sleep(1)
        world.terms.leads(9, 1)
        assert own.objects
        with pytest.raises(StartError, match=r"no object wal-probe/[0-9a-f-]+/9.*same wal_object_store"):
            await world.probe(2, objects=own).read_object()

    story(told)


def test_a_broker_whose_segments_are_its_own_does_not_start() -> None:
    async def told(world: World) -> None:
        second = await world.second()
        with pytest.raises(StartError, match="remote_storage of this broker does not have the segment"):
            await second.read_segment(MemoryRemoteStorage(custom_metadata=b"where it is"))

    story(told)


def test_a_remote_storage_that_hangs_is_no_reason_not_to_start() -> None:
    async def told(world: World) -> None:
        second = await world.second()
        begun = world.clock.monotonic()
        with world.segments.hold(RemoteOperation.FETCH):
            await second.read_segment(world.segments)
        assert world.clock.monotonic() == begun + PATIENCE_S

    story(told)


def test_the_controller_itself_looks_for_nothing() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        first = world.probe(1)
        await first.read_object()
        await first.read_segment(world.segments)

    story(told)


def test_a_broker_waits_for_a_controller_that_has_just_come_to_lead() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        second = world.probe(2)
        reading = asyncio.create_task(second.read_object())
        await asyncio.sleep(PATIENCE_S / 2)
        world.write(1)
        world.terms.leads(8, 1)
        await reading

    story(told)


def test_a_controller_whose_store_fails_writes_the_probe_later() -> None:
    async def told(world: World) -> None:
        world.objects.fail_next(Operation.PUT, times=3)
        world.terms.leads(7, 1)
        world.write(1)
        await world.probe(2).read_object()

    story(told)


def test_a_store_that_does_not_answer_is_no_store_of_its_own() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        world.write(1)
        world.objects.fail_next(Operation.GET, error=access_denied)
        with pytest.raises(WalObjectStoreError, match="AccessDenied"):
            await world.probe(2).read_object()

    story(told)


def test_a_broker_that_waits_for_a_store_that_hangs_is_no_candidate_until_it_answers() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        world.write(1)
        await asyncio.sleep(1)
        replica = world.terms.seen_by(2)
        second = world.probe(2, replica=replica)
        with world.objects.hold(Operation.GET):
            reading = asyncio.create_task(second.read_object())
            await asyncio.sleep(SILENCE_S / 2)
            assert replica.is_candidate
            await asyncio.sleep(SILENCE_S)
            assert not replica.is_candidate
            await asyncio.sleep(300)
            assert not replica.is_candidate
        await reading
        assert replica.is_candidate

    story(told)


def test_a_controller_whose_store_hangs_writes_the_probe_later_and_that_of_a_later_term_at_once() -> None:
    async def told(world: World) -> None:
        world.write(1)
        with world.objects.hold(Operation.PUT):
            world.terms.leads(7, 1)
            await asyncio.sleep(2 * WRITE_LIMIT_S)
        await asyncio.sleep(WRITE_LIMIT_S)
        assert list(world.objects.objects) == [f"wal-probe/{LOG.log_id}/7"]
        with world.objects.hold(Operation.DELETE):
            world.terms.leads(8, 1)
            await asyncio.sleep(1)
            world.terms.leads(9, 2)
            await asyncio.sleep(1)
            world.terms.leads(10, 1)
            await asyncio.sleep(1)
            assert f"wal-probe/{LOG.log_id}/10" in world.objects.objects

    story(told)


def test_a_broker_of_another_cluster_is_told_so() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        world.write(1)
        with pytest.raises(StartError, match="of the cluster ours, and this broker is of theirs"):
            await world.probe(2, cluster_id="theirs").read_object()

    story(told)


def test_only_the_probe_of_the_present_term_is_kept() -> None:
    async def told(world: World) -> None:
        world.write(1, segments=world.segments)
        world.write(2, segments=world.segments)
        for term in range(7, 12):
            world.terms.leads(term, term % 2 + 1)
            await asyncio.sleep(1)
        assert sorted(world.objects.objects) == [
            f"wal-probe/{LOG.log_id}/11",
            f"wal-probe/{LOG.log_id}/11-segment",
        ]
        assert len(world.segments.segments) == 1

    story(told)


@pytest.mark.parametrize("stands_still_at", [Operation.PUT, Operation.LIST, Operation.DELETE])
def test_a_controller_of_the_log_before_that_wakes_takes_nothing_from_the_one_that_leads(
    stands_still_at: Operation,
) -> None:
    """Terms begin anew with the log: those of the one before are higher."""

    async def told(world: World) -> None:
        world.write(1, segments=world.segments)
        world.terms.leads(70, 1)
        await asyncio.sleep(1)
        with world.objects.hold(stands_still_at):
            world.terms.leads(76, 1)
            await asyncio.sleep(1)
            present = World()
            present.objects.objects, present.segments = world.objects.objects, world.segments
            present.terms = ClusterTerms(MOVED)
            present.write(2, segments=present.segments)
            present.terms.leads(2, 2)
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        third = present.probe(3)
        await third.read_object()
        await third.read_segment(present.segments)
        present.terms.leads(5, 2)
        await asyncio.sleep(1)
        await third.read_segment(present.segments)
        world.writers += present.writers
        left = [f"wal-probe/{MOVED.log_id}/5", f"wal-probe/{MOVED.log_id}/5-segment"]
        assert sorted(world.objects.objects) == left
        assert len(world.segments.segments) == 1

    story(told)


def test_a_controller_that_was_deposed_removes_nothing() -> None:
    async def told(world: World) -> None:
        world.write(1, segments=world.segments)
        world.terms.leads(7, 1)
        await asyncio.sleep(1)
        before = set(world.objects.objects)
        replica = world.terms.seen_by(1)
        probe = world.probe(1, replica=replica)
        world.terms.leads(9, 2)
        with pytest.raises(NotCoordinatorError):
            await probe._delete_objects(9)
        with pytest.raises(NotCoordinatorError):
            await probe._delete_segments(9, world.segments)
        assert set(world.objects.objects) == before

    story(told)


def test_no_segment_is_looked_for_where_the_controller_makes_none() -> None:
    async def told(world: World) -> None:
        world.terms.leads(7, 1)
        world.write(1)
        second = world.probe(2)
        await second.read_object()
        begun = world.clock.monotonic()
        await second.read_segment(world.segments)
        assert world.clock.monotonic() == begun

    story(told)
