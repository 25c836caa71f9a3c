"""Clients of the metadata topic whose caller is cancelled, or whose Kafka goes silent: none stays open, none hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from diskless_core.clock import SystemClock
from diskless_core.plugin import kafka_client
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_kafka import metadata_clients, metadata_topic
from diskless_kafka.metadata_clients import MetadataClients
from tests.support.cluster import until
from tests.support.metadata_topic import topic_settings

TIMEOUT_S = 300.0
TOPIC_ID = SystemClock().new_uuid()


class Held:
    """A client of any kind, which does as its test says.

    Attributes:
        sent: the callbacks of records that were given to a producer.
        refuses: what a producer answers to records.
    """

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.sent: list[Callable[[Any, Any], None]] = []
        self.refuses: KafkaException | None = None

    def poll(self, timeout: float) -> None:
        threading.Event().wait(timeout / 100)

    def assign(self, partitions: Any) -> None:
        pass

    def consume(self, count: int, timeout: float) -> list[Any]:
        return []

    def list_offsets(self, asked: Any) -> Any:
        return {one: metadata_clients.Future() for one in asked}

    def produce(self, *_: Any, on_delivery: Callable[[Any, Any], None], **__: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.sent.append(on_delivery)

    def close(self, *_: Any) -> None:
        self.closed.set()


class Kafka:
    """In place of librdkafka. Opening a client waits for `may_open`.

    Attributes:
        opened: the clients, as they were opened.
        opening: set when a client is to be opened.
    """

    def __init__(self) -> None:
        self.opened: list[Held] = []
        self.opening = threading.Event()
        self.may_open = threading.Event()

    def open(self, *_: Any) -> Held:
        self.opening.set()
        assert self.may_open.wait(TIMEOUT_S)
        self.opened.append(Held())
        return self.opened[-1]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    for name in ("open_admin", "open_producer", "open_consumer"):
        monkeypatch.setattr(kafka_client, name, made.open)
    for name in ("close_admin", "close_producer"):
        monkeypatch.setattr(kafka_client, name, Held.close)
    monkeypatch.setattr(metadata_topic, "ensure_topic", lambda *_: TOPIC_ID)
    return made


@pytest.fixture
async def clients(kafka: Kafka, tmp_path: Path) -> AsyncIterator[MetadataClients]:
    context = PluginContext(node_id=1, data_dir=tmp_path, log_dir=tmp_path, clock=SystemClock())
    made = MetadataClients(context, topic_settings("localhost:9092", "segments"))
    yield made
    kafka.may_open.set()
    await made.close()
    assert all(client.closed.is_set() for client in kafka.opened)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("segments")]


async def cancel_while_opening(kafka: Kafka, call: Any) -> None:
    kafka.opening.clear()
    kafka.may_open.clear()
    calling = asyncio.create_task(call)
    assert await asyncio.to_thread(kafka.opening.wait, TIMEOUT_S)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


async def test_clients_that_are_opened_after_their_caller_was_cancelled_are_closed(
    kafka: Kafka, clients: MetadataClients
) -> None:
    await cancel_while_opening(kafka, clients.open())
    kafka.may_open.set()
    await clients.close()
    assert len(kafka.opened) == 2


async def test_a_consumer_that_is_opened_after_its_caller_was_cancelled_is_closed(
    kafka: Kafka, clients: MetadataClients
) -> None:
    kafka.may_open.set()
    assert await clients.open() == TOPIC_ID
    await cancel_while_opening(kafka, clients.start_reading({0: 0}, None))  # type: ignore[arg-type]
    kafka.may_open.set()
    await clients.close()
    assert len(kafka.opened) == 3


async def test_a_close_that_is_cancelled_closes_all_the_same(kafka: Kafka, clients: MetadataClients) -> None:
    kafka.may_open.set()
    await clients.open()
    await clients.start_reading({0: 0}, None)  # type: ignore[arg-type]
    closing = asyncio.create_task(clients.close())
    await asyncio.sleep(0)
    closing.cancel()
    for client in kafka.opened:
        assert await asyncio.to_thread(client.closed.wait, TIMEOUT_S)
    await asyncio.gather(closing, return_exceptions=True)


async def test_who_waits_for_offsets_is_told_when_the_clients_are_closed(
    kafka: Kafka, clients: MetadataClients
) -> None:
    kafka.may_open.set()
    await clients.open()
    asking = asyncio.create_task(clients.end(0))
    await asyncio.sleep(0)
    await clients.close()
    with pytest.raises(RemoteLogMetadataError, match="closed"):
        await asking
    with pytest.raises(RemoteLogMetadataError, match="closed"):
        await clients.write(0, b"", "ours")


async def test_a_producer_that_has_failed_for_good_is_replaced(kafka: Kafka, clients: MetadataClients) -> None:
    kafka.may_open.set()
    await clients.open()
    _, broken = kafka.opened
    broken.refuses = KafkaException(KafkaError(KafkaError._FATAL))
    with pytest.raises(RemoteLogMetadataError) as error:
        await clients.write(0, b"", "ours")
    assert error.value.retriable
    await until(lambda: len(kafka.opened) == 3)
    await until(lambda: broken.closed.is_set())
    writing = asyncio.create_task(clients.write(0, b"", "ours"))
    await until(lambda: bool(kafka.opened[2].sent))
    kafka.opened[2].sent[0](None, SimpleNamespace(offset=lambda: 17))
    assert await writing == 17
