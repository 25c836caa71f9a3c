"""`diskless wal` and `diskless coordinator` on real brokers, running and stopped."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.protocol.names import uuid_text
from diskless_core.wal.format import object_key
from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerProcess
from tests.support.requests import append, create_topic, fetch

TOPIC = "orders"
ANY_ADMIN_PORT = {"admin.listener": "http://127.0.0.1:0"}
PRUNED_SOON = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "coordinator_log.local.segment.bytes": "4096",
}


def diskless(*arguments, data):
    return CliRunner().invoke(main, [*arguments, "-o", f"log.dirs={data}"])


def data_of(broker):
    return broker.folder / "data"


def as_json(*arguments, data):
    result = diskless(*arguments, "--json", data=data)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def dumped(shard, *options, data):
    result = diskless("coordinator", "dump", shard, "--json", *options, data=data)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def fill(broker):
    """Make a topic of two partitions, two batches in the one and one in the other."""
    with broker.connect() as wire:
        created = create_topic(wire, TOPIC, partitions=2)
        append(wire, TOPIC, batch_of(b"one"), batch_of(b"two", b"three"))
        append(wire, TOPIC, batch_of(b"other"), partition=1)
    return uuid_text(created)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A broker that tests only look at, and the id of its topic."""
    broker = BrokerProcess(tmp_path_factory.mktemp("running"), ANY_ADMIN_PORT)
    try:
        yield broker.start(), fill(broker)
    finally:
        broker.end()


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory):
    """The data of a broker that was stopped."""
    broker = BrokerProcess(tmp_path_factory.mktemp("left-behind"))
    try:
        broker.start()
        fill(broker)
        broker.stop()
        yield data_of(broker)
    finally:
        broker.end()


@pytest.fixture
def data(left_behind, tmp_path):
    """A copy of it that a test may spoil."""
    return shutil.copytree(left_behind, tmp_path / "data")


def test_the_objects_of_a_running_broker_are_listed_and_shown(running):
    broker, topic_id = running
    data = data_of(broker)
    listed = as_json("wal", "ls", data=data)
    assert [found["created"] for found in listed] == sorted(found["created"] for found in listed)
    shown = [as_json("wal", "show", found["key"], "--batches", "--verify", data=data) for found in listed]

    partitions = [partition for one in shown for partition in one["partitions"]]
    assert {partition["topic_id"] for partition in partitions} == {topic_id}
    records = {0: 0, 1: 0}
    for partition in partitions:
        records[partition["partition"]] += sum(batch["records"] for batch in partition["batches"])
        assert sum(batch["bytes"] for batch in partition["batches"]) == partition["bytes"]
    assert records == {0: 3, 1: 1}
    assert all(one["bytes"] > 0 and one["verified"] for one in shown)

    text = diskless("wal", "show", listed[0]["key"], "--batches", data=data)
    assert topic_id in text.stdout
    assert "CreateTime" in text.stdout
    assert listed[0]["key"] in diskless("wal", "ls", data=data).stdout
    assert as_json("wal", "ls", "--prefix", "elsewhere/", data=data) == []
    assert broker.is_running


def test_a_damaged_and_a_missing_object_end_in_an_error(data):
    key = as_json("wal", "ls", data=data)[0]["key"]
    path = data / "wal-objects" / key
    path.write_bytes(path.read_bytes()[:-1])

    damaged = diskless("wal", "show", key, data=data)
    missing = diskless("wal", "show", "wal/none", data=data)

    assert (damaged.exit_code, missing.exit_code) == (1, 1)
    assert f"{key} is damaged: this is no whole WAL object" in damaged.stderr
    assert "there is no object 'wal/none'" in missing.stderr


def test_looking_at_what_was_never_there_makes_nothing(tmp_path):
    data = tmp_path / "nowhere"
    results = [diskless(*command, data=data) for command in (["wal", "ls"], ["coordinator", "dump", "cluster-0"])]
    results.append(diskless("coordinator", "rebuild", data=data))

    assert [result.exit_code for result in results] == [1, 1, 1]
    assert all(str(data) in result.stderr for result in results)
    assert not data.exists()


