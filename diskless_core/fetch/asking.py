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
from diskless_core.diskless.remote import ASKED_AT_ONCE
from diskless_core.diskless.run_lookup import ANSWER_RUNS, total_bytes
from diskless_core.plugin.retrying import Backoff
from diskless_core.protocol.errors import ErrorCode

WAIT_MS = 500
"""How long a request waits at a leader: as long as consumers wait for more by default."""

ANSWER_MS = 1_000
"""How long a leader has for an answer, on top of what it waits. Who fetches from others too waits little longer for it.

Of very many partitions those are answered for which that suffices: the others are OFFSET_NOT_AVAILABLE.
"""

PAUSE_S = 1.0
"""A leader that did not answer in time is not asked for so long, and then by one Fetch at a time."""

LEAST_S = 0.05
"""Between two requests that found nothing, at least."""

WATCHED_S = 2.0
"""For so long a partition is watched, at least, after somebody began to wait for it: a consumer comes back at once."""

WATCHED_AT_ONCE = 5_000
"""Partitions of one request that waits: some milliseconds at the leader. They take turns where there are more."""

ROUNDS = 2
"""Requests that wait at a leader at the same time: the second is for partitions that came after the first was sent."""

RETRY = Backoff(first_ms=100, max_ms=1_000)
"""After a leader gave no answer."""

_GRACE_S = 0.1
"""What goes on beside the answer itself, as asking others who leads, has the same limits, and so much more."""

_NO_ANSWER = FoundRuns(ErrorCode.OFFSET_NOT_AVAILABLE)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Watched:
    """A partition that somebody waits for: for anything from `offset` on, until `until_s` at least."""

    offset: int
    until_s: float


@dataclass(slots=True)
class _Shard:
    """What is asked of one coordinator.

    Attributes:
        rounds: the requests under way that wait, by what they are about.
        silent: the node that was nominated to lead when there was no answer in time.
        silent_until_s: it is not asked before.
        trouble: why there was no answer the last time, of a request of any kind.
    """

    client: CoordinatorClient
    finds: PeerCalls
    waits: list[PeerCalls]
    watched: dict[PartitionKey, _Watched] = field(default_factory=dict)
    rounds: dict[int, Mapping[PartitionKey, int]] = field(default_factory=dict)
    silent: int | None = None
    silent_until_s: float | None = None
    trouble: str | None = None


