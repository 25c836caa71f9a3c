"""Idempotence: whether a producer's batch is next, a repetition or out of order. Pure, and the only place that knows.

A window holds a producer's last five batches of one partition, as many as a client may have in flight.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import NamedTuple

from diskless_core.protocol.errors import ErrorCode

WINDOW_BATCHES = 5
NO_PRODUCER = -1
MAX_SEQUENCE = 2**31 - 1

_BATCH = struct.Struct(">iiqq")
_BATCHES = tuple(struct.Struct(">" + count * "iiqq") for count in range(WINDOW_BATCHES + 1))


class WindowBatch(NamedTuple):
    """One remembered batch; the sequence range is inclusive and may wrap."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    append_time: int


class ProducerWindow(NamedTuple):
    """What is remembered of a producer in a partition. `batches` are the newest, oldest first, never empty."""

    epoch: int
    batches: tuple[WindowBatch, ...]
    last_append_time: int


class Verdict(NamedTuple):
    """`error` is NONE for a batch to append and for a duplicate; a duplicate comes with its original batch."""

    error: ErrorCode
    original: WindowBatch | None = None


ACCEPTED = Verdict(ErrorCode.NONE)


def last_sequence(base_sequence: int, record_count: int) -> int:
    """The sequence of a batch's last record; after 2147483647 comes 0."""
    return (base_sequence + record_count - 1) & MAX_SEQUENCE


def check(window: ProducerWindow | None, epoch: int, base_sequence: int, last: int) -> Verdict:
    """Judge a batch as Apache Kafka's ProducerAppendInfo does."""
    if window is None:
        return ACCEPTED
    if epoch < window.epoch:
        return Verdict(ErrorCode.INVALID_PRODUCER_EPOCH)
    if epoch > window.epoch:
        return ACCEPTED if base_sequence == 0 else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    for batch in window.batches:
        if batch.base_sequence == base_sequence and batch.last_sequence == last:
            return Verdict(ErrorCode.NONE, original=batch)
    return ACCEPTED if _follows(window, base_sequence) else Verdict(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def extend(window: ProducerWindow | None, epoch: int, batch: WindowBatch) -> ProducerWindow:
    """The window after an accepted batch. One of another epoch, or after a gap (the state had expired), starts anew."""
    batches: tuple[WindowBatch, ...] = (batch,)
    if window is not None and window.epoch == epoch and _follows(window, batch.base_sequence):
        batches = (*window.batches, batch)[-WINDOW_BATCHES:]
    return ProducerWindow(epoch=epoch, batches=batches, last_append_time=batch.append_time)


def unless_expired(window: ProducerWindow | None, now_ms: int, expiration_ms: int) -> ProducerWindow | None:
    """The window, or None when the producer was silent for longer than `producer.id.expiration.ms`."""
    if window is not None and now_ms - window.last_append_time > expiration_ms:
        return None
    return window


def _follows(window: ProducerWindow, base_sequence: int) -> bool:
    return base_sequence == (window.batches[-1].last_sequence + 1) & MAX_SEQUENCE


def pack(window: ProducerWindow) -> tuple[int, int, bytes]:
    """A window as columns of the store: epoch, time of the last append, batches."""
    numbers = chain.from_iterable(window.batches)
    return window.epoch, window.last_append_time, _BATCHES[len(window.batches)].pack(*numbers)


def unpack(epoch: int, last_append_time: int, batches: bytes) -> ProducerWindow:
    return ProducerWindow(epoch, tuple(map(WindowBatch._make, _BATCH.iter_unpack(batches))), last_append_time)