def test_a_shards_log_is_dumped_alike_while_the_broker_runs_and_after_it_was_killed(new_broker):
    broker = new_broker()
    topic_id, data = fill(broker), data_of(broker)
    found = {shard: dumped(shard, data=data) for shard in ("cluster-0", "diskless-0", "groups-0")}
    broker.kill()

    assert {shard: dumped(shard, data=data) for shard in found} == found
    created = next(record for record in found["cluster-0"] if record["type"] == "TopicRecord")
    assert created["data"] == {"name": TOPIC, "topic_id": topic_id}
    committed = [record for record in found["diskless-0"] if record["type"] == "DisklessFileCommittedRecord"]
    assert {record["data"]["object_key"] for record in committed} == {
        listed["key"] for listed in as_json("wal", "ls", data=data)
    }
    assert all(record["accepted"] for records in found.values() for record in records)
    assert [record["type"] for record in found["groups-0"]][:1] == ["CoordinatorClaimRecord"]


def test_a_part_of_a_log_is_dumped_in_lines_for_people(left_behind):
    data = left_behind
    everything = dumped("__cluster_metadata-0", data=data)
    created = next(record for record in everything if record["type"] == "TopicRecord")
    offset = created["offset"]

    part = dumped("cluster-0", "--from", str(offset), "--to", str(offset + 1), data=data)
    line = diskless("coordinator", "dump", "cluster-0", "--from", str(offset), data=data).stdout.splitlines()[0]

    assert [record["term"] for record in part] == [created["term"]] * len(part)
    assert part[0]["data"] == created["data"]
    assert line.startswith(f"{offset} ")
    assert f'term={created["term"]} sequence={created["sequence"]} TopicRecord name="{TOPIC}"' in line
    assert dumped("cluster-0", "--from", "1000000", data=data) == []


@pytest.mark.parametrize(("shard", "message"), [("topics-0", "is no shard"), ("diskless-9", "has no shard")])
def test_a_shard_that_is_not_there_is_an_error(left_behind, shard, message):
    result = diskless("coordinator", "dump", shard, data=left_behind)

    assert result.exit_code == 1
    assert message in result.stderr


def test_the_status_of_a_running_broker_is_shown(running):
    broker, _ = running
    data = data_of(broker)
    shards = as_json("coordinator", "status", "--count", "--url", broker.admin, data=data)
    text = diskless("coordinator", "status", "--url", broker.admin, data=data).stdout
    nobody = diskless("coordinator", "status", "-o", "admin.listener=http://127.0.0.1:1", data=data)

    by_name = {shard["shard"]: shard for shard in shards}
    assert list(by_name) == ["__cluster_metadata-0", "__diskless_metadata-0", "__consumer_offsets-0"]
    assert all(shard["leading"] and shard["leader"] == 1 for shard in shards)
    assert by_name["__diskless_metadata-0"]["rows"]["partitions"] == 2
    assert by_name["__diskless_metadata-0"]["objects"]["live"] == by_name["__diskless_metadata-0"]["rows"]["files"]
    assert "__diskless_metadata-0 rows: topics 1, partitions 2" in text
    assert "__diskless_metadata-0 snapshot: -; " in text
    assert f"__diskless_metadata-0 data: {by_name['__diskless_metadata-0']['data_bytes']} bytes" in text
    assert by_name["__cluster_metadata-0"]["data_bytes"] is None
    assert nobody.exit_code == 1
    assert "no broker answers at http://127.0.0.1:1" in nobody.stderr


def test_the_metrics_of_a_running_broker_follow_its_coordinators(running):
    broker, _ = running
    exposed = httpx.get(f"{broker.admin}/metrics").text
    families = text_string_to_metric_families(exposed)
    found = {
        sample.name.removeprefix("diskless_coordinator_"): sample.value
        for family in families
        for sample in family.samples
        if sample.labels == {"shard": "__diskless_metadata-0"}
    }

    assert found["leading"] == 1
    assert found["applied_offset"] >= found["stored_offset"]
    assert found["log_bytes_since_snapshot"] > 0
    assert found["commits_total"] == found["committed_batches_total"] == found["committed_runs_total"] == 3
    assert found["command_seconds_count"] > found["commits_total"]


