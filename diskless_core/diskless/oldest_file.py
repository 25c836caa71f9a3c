"""Which live object of a shard was created first, found without reading them all (KIP-1164, "Orphan files", step 1)."""

from __future__ import annotations

from contextlib import suppress

from diskless_core.diskless.tables import LIVE_FILES
from diskless_core.plugin.coordinator_store import StoreView
from diskless_core.wal.format import WalFormatError, created_ms_of, end_of_spread


def oldest_live_ms(store: StoreView) -> int | None:
    """When the oldest object was created that the store has live batches of, in milliseconds; None without any.

    The keys of a spread are in the order of their creation, so that the first one of each is enough: a few hundred
    look-ups for any number of objects. Keys that tell no time are left out.
    """
    oldest: int | None = None
    start = ""
    while rows := store.scan(LIVE_FILES.name, (start,), limit=1):
        key = str(rows[0][0])
        start = key + "\0"
        with suppress(WalFormatError):
            created_ms = created_ms_of(key)
            oldest = created_ms if oldest is None else min(oldest, created_ms)
            start = end_of_spread(key)
    return oldest
