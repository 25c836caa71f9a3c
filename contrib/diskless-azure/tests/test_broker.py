"""A broker that keeps all it has in a container: records, its log, and segments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from azure.storage.blob import ContainerClient
from azurite import KEY, Azurite
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

TIMEOUT_S = 180.0
RECORDS = 200
_POLL_S = 0.05
_MAIN = "from diskless_core.cli.main import main; main()"


@contextmanager
def broker(folder: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """A broker on a free port; gives its `host:port`."""
    folder.mkdir(parents=True, exist_ok=True)
    ready, log = folder / "ready.json", folder / "broker.log"
    ready.unlink(missing_ok=True)
    options = [part for item in properties.items() for part in ("-o", "=".join(item))]
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", _MAIN, "serve", *options, "--ready-file", str(ready)],
            stdout=output,
            stderr=output,
            env=os.environ
            | {"DISKLESS_CONFIG_WAL_OBJECT_STORE_AZURE_ACCOUNT_KEY": KEY}
            | {"DISKLESS_CONFIG_REMOTE_STORAGE_AZURE_ACCOUNT_KEY": KEY},
        )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not ready.exists():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(_POLL_S)
        yield json.loads(ready.read_text())["listeners"]["PLAINTEXT"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert KEY not in log.read_text()


def produce(bootstrap: str, first: int) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce("orders", f"record {number}".encode(), partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == []


def consumed(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        deadline, values = time.monotonic() + TIMEOUT_S, []
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value())
        return values
    finally:
        consumer.close()


def test_a_broker_with_nothing_but_a_container_keeps_its_records(
    azurite: Azurite, container: ContainerClient, tmp_path: Path
) -> None:
    """The second broker has another folder: what it knows it has from the container."""
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "admin.listener": "",
        "coordinator_log": "bucket",
        "wal_object_store": "azure",
        "wal_object_store.azure.account.url": azurite.account_url,
        "wal_object_store.azure.container": str(container.container_name),
        "wal_object_store.azure.prefix": "wal",
        "remote_storage": "azure",
        "remote_storage.azure.account.url": azurite.account_url,
        "remote_storage.azure.container": str(container.container_name),
        "remote_storage.azure.prefix": "segments",
    }
    with broker(tmp_path / "one", properties | {"log.dirs": str(tmp_path / "one" / "data")}) as bootstrap:
        produce(bootstrap, 0)
        assert len(consumed(bootstrap, RECORDS)) == RECORDS
    assert {name.split("/")[0] for name in container.list_blob_names()} <= {"wal", "segments"}
    with broker(tmp_path / "two", properties | {"log.dirs": str(tmp_path / "two" / "data")}) as bootstrap:
        produce(bootstrap, RECORDS)
        expected = [f"record {number}".encode() for number in range(2 * RECORDS)]
        assert consumed(bootstrap, 2 * RECORDS) == expected
