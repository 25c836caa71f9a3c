"""The run: the one shape of committed batches, from the coordinator's row to readers and compaction engines.

Only this module knows the order of its fields, and how JSON has it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_LOG_APPEND_TIME = 1


class Run(NamedTuple):
    """Adjacent batches of one partition in one object, with adjacent offsets: where they are, and what was committed.

    The object has them as their producers sent them; `wal.batches.prepare` makes of them what consumers get. A reader
    that wants one batch walks the headers.

    Attributes:
        base_offset: of the first record.
        last_offset: of the last record, inclusive.
        object_key: the object, of which it is the bytes `byte_offset` to `byte_offset + byte_size`.
        append_time: of the commit, in milliseconds since the epoch.
        max_timestamp: the greatest of its records, in milliseconds since the epoch; -1 where none has any.
        timestamp_type: Kafka's attribute bit, 0 for CreateTime and 1 for LogAppendTime.
        bytes_before: size of everything that was appended to the partition before it, deleted or not. Only the
            coordinator knows it; elsewhere it is 0.
    """

    base_offset: int
    last_offset: int
    object_key: str
    byte_offset: int
    byte_size: int
    append_time: int
    max_timestamp: int
    timestamp_type: int
    bytes_before: int = 0

    @property
    def log_append_time(self) -> int | None:
        """The time that consumers see in all of its records; None where they see the producers' times."""
        return self.append_time if self.timestamp_type == _LOG_APPEND_TIME else None


def make_run(
    base_offset: int,
    last_offset: int,
    object_key: str,
    byte_offset: int,
    byte_size: int,
    append_time: int,
    max_timestamp: int,
    timestamp_type: int,
    bytes_before: int,
) -> Run:
    """A run. Replay makes one for each row: this takes half of the time that the constructor takes with names."""
    return tuple.__new__(
        Run,
        (
            base_offset,
            last_offset,
            object_key,
            byte_offset,
            byte_size,
            append_time,
            max_timestamp,
            timestamp_type,
            bytes_before,
        ),
    )


def run_rows(runs: Iterable[Run]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Runs as JSON has them: the objects' keys, each once, and for each run a row of numbers.

    A row has the index of the object's key and then the other fields in their order, without `bytes_before`.
    """
    indexes: dict[str, int] = {}
    rows: list[tuple[int, ...]] = [
        (indexes.setdefault(key, len(indexes)), base, last, position, size, appended, latest, timestamp_type)
        for base, last, key, position, size, appended, latest, timestamp_type, _ in runs
    ]
    return list(indexes), rows


def runs_of(object_keys: Sequence[str], rows: Iterable[Sequence[int]]) -> Iterator[Run]:
    """The runs of `run_rows` back.

    Raises:
        ValueError: something is no such row.
    """
    for row in rows:
        try:
            index, base, last, position, size, appended, latest, timestamp_type = row
            yield Run(base, last, object_keys[index], position, size, appended, latest, timestamp_type)
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(f"a run is {row}") from error
