"""Clients of an Apache Kafka, which create no topic unasked. All of it blocks; each has threads of its own besides."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

# at DEBUG it logs all that it sends, passwords included
logging.getLogger("kafka").setLevel(logging.INFO)


def open_admin(options: Mapping[str, Any]) -> Any:
    """An admin client, which has reached a broker.

    Raises:
        KafkaError: none can be reached within `bootstrap_timeout_ms`, or it refuses.
    """
    return _opened(KafkaAdminClient, dict(options))


def open_producer(options: Mapping[str, Any]) -> Any:
    """A producer whose records come once and in order, or not at all.

    Raises:
        KafkaError: no broker can be reached within `bootstrap_timeout_ms`, or it refuses.
    """
    required = {"acks": "all", "enable_idempotence": True}
    return _opened(KafkaProducer, {**options, **required})


def open_consumer(options: Mapping[str, Any]) -> Any:
    """A consumer without a group. An offset that is out of range is an error.

    Raises:
        KafkaError: no broker can be reached within `bootstrap_timeout_ms`, or it refuses.
    """
    required = {
        "group_id": None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
    }
    return _opened(KafkaConsumer, {**options, **required})


def close_producer(producer: Any, timeout_s: float) -> None:
    """Close a producer; what it has not written by then fails."""
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:
        # close() gives up then, and leaves its thread and connections behind
        producer._sender.force_close()  # noqa: SLF001


def _opened(client_class: Any, options: dict[str, Any]) -> Any:
    """The client; where it can't be made, what it has opened already is closed."""
    opened: list[Any] = []

    def connect(**arguments: Any) -> Any:
        opened.append(KafkaNetClient(**arguments))
        # an argument of this name gets lost on its way: a deleted topic would come back, with defaults of the broker
        opened[-1].cluster.config["allow_auto_create_topics"] = False
        return opened[-1]

    try:
        return client_class(**options, kafka_client=connect)
    except BaseException:
        for connections in opened:
            connections.close()
        raise
