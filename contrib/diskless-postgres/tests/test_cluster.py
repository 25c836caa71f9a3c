"""Two broker processes that are a cluster on one PostgreSQL. One is killed: nothing acknowledged is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from postgres_server import Server, free_port

LIMIT_S = 180.0


def until(condition: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < ends_at, what
        time.sleep(0.05)


class Broker:
    """`diskless serve`, in a process."""

    def __init__(self, folder: Path, node_id: int, server: Server, schema: str) -> None:
        folder.mkdir()
        self._folder = folder
        self._ready = folder / "ready.json"
        self.port = free_port()
        self._properties = {
            "node.id": str(node_id),
            "log.dirs": str(folder / "data"),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},INTERNAL://127.0.0.1:{free_port()}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "admin.listener": "",
            "diskless.coordinator.placement": "*:1|2",
            "coordinator_log": "postgres",
            "wal_object_store.fsspec.url": (folder.parent / "bucket").as_uri(),
            **{f"coordinator_log.postgres.{name}": str(value) for name, value in server.settings(schema).items()},
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # where this distribution was installed alone, Diskless comes from elsewhere and has no command beside Python
        command = [sys.executable, "-I", "-c", "from diskless_core.cli.main import main; main()"]
        self._ready.unlink(missing_ok=True)
        options = [part for item in self._properties.items() for part in ("-o", "=".join(item))]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "serve", *options, "--ready-file", str(self._ready)], stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, f"it ended with code {self._process.returncode}: {self.said()}"
            return self._ready.exists() and bool(json.loads(self._ready.read_text() or "null"))

        until(is_ready, "the broker is ready")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def said(self) -> str:
        return (self._folder / "log").read_text()[-8000:]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
def brokers(tmp_path: Path, server: Server, schema: str) -> Iterator[dict[int, Broker]]:
    made = {node_id: Broker(tmp_path / f"broker-{node_id}", node_id, server, schema) for node_id in (1, 2)}
    try:
        for broker in made.values():
            broker.start()
        for broker in made.values():
            broker.wait_until_ready()
        yield made
    finally:
        for broker in made.values():
            broker.end()


@pytest.mark.timeout(400)
def test_nothing_acknowledged_is_lost_when_the_nominated_broker_is_killed(
    brokers: dict[int, Broker], server: Server, schema: str
) -> None:
    bootstrap = ",".join(broker.address for broker in brokers.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(LIMIT_S)
    acknowledged: list[bytes] = []

    def produce(values: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for value in values:
            producer.produce(
                "t",
                value,
                on_delivery=lambda error, message: acknowledged.append(message.value()) if not error else None,
            )
        assert producer.flush(LIMIT_S) == 0

    produce([b"before %d" % number for number in range(50)])
    [(nominated,)] = server.execute(f"SELECT node_id FROM {schema}.nominations WHERE shard LIKE '%%cluster%%'")
    brokers[nominated].kill()
    produce([b"after %d" % number for number in range(50)])
    brokers[nominated].start()
    brokers[nominated].wait_until_ready()
    assert len(acknowledged) == 100

    for broker in brokers.values():
        consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "g", "enable.auto.commit": False})
        try:
            consumer.assign([TopicPartition("t", 0, 0)])
            found: list[bytes] = []
            ends_at = time.monotonic() + LIMIT_S
            while len(found) < 100 and time.monotonic() < ends_at:
                message = consumer.poll(1.0)
                if message is not None and not message.error():
                    found.append(message.value() or b"")
        finally:
            consumer.close()
        assert found == acknowledged
