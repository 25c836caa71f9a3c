"""Idempotence: whether a producer's batch is next, a repetition or out of order. Pure, and the only place that knows.

A window holds a producer's last five batches of one partition, as many as a client may have in flight by one broker.
Where its partition's leader has changed it may have five by each. So a window also says how many sequences were
accepted before its batches, one after the other: what lies among these is a retry, too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NewType

from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode

WINDOW_BATCHES = 5
NO_PRODUCER = -1
MAX_SEQUENCE = 2**31 - 1
MAX_PRECEDING = 2**30
"""Sequences that are known to precede a window at most: half of all, for the others are to come."""

_BATCH = struct.Struct(">iiqq")
_END = struct.Struct(">ih")
_NEWEST = struct.Struct(_BATCH.format + "ih")
"""The last batch, the preceding sequences and the epoch, with which a window ends."""

_SEQUENCES = struct.Struct(">ii")
"""The sequences of the oldest batch, with which a window begins."""

_FULL_BYTES = WINDOW_BATCHES * _BATCH.size + _END.size


class WindowBatch(NamedTuple):
    """One remembered batch; the sequence range is inclusive and may wrap."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    append_time: int


ProducerWindow = NewType("ProducerWindow", bytes)
"""What is remembered of a producer in a partition: its newest batches, oldest first, never none, and then how many
sequences precede them, and its epoch.

Packed, for there may be millions of them: 64 bytes with one batch, 160 with five, and nothing that the garbage
collector looks at, as it would at a class of our own.
"""


class Verdict(NamedTuple):
    """`error` is NONE for a batch to append and for a duplicate, which comes with its original batch.

    A duplicate whose original is not remembered any more is a DUPLICATE_SEQUENCE_NUMBER.
    """

    error: ErrorCode
    original: WindowBatch | None = None


ACCEPTED = Verdict(ErrorCode.NONE)


def last_sequence(base_sequence: int, record_count: int) -> int:
    """The sequence of a batch's last record; after 2147483647 comes 0."""
    return (base_sequence + record_count - 1) & MAX_SEQUENCE


def epoch_of(window: ProducerWindow) -> int:
    """The producer's epoch."""
    epoch: int = _newest(window)[-1]
    return epoch


def batches_of(window: ProducerWindow) -> tuple[WindowBatch, ...]:
    """The remembered batches, oldest first."""
    return tuple(map(WindowBatch._make, _BATCH.iter_unpack(window[: -_END.size])))


def last_batch(window: ProducerWindow) -> WindowBatch:
    """The newest batch."""
    return WindowBatch._make(_newest(window)[:-2])


def preceding_of(window: ProducerWindow) -> int:
    """How many sequences were accepted before the oldest remembered batch, one after the other, in the same epoch.

    At most `MAX_PRECEDING`. Those before are unknown: the producer began there, or what it wrote was forgotten.
    """
    preceding: int = _newest(window)[-2]
    return preceding


def last_append_time(window: ProducerWindow) -> int:
    """When the newest batch was committed, in milliseconds since the epoch."""
    time_ms: int = _newest(window)[3]
    return time_ms


def check(
    window: ProducerWindow | None, epoch: int, base_sequence: int, last: int, *, may_be_forgotten: bool
) -> Verdict:
    """Judge a batch as Apache Kafka's ProducerAppendInfo does, but for the first one of a producer.

    There a partition has one broker, and what a producer sent first is there first. Here two batches that are in flight
    may come by two brokers, the later one first: it has to wait, lest the earlier one never finds its place again.
    And there a retry from before the window is out of order. Java's producer then sends it again with a new epoch, and
    it is there twice; librdkafka's fails for good. Both take DUPLICATE_SEQUENCE_NUMBER for a success without an offset.

    Args:
        window: what is remembered of the producer.
        may_be_forgotten: whether there may have been a window that is not remembered any more. Then, as in Apache
            Kafka, the producer goes on with any sequence.
    """
    if window is None:
        is_first = base_sequence == 0 or may_be_forgotten
        return ACCEPTED if is_first else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    _, newest_sequence, _, _, preceding, known_epoch = _newest(window)
    if epoch != known_epoch:
        if epoch < known_epoch:
            return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
        return ACCEPTED if base_sequence == 0 else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    if base_sequence == (newest_sequence + 1) & MAX_SEQUENCE:
        return ACCEPTED
    for batch in batches_of(window):
        if batch.base_sequence == base_sequence and batch.last_sequence == last:
            return Verdict(ErrorCode.NONE, original=batch)
    if _precedes(window, preceding, base_sequence, last):
        return Verdict(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def _precedes(window: ProducerWindow, preceding: int, base_sequence: int, last: int) -> bool:
    """Whether all of a batch lies among the sequences that precede a window."""
    oldest: int = _SEQUENCES.unpack_from(window)[0]
    return 0 < (oldest - last) & MAX_SEQUENCE <= (oldest - base_sequence) & MAX_SEQUENCE <= preceding


def extend(window: ProducerWindow | None, epoch: int, batch: WindowBatch) -> ProducerWindow:
    """The window after an accepted batch. One of another epoch, or after a gap (it was forgotten), starts anew."""
    if window is not None:
        _, newest_sequence, _, _, preceding, known_epoch = _newest(window)
        if epoch == known_epoch and batch[0] == (newest_sequence + 1) & MAX_SEQUENCE:
            kept = 0
            if len(window) == _FULL_BYTES:
                first, last = _SEQUENCES.unpack_from(window)
                preceding = min(preceding + ((last - first) & MAX_SEQUENCE) + 1, MAX_PRECEDING)
                kept = _BATCH.size
            return ProducerWindow(window[kept : -_END.size] + _NEWEST.pack(*batch, preceding, epoch))
    return ProducerWindow(_NEWEST.pack(*batch, 0, epoch))


def _newest(window: ProducerWindow) -> tuple[int, ...]:
    return _NEWEST.unpack_from(window, len(window) - _NEWEST.size)


def is_expired(window: ProducerWindow, passed: Passed, expiration_ms: int) -> bool:
    """Whether the producer has been silent for `producer.id.expiration.ms`."""
    return passed.since(last_append_time(window)) >= expiration_ms


def pack(window: ProducerWindow) -> tuple[int, int, int, bytes]:
    """A window as columns of the store: epoch, time of the last append, preceding sequences, batches."""
    return epoch_of(window), last_append_time(window), preceding_of(window), window[: -_END.size]


def unpack(epoch: int, preceding: int, batches: bytes) -> ProducerWindow:
    """The window back from its columns."""
    return ProducerWindow(batches + _END.pack(preceding, epoch))
