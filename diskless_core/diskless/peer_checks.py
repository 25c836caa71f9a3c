"""What another broker's request to a Diskless coordinator may say. Pure.

Each check says what is wrong, in words for the answer and the log, or None. It looks at nothing but the request and
what `PeerRules` say of this cluster. What the shard's state decides (offsets, topics, horizons) is not here. The page
"Protocol extensions" lists the checks of every API between brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diskless_core.diskless.commands import OBJECT_FORMAT_WAL, HandOver, TimestampType
from diskless_core.diskless.producer_state import last_sequence
from diskless_core.protocol.commit_file import CommitBatch, CommitFileRequest, OtherFile
from diskless_core.protocol.record_batch import HEADER_BYTES as BATCH_HEADER_BYTES
from diskless_core.wal.format import HEADER_BYTES, is_object_key

MAX_FILES = 500
"""Objects that one DisklessHandOverFiles or DisklessDescribeFiles may name: the shard reads rows of each of them."""

MAX_UNNAMED_PARTITIONS = 10_000
"""Partitions that a request may ask for by their number alone, as of CreateTopics. Names it has to bring along."""

MAX_TOPIC_NAME = 249
"""Characters of a topic's name, as in Apache Kafka."""

_TIMESTAMP_TYPES = frozenset(map(int, TimestampType))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRules:
    """What requests are checked against.

    Attributes:
        object_prefix: what the keys of the cluster's WAL objects begin with, without the '/' after it.
        shards: indexes of the Diskless coordinators that this broker knows.
    """

    object_prefix: str
    shards: Collection[int]


def problem_of_commit(request: CommitFileRequest, rules: PeerRules) -> str | None:
    """DisklessCommitFile. Whether the coordinator is one of the owners, the shard itself looks at."""
    problem = _problem_of_file(request, rules)
    for other in request.others:
        problem = problem or _problem_of_file(other, rules)
    return problem


def _problem_of_file(file: CommitFileRequest | OtherFile, rules: PeerRules) -> str | None:
    if not is_object_key(rules.object_prefix, file.object_key):
        return _foreign_key(file.object_key, rules)
    if file.object_format != OBJECT_FORMAT_WAL:
        return f"the object format {file.object_format} is not known here, only {OBJECT_FORMAT_WAL}"
    return _problem_of_owners(file.owner_ids) or _problem_of_batches(file.batches, file.file_size)


def _problem_of_batches(batches: Sequence[CommitBatch], file_size: int) -> str | None:
    """What no broker asks for that has looked at the batches itself: see `produce.validation`."""
    for _, partition, byte_offset, size, count, _, timestamp_type, producer_id, epoch, first, last in batches:
        if byte_offset < HEADER_BYTES or size < BATCH_HEADER_BYTES or byte_offset + size > file_size:
            return f"a batch of {size} bytes at byte {byte_offset} does not lie in an object of {file_size} bytes"
        if partition < 0 or timestamp_type not in _TIMESTAMP_TYPES:
            return f"a batch has the partition {partition} and the timestamp type {timestamp_type}"
        if producer_id >= 0 and (epoch < 0 or first < 0 or last != last_sequence(first, count)):
            return (
                f"a batch of {count} records of the producer {producer_id} has the epoch {epoch} and the sequence "
                f"numbers {first} to {last}"
            )
    return None


def problem_of_hand_over(files: Sequence[HandOver], shard: int, rules: PeerRules) -> str | None:
    """DisklessHandOverFiles, to the coordinator with the index `shard`."""
    if len(files) > MAX_FILES:
        return _too_many(len(files))
    for file in files:
        if not is_object_key(rules.object_prefix, file.object_key):
            return _foreign_key(file.object_key, rules)
        problem = _problem_of_owners(file.owner_ids)
        if problem is not None:
            return f"{file.object_key}: {problem}"
        if shard not in file.owner_ids:
            return f"the coordinator {shard} is none of the owners {list(file.owner_ids)} of {file.object_key}"
        strangers = sorted(set(file.owner_ids).difference(rules.shards))
        if strangers:
            return (
                f"{file.object_key} has the owners {strangers}, and there are no such coordinators: if other brokers "
                f"know them, set diskless.metadata.topic.num.partitions to the same on all brokers"
            )
        if file.committed_at < 0 or file.dead_at < 0:
            return f"{file.object_key} has the times {file.committed_at} and {file.dead_at}, which are before 1970"
    return None


def problem_of_keys(object_keys: Sequence[str]) -> str | None:
    """DisklessDescribeFiles. Any key may be asked for: the answer says no more than whether it is known."""
    return _too_many(len(object_keys)) if len(object_keys) > MAX_FILES else None


def problem_of_horizon(horizon_ms: int) -> str | None:
    """DisklessRaiseHorizon. Whether it is too close to now, the leader's clock says."""
    return f"{horizon_ms} is no time" if horizon_ms < 0 else None


def problem_of_partitions(name: str, count: int, indexes: Sequence[int]) -> str | None:
    """A topic of DisklessCreatePartitions."""
    if not 0 < len(name) <= MAX_TOPIC_NAME:
        return f"a topic's name has 1 to {MAX_TOPIC_NAME} characters, not {len(name)}"
    is_sound = len(indexes) == count and min(indexes) >= 0 if indexes else 0 <= count <= MAX_UNNAMED_PARTITIONS
    return None if is_sound else "the partitions are not as many as they are said to be, or too many"


def _problem_of_owners(owner_ids: Sequence[int]) -> str | None:
    """An object belongs to its owners in turn: each is named once."""
    if len(set(owner_ids)) < len(owner_ids) or any(owner < 0 for owner in owner_ids):
        return f"the owners {list(owner_ids)} are not indexes of coordinators, each of them once"
    return None


def _foreign_key(object_key: str, rules: PeerRules) -> str:
    return (
        f"{object_key[:200]!r} is not the key of a WAL object of this cluster, whose diskless.wal.object.prefix is "
        f"{rules.object_prefix!r}"
    )


def _too_many(count: int) -> str:
    return f"a request may name {MAX_FILES} objects, not {count}"
