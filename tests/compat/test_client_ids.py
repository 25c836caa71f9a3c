"""Clients may call themselves anything: what a client.id holds reaches nobody but those who ask for it."""

from __future__ import annotations

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.clients import TIMEOUT_S, collect
from tests.support.requests import create_topic

CLIENT_IDS = {
    "MirrorMaker": "source->target|source-0|MirrorSourceConnector-0|diskless_az=zone-a",
    "spaces and marks": "a b\t'c' \"d\" {e}=%s%n ${f} <g>, h; i/j\\k:*?",
    "not ASCII": "Grüße-クライアント-🚀",
    "lines": "first\nsecond\r\n[error] third",
    "long": "x" * 20_000,
}


@pytest.mark.parametrize("client_id", CLIENT_IDS.values(), ids=CLIENT_IDS)
def test_any_client_id_can_produce_and_consume_in_a_group_that_shows_it(broker, wire, topic, client_id):
    create_topic(wire, topic)
    log_start = broker.log.stat().st_size
    common = {"bootstrap.servers": broker.bootstrap, "client.id": client_id}

    producer = confluent_kafka.Producer({**common, "enable.idempotence": True, "linger.ms": 0})
    producer.produce(topic, b"value")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    admin = AdminClient(common)
    consumer.subscribe([topic])
    try:
        [message] = collect(lambda: consumer.consume(1, 0.1), 1)
        described = admin.describe_consumer_groups([topic])[topic].result(TIMEOUT_S)
    finally:
        consumer.close()

    assert message.value() == b"value"
    assert [member.client_id for member in described.members] == [client_id]
    assert not any(line.startswith(("second", "[error] third")) for line in broker.log_text(log_start).splitlines())
