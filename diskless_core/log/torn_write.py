"""What an interrupted write can leave at the end of a log, and what it cannot. Pure.

A write appends whole batches, and is synced before the next one begins. If the power fails meanwhile, the file ends
anywhere in the write, and some of its sectors have not reached the disk. What the write should have put there reads as
zeros, for nothing was there before. All other bytes are right. What these rules do not explain is damage.
"""

from __future__ import annotations

import struct

from diskless_core.log.flipped_bit import flipped_bit
from diskless_core.protocol.record_batch import HEADER_BYTES, MAGIC, CorruptBatchError, crc_is_valid, read_header

SECTOR_BYTES = 512
"""The least that a disk writes whole. File systems align their blocks, of a multiple of this size, with the file."""

_BASE_OFFSET = struct.Struct(">q")
_MAGIC_AT = 16
_ANY_SIZE = 2**32


def is_torn(data: bytes, start: int, expected_offset: int) -> bool:
    """Whether an interrupted write explains what `data` has from `start` to its end.

    Args:
        data: the file.
        start: where the first batch that is not intact begins, or should begin.
        expected_offset: the base offset that this batch should have. Batches leave no gaps.
    """
    unsynced = _Unsynced(data, start, _BASE_OFFSET.pack(expected_offset))
    position = start
    while position < len(data):
        # The content may have sectors of zeros, so that a wrong checksum is either. One wrong bit decides.
        if flipped_bit(data, position, expected_offset) is not None:
            return False
        if not unsynced.may_be(position, _BASE_OFFSET.pack(expected_offset)):
            return False
        if not unsynced.may_be(position + _MAGIC_AT, bytes([MAGIC])):
            return False
        if unsynced.is_incomplete(position, position + HEADER_BYTES):
            return True  # where this batch ends is not known, so nothing is known of what follows
        try:
            header = read_header(data, position, limit=position + _ANY_SIZE)
        except CorruptBatchError:
            return False
        if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
            return False
        end = position + header.size
        if not unsynced.is_incomplete(position, end) and not crc_is_valid(data, position, header):
            return False
        position, expected_offset = end, header.last_offset + 1
    return True


class _Unsynced:
    """The bytes of `data` from `start` on, of which sectors may be missing.

    `base_offset` is what the first bytes should be.
    """

    def __init__(self, data: bytes, start: int, base_offset: bytes) -> None:
        self._data = data
        self._start = start
        self._base_offset = base_offset

    def may_be(self, position: int, expected: bytes) -> bool:
        """Whether these bytes are at `position`, except for those that are missing."""
        return all(
            self._data[at] == byte or self.is_incomplete(at, at + 1)
            for at, byte in enumerate(expected, position)
            if at < len(self._data)
        )

    def is_incomplete(self, first: int, end: int) -> bool:
        """Whether some of these bytes are beyond the end of the file, or in a sector that was never written."""
        if end > len(self._data):
            return True
        sectors = range(first // SECTOR_BYTES, -(-end // SECTOR_BYTES))
        return any(self._is_unwritten(sector * SECTOR_BYTES) for sector in sectors)

    def _is_unwritten(self, sector: int) -> bool:
        first, end = max(sector, self._start), min(sector + SECTOR_BYTES, len(self._data))
        if first == self._start and not any(self._base_offset[: end - first]) and end - first <= len(self._base_offset):
            return False  # these are the upper bytes of a base offset, and zeros when they are written too
        return self._data.count(0, first, end) == end - first
