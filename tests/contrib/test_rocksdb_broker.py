"""A broker that keeps its coordinator state in RocksDB."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.batches import batch_of, read_values
from tests.support.broker import BrokerFactory
from tests.support.requests import append, create_topic, fetch, list_offset

SELECTED = {"coordinator_store": "rocksdb"}
SMALL = {"coordinator_store.rocksdb.cache.bytes": "1048576", "coordinator_store.rocksdb.write.buffer.bytes": "2097152"}


def test_what_was_acknowledged_is_there_after_a_kill_and_after_a_stop(new_broker: BrokerFactory, topic: str) -> None:
    broker = new_broker(SELECTED | SMALL)
    values = [b"value %d" % number for number in range(20)]
    with broker.connect() as wire:
        create_topic(wire, topic)
        for value in values[:10]:
            append(wire, topic, batch_of(value))
    broker.kill()
    broker.start()
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records) == values[:10]
        for value in values[10:]:
            append(wire, topic, batch_of(value))
    broker.stop()
    broker.start()
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records) == values
        assert list_offset(wire, topic, -1).offset == len(values)

    assert list((broker.folder / "data").rglob("CURRENT"))
    assert not list((broker.folder / "data").rglob("*.db"))


def test_a_broker_that_had_another_store_fills_this_one_from_the_log(new_broker: BrokerFactory, topic: str) -> None:
    broker = new_broker()
    with broker.connect() as wire:
        create_topic(wire, topic)
        append(wire, topic, batch_of(b"one", b"two"))
    broker.stop()
    broker.start(SELECTED)
    with broker.connect() as wire:
        assert read_values(fetch(wire, topic, 0).records) == [b"one", b"two"]


def test_its_settings_are_described_and_checked(tmp_path: Path) -> None:
    diskless = Path(sys.executable).with_name("diskless")
    described = subprocess.run(
        [diskless, "plugins", "describe", "coordinator_store", "rocksdb"], capture_output=True, text=True, timeout=60
    )
    assert "coordinator_store.rocksdb.write.buffer.bytes (" in described.stdout, described.stderr

    bad = tmp_path / "server.properties"
    bad.write_text("coordinator_store=rocksdb\ncoordinator_store.rocksdb.cache.bytes=1\n")
    checked = subprocess.run([diskless, "plugins", "validate", bad], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 1
    assert "coordinator_store.rocksdb.cache.bytes" in checked.stderr
