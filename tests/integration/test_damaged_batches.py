"""Batches that consumers cannot read, in the log of a running broker: they are found, passed over, and left behind."""

from __future__ import annotations

import json

import pytest
from confluent_kafka import TopicPartition
from typer.testing import CliRunner

from diskless_core.cli.main import main
from diskless_core.plugin.kafka_client import open_admin
from tests.support.batches import batch_of, with_header
from tests.support.broker import BrokerProcess
from tests.support.damaged_batches import change_batch
from tests.support.requests import append, create_topic

TOPIC, HISTORY, DELETED, ROTTEN = "orders", "history", "deleted", "rotten"


def diskless(*arguments):
    return CliRunner().invoke(main, [*arguments])


GOOD = batch_of(b"one", b"two")
MANY = batch_of(b"three", b"four", b"five")
ZEROS = batch_of(b"six" * 10, compression=1)
LAST = batch_of(b"seven")
OLD = batch_of(b"old", b"older")
SPOILT = batch_of(b"spoilt", b"by the", b"disk")
OTHER = batch_of(b"other", b"another", compression=1)


def as_earlier_releases_took_it(batch):
    """More records are counted than there are; the offsets stay what they were."""
    return with_header(batch, record_count=1000)


def of_zeros(batch):
    return with_header(batch[:61] + bytes(len(batch) - 61))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A running broker. In partition 0, offsets 2 to 4 and 5 cannot be read; partition 1 is sound."""
    broker = BrokerProcess(tmp_path_factory.mktemp("damaged"), {"admin.listener": "http://127.0.0.1:0"})
    try:
        broker.start()
        with broker.connect() as wire:
            create_topic(wire, TOPIC, partitions=2)
            append(wire, TOPIC, GOOD, MANY, ZEROS, LAST)
            append(wire, TOPIC, GOOD, partition=1)
            create_topic(wire, HISTORY)
            append(wire, HISTORY, LAST, OLD, LAST)
            create_topic(wire, ROTTEN)
            append(wire, ROTTEN, LAST, SPOILT, LAST)
            create_topic(wire, DELETED)
            append(wire, DELETED, LAST, OTHER, LAST)
        broker.stop()
        data = broker.folder / "data"
        keys = [change_batch(data, MANY, as_earlier_releases_took_it), change_batch(data, ZEROS, of_zeros)]
        change_batch(data, OTHER, of_zeros)
        change_batch(data, SPOILT, lambda batch: batch[:-3] + b"x" + batch[-2:])
        change_batch(data, OLD, as_earlier_releases_took_it)
        yield broker.start(), keys
    finally:
        broker.end()


def data_of(broker):
    return f"log.dirs={broker.folder / 'data'}"


def delete_before(broker, topic, offset):
    """As `kafka-delete-records` does it."""
    with open_admin({"bootstrap.servers": broker.bootstrap}, 10) as admin:
        for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result()


def verified(broker, *arguments):
    done = diskless("wal", "verify", *arguments, "--json", "-o", data_of(broker))
    return done.exit_code, json.loads(done.stdout)


def test_the_batches_that_consumers_cannot_read_are_found_in_objects_and_with_their_offsets_in_a_topic(damaged):
    broker, keys = damaged
    code, found = verified(broker)
    assert code == 1
    assert {one["object"] for one in found["damaged"]} >= {*keys}
    assert verified(broker, keys[0])[1]["damaged"] == [one for one in found["damaged"] if one["object"] == keys[0]]

    code, found = verified(broker, "--topic", TOPIC, "--url", broker.admin)
    assert (code, found["batches"]) == (1, 5)
    first, second = found["damaged"]
    assert (first["partition"], first["first_offset"], first["last_offset"], first["place"]) == (0, 2, 4, keys[0])
    assert "the records end before the 1000 that the header counts" in first["problem"]
    assert (second["partition"], second["first_offset"], second["last_offset"], second["place"]) == (0, 5, 5, keys[1])
    assert "can't be decompressed" in second["problem"]
    assert verified(broker, "--topic", TOPIC, "-p", "1", "--url", broker.admin) == (0, {"batches": 1, "damaged": []})

    text = diskless("wal", "verify", "--topic", TOPIC, "--url", broker.admin, "-o", data_of(broker))
    assert (text.exit_code, text.stdout.splitlines()[-1]) == (1, "5 batches read, 2 damaged")


def test_what_cannot_be_verified_is_said_in_a_line(damaged):
    broker, _ = damaged
    data = data_of(broker)
    for arguments, words in (
        (["wal/none"], "there is no object 'wal/none'"),
        (["--topic", "none", "--url", broker.admin], "there is no topic none"),
        (["--topic", TOPIC, "--url", "http://127.0.0.1:1"], "no broker answers"),
    ):
        done = diskless("wal", "verify", *arguments, "-o", data)
        assert done.exit_code == 1
        assert words in done.stderr
    assert diskless("wal", "verify", "-p", "0", "-o", data).exit_code == 2
    assert diskless("wal", "verify", "key", "--topic", TOPIC, "-o", data).exit_code == 2


def test_they_are_found_in_segments_too_and_no_more_once_their_records_are_deleted(damaged):
    broker, _ = damaged
    history = ("--topic", HISTORY, "--url", broker.admin)
    compacted = diskless("compact", *history, "--everything", "-o", data_of(broker))
    assert compacted.exit_code == 0, compacted.output

    code, found = verified(broker, *history)
    [one] = found["damaged"]
    assert (code, found["batches"], one["first_offset"], one["last_offset"]) == (1, 3, 1, 2)
    assert one["place"].startswith("segment ")

    delete_before(broker, HISTORY, 3)
    assert verified(broker, *history) == (0, {"batches": 1, "damaged": []})


def test_a_consumer_that_is_told_to_skips_them_names_each_and_reads_all_others(damaged):
    broker, _ = damaged
    read = ("consume", TOPIC, "--skip-damaged", "-b", broker.bootstrap)
    done = diskless(*read, "--until", "end", "-f", "%p %o %v")
    assert done.exit_code == 0
    assert sorted(done.stdout.splitlines()) == ["0 0 one", "0 1 two", "0 6 seven", "1 0 one", "1 1 two"]
    skipped = done.stderr.splitlines()
    assert [line.partition(":")[0] for line in skipped] == [
        f"skipped {TOPIC}-0, offsets 2 to 4",
        f"skipped {TOPIC}-0, offsets 5 to 5",
    ]

    rotten = diskless("consume", ROTTEN, "--skip-damaged", "-b", broker.bootstrap, "--until", "end")
    assert (rotten.exit_code, rotten.stdout) == (0, "seven\nseven\n")
    assert rotten.stderr.startswith(f"skipped {ROTTEN}-0, offsets 1 to 3: the broker cannot read it either")

    within = diskless(*read, "-p", "0", "--from", "3", "--until", "end", "--json")
    assert [json.loads(line)["value"] for line in within.stdout.splitlines()] == ["seven"]
    assert within.stderr.startswith(f"skipped {TOPIC}-0, offsets 3 to 4: ")
    assert diskless(*read, "-p", "0", "--until", "2").stdout == "one\ntwo\n"
    assert diskless(*read, "-p", "0", "-n", "3").stdout == "one\ntwo\nseven\n"


def test_a_group_goes_on_behind_them_once_its_offset_is_set_there(damaged):
    broker, _ = damaged
    address = ("-b", broker.bootstrap)
    read = ("consume", TOPIC, "--group", "stuck", "-n", "1", *address)
    assert (
        diskless("groups", "reset", "stuck", "--topic", f"{TOPIC}:0", "--to", "6", "--execute", *address).exit_code == 0
    )
    assert (
        diskless("groups", "reset", "stuck", "--topic", f"{TOPIC}:1", "--to", "end", "--execute", *address).exit_code
        == 0
    )
    assert diskless(*read).stdout == "seven\n"


def test_a_consumer_goes_on_behind_them_once_the_records_up_to_there_are_deleted(damaged):
    broker, _ = damaged
    delete_before(broker, DELETED, 3)
    done = diskless("consume", DELETED, "--until", "end", "-b", broker.bootstrap)
    assert (done.exit_code, done.stdout) == (0, "seven\n")
