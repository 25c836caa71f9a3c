"""The decisions of a diskless shard: check a request against the state, write records, give the answer. Pure.

(KIP-1164, "How operations are performed", steps 3 and 4.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from diskless_core.coordinator.errors import ClockSkewError
from diskless_core.coordinator.slices import Pace, Slices, chunks
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Key, Reader
from diskless_core.diskless import producer_state
from diskless_core.diskless.commands import (
    MAX_COMMIT_BATCHES,
    BatchResult,
    CommitBatch,
    CommitFile,
    DeletedRecords,
    PartitionKey,
    TimestampType,
)
from diskless_core.diskless.commit_results import unpack_results
from diskless_core.diskless.producer_state import NO_PRODUCER, ProducerWindow, WindowBatch
from diskless_core.diskless.records import (
    DisklessRecord,
    HorizonRaised,
    PartitionsCreated,
    ProducersExpired,
    RecordsDeleted,
    TopicDeleted,
)
from diskless_core.diskless.tables import (
    FILES,
    HORIZON,
    LIVE_FILES,
    PARTITIONS,
    PRODUCER_IDS,
    PRODUCERS,
    THE_HORIZON,
    THE_PRODUCER_IDS,
    TOPICS,
    FileState,
    PartitionHead,
)
from diskless_core.passed_time import Passed
from diskless_core.plugin.offset_assignment import OffsetAssignment
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.file_committed import CommittedBatch, DuplicateBatch, FileCommitted, RefusedBatch
from diskless_core.wal.format import is_older

DisklessCommand = Command[DisklessRecord]

HIGH_WATERMARK = -1
"""As the offset of DeleteRecords: delete everything that is committed."""

_PENDING_OFFSET = -1
_LOG_APPEND_TIME = int(TimestampType.LOG_APPEND_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRules:
    """What a commit is judged by, besides the state."""

    assignment: OffsetAssignment


class OffsetAssignmentError(Exception):
    """The `offset_assignment` plugin broke its contract. Nothing of the object was committed."""


def create_partitions(command: DisklessCommand, topic_id: bytes, name: str, partitions: Sequence[int]) -> None:
    """Create those of the partitions that are not there yet, each once; repeating it changes nothing."""
    missing = [one for one in dict.fromkeys(partitions) if command.get(PARTITIONS, (topic_id, one)) is None]
    if missing:
        command.emit(PartitionsCreated(topic_id=topic_id, name=name, partitions=missing))


def delete_topic(command: DisklessCommand, topic_id: bytes) -> Slices[ErrorCode]:
    """Delete a topic's partitions of this shard."""
    if command.get(TOPICS, (topic_id,)) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    yield from command.emit_in_slices(TopicDeleted(topic_id=topic_id))
    return ErrorCode.NONE


def delete_records(
    command: DisklessCommand, partition: PartitionKey, offset: int, bytes_before: int | None
) -> DeletedRecords:
    """Let a partition begin at `offset`, or at the high watermark; it never moves back.

    Args:
        bytes_before: what was appended before the run that contains `offset`, or the next one; None when there was no
            such offset yet.
    """
    head = command.get(PARTITIONS, partition)
    if head is None:
        return DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    target = head.next_offset if offset == HIGH_WATERMARK else offset
    if target == head.next_offset:
        bytes_before = head.appended_bytes
    if target < 0 or bytes_before is None or target > head.next_offset:
        return DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)
    if target <= head.log_start_offset:
        return DeletedRecords(ErrorCode.NONE, head.log_start_offset)
    command.emit(
        RecordsDeleted(
            topic_id=partition.topic_id,
            partition=partition.partition,
            log_start_offset=target,
            log_start_bytes=bytes_before,
        )
    )
    return DeletedRecords(ErrorCode.NONE, target)


HORIZON_AGE_MS = 30_000
"""How far in the past of the leader's clock a horizon is at least: an object that was just created can be committed,
whatever the clock says of the node that looks for orphans."""


def raise_horizon(command: DisklessCommand, passed: Passed, horizon_ms: int) -> None:
    """Refuse from now on to commit objects that were created before, by their keys; it never goes back.

    Raises:
        ClockSkewError: it is too late a time. Nothing happened.
    """
    latest_ms = passed.before(HORIZON_AGE_MS)
    if horizon_ms > latest_ms:
        raise ClockSkewError(
            f"a horizon of {horizon_ms} is too late by the clock here. It says {passed.now_ms}, and only what was "
            f"created before {latest_ms} is certainly {HORIZON_AGE_MS} ms old: set the clock of the node that looks "
            f"for orphans, or the clock of this one"
        )
    if horizon_ms > (command.get(HORIZON, THE_HORIZON) or 0):
        command.emit(HorizonRaised(horizon_ms=horizon_ms))


def known_files(command: DisklessCommand, object_keys: Sequence[str]) -> dict[str, bool]:
    """Of those objects that are, or are about to be, committed: whether they have live batches.

    Wants the rows of each in FILES and LIVE_FILES prefetched.
    """
    return {
        object_key: command.get(LIVE_FILES, (object_key,)) is not None
        for object_key in object_keys
        if command.get(FILES, (object_key,)) is not None
    }


