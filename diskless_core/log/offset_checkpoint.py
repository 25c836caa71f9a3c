"""Kafka's offset checkpoints: an offset for each partition of a log folder. Pure.

Text: a line with the version 0, a line with the number of entries, then `topic partition offset` a line.
"""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.log.leader_epochs import CorruptCheckpointError

HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"

_VERSION = "0"

Offsets = Mapping[tuple[str, int], int]
"""Offsets by topic and partition."""


def encode(offsets: Offsets) -> bytes:
    """The file for these offsets."""
    rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())]
    return ("\n".join([_VERSION, str(len(rows)), *rows]) + "\n").encode()


def decode(data: bytes) -> dict[tuple[str, int], int]:
    """Offsets by topic and partition. An empty file, which Kafka makes before it has written any, has none.

    Raises:
        CorruptCheckpointError: the text is malformed, of another version, or not complete.
    """
    if not data:
        return {}
    try:
        version, count, *rows = data.decode("ascii").splitlines()
        entries = {
            (topic, int(partition)): int(offset) for topic, partition, offset in (row.split(" ") for row in rows)
        }
        if version != _VERSION or not int(count) == len(entries) == len(rows):
            raise ValueError(f"version {version} with {count} entries, of which {len(rows)} are there")
    except ValueError as error:
        raise CorruptCheckpointError(f"not an offset checkpoint: {error}") from error
    return entries
