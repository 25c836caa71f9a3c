"""A broker whose metadata log is pruned behind snapshots, and whose local state is lost."""

from __future__ import annotations

import shutil

import pytest

from diskless_core.snapshot.reading import MANIFEST_SUFFIX
from tests.support.batches import batch_of, read_values
from tests.support.requests import append, create_topic, fetch
from tests.support.waiting import wait_until

SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": "3000",
    "coordinator_log.local.segment.bytes": "4096",
}


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_everything_is_there_after_the_log_was_pruned_and_the_store_deleted(new_broker, topic, end):
    broker = new_broker(SMALL)
    data = broker.folder / "data"
    first_segment = data / "coordinator_log/local/__diskless_metadata-0" / f"{0:020d}.log"
    values = [b"%d" % number for number in range(60)]
    with broker.connect() as wire:
        create_topic(wire, topic)
        for value in values:
            append(wire, topic, batch_of(value))
        assert first_segment.parent.is_dir()
        wait_until(lambda: not first_segment.exists(), "the log is pruned")
        append(wire, topic, batch_of(b"after"))
    getattr(broker, end)()
    shutil.rmtree(data / "coordinator_store")
    broker.start()
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records) == [*values, b"after"]
        append(wire, topic, batch_of(b"more"))
        assert read_values(fetch(wire, topic, len(values) + 1).records) == [b"more"]


@pytest.mark.parametrize("is_store_left", [True, False])
def test_a_broker_that_has_lost_its_log_does_not_start_and_deletes_nothing(new_broker, topic, is_store_left):
    broker = new_broker(SMALL)
    data = broker.folder / "data"
    objects = data / "wal-objects"

    def produced_until_a_snapshot():
        append(wire, topic, batch_of(b"value"))
        return [path for path in objects.rglob(f"*{MANIFEST_SUFFIX}") if "__diskless_metadata-0" in path.parts]

    with broker.connect() as wire:
        create_topic(wire, topic)
        wait_until(produced_until_a_snapshot, "there is a snapshot")
    broker.stop()
    log, aside = data / "coordinator_log", data / "aside"
    log.rename(aside)
    if not is_store_left:
        shutil.rmtree(data / "coordinator_store")
    kept = {path: path.read_bytes() for path in objects.rglob("*") if path.is_file()}
    with pytest.raises(AssertionError, match="the log was lost or cut"):
        broker.start()
    assert {path: path.read_bytes() for path in kept} == kept
    shutil.rmtree(log)
    aside.rename(log)
    broker.start()
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records)[0] == b"value"
