"""Kafka's leader-epoch checkpoint: at which offset each leader epoch of a partition began. Pure.

Text: a line with the version 0, a line with the number of entries, then `epoch start_offset` a line.
"""

from __future__ import annotations

from collections.abc import Mapping

FILE_NAME = "leader-epoch-checkpoint"

_VERSION = "0"


class CorruptCheckpointError(Exception):
    """The text is no leader-epoch checkpoint."""


def encode(start_offsets: Mapping[int, int]) -> bytes:
    """The file for these start offsets by epoch."""
    lines = [_VERSION, str(len(start_offsets)), *(f"{epoch} {start}" for epoch, start in sorted(start_offsets.items()))]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> dict[int, int]:
    """Start offsets by epoch.

    Raises:
        CorruptCheckpointError: the text is malformed, of another version, or not complete.
    """
    try:
        version, count, *rows = data.decode("ascii").splitlines()
        entries = {int(epoch): int(start) for epoch, start in (row.split(" ") for row in rows)}
        if version != _VERSION or int(count) != len(entries) or len(rows) != len(entries):
            raise ValueError(f"version {version} with {count} entries, of which {len(rows)} are there")
    except ValueError as error:
        raise CorruptCheckpointError(f"not a leader-epoch checkpoint: {error}") from error
    return entries
