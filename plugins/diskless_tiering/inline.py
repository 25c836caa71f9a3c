"""The engine `inline`: compaction in the broker itself, a few partitions at once, in bounded memory."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.segment_building.job import run_job
from diskless_core.plugin.segment_compaction import CompactionJob, SegmentCompaction
from diskless_tiering.config import InlineSettings

NICENESS = 10
"""How far the thread stands behind the broker's own work."""


class InlineCompaction(SegmentCompaction):
    """Reads ranges of WAL objects, prepares them on one thread, and streams them on."""

    def __init__(self, context: PluginContext, settings: InlineSettings) -> None:
        del context
        self._settings = settings

    async def compact(self, job: CompactionJob) -> None:
        with _low_priority_thread() as executor:
            await run_job(job, self._settings, executor)


def _low_priority_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="compaction", initializer=_step_back)


def _step_back() -> None:
    """On Linux a thread has a priority of its own; elsewhere it would be the whole broker's."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