def has_expired(reader: Reader, producer: Key, passed: Passed, expiration_ms: int) -> bool:
    """Whether a producer, by its key in PRODUCERS, was silent for so long, or its partition is gone."""
    window = reader.get(PRODUCERS, producer)
    if window is None:
        return False
    is_expired = producer_state.is_expired(window, passed, expiration_ms)
    return is_expired or reader.get(PARTITIONS, producer[:-1]) is None


def expire_producers(command: DisklessCommand, producers: Iterable[Key], passed: Passed, expiration_ms: int) -> None:
    """Forget those of the producers, named by keys of PRODUCERS, that have expired: see `has_expired`.

    It is judged by their windows as they will be when everything before this command has committed. A batch that comes
    afterwards is judged as that of a producer that may have been forgotten.
    """
    expired: dict[PartitionKey, list[int]] = {}
    for key in producers:
        if has_expired(command.tx, key, passed, expiration_ms):
            expired.setdefault(PartitionKey(*key[:-1]), []).append(key[-1])
    if expired:
        command.emit(ProducersExpired(partitions=tuple(expired.items())))


def _is_beyond_horizon(command: DisklessCommand, object_key: str) -> bool:
    horizon_ms = command.get(HORIZON, THE_HORIZON)
    return horizon_ms is not None and is_older(object_key, horizon_ms)


def _too_old(command: DisklessCommand) -> BatchResult:
    """Retriable for producers: their records come again, in another object. Its creation time has to be later."""
    time_ms = max(command.now_ms, command.get(HORIZON, THE_HORIZON) or 0)
    return BatchResult(ErrorCode.KAFKA_STORAGE_ERROR, append_time=time_ms)


def commit_file(command: DisklessCommand, request: CommitFile, rules: CommitRules) -> Slices[list[BatchResult]]:
    """Commit an object: judge each batch by itself, give offsets to the good ones, in the order of the request.

    The same request again gets its first answer and changes nothing; another one of the same object key is refused, and
    so is one of more than `MAX_COMMIT_BATCHES`. Wants the row of `request.object_key` in FILES prefetched.
    """
    if not request.batches:
        return []
    if len(request.batches) > MAX_COMMIT_BATCHES:
        return [BatchResult(ErrorCode.INVALID_REQUEST)] * len(request.batches)
    digest = request.digest()
    known = command.get(FILES, (request.object_key,))
    if known is not None and not known.is_tombstone:
        if known.digest == digest:
            return unpack_results(known.results)
        return [BatchResult(ErrorCode.INVALID_REQUEST)] * len(request.batches)
    if known is not None or _is_beyond_horizon(command, request.object_key):
        return [_too_old(command)] * len(request.batches)
    pace, units = Pace(), len(request.batches)
    record = yield from _judge(command, request, rules, digest)
    if pace.is_over_after(units):
        yield
    yield from command.emit_in_slices(record)
    if pace.is_over_after(units):
        yield
    results = unpack_results(cast("FileState", command.get(FILES, (request.object_key,))).results)
    if pace.is_over_after(units):
        yield
    return results


def commit_files(
    command: DisklessCommand, requests: Sequence[CommitFile], owned: Sequence[bool], rules: CommitRules
) -> Slices[list[list[BatchResult]]]:
    """Commit objects in this order: each is judged after the effects of those before it.

    INVALID_REQUEST for all batches of an object that is not `owned`, and for all batches of a list that has more than
    `MAX_COMMIT_BATCHES` of them.
    """
    is_too_long = sum(len(request.batches) for request in requests) > MAX_COMMIT_BATCHES
    answers = []
    for request, is_owned in zip(requests, owned, strict=True):
        if is_owned and not is_too_long:
            answers.append((yield from commit_file(command, request, rules)))
        else:
            answers.append([BatchResult(ErrorCode.INVALID_REQUEST)] * len(request.batches))
    return answers


def _judge(command: DisklessCommand, request: CommitFile, rules: CommitRules, digest: bytes) -> Slices[FileCommitted]:
    by_partition: dict[Key, list[int]] = {}
    for index, batch in enumerate(request.batches):
        by_partition.setdefault((batch.topic_id, batch.partition), []).append(index)
    verdicts, pace = _Verdicts(), Pace()
    for key, indexes in by_partition.items():
        head = command.get(PARTITIONS, key)
        if head is None:
            verdicts.refused += [RefusedBatch(index, _missing(command, key)) for index in indexes]
        else:
            yield from _accept(command, rules, request, key, indexes, head, verdicts)
        if pace.is_over_after(len(indexes)):
            yield
    return FileCommitted(
        object_key=request.object_key,
        object_format=request.object_format,
        file_size=request.file_size,
        uploader_broker_id=request.uploader_id,
        owner_ids=tuple(request.owner_ids),
        topics=[(topic_id, partitions) for topic_id, (partitions, _) in verdicts.topics.items()],
        batch_order=[index for _, order in verdicts.topics.values() for index in order],
        refused=verdicts.refused,
        duplicates=verdicts.duplicates,
        content_digest=digest,
        committed_at=command.now_ms,
    )