class AskedLeaders:
    """See the module."""

    def __init__(self, clients: CoordinatorClients, purgatory: Purgatory, clock: Clock) -> None:
        self._clients = clients
        self._purgatory = purgatory
        self._clock = clock
        self._shards: dict[int, _Shard] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, index: int, asked: Sequence[AskedRuns], max_bytes: int) -> list[FoundRuns]:
        """What the leader of a coordinator finds now, in order; OFFSET_NOT_AVAILABLE where it gives no answer in time.

        Args:
            max_bytes: of the batches in all partitions, about. The first partitions get theirs first.
        """
        shard = self._shard(index)
        unique = list(dict.fromkeys(asked))  # a client may name a partition any number of times
        found = await self._find(index, shard, unique, max_bytes)
        answers = dict(zip(unique, found, strict=False))
        return [answers.get(one, _NO_ANSWER) for one in asked]

    async def _find(self, index: int, shard: _Shard, asked: Sequence[AskedRuns], max_bytes: int) -> list[FoundRuns]:
        """What is found of the first partitions, as many as there is time for."""
        begun_s, nominated = self._clock.monotonic(), shard.client.leader_hint
        if shard.silent_until_s is not None and nominated == shard.silent:
            if begun_s < shard.silent_until_s:
                return []
            shard.silent_until_s = begun_s + ANSWER_MS / 1000 + PAUSE_S  # the others do not wait for this one's try
            asked = asked[:ASKED_AT_ONCE]
        found: list[FoundRuns] = []
        runs_left, trouble = ANSWER_RUNS, None
        while len(found) < len(asked) and self._clock.monotonic() - begun_s < ANSWER_MS / 1000:
            page = asked[len(found) : len(found) + ASKED_AT_ONCE]
            try:
                async with asyncio.timeout(ANSWER_MS / 1000 + _GRACE_S):
                    answered = await shard.client.find_batches(page, max_bytes, runs_left, shard.finds)
            except (CoordinatorError, TimeoutError) as error:
                trouble = str(error) or "there was no answer in time"
                break
            found += answered
            max_bytes -= sum(total_bytes(one.runs) for one in answered)
            runs_left -= sum(len(one.runs) for one in answered)
        self._note(index, shard, trouble)
        if trouble is None:
            shard.silent_until_s = None
        elif not found:
            now_s = self._clock.monotonic()
            is_late = now_s - begun_s > ANSWER_MS / 2000
            shard.silent, shard.silent_until_s = nominated, now_s + PAUSE_S if is_late else None
        return found

    def watch(self, index: int, offsets: Mapping[PartitionKey, int]) -> None:
        """Wake who waits for these partitions when there is something from these offsets on.

        That goes on while somebody waits for them in the purgatory, and for `WATCHED_S` at least.
        """
        shard = self._shard(index)
        until_s = self._clock.monotonic() + WATCHED_S
        for key, offset in offsets.items():
            watched = shard.watched.get(key)
            if watched is None:
                shard.watched[key] = _Watched(offset, until_s)
            else:
                watched.offset = min(watched.offset, offset)  # what another one here has not seen yet is news at once
                watched.until_s = until_s
        if len(shard.rounds) < ROUNDS and any(
            all(under_way.get(key) != shard.watched[key].offset for under_way in shard.rounds.values())
            for key in offsets
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
            finds = self._clients.new_calls(ANSWER_MS)
            waits = [self._clients.new_calls(WAIT_MS + ANSWER_MS) for _ in range(ROUNDS)]
            shard = self._shards[index] = _Shard(self._clients.clients[index], finds, waits)
        return shard

    def _note(self, index: int, shard: _Shard, trouble: str | None) -> None:
        """Say when a leader begins to give no answers, and when it gives some again."""
        if trouble is not None and shard.trouble is None:
            _log.info("a leader does not say where batches are; it is asked again", coordinator=index, error=trouble)
        elif trouble is None and shard.trouble is not None:
            _log.info("a leader says where batches are again", coordinator=index)
        shard.trouble = trouble

    async def _watch(self, index: int, shard: _Shard, number: int) -> None:
        """Ask again and again while somebody waits."""
        failures = 0
        limit_s = (WAIT_MS + ANSWER_MS) / 1000 + _GRACE_S
        try:
            while offsets := self._due(shard, number):
                shard.rounds[number] = offsets
                begun_s = self._clock.monotonic()
                try:
                    async with asyncio.timeout(limit_s):
                        news = await shard.client.until_found(offsets, shard.waits[number], WAIT_MS)
                except (CoordinatorError, TimeoutError) as error:
                    self._note(index, shard, str(error) or "there was no answer in time")
                    failures += 1
                    shard.rounds[number] = {}
                    await asyncio.sleep(RETRY.pause_s(failures, self._clock))
                    self._wake(shard, offsets)
                    continue
                failures = 0
                self._note(index, shard, None)
                self._wake(shard, {key: offsets[key] for key in news})
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
            if not self._purgatory.is_awaited(key):
                del shard.watched[key]
        offsets = {key: watched.offset for key, watched in shard.watched.items()}
        others = [under_way for other, under_way in shard.rounds.items() if other != number]
        missing = [key for key, offset in offsets.items() if all(one.get(key) != offset for one in others)]
        if not missing or len(offsets) <= WATCHED_AT_ONCE:
            return offsets if missing else {}
        for key in missing[:WATCHED_AT_ONCE]:
            shard.watched[key] = shard.watched.pop(key)  # behind those whose turn has not come
        return {key: offsets[key] for key in missing[:WATCHED_AT_ONCE]}
