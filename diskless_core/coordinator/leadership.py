"""What a node knows of who leads a shard.

(KIP-1164, "Leadership and deployment".)
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from diskless_core.coordinator.entries import Claim


@dataclass(slots=True)
class Leadership:
    """The log's hint, this node's claim under way, and the term that it won."""

    hint: int | None = None
    claim: Claim | None = None
    term: int | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
