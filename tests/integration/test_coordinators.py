"""The number and the place of a broker's coordinators, and the same answers however its stores came about."""

from __future__ import annotations

import json
import shutil
import time

import pytest
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.protocol.names import uuid_text
from tests.support.admin_requests import create_partitions, describe_groups_request, describe_producers_request, grown
from tests.support.batches import batch_of, read_values, timed_batch
from tests.support.guarantees import guarantee
from tests.support.requests import (
    append,
    commit_offset,
    committed_offset,
    create_topic,
    delete_topic,
    fetch,
    list_offset,
    metadata_request,
    new_producer_id,
    produce,
)

SHARDS = "diskless.metadata.topic.num.partitions"
GROUPS = "offsets.topic.num.partitions"
PLACEMENT = "diskless.coordinator.placement"
PATIENCE_S = 300


def diskless(broker, *arguments):
    return CliRunner().invoke(main, [*arguments, "-o", f"log.dirs={broker.folder / 'data'}"])


def placements(broker, *topic_ids):
    """The Diskless coordinator of each partition, for each of the topics."""
    result = diskless(broker, "coordinator", "dump", "cluster-0", "--json")
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.splitlines()]
    placed = [record["data"] for record in records if record["type"] == "PartitionsPlacedRecord"]
    return [
        [shard for found in placed if found["topic_id"] == uuid_text(topic_id) for shard in found["shards"]]
        for topic_id in topic_ids
    ]


# --- how many --------------------------------------------------------------------------------------------------------


def test_partitions_keep_their_coordinator_when_there_are_more_and_new_ones_use_all(new_broker):
    broker = new_broker({SHARDS: "1"})
    with broker.connect() as wire:
        old = create_topic(wire, "old", 2)
        for partition in range(2):
            append(wire, "old", batch_of(b"before"), partition=partition)
    broker.stop()
    broker.start({SHARDS: "3"})
    with broker.connect() as wire:
        assert create_partitions(wire, grown("old", 6)) == [(0, None)]
        large = create_topic(wire, "large", 3)
        small = [create_topic(wire, f"small-{number}") for number in range(6)]
        for topic, partitions in {"old": 6, "large": 3, **{f"small-{number}": 1 for number in range(6)}}.items():
            for partition in range(partitions):
                append(wire, topic, batch_of(b"after"), partition=partition)
    by_topic = placements(broker, old, large, *small)
    assert by_topic[0][:2] == [0, 0]
    assert sorted(by_topic[0]) == [0, 0, 1, 1, 2, 2]
    assert sorted(by_topic[1]) == [0, 1, 2]
    assert {shard for [shard] in by_topic[2:]} == {0, 1, 2}
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        assert read_values(fetch(wire, "old", 0, 1).records) == [b"before", b"after"]
        assert [read_values(fetch(wire, "old", 0, partition).records) for partition in (2, 5)] == [[b"after"]] * 2


def test_fewer_coordinators_than_there_are_are_refused(new_broker):
    broker = new_broker({SHARDS: "3"})
    broker.stop()
    with pytest.raises(AssertionError, match=r"the log has 3 Diskless coordinators.* Set it to 3 or more"):
        broker.start({SHARDS: "2"})
    broker.start({SHARDS: "3"})


def groups_shards(broker):
    log = broker.folder / "data/coordinator_log/local"
    return sorted(folder.name for folder in log.iterdir() if folder.name.startswith("__consumer_offsets"))


def test_a_cluster_keeps_its_number_of_group_coordinators_and_only_another_one_that_is_told_is_refused(new_broker):
    broker = new_broker({GROUPS: "3"})
    names = [f"group-{number}" for number in range(9)]
    with broker.connect() as wire:
        create_topic(wire, "t")
        assert {commit_offset(wire, name, "t", 3) for name in names} == {0}
    assert groups_shards(broker) == [f"__consumer_offsets-{index}" for index in range(3)]
    broker.kill()
    shutil.rmtree(broker.folder / "data/coordinator_store")
    with pytest.raises(AssertionError, match=r"num\.partitions is 4, but this cluster has 3 group coordinators"):
        broker.start({GROUPS: "4"})
    with pytest.raises(AssertionError, match=r"there is no coordinator groups-3: offsets\.topic\.num\.partitions is 3"):
        broker.start({GROUPS: "", PLACEMENT: "groups-3:1"})
    broker.start({PLACEMENT: ""})
    with broker.connect() as wire:
        assert {committed_offset(wire, name, "t") for name in names} == {(0, 3)}
    broker.stop()
    result = diskless(broker, "coordinator", "rebuild")
    assert result.exit_code == 0, result.output
    assert "groups-2" in result.output or "__consumer_offsets-2" in result.output
    broker.start()
    with broker.connect() as wire:
        assert {committed_offset(wire, name, "t") for name in names} == {(0, 3)}


