"""What a node knows of who leads a shard.

(KIP-1164, "Leadership and deployment".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from diskless_core.coordinator.entries import Claim


@dataclass(slots=True)
class Leadership:
    """The log's hint, this node's claim under way, and the term that it won.

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
