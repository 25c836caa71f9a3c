"""The detector `first_orphan_detection`: which objects may be orphans, uploaded and never committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.orphan_detection import OrphanDetection, OrphanSearch

from diskless_first_orphan_detection.settings import FirstOrphanDetectionSettings


class FirstOrphanDetectionDetection(OrphanDetection):
    """Lists the object store, with a pause after each page, and names every old object.

    The broker asks the coordinators for each of them and deletes what none of them knows. To name too many is safe and
    costs questions. To name too few leaves orphans lying: an error has to be raised, never the search ended early.
    """

    def __init__(self, context: PluginContext, settings: FirstOrphanDetectionSettings) -> None:
        """A factory does no I/O."""
        del context
        self._pause_s = settings.pause_ms / 1000

    async def find(self, search: OrphanSearch) -> AsyncIterator[Sequence[str]]:
        # Replace this by what finds them faster: an inventory of the bucket, say, or many listings at once. Another
        # way of looking raises OrphanDetectionError where it fails, and tells `search.note_listed` what it has seen.
        async for page in search.list_objects(search.prefix):
            candidates = [found.key for found in page if search.is_candidate(found.key)]
            if candidates:
                yield candidates
            await asyncio.sleep(self._pause_s)
