"""Many large requests that arrive slowly, all at once: memory stays bounded, and those that do arrive are answered."""

from __future__ import annotations

import selectors
import threading

import psutil
import pytest

from diskless_core.protocol.errors import ErrorCode
from tests.support.batches import batch_of
from tests.support.broker import BrokerFactory, BrokerProcess
from tests.support.requests import PRODUCE_VERSION, create_topic, produce, produce_request

MIB = 1 << 20
SMALL_MEMORY = {"diskless.append.buffer.max.bytes": str(4 * MIB), "diskless.append.inflight.max.bytes": str(8 * MIB)}
PARTITIONS = 6
BATCH = batch_of(bytes(900_000))


@pytest.fixture
def narrow_broker(new_broker: BrokerFactory) -> BrokerProcess:
    """A broker with memory for two or three of the requests below."""
    return new_broker(SMALL_MEMORY)


def send_until_answered(broker: BrokerProcess, topic: str) -> int:
    """A client that sends one large request, again if its connection is closed; how often it was."""
    for closed in range(100):
        with broker.connect(timeout_s=60) as wire:
            request = produce_request(topic, dict.fromkeys(range(PARTITIONS), BATCH), timeout_ms=60_000)
            try:
                answer = wire.call(request, PRODUCE_VERSION)
            except (ConnectionError, AssertionError):
                continue
            codes = [partition.error_code for partition in answer.responses[0].partition_responses]
            assert codes == [ErrorCode.NONE] * PARTITIONS
            return closed
    raise AssertionError("the request is never accepted")


def test_clients_that_together_send_many_times_the_memory_are_all_answered(narrow_broker, topic):
    with narrow_broker.connect() as wire:
        create_topic(wire, topic, PARTITIONS)
    answered: list[int] = []
    clients = [
        threading.Thread(target=lambda: answered.append(send_until_answered(narrow_broker, topic))) for _ in range(12)
    ]

    for client in clients:
        client.start()
    for client in clients:
        client.join()

    assert len(answered) == len(clients)


def test_requests_that_stop_half_way_take_bounded_memory_and_keep_nobody_from_producing(narrow_broker, topic):
    with narrow_broker.connect(timeout_s=60) as wire:
        create_topic(wire, topic)
        assert produce(wire, topic, BATCH).error_code == 0
        process = psutil.Process(narrow_broker.pid)
        before = process.memory_info().rss
        stalled = [narrow_broker.connect() for _ in range(40)]
        try:
            sent = send_what_is_taken(stalled, (8 * MIB).to_bytes(4, "big") + bytes(7 * MIB))
            grown = process.memory_info().rss - before

            assert sent > 8 * MIB
            assert grown < 100 * MIB, "what arrived of 40 requests of 8 MiB is in memory"
            for _ in range(3):
                assert produce(wire, topic, BATCH).error_code == 0
            assert "its request came too slowly" in narrow_broker.log_text()
        finally:
            for client in stalled:
                client.close()
        assert produce(wire, topic, BATCH).error_code == 0


def send_what_is_taken(clients, data):
    """Send `data` through each connection as far as the broker reads; the bytes that went out."""
    left = {}
    with selectors.DefaultSelector() as writable:
        for client in clients:
            client.socket.setblocking(False)
            writable.register(client.socket, selectors.EVENT_WRITE)
            left[client.socket] = memoryview(data)
        while writable.get_map():
            ready = writable.select(timeout=1)
            if not ready:
                break
            for key, _ in ready:
                try:
                    left[key.fileobj] = left[key.fileobj][key.fileobj.send(left[key.fileobj][:300_000]) :]
                except ConnectionError:
                    left[key.fileobj] = memoryview(b"")
                if not left[key.fileobj]:
                    writable.unregister(key.fileobj)
    return sum(len(data) - len(rest) for rest in left.values())
