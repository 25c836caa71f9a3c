"""The hints of who should lead one shard, for everybody on this node who asks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from diskless_core.plugin.coordinator_log import LeadershipHint
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_backend import LogBackend


class ShardHints:
    """Runs on the event loop. The node is a candidate as long as a stream is open that says so."""

    def __init__(self, shard: ShardId, backend: LogBackend, node_id: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = backend.stopped
        self._hint = LeadershipHint(None, generation=0)
        self._changed = asyncio.Event()
        self._candidacies = 0
        self._nomination = backend.nomination(shard, node_id, self._tell)
        self._nomination.start()

    async def stream(self, *, candidate: bool) -> AsyncIterator[LeadershipHint]:
        """The present hint, and each that follows."""
        self._stand(candidate)
        try:
            told: LeadershipHint | None = None
            while not self._stopped.is_set():
                hint, changed = self._hint, self._changed
                if hint != told:
                    told = hint
                    yield hint
                else:
                    await changed.wait()
        finally:
            self._stand(-candidate)

    async def stop(self) -> None:
        """Withdraw, and end all streams. Idempotent."""
        self._notify()
        await asyncio.to_thread(self._nomination.stop)

    def _stand(self, more: int) -> None:
        self._candidacies += more
        self._nomination.stand(candidate=self._candidacies > 0)

    def _tell(self, hint: LeadershipHint) -> None:
        """On the nomination's thread."""
        with suppress(RuntimeError):  # the loop may have ended
            self._loop.call_soon_threadsafe(self._take, hint)

    def _take(self, hint: LeadershipHint) -> None:
        self._hint = hint
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
