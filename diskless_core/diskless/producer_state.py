"""Idempotence: whether a producer's batch is next, a repetition or out of order. Pure, and the only place that knows.

A window holds a producer's last five batches of one partition, as many as a client may have in flight.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, NewType

from diskless_core.protocol.errors import ErrorCode

WINDOW_BATCHES = 5
NO_PRODUCER = -1
MAX_SEQUENCE = 2**31 - 1

_BATCH = struct.Struct(">iiqq")
_EPOCH = struct.Struct(">h")
_NEWEST = struct.Struct(_BATCH.format + "h")
"""The last batch and the epoch, with which a window ends."""

_KEPT_BYTES = (WINDOW_BATCHES - 1) * _BATCH.size


class WindowBatch(NamedTuple):
    """One remembered batch; the sequence range is inclusive and may wrap."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    append_time: int


ProducerWindow = NewType("ProducerWindow", bytes)
"""What is remembered of a producer in a partition: its newest batches, oldest first, never none, and then its epoch.

Packed, for there may be millions of them: 64 bytes with one batch, 160 with five, and nothing that the garbage
collector looks at, as it would at a class of our own.
"""


class Verdict(NamedTuple):
    """`error` is NONE for a batch to append and for a duplicate; a duplicate comes with its original batch."""

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
    return tuple(map(WindowBatch._make, _BATCH.iter_unpack(window[: -_EPOCH.size])))


def last_batch(window: ProducerWindow) -> WindowBatch:
    """The newest batch."""
    return WindowBatch._make(_newest(window)[:-1])


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

    Args:
        window: what is remembered of the producer.
        may_be_forgotten: whether there may have been a window that is not remembered any more. Then, as in Apache
            Kafka, the producer goes on with any sequence.
    """
    if window is None:
        is_first = base_sequence == 0 or may_be_forgotten
        return ACCEPTED if is_first else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    _, newest_sequence, _, _, known_epoch = _newest(window)
    if epoch != known_epoch:
        if epoch < known_epoch:
            return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
        return ACCEPTED if base_sequence == 0 else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    if base_sequence == (newest_sequence + 1) & MAX_SEQUENCE:
        return ACCEPTED
    for batch in batches_of(window):
        if batch.base_sequence == base_sequence and batch.last_sequence == last:
            return Verdict(ErrorCode.NONE, original=batch)
    return Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def extend(window: ProducerWindow | None, epoch: int, batch: WindowBatch) -> ProducerWindow:
    """The window after an accepted batch. One of another epoch, or after a gap (it was forgotten), starts anew."""
    newest = _NEWEST.pack(*batch, epoch)
    if window is not None:
        _, newest_sequence, _, _, known_epoch = _newest(window)
        if epoch == known_epoch and batch[0] == (newest_sequence + 1) & MAX_SEQUENCE:
            return ProducerWindow(window[-_KEPT_BYTES - _EPOCH.size : -_EPOCH.size] + newest)
    return ProducerWindow(newest)


def _newest(window: ProducerWindow) -> tuple[int, ...]:
    return _NEWEST.unpack_from(window, len(window) - _NEWEST.size)


def is_expired(window: ProducerWindow, now_ms: int, expiration_ms: int) -> bool:
    """Whether the producer has been silent for `producer.id.expiration.ms`."""
    return now_ms - last_append_time(window) >= expiration_ms


def pack(window: ProducerWindow) -> tuple[int, int, bytes]:
    """A window as columns of the store: epoch, time of the last append, batches."""
    return epoch_of(window), last_append_time(window), window[: -_EPOCH.size]


def unpack(epoch: int, batches: bytes) -> ProducerWindow:
    """The window back from its columns `epoch` and `batches`."""
    return ProducerWindow(batches + _EPOCH.pack(epoch))
