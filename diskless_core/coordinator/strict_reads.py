"""Strict reads of what this node knows, whoever leads: it has to know everything that was committed before.

A commit is acknowledged only when it stands in the log, so a replica that has reached the end of the log, as it is
when it is asked for, lacks none of them. No leader takes part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from diskless_core.coordinator.errors import CoordinatorError, CoordinatorLoadingError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.plugin.coordinator_log import CoordinatorLogError

PATIENCE_S = 10.0
"""How long a replica may take to get there."""

MARKS = 5
"""How often the end of a log is asked for that does not say it."""

_LOOK_S = 0.02


async def catch_up(shards: Iterable[CoordinatorShard[Any]]) -> None:
    """Return when the replicas of these shards have everything that was committed before the call.

    Raises:
        CoordinatorLogError: where the log ends cannot be said.
        CoordinatorError: a replica does not get there.
    """
    await asyncio.gather(*(_catch_up(shard) for shard in shards))


async def _end(shard: CoordinatorShard[Any]) -> int:
    """Where the log ends. A mark there that is pruned before it is confirmed is set anew: it changes nothing."""
    for _ in range(MARKS - 1):
        try:
            return await shard.marked_end()
        except CoordinatorLogError:
            await asyncio.sleep(_LOOK_S)
    return await shard.marked_end()


async def _catch_up(shard: CoordinatorShard[Any]) -> None:
    end = await _end(shard)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while shard.next_offset < end:
                if shard.failure is not None:
                    raise CoordinatorError(shard.failure)
                await asyncio.sleep(_LOOK_S)
    except TimeoutError:
        raise CoordinatorLoadingError(
            f"this node has read the log of {shard.id} up to offset {shard.next_offset}, and not to its end at {end}: "
            f"{shard.obstacle or 'it lags behind'}"
        ) from None
