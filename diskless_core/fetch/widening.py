"""How much of an object a broker reads at once that reads for others. Pure.

Consumers of other partitions are going to want the rest, in as many ranges as there are consumers. So the first range
of an object is read as it is asked for, and each further one in an aligned block several times as large as all that was
read before. The requests for an object grow with the logarithm of its size then, and the bytes read stay within a
small multiple of what is wanted.
"""

from __future__ import annotations

from collections import OrderedDict

from diskless_core.fetch.planner import MAX_RANGE_BYTES, ObjectRange

GROWTH = 4
OBJECTS = 4096
"""That are remembered: those read last."""


class Widening:
    """What was read of the latest objects."""

    def __init__(self) -> None:
        self._read: OrderedDict[str, int] = OrderedDict()

    def widened(self, wanted: ObjectRange) -> ObjectRange:
        """What is read where this is wanted. It covers that, and may end beyond the object."""
        read_before = self._read.pop(wanted.object_key, 0)
        chosen = _block(wanted, GROWTH * read_before) if read_before else wanted
        self._read[wanted.object_key] = read_before + chosen.end - chosen.start
        if len(self._read) > OBJECTS:
            self._read.popitem(last=False)
        return chosen


def _block(wanted: ObjectRange, least_bytes: int) -> ObjectRange:
    size = min(1 << (least_bytes - 1).bit_length(), MAX_RANGE_BYTES)
    start = wanted.start // size * size
    end = max(wanted.end, start + size)
    return wanted._replace(start=start, end=end) if end - start <= MAX_RANGE_BYTES else wanted
