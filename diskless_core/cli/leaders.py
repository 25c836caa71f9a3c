"""Does work for every Diskless coordinator at the broker that leads it, and again at the next one when it moves."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from diskless_core.cli.admin_client import AdminClientError, NoAnswerError
from diskless_core.cli.cluster_admin import BACKOFF, ClusterAdmin, passes
from diskless_core.clock import Clock, SystemClock
from diskless_core.cluster.view import ClusterView
from diskless_core.shards import DISKLESS

MAX_TRIES = 60
"""How often a coordinator is tried. Each time it has moved meanwhile, or its broker was gone."""

_PREFIX = f"{DISKLESS.name}-"


class MovedError(NoAnswerError):
    """What was under way at a broker is lost there: it has to be begun again, wherever the coordinators are led."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Coordinators that one broker leads, by index, and where it is asked. A request names broker and cluster."""

    node_id: int
    url: str
    shards: tuple[int, ...]
    cluster_id: str | None = None


Do = Callable[[Portion], Awaitable[Collection[int]]]
"""Does the work at a broker, and says for which of the coordinators it is done. Errors that pass mean: for none."""


def coordinators_of(view: ClusterView) -> Mapping[int, int | None]:
    """The leader of each Diskless coordinator, by index."""
    return {
        int(shard.shard.removeprefix(_PREFIX)): shard.leader for shard in view.shards if shard.shard.startswith(_PREFIX)
    }


class WorkAtLeaders:
    """One piece of work, for all Diskless coordinators of a cluster, at all their leaders at once.

    A coordinator that nobody leads, or whose leader does not answer, is waited for: for the cluster's `patience_s`.
    """

    def __init__(self, cluster: ClusterAdmin, clock: Clock | None = None) -> None:
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._is_interrupted = False
        self._failure: AdminClientError | None = None
        self._failures = 0
        self._tries: Counter[int] = Counter()

    def interrupt(self) -> None:
        """Begin nothing any more. What is under way ends by itself."""
        self._is_interrupted = True

    async def do(self, work: Do) -> None:
        """Do it until it is done for all.

        Raises:
            AdminClientError: a coordinator was not done in time, or so often that something must be wrong; or the
                first answer that does not pass. What is under way elsewhere is cancelled then.
        """
        view = await asyncio.to_thread(self._cluster.view)
        to_do, under_way = set(coordinators_of(view)), dict[asyncio.Task[Collection[int]], tuple[Portion, float]]()
        patience_s, quiet_since = self._cluster.patience_s, self._clock.monotonic()
        try:
            while True:
                for portion in await self._portions(view, to_do, {one.node_id for one, _ in under_way.values()}):
                    to_do.difference_update(portion.shards)
                    task = asyncio.create_task(_do(work, portion), name="work at a leader")
                    under_way[task] = portion, self._clock.monotonic()
                if not under_way and not to_do:
                    return
                ended = set[asyncio.Task[Collection[int]]]()
                if under_way:
                    limit_s = BACKOFF.max_ms / 1000 if to_do else None
                    ended, _ = await asyncio.wait(under_way, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    (portion, begun_at), now = under_way.pop(task), self._clock.monotonic()
                    if self._settled(task, portion, to_do) or now - begun_at > 2 * patience_s:
                        quiet_since = now
                    self._require_few_tries(portion)
                if not to_do:
                    continue
                if not under_way and self._clock.monotonic() - quiet_since > patience_s:
                    raise self._failure or _without_leader(view, to_do)
                await asyncio.sleep(BACKOFF.pause_s(max(1, self._failures), self._clock))
                view = await self._look(view)
        finally:
            if not self._is_interrupted:
                for task in under_way:
                    task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _portions(self, view: ClusterView, to_do: Collection[int], busy: Collection[int]) -> list[Portion]:
        """What can be begun. A broker has one portion at a time: it would do a second one after it anyway."""
        if self._is_interrupted:
            if to_do and not busy:
                raise AdminClientError("interrupted")
            return []
        by_leader = defaultdict[int, list[int]](list)
        for shard, leader in sorted(coordinators_of(view).items()):
            if shard in to_do and leader is not None and leader not in busy:
                by_leader[leader].append(shard)
        return [
            Portion(
                node_id=node_id,
                url=await asyncio.to_thread(self._cluster.url_of, node_id),
                shards=tuple(shards),
                cluster_id=view.cluster_id,
            )
            for node_id, shards in by_leader.items()
        ]

    def _settled(self, task: asyncio.Task[Collection[int]], portion: Portion, to_do: set[int]) -> bool:
        """Note what a task has done; whether it was anything. The rest is to be done again."""
        try:
            done = set(task.result())
        except AdminClientError as error:
            if not passes(error):
                raise
            if isinstance(error, NoAnswerError):
                self._cluster.not_at(portion.url)
            self._failure, done = error, set()
        to_do.update(set(portion.shards) - done)
        self._failures = 0 if done else self._failures + 1
        return bool(done)

    def _require_few_tries(self, portion: Portion) -> None:
        self._tries.update(portion.shards)
        if any(self._tries[shard] >= MAX_TRIES for shard in portion.shards):
            raise self._failure or AdminClientError(f"what broker {portion.node_id} leads moves again and again")

    async def _look(self, before: ClusterView) -> ClusterView:
        """The cluster as it is now; as before while nobody answers."""
        try:
            return await asyncio.to_thread(self._cluster.view)
        except AdminClientError as error:
            if not passes(error):
                raise
            self._failure = error
            return before


async def _do(work: Do, portion: Portion) -> Collection[int]:
    return await work(portion)


def _without_leader(view: ClusterView, shards: Collection[int]) -> AdminClientError:
    names = ", ".join(f"{_PREFIX}{shard}" for shard in sorted(shards))
    return AdminClientError(f"nobody leads {names}, as broker {view.node_id} sees it: `diskless cluster status`")
