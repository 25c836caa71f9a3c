"""Forgetting the beginning of a shard's log: the log start moves first, then everything below it is deleted.

A process can stand still between any two requests, and the log can be deleted and begun anew in the same place
meanwhile, with the same numbers. So the log start is moved only if the object at the wanted number is still the one
that was found, and what was moved is asked for again before each page of objects goes.
"""

from __future__ import annotations

import asyncio

from diskless_bucket_log.decisions import (
    Deleting,
    MovingStart,
    ReadingStart,
    after_moving_start,
    after_reading_start,
    highest_start,
)
from diskless_bucket_log.objects import LogStart
from diskless_bucket_log.view import ShardView
from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.retrying import Backoff

_AGAIN = Backoff(first_ms=50, max_ms=1000, attempts=6)


async def prune(view: ShardView, before: int, clock: Clock) -> None:
    """Forget the objects that have nothing at or above the offset `before`. The last object always stays.

    Raises:
        CoordinatorLogError: not all of it was done; the next call goes on.
    """
    await view.look_unless_recent()
    wanted = await _wanted(view, before)
    if wanted is None:
        return
    state: ReadingStart | MovingStart | Deleting = ReadingStart(wanted)
    moves = 0
    while not isinstance(state, Deleting):
        match state:
            case ReadingStart():
                found = await view.objects.read_start()
                if found is None:
                    await view.objects.require_start()
                    continue
                if found[0].number < wanted.number:
                    # In this order: the version is of a log that had this object afterwards, so a log that was begun
                    # anew since has another version, and the move is refused.
                    await _require_same_log(view, wanted)
                view.take_start(found[0])
                state = after_reading_start(state, *found)
            case MovingStart():
                moves += 1
                state = after_moving_start(state, await view.objects.move_start(wanted, state.version))
                if isinstance(state, Deleting):
                    view.take_start(wanted)
                elif moves == _AGAIN.attempts:
                    raise CoordinatorLogError(f"the log start of {view.objects.shard} could not be moved")
                else:
                    await asyncio.sleep(_AGAIN.pause_s(moves, clock))
    await view.objects.delete_below(state.below)


async def _require_same_log(view: ShardView, wanted: LogStart) -> None:
    """Require that the log still has the object with which it is to begin.

    Raises:
        CoordinatorLogError: the log was begun anew, or another broker has just pruned it beyond that.
    """
    header = await view.objects.read_header(wanted.number)
    if header is None or (header.base_offset, header.predecessor) != (wanted.offset, wanted.predecessor):
        raise CoordinatorLogError(
            f"the log of {view.objects.shard} does not have the object {wanted.number} any more at which it was to "
            f"begin: it was deleted and begun anew, or another broker prunes it now. Nothing was deleted"
        )


async def _wanted(view: ShardView, before: int) -> LogStart | None:
    """Where the log start should be; None for a log that has nothing to forget."""
    tail = view.tail
    if tail is None or tail.number == 0 or before <= view.bounds.start:
        return None
    header = await view.find(min(before, tail.offset - 1))
    if header.number > highest_start(tail.number - 1):
        return None
    return LogStart(number=header.number, offset=header.base_offset, predecessor=header.predecessor)
