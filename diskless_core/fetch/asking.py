"""Finds batches of partitions of whose coordinator this node has no copy: their leaders are asked.

What is asked for at once is one request for each leader. Who waits for more is woken by requests that wait at the
leader: one or two for each coordinator, for all partitions that somebody waits for here. (KIP-1164,
"DisklessFindBatches".)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from diskless_core.background import end
from diskless_core.clock import Clock
from diskless_core.coordinator.calls import PeerCalls
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.diskless.clients import CoordinatorClient, CoordinatorClients
from diskless_core.diskless.commands import AskedRuns, FoundRuns, PartitionKey
from diskless_core.diskless.purgatory import Purgatory
from diskless_core.plugin.retrying import Backoff
from diskless_core.protocol.errors import ErrorCode

WAIT_MS = 500
"""How long a request waits at a leader: as long as consumers wait for more by default."""

LEAST_S = 0.05
"""Between two requests that found nothing, at least."""

WATCHED_S = 2.0
"""For so long a partition is watched after somebody began to wait for it: a consumer comes back at once."""

ROUNDS = 2
"""Requests that wait at a leader at the same time: the second is for partitions that came after the first was sent."""

RETRY = Backoff(first_ms=100, max_ms=1_000)
"""After a leader gave no answer."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Watched:
    """A partition that somebody waits for: for anything from `offset` on, until `until_s` at least."""

    offset: int
    until_s: float


@dataclass(slots=True)
class _Shard:
    """What is asked of one coordinator. `rounds` are the requests under way, by what they are about."""

    client: CoordinatorClient
    finds: PeerCalls
    waits: list[PeerCalls]
    watched: dict[PartitionKey, _Watched] = field(default_factory=dict)
    rounds: dict[int, Mapping[PartitionKey, int]] = field(default_factory=dict)


class AskedLeaders:
    """See the module."""

    def __init__(self, clients: CoordinatorClients, purgatory: Purgatory, clock: Clock) -> None:
        self._clients = clients
        self._purgatory = purgatory
        self._clock = clock
        self._shards: dict[int, _Shard] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, index: int, asked: Sequence[AskedRuns]) -> list[FoundRuns]:
        """What the leader of a coordinator finds now, in order; OFFSET_NOT_AVAILABLE while it gives no answer."""
        shard = self._shard(index)
        try:
            return await shard.client.find_batches(asked, shard.finds)
        except CoordinatorError as error:
            _log.info("a leader does not say where batches are", coordinator=index, error=str(error))
            return [FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)] * len(asked)

    def watch(self, index: int, offsets: Mapping[PartitionKey, int]) -> None:
        """From now on wake who waits for these partitions when there is something from these offsets on."""
        shard = self._shard(index)
        until_s = self._clock.monotonic() + WATCHED_S
        for key, offset in offsets.items():
            shard.watched[key] = _Watched(offset, until_s)
        if len(shard.rounds) < ROUNDS and any(
            all(under_way.get(key) != offset for under_way in shard.rounds.values()) for key, offset in offsets.items()
        ):
            number = next(number for number in range(ROUNDS) if number not in shard.rounds)
            shard.rounds[number] = {}
            task = asyncio.create_task(self._watch(index, shard, number), name=f"diskless-{index} fetches that wait")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Ask no more."""
        await end(self._tasks)

    def _shard(self, index: int) -> _Shard:
        shard = self._shards.get(index)
        if shard is None:
            calls = [self._clients.new_calls() for _ in range(1 + ROUNDS)]
            shard = self._shards[index] = _Shard(self._clients.clients[index], calls[0], calls[1:])
        return shard

    async def _watch(self, index: int, shard: _Shard, number: int) -> None:
        """Ask again and again while somebody waits."""
        failures = 0
        try:
            while offsets := self._due(shard, number):
                shard.rounds[number] = offsets
                begun_s = self._clock.monotonic()
                asked = [AskedRuns(key, offset, 1) for key, offset in offsets.items()]
                try:
                    found = await shard.client.find_batches(asked, shard.waits[number], WAIT_MS)
                    failures = 0
                except CoordinatorError as error:
                    _log.info("a leader does not say when there is more", coordinator=index, error=str(error))
                    failures += 1
                    shard.rounds[number] = {}
                    await asyncio.sleep(RETRY.pause_s(failures, self._clock))
                    self._wake(shard, offsets)
                    continue
                news = {
                    one.partition: one.offset
                    for one, answer in zip(asked, found, strict=True)
                    if answer.error is not ErrorCode.NONE or answer.runs or answer.local_start_offset > one.offset
                }
                self._wake(shard, news)
                if not news and self._clock.monotonic() - begun_s < LEAST_S:
                    await asyncio.sleep(LEAST_S)  # a leader that is about to stop lets nobody wait
        finally:
            del shard.rounds[number]

    def _wake(self, shard: _Shard, offsets: Mapping[PartitionKey, int]) -> None:
        """Let those look who wait, and watch these no more: whoever still waits then says from where on."""
        for key, offset in offsets.items():
            watched = shard.watched.get(key)
            if watched is not None and watched.offset == offset:
                del shard.watched[key]
        if offsets:
            self._purgatory.wake(offsets)

    def _due(self, shard: _Shard, number: int) -> dict[PartitionKey, int]:
        """What a round is about: all that is watched. The second is only for what the first does not ask for."""
        if shard.client.has_copy:
            self._wake(shard, {key: watched.offset for key, watched in shard.watched.items()})
            return {}
        now_s = self._clock.monotonic()
        for key in [key for key, watched in shard.watched.items() if watched.until_s < now_s]:
            del shard.watched[key]
        offsets = {key: watched.offset for key, watched in shard.watched.items()}
        others = [under_way for other, under_way in shard.rounds.items() if other != number]
        if all(any(under_way.get(key) == offset for under_way in others) for key, offset in offsets.items()):
            return {}
        return offsets
