"""When the object that is being gathered is sealed. Pure.

Sealed objects queue for an upload slot, and then for their partitions' turn to be committed. An object in a queue can
only wait; an object that is still open can also grow. So an object stays open while sealing it would put it in a queue:
a spell of slow uploads ends in a few large objects, not in hundreds of small ones that drain one after the other.
"""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """What the rule looks at.

    Attributes:
        is_full: the object has as many bytes or batches as one may have.
        has_lingered: `diskless.append.linger.ms` is over since its first batch.
        interval_is_over: `diskless.append.commit.interval.ms` is over since its first batch.
        uploads: objects that are being uploaded or wait for an upload slot.
        slots: `diskless.append.upload.parallelism`.
        would_wait: an uploaded object that shares a partition with it waits for its turn to be committed.
    """

    is_full: bool
    has_lingered: bool
    interval_is_over: bool
    uploads: int
    slots: int
    would_wait: bool


def is_due(moment: Moment) -> bool:
    """Whether the object is sealed now.

    - A full object is sealed at once: it cannot grow.
    - After the commit interval it is sealed as soon as an upload slot is free.
    - After the linger time it is sealed early if nothing is in its way: no upload, and no earlier object of its
      partitions.
    """
    if moment.is_full:
        return True
    if moment.interval_is_over:
        return moment.uploads < moment.slots
    return moment.has_lingered and not moment.uploads and not moment.would_wait