def test_stores_are_rebuilt_from_the_log_but_not_under_a_running_broker(new_broker):
    broker = new_broker(ANY_ADMIN_PORT)
    fill(broker)
    data = data_of(broker)
    refused = diskless("coordinator", "rebuild", data=data)
    broker.stop()
    ends = {str(shard["shard"]): shard["high_watermark"] for shard in as_json("coordinator", "rebuild", data=data)}
    broker.start()

    assert refused.exit_code == 1
    assert f"{data} is in use by the process" in refused.stderr
    assert ends["__diskless_metadata-0"] > 0
    with broker.connect() as wire:
        assert read_values(fetch(wire, TOPIC, 0).records) == [b"one", b"two", b"three"]
        assert append(wire, TOPIC, batch_of(b"more")) == [3]
    (diskless_shard,) = (
        shard
        for shard in as_json("coordinator", "status", "--count", "--url", broker.admin, data=data)
        if shard["shard"] == "__diskless_metadata-0"
    )
    assert diskless_shard["objects"]["live"] == len(as_json("wal", "ls", data=data))


def damage_the_log(data):
    segment = data / "coordinator_log/local/__diskless_metadata-0" / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)


def lose_the_beginning(data):
    folder = data / "coordinator_log/local/__diskless_metadata-0"
    (folder / f"{0:020d}.log").rename(folder / f"{5:020d}.log")


def lose_the_log(data):
    shutil.rmtree(data / "coordinator_log/local/__diskless_metadata-0")
    shutil.rmtree(data / "coordinator_log/local/__cluster_metadata-0")
    shutil.rmtree(data / "coordinator_log/local/__consumer_offsets-0")


@pytest.mark.parametrize(
    ("lose", "message"),
    [(damage_the_log, "is damaged"), (lose_the_beginning, "no snapshot reaches it"), (lose_the_log, "log is empty")],
)
def test_stores_are_kept_when_the_log_could_not_fill_them_again(data, lose, message):
    lose(data)
    before = {path: path.read_bytes() for path in (data / "coordinator_store").rglob("*.db")}

    result = diskless("coordinator", "rebuild", data=data)

    assert result.exit_code == 1
    assert message in result.stderr
    assert {path: path.read_bytes() for path in before} == before


def test_a_store_is_rebuilt_from_a_snapshot_where_the_log_was_pruned(new_broker):
    broker = new_broker(PRUNED_SOON)
    fill(broker)
    data = data_of(broker)
    segment = data / "coordinator_log/local/__diskless_metadata-0" / f"{0:020d}.log"
    deadline = time.monotonic() + 60
    with broker.connect() as wire:
        while segment.exists():
            assert time.monotonic() < deadline, "the log is not pruned"
            (end,) = append(wire, TOPIC, batch_of(b"filler"))
    broker.stop()
    rebuilt = as_json("coordinator", "rebuild", data=data)
    broker.start()

    assert next(shard for shard in rebuilt if shard["shard"] == "__diskless_metadata-0")["replay_from"] > 0
    with broker.connect() as wire:
        assert append(wire, TOPIC, batch_of(b"more")) == [end + 1]


def test_a_second_broker_on_the_folder_does_not_start(running):
    broker, _ = running
    data = data_of(broker)
    command = [str(Path(sys.executable).with_name("diskless")), "serve", "-o", f"log.dirs={data}"]

    second = subprocess.run(
        [*command, "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "admin.listener="],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert second.returncode == 1
    assert f"{data} is in use by the process {broker.pid}" in second.stderr


def test_an_orphan_is_shown_by_a_dry_run_and_deleted_by_a_scan(running):
    broker, _ = running
    key = object_key("wal", 1, uuid.UUID(int=1))
    (data_of(broker) / "wal-objects" / key).parent.mkdir(parents=True, exist_ok=True)
    (data_of(broker) / "wal-objects" / key).write_bytes(b"left over")
    scan = ("orphans", "scan", "--url", broker.admin)
    assert as_json(*scan, "--dry-run", data=data_of(broker))["orphans"] == [key]
    told = diskless(*scan, data=data_of(broker))
    assert told.exit_code == 0, told.output
    assert key in told.stdout
    assert "1 are orphans" in told.stdout
    assert not (data_of(broker) / "wal-objects" / key).exists()
    assert as_json(*scan, data=data_of(broker))["orphans"] == []
