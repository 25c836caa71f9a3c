"""Batches as consumers get them, made in place of those that their producers sent.

A WAL object has batches untouched. Consumers get them with the base offsets that the coordinator assigned, leader epoch
0, and for LogAppendTime with the time of the commit. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import BatchHeader, Buffer, CorruptBatchError, WritableBuffer
from diskless_core.wal.runs import Run


class Prepared(NamedTuple):
    """What came of the batches.

    Attributes:
        size_bytes: of those that are ready: all, or those before the first damaged one.
        next_offset: the offset behind them.
        problem: what is wrong with the rest, None where there is none.
    """

    size_bytes: int
    next_offset: int
    problem: str | None


class Damage(NamedTuple):
    """What surrounds the first damaged batch of a run.

    Attributes:
        damaged: the batch, as a run. It reaches to the end of the run if it does not say where it ends itself.
        rest: what follows it, as a run; None where nothing does.
        is_batch: whether it has the size and the offsets of one batch, so that only what is in it is damaged.
    """

    damaged: Run
    rest: Run | None
    is_batch: bool


_Placed = tuple[int, BatchHeader]


def is_of_another_time(view: WritableBuffer, run: Run) -> bool:
    """Whether sound batches have another latest time than was committed: they are not this run's.

    It is for bytes that somebody else kept; what the object store has is the object. Where the broker gave the time, it
    says nothing.
    """
    if run.log_append_time is not None:
        return False
    return max(header.max_timestamp for _, header in record_batch.walk(view)) != run.max_timestamp


def prepare(view: WritableBuffer, run: Run, *, verify: bool = True) -> Prepared:
    """Make a run's batches into what consumers get. Once prepared, they stay as they are when it is done again.

    Args:
        view: the bytes that there are of the run, changed in place.
        verify: whether to look at the checksums.
    """
    batches, problem = _sound_batches(view, run, verify=verify)
    offset, end, log_append_time = run.base_offset, 0, run.log_append_time
    for position, header in batches:
        record_batch.patch_base_offset(view, position, offset)
        if log_append_time is not None:
            record_batch.patch_log_append_time(view, position, log_append_time)
        offset += header.last_offset_delta + 1
        end = position + header.size
    return Prepared(end, offset, problem)


def parts(view: Buffer, run: Run, max_offsets: int) -> Sequence[Run]:
    """The runs that a run is cut into so that the last offset of each lies at most `max_offsets` behind its first.

    Each has as many whole batches as fit; a single batch is never cut.

    Args:
        view: the bytes of the run.

    Raises:
        CorruptBatchError: the headers of the batches do not have the offsets that were committed.
    """
    found: list[Run] = []
    start, base_offset, next_offset, latest = 0, run.base_offset, run.base_offset, record_batch.NO_TIMESTAMP

    def end_part(end: int) -> None:
        part = run._replace(
            base_offset=base_offset,
            last_offset=next_offset - 1,
            byte_offset=run.byte_offset + start,
            byte_size=end - start,
            max_timestamp=latest if run.log_append_time is None else run.max_timestamp,
            bytes_before=run.bytes_before + start,
        )
        found.append(part)

    for position, header in record_batch.walk(view):
        if position > start and next_offset + header.last_offset_delta - base_offset > max_offsets:
            end_part(position)
            start, base_offset, latest = position, next_offset, record_batch.NO_TIMESTAMP
        next_offset += header.last_offset_delta + 1
        latest = max(latest, header.max_timestamp)
    end_part(len(view))
    if len(view) != run.byte_size or next_offset != run.last_offset + 1:
        raise CorruptBatchError(
            f"{len(view)} of {run.byte_size} bytes are there, and the offsets reach {next_offset - 1}, "
            f"not {run.last_offset} as committed"
        )
    return found


def damage(view: Buffer, run: Run, prepared: Prepared) -> Damage:
    """Where the damage is that `prepare` found in a run, and where batches go on behind it.

    They do if the headers lead from there to the end of the run, in bytes and in offsets: the checksum covers neither
    the size of a batch, nor, once it is wrong, the number of its offsets.

    Args:
        view: the bytes that there are of the run, before or after `prepare`.
    """
    at, base_offset = prepared.size_bytes, prepared.next_offset
    damaged = run._replace(
        base_offset=base_offset,
        byte_offset=run.byte_offset + at,
        byte_size=run.byte_size - at,
        bytes_before=run.bytes_before + at,
    )
    try:
        headers = [header for _, header in record_batch.walk(view, at)]
    except CorruptBatchError:
        return Damage(damaged, None, is_batch=False)
    offsets = sum(header.last_offset_delta + 1 for header in headers)
    leads_to_end = len(view) == run.byte_size and base_offset + offsets == run.last_offset + 1
    if not leads_to_end or not headers or headers[0].last_offset_delta < 0:
        return Damage(damaged, None, is_batch=False)
    size, next_offset = headers[0].size, base_offset + headers[0].last_offset_delta + 1
    if len(headers) == 1:
        return Damage(damaged, None, is_batch=True)
    rest = damaged._replace(
        base_offset=next_offset,
        byte_offset=damaged.byte_offset + size,
        byte_size=damaged.byte_size - size,
        bytes_before=damaged.bytes_before + size,
    )
    return Damage(damaged._replace(last_offset=next_offset - 1, byte_size=size), rest, is_batch=True)


def _sound_batches(view: WritableBuffer, run: Run, *, verify: bool) -> tuple[Sequence[_Placed], str | None]:
    """The batches before the first damaged one. All are looked at before one is changed: a second look is the same."""
    batches: list[_Placed] = []
    problem: str | None = None
    next_offset = run.base_offset
    try:
        for position, header in record_batch.walk(view):
            if header.magic != record_batch.MAGIC:  # of what is left as it was sent, the checksum leaves only this out
                problem = f"the one {position} bytes on has magic {header.magic}, not {record_batch.MAGIC}"
                break
            if verify and not record_batch.crc_is_valid(view, position, header):
                problem = f"the checksum of the one {position} bytes on is wrong"
                break
            next_offset += header.last_offset_delta + 1
            batches.append((position, header))
    except CorruptBatchError as error:
        problem = str(error)
    if problem is None and len(view) < run.byte_size:
        problem = f"only {len(view)} of {run.byte_size} bytes are there"
    expected = run.last_offset + 1
    if next_offset > expected or (problem is None and next_offset < expected):
        batches, problem = [], f"their offsets reach {next_offset - 1}, not {run.last_offset} as committed"
    return batches, problem
