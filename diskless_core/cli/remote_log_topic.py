"""Reads the topic `__remote_log_metadata` of a Kafka cluster from its beginning to its present end. It blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from diskless_core.remote_log.records import TOPIC

CONNECT_TIMEOUT_MS = 30_000
"""How long a cluster may take to answer at all."""

_POLL_MS = 1000
_POLLS_IN_VAIN = 60


class RemoteLogTopicError(Exception):
    """The topic cannot be read; the message says why."""


class TopicRecord(NamedTuple):
    """One record, where it is and what it holds."""

    partition: int
    offset: int
    value: bytes


def read_records(bootstrap: str) -> Iterator[TopicRecord]:
    """All records that the topic has when this is called, those of a partition in order.

    Raises:
        RemoteLogTopicError: the cluster does not answer, or has no such topic.
    """
    try:
        with closing(
            KafkaConsumer(
                bootstrap_servers=bootstrap,
                bootstrap_timeout_ms=CONNECT_TIMEOUT_MS,
                enable_auto_commit=False,
                exclude_internal_topics=False,
            )
        ) as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in consumer.partitions_for_topic(TOPIC) or ()]
            if not partitions:
                raise RemoteLogTopicError(f"{bootstrap} has no topic {TOPIC}: have its brokers tiered storage?")
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            yield from _up_to(consumer, consumer.end_offsets(partitions), bootstrap)
    except KafkaError as error:
        raise RemoteLogTopicError(f"{bootstrap} does not let {TOPIC} be read: {error}") from error


def _up_to(consumer: Any, ends: Mapping[Any, int], bootstrap: str) -> Iterator[TopicRecord]:
    positions: dict[Any, int] = {}
    in_vain = 0
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for partition, records in consumer.poll(timeout_ms=_POLL_MS).items():
            for record in records:
                if record.offset < ends[partition]:
                    yield TopicRecord(partition.partition, record.offset, record.value or b"")
        before, positions = positions, {partition: consumer.position(partition) for partition in ends}
        in_vain = in_vain + 1 if positions == before else 0
        if in_vain == _POLLS_IN_VAIN:
            raise RemoteLogTopicError(f"{bootstrap} gives nothing more of {TOPIC}, which has more: see its log")