def _missing(command: DisklessCommand, key: Key) -> ErrorCode:
    known = command.get(TOPICS, key[:1]) is not None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if known else ErrorCode.UNKNOWN_TOPIC_ID


class _Verdicts:
    """What the record says of the request's batches; for each topic the accepted ones and their indexes."""

    def __init__(self) -> None:
        self.topics: dict[bytes, tuple[list[tuple[int, list[CommittedBatch]]], list[int]]] = {}
        self.refused: list[RefusedBatch] = []
        self.duplicates: list[DuplicateBatch] = []


def _accept(
    command: DisklessCommand,
    rules: CommitRules,
    request: CommitFile,
    key: Key,
    indexes: Sequence[int],
    head: PartitionHead,
    verdicts: _Verdicts,
) -> Slices[None]:
    """Give offsets to those of one partition's batches that idempotence lets pass."""
    fresh, repeated = yield from _sift(command, request, key, indexes, verdicts)
    if not fresh:
        return
    batches, now_ms = [request.batches[index] for index in fresh], command.now_ms
    offsets = _assign(rules.assignment, head.next_offset, [batch.record_count for batch in batches])
    topic_id, partition = key
    partitions, order = verdicts.topics.setdefault(topic_id, ([], []))
    partitions.append((partition, [_committed(*pair, now_ms) for pair in zip(batches, offsets, strict=True)]))
    order += fresh
    if repeated:
        given = dict(zip(fresh, offsets, strict=True))
        verdicts.duplicates += [DuplicateBatch(index, given[twin], now_ms) for index, twin in repeated.items()]


def _sift(
    command: DisklessCommand,
    request: CommitFile,
    key: Key,
    indexes: Sequence[int],
    verdicts: _Verdicts,
) -> Slices[tuple[list[int], dict[int, int]]]:
    """Which batches to append, and which repeat one of these: its index by theirs."""
    if all(request.batches[index].producer_id == NO_PRODUCER for index in indexes):
        return list(indexes), {}
    fresh: list[int] = []
    repeated: dict[int, int] = {}
    windows: dict[int, ProducerWindow | None] = {}
    appended: dict[tuple[int, WindowBatch], int] = {}
    for chunk in chunks(indexes):
        if chunk is not indexes and fresh:
            yield
        for index in chunk:
            batch = request.batches[index]
            producer = batch.producer_id
            if producer == NO_PRODUCER:
                fresh.append(index)
                continue
            if producer not in windows:
                windows[producer] = command.get(PRODUCERS, (*key, producer))
            window = windows[producer]
            error, original = producer_state.check(
                window,
                batch.producer_epoch,
                batch.base_sequence,
                batch.last_sequence,
                may_be_forgotten=window is None and _may_be_forgotten(command, key, producer),
            )
            if error is not ErrorCode.NONE:
                verdicts.refused.append(RefusedBatch(index, error))
            elif original is None:
                fresh.append(index)
                if index == indexes[-1]:
                    break
                mark = WindowBatch(batch.base_sequence, batch.last_sequence, _PENDING_OFFSET, command.now_ms)
                windows[producer] = producer_state.extend(window, batch.producer_epoch, mark)
                appended[producer, mark] = index
            elif original.base_offset == _PENDING_OFFSET:
                repeated[index] = appended[producer, original]
            else:
                verdicts.duplicates.append(DuplicateBatch(index, original.base_offset, original.append_time))
    return fresh, repeated


def _may_be_forgotten(command: DisklessCommand, key: Key, producer_id: int) -> bool:
    """Whether there may have been a window: one that has expired, or one of a deleted topic with the same name."""
    known = command.get(PRODUCER_IDS, THE_PRODUCER_IDS)
    if known is None or producer_id > max(known.forgotten_up_to, known.deleted_up_to):
        return False
    topic = command.get(TOPICS, (key[0],))
    return producer_id <= known.forgotten_up_to or (topic is not None and producer_id <= topic.seen_up_to)


def _assign(assignment: OffsetAssignment, next_offset: int, counts: Sequence[int]) -> Sequence[int]:
    offsets = assignment.assign(next_offset, counts)
    if len(offsets) != len(counts):
        raise OffsetAssignmentError(f"{len(offsets)} offsets were given for {len(counts)} batches")
    free = next_offset
    for base_offset, count in zip(offsets, counts, strict=True):
        if base_offset < free:
            raise OffsetAssignmentError(f"offset {base_offset} was given where {free} is the first free one")
        free = base_offset + count
    return offsets


def _committed(batch: CommitBatch, base_offset: int, now_ms: int) -> CommittedBatch:
    max_timestamp = now_ms if batch.timestamp_type == _LOG_APPEND_TIME else batch.max_timestamp
    return CommittedBatch.of(batch, base_offset, now_ms, max_timestamp)
