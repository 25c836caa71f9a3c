"""Orphan detection as KIP-1164 describes it, "Orphan files": list the object store, take what is old enough."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch
from diskless_policies.config import ListingSettings


class ListingDetection(OrphanDetection):
    """Every old object is a candidate; it costs one listing of the prefix and no memory."""

    def __init__(self, context: PluginContext, settings: ListingSettings) -> None:
        """Make the detector; it needs nothing of its context."""
        del context, settings

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        async for page in search.list_objects(search.prefix):
            candidates = [found.key for found in page if search.is_candidate(found.key)]
            if candidates:
                yield candidates
