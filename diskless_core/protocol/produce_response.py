"""The response of Produce packed by hand, for it is as frequent as requests are; its bytes equal the generic codec's.

Never filled are the errors of single records and the hints at other leaders (KIP-951).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diskless_core.protocol.packed import INT32, NO_TAGS, pack_string
from diskless_core.protocol.varint import encode_uvarint

FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 13
_ERROR_MESSAGES_SINCE = 8
_LOG_START_SINCE = 5

_INT16 = struct.Struct(">h")
_NULL = -1
_WITHOUT_LOG_START = struct.Struct(">ihqq")
_PLAIN = struct.Struct(">ihqqq")
_WITH_NULL_MESSAGE = struct.Struct(">ihqqqih")
_FLEXIBLE_WITH_NULL_MESSAGE = struct.Struct(">ihqqqBBB")
_NO_RECORD_ERRORS = INT32.pack(0)
_NO_RECORD_ERRORS_FLEXIBLE = b"\x01"


class PartitionAnswer(NamedTuple):
    """What became of one partition's batch; -1 where there is no offset or time."""

    partition: int
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None


class TopicAnswer(NamedTuple):
    """The answers of one topic, which old versions name and new ones identify."""

    name: str
    topic_id: bytes
    partitions: Sequence[PartitionAnswer]


@dataclass(slots=True)
class ProduceAnswer:
    """A response of Produce."""

    topics: Sequence[TopicAnswer]
    throttle_time_ms: int = 0


def pack(answer: ProduceAnswer, version: int) -> bytes:
    """The response's body in one of the versions 3 to 13."""
    parts = [_length(len(answer.topics), version)]
    for name, topic_id, partitions in answer.topics:
        parts += (_topic(name, topic_id, version), _length(len(partitions), version))
        parts += [_partition(partition, version) for partition in partitions]
        if version >= FLEXIBLE_SINCE:
            parts.append(NO_TAGS)
    parts.append(INT32.pack(answer.throttle_time_ms))
    if version >= FLEXIBLE_SINCE:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _length(count: int, version: int) -> bytes:
    return encode_uvarint(count + 1) if version >= FLEXIBLE_SINCE else INT32.pack(count)


def _topic(name: str, topic_id: bytes, version: int) -> bytes:
    if version >= _TOPIC_IDS_SINCE:
        return topic_id
    return pack_string(name) if version >= FLEXIBLE_SINCE else _old_string(name)


def _old_string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data


def _partition(partition: PartitionAnswer, version: int) -> bytes:
    *numbers, message = partition
    if version < _LOG_START_SINCE:
        return _WITHOUT_LOG_START.pack(*numbers[:-1])
    if version < _ERROR_MESSAGES_SINCE:
        return _PLAIN.pack(*numbers)
    if version < FLEXIBLE_SINCE:
        if message is None:
            return _WITH_NULL_MESSAGE.pack(*numbers, 0, _NULL)
        return b"".join((_PLAIN.pack(*numbers), _NO_RECORD_ERRORS, _old_string(message)))
    if message is None:
        return _FLEXIBLE_WITH_NULL_MESSAGE.pack(*numbers, 1, 0, 0)
    return b"".join((_PLAIN.pack(*numbers), _NO_RECORD_ERRORS_FLEXIBLE, pack_string(message), NO_TAGS))