# --- where -----------------------------------------------------------------------------------------------------------


def test_a_broker_alone_that_may_not_lead_its_coordinators_does_not_start(new_broker):
    broker = new_broker({PLACEMENT: "*:1|2"})
    broker.stop()
    with pytest.raises(AssertionError, match=r"does not let broker 1 lead diskless-0, and nobody else can"):
        broker.start({PLACEMENT: "0:2|3"})
    broker.start({PLACEMENT: "0:1"})
    with broker.connect() as wire:
        create_topic(wire, "t")
        assert append(wire, "t", batch_of(b"v")) == [0]


# --- stores from log and snapshots -----------------------------------------------------------------------------------


@pytest.fixture
def filled(new_broker):
    """A broker with something of everything, part of it only in snapshots; what has to be known to ask for it."""
    broker = new_broker(
        {
            SHARDS: "2",
            "metadata.log.max.record.bytes.between.snapshots": "3000",
            "coordinator_log.local.segment.bytes": "4096",
        }
    )
    first_segment = broker.folder / "data/coordinator_log/local/__diskless_metadata-0" / f"{0:020d}.log"
    with broker.connect() as wire:
        create_topic(wire, "t", 4, max_message_bytes="10000")
        create_topic(wire, "gone")
        append(wire, "gone", batch_of(b"nobody will know"))
        producer_id = new_producer_id(wire)
        batches = [
            batch_of(b"%d" % number, producer_id=producer_id, producer_epoch=0, base_sequence=number)
            for number in range(7)
        ]
        for partition in range(4):
            append(wire, "t", *batches, timed_batch(5, 3, 9), partition=partition)
        assert delete_topic(wire, "gone") == 0
        assert commit_offset(wire, "g", "t", 3) == 0
        deadline = time.monotonic() + PATIENCE_S
        while first_segment.exists():
            assert time.monotonic() < deadline, "the log is not pruned"
            append(wire, "t", batch_of(b"filler"), partition=3)
            append(wire, "t", batch_of(b"filler"), partition=2)
        append(wire, "t", batch_of(b"behind the snapshot"), partition=1)
    return broker, batches


def answers(broker, batches):
    """All that a broker says of what it was told."""
    with broker.connect() as wire:
        repeated = [[produce(wire, "t", batch, partition) for batch in batches[-5:]] for partition in range(4)]
        groups = wire.call(describe_groups_request("g"), 5).groups
        topics = wire.call(metadata_request("t", "gone"), 12).topics
        producers = wire.call(describe_producers_request("t", 0, 1, 2, 3), 0).topics[0].partitions
        return {
            "runs": [bytes(fetch(wire, "t", 0, partition).records) for partition in range(4)],
            "heads": [
                [(answer.error_code, answer.offset, answer.timestamp) for answer in listed]
                for listed in (
                    [list_offset(wire, "t", timestamp, partition) for timestamp in (-1, -2, -3, 4, 6)]
                    for partition in range(4)
                )
            ],
            "repeated": [[(one.error_code, one.base_offset) for one in partition] for partition in repeated],
            "producers": [
                [(one.producer_id, one.producer_epoch, one.last_sequence) for one in partition.active_producers]
                for partition in producers
            ],
            "offsets": committed_offset(wire, "g", "t"),
            "groups": [(group.group_id, group.group_state, group.protocol_type) for group in groups],
            "topics": [(one.error_code, one.name, one.topic_id, len(one.partitions)) for one in topics],
        }


def delete_stores(broker):
    shutil.rmtree(broker.folder / "data/coordinator_store")


def rebuild_stores(broker):
    result = diskless(broker, "coordinator", "rebuild", "-o", f"{SHARDS}=2")
    assert result.exit_code == 0, result.output


@guarantee("Reads", "Every answer is the same after a coordinator's store was lost or rebuilt.")
@pytest.mark.parametrize(("end", "lose"), [("kill", delete_stores), ("stop", rebuild_stores)])
def test_every_answer_is_the_same_after_the_stores_were_filled_again(filled, end, lose):
    broker, batches = filled
    before = answers(broker, batches)
    assert before["repeated"] == [[(0, offset) for offset in range(2, 7)]] * 4
    getattr(broker, end)()
    lose(broker)
    broker.start()
    assert answers(broker, batches) == before
