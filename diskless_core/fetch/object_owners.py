"""Which broker of a rack reads and keeps which WAL object for all of them. Pure.

The ids of objects fall into slots, and each slot belongs to the broker with the greatest weight for it: rendezvous
hashing. Brokers that see the same live set agree without a word. When one comes or goes, only slots that it gets or had
change hands. A broker chooses the ids of the objects that it writes from its own slots, so that what it has just
uploaded is asked of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from hashlib import blake2b

from diskless_core.wal.format import WalFormatError, slot_of, slot_of_key

_TRIES_A_MEMBER = 8
"""With so many ids for each broker of the rack, none of its own is drawn once in 3,000 objects."""


def owner_of_slot(slot: int, members: Sequence[int]) -> int:
    """The broker with the greatest weight, of one at least. The order of `members` does not matter."""
    return max(members, key=lambda node_id: (_weight(slot, node_id), node_id))


def _weight(slot: int, node_id: int) -> bytes:
    return blake2b(f"{slot}/{node_id}".encode(), digest_size=8).digest()


class ObjectOwners:
    """The owners among one set of brokers, worked out when they are first asked for.

    Args:
        members: node ids.
    """

    def __init__(self, members: Sequence[int]) -> None:
        self.members = members
        self._owners: dict[int, int] = {}

    def owner_of(self, object_key: str) -> int | None:
        """The broker that reads an object for the others; None for one that nobody does."""
        if not self.members:
            return None
        try:
            return self._owner(slot_of_key(object_key))
        except WalFormatError:
            return None

    def draw_own(self, node_id: int, draw: Callable[[], uuid.UUID]) -> uuid.UUID:
        """An id of those that `draw` gives whose object a broker owns itself; any one if it is no member."""
        tries = _TRIES_A_MEMBER * len(self.members) if node_id in self.members else 0
        drawn = draw()
        for _ in range(tries):
            if self._owner(slot_of(drawn)) == node_id:
                break
            drawn = draw()
        return drawn

    def _owner(self, slot: int) -> int:
        owner = self._owners.get(slot)
        if owner is None:
            owner = self._owners[slot] = owner_of_slot(slot, self.members)
        return owner
