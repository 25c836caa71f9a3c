"""What a backup refuses, and what it leaves alone then: places, segments, and coordinators that it would lack."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from diskless_core.cli import cluster_backup
from diskless_core.cli.backends import Backends
from diskless_core.cli.backup import Backup, OffsetRange
from diskless_core.cli.backup_attempts import Attempt, BackupAttempts
from diskless_core.cli.backup_places import BackupError
from diskless_core.cli.cluster_backup import require_no_cluster
from diskless_core.cli.main import main
from diskless_core.cluster import operations
from diskless_core.cluster.operations import NewTopic
from diskless_core.config.broker import BrokerConfig
from diskless_core.coordinator.new_log import MigrationRefusedError
from diskless_core.plugin.wal_object_store import WalObjectStoreError
from diskless_core.shards import CLUSTER_SHARD, DISKLESS
from diskless_core.testing.coordinator_log_tools import batch_of
from diskless_core.testing.fakes.objects import MemoryWalObjectStore, Operation
from tests.support.backups import BROKER, CONFIG, SEGMENT, WAL_OBJECT, World, content, same_bucket, snapshots_in, story
from tests.support.shards import ShardNode


def test_a_copy_has_all_coordinators_objects_and_segments_and_is_restored_where_they_are() -> None:
    async def work(world: World) -> None:
        await world.begin()
        before = content(world.source.objects)
        await world.backup()
        made = await world.backup()
        assert [one.shard for one in made.shards] == ["cluster-0", "groups-0", "diskless-0", "diskless-1"]
        assert content(world.source.objects) == before
        assert content(world.target.objects)[WAL_OBJECT] == b"records"
        mark = f"{CONFIG.diskless_wal_object_prefix}-backup/segments-{made.segments_mark}"
        assert set(content(world.target.segments)) == {mark, SEGMENT}
        await world.restore(world.target)
        await world.restore(world.target)

    story(work)


@pytest.mark.parametrize("part", ["objects", "segments"])
@pytest.mark.parametrize("other", ["objects", "segments"])
def test_a_target_with_a_part_that_is_where_the_cluster_is_is_refused_however_it_is_configured(
    part: str, other: str
) -> None:
    async def work(world: World) -> None:
        await world.begin()
        changed: Any = {part: same_bucket(world, getattr(world.source, other))}
        world.target = replace(world.target, **changed)
        await world.refuses_backup("is the place of the cluster's own")

    story(work)


def test_what_is_put_to_compare_places_is_removed_even_if_the_other_one_cannot_be_read() -> None:
    async def work(world: World) -> None:
        await world.begin()
        assert isinstance(world.source.objects, MemoryWalObjectStore)
        world.source.objects.fail_next(Operation.GET)
        with pytest.raises(WalObjectStoreError):
            await world.backup()
        assert not content(world.target.objects)

    story(work)


@pytest.mark.parametrize("side", ["source", "target"])
def test_segments_that_are_not_copied_are_not_left_to_a_remote_storage_that_others_use(side: str) -> None:
    async def work(world: World) -> None:
        await world.begin()
        setattr(world, side, replace(getattr(world, side), segments=None))
        await world.refuses_backup("segments that cannot be copied")

    story(work)


def test_without_segments_every_remote_storage_is_taken() -> None:
    async def work(world: World) -> None:
        await world.begin(segments=False)
        world.target = replace(world.target, segments=None, records_segments=False)
        await world.backup()
        await world.restore(world.target)

    story(work)


@pytest.mark.parametrize("side", ["source", "target"])
def test_segments_of_which_the_coordinators_do_not_know_are_refused(side: str) -> None:
    async def work(world: World) -> None:
        await world.begin()
        setattr(world, side, replace(getattr(world, side), records_segments=False))
        await world.refuses_backup("remote_log_metadata=coordinator")

    story(work)


@pytest.mark.parametrize("is_visible", [False, True])
def test_segments_that_only_another_remote_log_metadata_knows_are_refused(is_visible: bool) -> None:
    async def work(world: World) -> None:
        await world.begin(segments=False)
        assert world.source.segments is not None
        await world.source.segments.put(SEGMENT, b"older records")
        segments = world.source.segments if is_visible else None
        world.source = replace(world.source, segments=segments, records_segments=False)
        await world.refuses_backup("remote_log_metadata=coordinator")

    story(work)


def test_a_backup_with_segments_is_restored_only_where_these_are() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.backup()
        for segments in (world.source.segments, None):
            with pytest.raises(BackupError, match="remote_storage is not where the backup has its segments"):
                await world.restore(replace(world.target, segments=segments))
        with pytest.raises(BackupError, match="remote_log_metadata=coordinator"):
            await world.restore(replace(world.target, records_segments=False))
        await world.restore(world.target)

    story(work)


def test_a_backup_that_left_segments_behind_is_not_restored_to_a_remote_storage_that_others_use() -> None:
    async def work(world: World) -> None:
        await world.begin()
        target = world.target
        world.target = replace(target, segments=None, shares_segments=False)
        assert (await world.backup()).knows_segments
        with pytest.raises(BackupError, match="Leave remote_storage out"):
            await world.restore(target)
        await world.restore(world.target)

    story(work)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_configuration_with_fewer_diskless_coordinators_than_there_are_is_refused(side: str) -> None:
    async def work(world: World) -> None:
        await world.begin()
        config = BrokerConfig(diskless_metadata_topic_num_partitions=1)
        setattr(world, side, replace(getattr(world, side), config=config))
        await world.refuses_backup("num.partitions is 1, but the log has 2 Diskless coordinators.* Set it to 2 or more")

    story(work)


def test_more_diskless_coordinators_than_there_are_yet_are_no_obstacle() -> None:
    async def work(world: World) -> None:
        await world.begin()
        world.source = replace(world.source, config=BrokerConfig(diskless_metadata_topic_num_partitions=3))
        assert [one.shard for one in (await world.backup()).shards][-2:] == ["diskless-0", "diskless-1"]

    story(work)


def test_groups_coordinators_that_are_not_in_the_clusters_record_are_not_left_out_silently() -> None:
    async def work(world: World) -> None:
        await world.begin(groups=2, unrecorded_groups=1)
        await world.refuses_backup("has 3 Groups coordinators, but by its cluster's record there are 2")

    story(work)


def test_a_restore_that_is_refused_removes_nothing() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.backup()
        await world.put_other_snapshot()
        other = ShardNode(world.new_log, world.clock, BROKER, shard_id=DISKLESS.shard(1))
        await other.start()
        await other.shard.submit(lambda command: command.name_log(world.clock.new_uuid()))
        await other.stop()
        before = content(world.target.objects)
        with pytest.raises(MigrationRefusedError, match="in use"):
            await world.restore(world.target)
        assert content(world.target.objects) == before

    story(work)


def test_a_restore_that_is_repeated_leaves_the_snapshots_of_the_cluster_alone_that_began_meanwhile() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.backup()
        await world.restore(world.target)
        await world.put_other_snapshot()
        before = content(world.target.objects)
        await world.restore(world.target)
        assert content(world.target.objects) == before

    story(work)


def test_what_an_unfinished_backup_left_is_removed_before_a_cluster_begins() -> None:
    async def work(world: World) -> None:
        await world.begin()
        await world.backup()
        before = snapshots_in(world.target)
        killed = Attempt(world.clock.now_ms(), world.clock.new_uuid())
        await BackupAttempts(CONFIG, world.target.objects).begin(killed)
        await world.put_other_snapshot(killed)
        await world.restore(world.target)
        assert snapshots_in(world.target) == before

    story(work)


async def test_a_local_log_that_is_not_there_yet_is_one_that_nobody_uses(tmp_path: Path) -> None:
    target = Backends.configured(None, [f"log.dirs={tmp_path / 'none-yet'}", "coordinator_log=local"])
    await require_no_cluster(target)

    async with target.log(writes=True) as log:
        await log.append(CLUSTER_SHARD, [batch_of(b"entry")])
    with pytest.raises(MigrationRefusedError, match="choose another place"):
        await require_no_cluster(target)


def test_the_mark_of_the_backup_that_the_cluster_was_restored_from_is_not_copied() -> None:
    async def work(world: World) -> None:
        await world.begin()
        assert world.source.segments is not None
        await world.source.segments.put(f"{CONFIG.diskless_wal_object_prefix}-backup/segments-of-long-ago", b"mark")
        made = await world.backup()
        mark = f"{CONFIG.diskless_wal_object_prefix}-backup/segments-{made.segments_mark}"
        assert set(content(world.target.segments)) == {mark, SEGMENT}

    story(work)


def test_a_topic_on_a_coordinator_that_a_configuration_does_not_have_is_not_left_behind() -> None:
    async def work(world: World) -> None:
        await world.begin()
        async with world.led() as led:
            topic = NewTopic(topic_id=b"n" * 16, name="new", partition_count=9, shard_count=3, configs={})
            await led.cluster.submit_in_slices(lambda command: operations.create_topic(command, topic))
            with pytest.raises(BackupError, match=r"has 3 Diskless coordinators.* Set it to 3 or more"):
                await world.backup()

    story(work)


def test_other_objects_beside_a_backup_are_no_attempts() -> None:
    async def work(world: World) -> None:
        prefix = f"{CONFIG.diskless_wal_object_prefix}-backup/"
        attempt = Attempt(1_700_000_000_000, uuid.UUID(int=5))
        for name in (f"attempt-{attempt}", f"attempt-+{attempt}", "attempt-", "description", f"place-{attempt}"):
            await world.target.objects.put(f"{prefix}{name}", b"")
        found = await BackupAttempts(CONFIG, world.target.objects).find()
        assert found.known == found.begun == {attempt}
        assert found.latest is None

    story(work)


WHOLE = Backup(
    attempt="a",
    cluster_id="c",
    began_ms=0,
    ended_ms=1,
    shards=(),
    copied_objects=0,
    copied_bytes=0,
    segments_mark="m",
    knows_segments=False,
)
SOME = [OffsetRange(topic="t", partition=3, first=5, last=7)]


@pytest.mark.parametrize(
    ("made", "said", "code"),
    [
        (WHOLE, "nothing that was after", 0),
        (replace(WHOLE, lacking=SOME), "It lacks t-3, offsets 5 to 7: their objects were gone", 1),
        (replace(WHOLE, deleted=SOME), "It lacks t-3, offsets 5 to 7: the cluster deleted these records", 0),
        (replace(WHOLE, came=["new"]), "The topic new came while", 0),
        (replace(WHOLE, gone=["old"]), "The topic old was deleted while", 0),
        (replace(WHOLE, vanished_segments=2), "It lacks 2 objects of remote storage", 1),
    ],
)
def test_the_command_fails_if_the_backup_lacks_what_the_cluster_has(
    made: Backup, said: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def backup(*_: object) -> Backup:
        return made

    monkeypatch.setattr(cluster_backup, "_backup", backup)
    monkeypatch.setattr(cluster_backup, "_complain_only", lambda: None)  # it would log to the runner's stream for good
    file = tmp_path / "restored.properties"
    file.touch()
    result = CliRunner().invoke(main, ["cluster", "backup", "--to", str(file)])
    assert (said in result.stdout, result.exit_code) == (True, code), result.output
