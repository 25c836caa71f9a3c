"""The log folder of a stopped Kafka broker is prepared, or left as it is."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from diskless_core.cli.kafka_log_dir import LocalLog, LogDirError, prepare, topic_id_in
from diskless_core.log import offset_checkpoint, producer_snapshot
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import TopicIdPartition

TOPIC_ID = uuid.UUID(int=2**100 + 5)
CHECKPOINTS = ("replication-offset-checkpoint", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint")


def local_log(partition=0, log_start=12, next_offset=20, topic_id=TOPIC_ID):
    return LocalLog(
        partition=TopicIdPartition(topic_id, "t", partition),
        log_start_offset=log_start,
        next_offset=next_offset,
        producer_snapshot=producer_snapshot.encode(()),
    )


@pytest.fixture
def log_dir(tmp_path) -> Path:
    """As Kafka leaves it with a new topic of two partitions, and one of another topic."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    for partition in (0, 1):
        folder = tmp_path / f"t-{partition}"
        folder.mkdir()
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}")
        (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        for suffix in ("log", "index", "timeindex"):
            (folder / f"{0:020d}.{suffix}").touch()
    for name in CHECKPOINTS:
        (tmp_path / name).write_bytes(offset_checkpoint.encode({("other", 0): 77, ("t", 0): 0}))
    return tmp_path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_the_local_log_begins_behind_the_segments_and_the_log_before(log_dir):
    prepare(log_dir, [local_log()])
    assert sorted(path.name for path in (log_dir / "t-0").iterdir()) == [
        "00000000000000000020.index",
        "00000000000000000020.log",
        "00000000000000000020.snapshot",
        "00000000000000000020.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    high_watermark, recovery_point, log_start = (
        offset_checkpoint.decode((log_dir / name).read_bytes()) for name in CHECKPOINTS
    )
    assert high_watermark == recovery_point == {("other", 0): 77, ("t", 0): 20}
    assert log_start == {("other", 0): 77, ("t", 0): 12}


def test_other_partitions_stay_as_they_are(log_dir):
    before = contents(log_dir / "t-1")
    prepare(log_dir, [local_log()])
    assert contents(log_dir / "t-1") == before


def test_checkpoints_that_are_not_there_yet_are_made(log_dir):
    for name in CHECKPOINTS:
        (log_dir / name).unlink()
    prepare(log_dir, [local_log()])
    assert offset_checkpoint.decode((log_dir / CHECKPOINTS[0]).read_bytes()) == {("t", 0): 20}


def test_done_again_it_changes_nothing(log_dir):
    prepare(log_dir, [local_log()])
    once = contents(log_dir)
    prepare(log_dir, [local_log()])
    assert contents(log_dir) == once


def test_done_again_for_a_later_end_it_begins_there(log_dir):
    prepare(log_dir, [local_log()])
    prepare(log_dir, [local_log(next_offset=30)])
    assert sorted(path.name for path in (log_dir / "t-0").glob("*.log")) == [f"{30:020d}.log"]


@pytest.mark.parametrize(
    ("trouble", "problem"),
    [
        (lambda folder: (folder / f"t-1/{0:020d}.log").write_bytes(b"x"), "it has records"),
        (lambda folder: (folder / f"t-1/{21:020d}.log").touch(), "begins at 21"),
        (lambda folder: (folder / "t-1/partition.metadata").unlink(), "no partition.metadata"),
        (lambda folder: (folder / "meta.properties").unlink(), "no log folder of Kafka"),
        (lambda folder: (folder / CHECKPOINTS[1]).write_bytes(b"0\n5\n"), CHECKPOINTS[1]),
    ],
)
def test_a_folder_that_cannot_be_prepared_stays_as_it_is(log_dir, trouble, problem):
    trouble(log_dir)
    before = contents(log_dir)
    with pytest.raises(LogDirError, match=problem):
        prepare(log_dir, [local_log(0), local_log(1)])
    assert contents(log_dir) == before


def test_a_partition_of_another_topic_of_the_name_is_refused(log_dir):
    with pytest.raises(LogDirError, match=uuid_text(TOPIC_ID)):
        prepare(log_dir, [local_log(topic_id=uuid.UUID(int=6))])


def test_a_partition_that_is_not_there_is_refused(log_dir):
    with pytest.raises(LogDirError, match="t-5 does not exist"):
        prepare(log_dir, [local_log(5)])


def test_the_topic_id_is_found_in_the_folder(log_dir):
    assert topic_id_in(log_dir, "t", 1) == TOPIC_ID
    assert topic_id_in(log_dir, "t", 2) is None
