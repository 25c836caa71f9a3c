"""DescribeLogDirs over the wire: one folder, and how much of each partition there is."""

from __future__ import annotations

import shutil

import pytest

from tests.support.admin_requests import describe_log_dirs_request
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, delete_topic


def log_dir(wire, partitions=None, version=5):
    response = wire.call(describe_log_dirs_request(partitions), version)
    [found] = response.results
    assert found.error_code == 0
    return found


def sizes(found):
    return {(topic.name, one.partition_index): one.partition_size for topic in found.topics for one in topic.partitions}


@pytest.mark.parametrize("version", range(1, 6))
def test_each_partition_has_the_size_of_its_batches(wire, topic, version):
    create_topic(wire, topic, 3)
    batches = [batch_of(b"v" * 100), batch_of(b"v" * 70, b"w")]
    append(wire, topic, *batches, partition=1)

    found = log_dir(wire, {topic: [1, 0]}, version)

    assert sizes(found) == {(topic, 1): sum(map(len, batches)), (topic, 0): 0}
    [described] = found.topics
    assert all(one.offset_lag == 0 and not one.is_future_key for one in described.partitions)


def test_the_folder_and_its_volume_are_described(broker, wire):
    found = log_dir(wire)
    volume = shutil.disk_usage(broker.folder)

    assert found.log_dir == str(broker.folder / "data")
    assert found.total_bytes == volume.total
    assert 0 < found.usable_bytes <= volume.total
    assert (log_dir(wire, version=3).total_bytes, log_dir(wire, version=3).usable_bytes) == (-1, -1)


def test_without_a_filter_all_partitions_are_described_and_with_an_empty_one_none(wire, topic):
    create_topic(wire, topic, 2)

    assert {(topic, 0), (topic, 1)} <= sizes(log_dir(wire)).keys()
    assert log_dir(wire, {}).topics == []


def test_what_does_not_exist_is_left_out(wire, topic):
    create_topic(wire, topic)
    create_topic(wire, f"{topic}-gone")
    delete_topic(wire, f"{topic}-gone")

    found = log_dir(wire, {topic: [5, 0, -1], f"{topic}-gone": [0], "absent": [0]})

    assert sizes(found) == {(topic, 0): 0}
    assert sizes(log_dir(wire)).keys().isdisjoint({(f"{topic}-gone", 0)})
