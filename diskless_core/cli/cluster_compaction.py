"""Compacts what all brokers of a cluster lead: a job at each, and again where a coordinator has moved meanwhile.

Nothing is made twice by that: of two jobs that compact the same records, the coordinator takes the segments of one, and
a new job begins where the last segment that was taken ends. What a lost job has begun, the next one removes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from diskless_core.cli import admin_client
from diskless_core.cli.admin_client import AdminClientError, NoAnswerError, RefusedError
from diskless_core.cli.cluster_admin import ClusterAdmin
from diskless_core.cli.compaction_progress import Show
from diskless_core.cli.compaction_reports import CompactionReports, done_shards, has_ended
from diskless_core.cli.leaders import MovedError, Portion, WorkAtLeaders

POLL_S = 0.5

_GONE = (404, 409)
"""What a broker answers that has forgotten a job, or ended it."""

Begin = Callable[[Portion], Awaitable[str]]
"""Begins a job for what a broker leads, and perhaps does it; its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionWish:
    """What is to be compacted: `topics` None is all; `engine` None is the one that each broker has."""

    topics: Sequence[str] | None
    engine: str | None = None
    everything: bool = False


class ClusterCompaction:
    """One compaction of a cluster."""

    def __init__(self, cluster: ClusterAdmin, wish: CompactionWish, show: Show) -> None:
        self.work = WorkAtLeaders(cluster)
        self._wish = wish
        self._show = show
        self._reports = CompactionReports()

    async def planned(self) -> list[dict[str, Any]]:
        """The segments that it would make, by topic, partition and offset. Errors as `WorkAtLeaders.do`."""
        wish, found = self._wish, list[dict[str, Any]]()
        asked = [*(("topic", one) for one in wish.topics or ()), ("everything", str(wish.everything).lower())]
        if wish.engine is not None:
            asked.append(("engine", wish.engine))

        async def plan(portion: Portion) -> Collection[int]:
            query = urlencode([*asked, *(("shard", shard) for shard in portion.shards)])
            found.extend(await _ask("GET", portion, f"/compaction/plan?{query}"))
            return portion.shards

        await self.work.do(plan)
        return sorted(found, key=lambda segment: (segment["topic"], segment["partition"], segment["start_offset"]))

    async def by_brokers(self) -> dict[str, Any]:
        """Have the brokers do it; what became of it. Errors as `WorkAtLeaders.do`."""

        async def begin(portion: Portion) -> str:
            body = {
                "topics": list(self._wish.topics or ()),
                "all": self._wish.topics is None,
                "shards": portion.shards,
                "engine": self._wish.engine,
                "everything": self._wish.everything,
            }
            job = await _ask("POST", portion, "/compaction", body)
            self._reports.note(job)
            return str(job["id"])

        return await self.by(begin)

    async def by(self, begin: Begin) -> dict[str, Any]:
        """Have jobs begun, and follow them; what became of all. Errors as `WorkAtLeaders.do`."""

        async def compact(portion: Portion) -> Collection[int]:
            return done_shards(await self._followed(portion, await begin(portion)))

        await self.work.do(compact)
        return self._reports.merged()

    async def _followed(self, portion: Portion, job_id: str) -> dict[str, Any]:
        """The last report of a job.

        Raises:
            MovedError: its broker is gone, or has been started anew.
        """
        while True:
            try:
                report: dict[str, Any] = await _ask("GET", portion, f"/compaction/{job_id}")
            except AdminClientError as error:
                if not is_lost(error):
                    raise
                self._reports.lost(portion.node_id, job_id)
                raise MovedError(str(error)) from error
            self.tell(report)
            if has_ended(report):
                return report
            await asyncio.sleep(POLL_S)

    def tell(self, report: dict[str, Any]) -> None:
        """Show how far a job is, with all others."""
        self._reports.note(report)
        self._show(*self._reports.progress())


def is_lost(error: AdminClientError) -> bool:
    """Whether a broker's answer means that a job there is over, for a reason that its report may tell."""
    return isinstance(error, NoAnswerError) or (
        isinstance(error, RefusedError) and (error.may_retry or error.status in _GONE)
    )


async def _ask(method: str, portion: Portion, path: str, body: Any = None) -> Any:
    def ask() -> Any:
        return admin_client.ask(method, portion.url, path, body, node_id=portion.node_id, cluster_id=portion.cluster_id)

    return await asyncio.to_thread(ask)
