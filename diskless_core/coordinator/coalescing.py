"""Which batches become one row: adjacent ones of a partition in one object make a run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diskless_core.coordinator.commands import Run
from diskless_core.protocol.file_committed import CommittedBatch

MAX_RUN_BYTES = 1 << 20
"""Adjacent batches become one row up to this size; a reader of a run walks at most this much."""


def coalesce(object_key: str, batches: Sequence[CommittedBatch]) -> Iterator[Run]:
    """The runs that one partition's batches of an object make: adjacent in bytes and offsets, of one kind of time."""
    run: Run | None = None
    for batch in batches:
        if (
            run is not None
            and run.byte_offset + run.byte_size == batch.byte_offset
            and run.last_offset + 1 == batch.base_offset
            and run.timestamp_type == batch.timestamp_type
            and run.byte_size + batch.byte_size <= MAX_RUN_BYTES
        ):
            run = run._replace(
                last_offset=batch.last_offset,
                byte_size=run.byte_size + batch.byte_size,
                max_timestamp=max(run.max_timestamp, batch.batch_max_timestamp),
            )
            continue
        if run is not None:
            yield run
        run = Run(
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            object_key=object_key,
            byte_offset=batch.byte_offset,
            byte_size=batch.byte_size,
            append_time=batch.log_append_timestamp,
            max_timestamp=batch.batch_max_timestamp,
            timestamp_type=batch.timestamp_type,
        )
    if run is not None:
        yield run
