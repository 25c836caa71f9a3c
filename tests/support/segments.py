"""Segments made at random, as files."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

from diskless_core.log import leader_epochs, offset_index, producer_snapshot, time_index
from diskless_core.log.segment import LOG_SUFFIX, file_name
from diskless_core.log.segment_indexer import SegmentIndexer
from diskless_core.protocol import record_batch
from tests.support.batches import NOW_MS, batch_of

_PRODUCERS = (-1, -1, 5, 6, 1000)


class Segment(NamedTuple):
    """A segment's batches and what was built for it."""

    base_offset: int
    interval_bytes: int
    data: bytes
    indexer: SegmentIndexer


def random_segment(seed: int, *, batches: int = 80) -> Segment:
    """Plain and idempotent producers, gaps between offsets, timestamps in no order."""
    chance = random.Random(seed)
    interval_bytes = chance.choice([0, 300, 4096])
    base_offset = next_offset = chance.choice([0, 1000, 2**40])
    indexer = SegmentIndexer(base_offset, interval_bytes=interval_bytes)
    data = bytearray()
    sequences: dict[int, int] = {}
    for _ in range(batches):
        next_offset += chance.choice([0, 0, 0, 7]) if data else 0
        batch = bytearray(_batch(chance, sequences))
        record_batch.patch_base_offset(batch, 0, next_offset)
        header = record_batch.read_header(batch)
        indexer.add(header)
        data += batch
        next_offset = header.last_offset + 1
    return Segment(base_offset, interval_bytes, bytes(data), indexer)


def _batch(chance: random.Random, sequences: dict[int, int]) -> bytes:
    values = [b"x" * chance.randrange(80)] * chance.randrange(1, 5)
    timestamp_ms = NOW_MS - 1000 + chance.randrange(1000)
    producer = chance.choice(_PRODUCERS)
    if producer < 0:
        return batch_of(*values, timestamp_ms=timestamp_ms)
    sequence = sequences.get(producer, 0)
    sequences[producer] = sequence + len(values)
    return batch_of(*values, timestamp_ms=timestamp_ms, producer_id=producer, producer_epoch=3, base_sequence=sequence)


def write_log(segment: Segment, folder: Path) -> None:
    """The batches alone."""
    folder.mkdir(parents=True)
    (folder / file_name(segment.base_offset, LOG_SUFFIX)).write_bytes(segment.data)


def write_all(segment: Segment, folder: Path) -> None:
    """The batches and what belongs to them, named as Kafka does."""
    write_log(segment, folder)
    indexes = segment.indexer.finish()
    for name, content in {
        file_name(segment.base_offset, offset_index.SUFFIX): indexes.offset_index,
        file_name(segment.base_offset, time_index.SUFFIX): indexes.time_index,
        file_name(indexes.end_offset + 1, producer_snapshot.SUFFIX): producer_snapshot.encode(
            segment.indexer.producers.values()
        ),
        leader_epochs.FILE_NAME: leader_epochs.encode({0: segment.base_offset}),
    }.items():
        (folder / name).write_bytes(content)
