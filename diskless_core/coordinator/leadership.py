"""What a node knows of who leads a shard.

(KIP-1164, "Leadership and deployment".)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from diskless_core.coordinator.entries import Claim
from diskless_core.plugin.coordinator_log import LeadershipHint
from diskless_core.plugin.shard import ShardId


class Nominator(Protocol):
    """Whoever says who should lead a shard: the log, or the controller's records."""

    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        """As `CoordinatorLog.leadership`."""
        ...


@dataclass(slots=True)
class Leadership:
    """The nominator's hint, this node's claim under way, the term that it won, and who claimed the shard last.

    `claimant` is the node whose claim was read last, `predecessor` the one before it; None where it is the same node,
    or nothing was read of it.

    Whoever changes one of them sets `changed`.
    """

    hint: int | None = None
    claimant: int | None = None
    predecessor: int | None = None
    claim: Claim | None = None
    term: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds. It is looked at now, and after each change; what it raises is passed on."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()
