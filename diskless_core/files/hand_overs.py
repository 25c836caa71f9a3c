"""Hands the dead objects of one shard over to the shards that own them next (KIP-1164, "WAL file management").

A worker for each of these, so that one that cannot be reached holds up nothing that goes elsewhere. A hand-over is
noted when it is confirmed; one whose answer was lost is repeated, which changes nothing.

An owner refuses a request whole if it takes one object in it for invalid, for example because its broker knows fewer
coordinators. Smaller and smaller requests show which object that is. It is set aside, so that the others do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError, RequestRefusedError
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import HandOver
from diskless_core.diskless.peer_checks import MAX_FILES
from diskless_core.diskless.shard import DisklessShard
from diskless_core.plugin.retrying import Backoff

BACKOFF = Backoff(first_ms=1_000, max_ms=60_000)
"""Of all work at the end of objects: it is tried for ever, less and less often."""

PAGE_FILES = MAX_FILES
"""Objects in one request at most."""

WAITING_FILES = 20 * PAGE_FILES
"""Objects that wait for one owner in memory at most; the others come with a later round."""

REMINDED_FILES = 5 * WAITING_FILES
"""Objects of which it is remembered that their first owner was reminded at most. There can be as many that wait for an
owner before as there are live ones."""

REMINDED_AGAIN = 1 / 1000
"""How likely a round reminds of an object that finds no room there: once in a while, and at no round of all of them."""

_log = structlog.get_logger(__name__)


class _Parcel(NamedTuple):
    """What waits for an owner. A reminder stays the owner's that it is sent to, so nothing is noted of it here."""

    file: HandOver
    is_reminder: bool


class _Outbox:
    """What waits for one owner, by object keys.

    Attributes:
        waiting: what is to be sent.
        refused: what the owner took for invalid. One of these at a time is tried again, and all once one is accepted.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, _Parcel] = {}
        self.refused: dict[str, _Parcel] = {}

    def __len__(self) -> int:
        return len(self.waiting) + len(self.refused)

    def add(self, parcel: _Parcel) -> None:
        """Let it wait. Does nothing if it is there already, or there is no room."""
        if len(self.waiting) < WAITING_FILES and parcel.file.object_key not in self.refused:
            self.waiting.setdefault(parcel.file.object_key, parcel)

    def next(self, limit: int) -> list[_Parcel]:
        """What to send now: `limit` of what waits at most, else one that was refused."""
        return list(islice(self.waiting.values(), limit) if self.waiting else islice(self.refused.values(), 1))

    def sent(self, parcels: Sequence[_Parcel]) -> None:
        """The owner has accepted these."""
        for parcel in parcels:
            self.waiting.pop(parcel.file.object_key, None)
            if self.refused.pop(parcel.file.object_key, None) is not None:
                self.waiting |= self.refused  # the owner's broker may have been configured anew
                self.refused.clear()

    def set_aside(self, parcel: _Parcel) -> None:
        """The owner has refused this one alone. One that finds no room is offered again by a later round."""
        self.waiting.pop(parcel.file.object_key, None)
        self.refused.pop(parcel.file.object_key, None)
        if len(self.refused) < WAITING_FILES:
            self.refused[parcel.file.object_key] = parcel

    def clear(self) -> None:
        self.waiting.clear()
        self.refused.clear()


class HandOvers:
    """What is on its way from one shard to others, in this term of its leader."""

    def __init__(self, shard: DisklessShard, coordinators: Mapping[int, DisklessCoordinator], clock: Clock) -> None:
        self._shard = shard
        self._coordinators = coordinators
        self._clock = clock
        self._outboxes: dict[int, _Outbox] = {}
        self._reminded: set[str] = set()
        self._offered_again: set[str] = set()
        self._workers: dict[int, asyncio.Task[None]] = {}

    def begin_term(self) -> None:
        """Forget what an earlier term left: this node may have missed what became of it."""
        for outbox in self._outboxes.values():
            outbox.clear()
        self._reminded.clear()
        self._offered_again.clear()

    def end_round(self) -> None:
        """All objects that wait for an owner before were named since the last call: forget the others."""
        self._reminded &= self._offered_again
        self._offered_again.clear()

    def offer(self, owner: int, file: HandOver) -> None:
        """Hand the object over to `owner` and note that it was done. What is on its way already is not sent twice."""
        self._send(owner, _Parcel(file, is_reminder=False))

    def remind(self, first_owner: int, file: HandOver) -> None:
        """Tell `first_owner` once of an object that it should have handed over, had it ever heard of it.

        It is the same request: an owner that knows the object goes on as it would have, one that does not takes it for
        handed over, and passes it on. Where more wait than can be remembered, it may be told more than once.
        """
        if file.object_key in self._reminded:
            self._offered_again.add(file.object_key)
        elif len(self._reminded) < REMINDED_FILES or self._clock.random().random() < REMINDED_AGAIN:
            self._send(first_owner, _Parcel(file, is_reminder=True))

    def _send(self, owner: int, parcel: _Parcel) -> None:
        outbox = self._outboxes.setdefault(owner, _Outbox())
        outbox.add(parcel)
        worker = self._workers.get(owner)
        if worker is None or worker.done():
            worker = asyncio.create_task(self._deliver(owner, outbox), name=f"{self._shard.id} hands over to {owner}")
            worker.add_done_callback(_tell_of_defect)
            self._workers[owner] = worker

    async def idle(self) -> None:
        """Return when nothing waits any more."""
        await asyncio.gather(*self._workers.values())

    async def stop(self) -> None:
        """Stop; what is under way is done again by the next leader."""
        for worker in self._workers.values():
            worker.cancel()
        await asyncio.gather(*self._workers.values(), return_exceptions=True)

    async def _deliver(self, owner: int, outbox: _Outbox) -> None:
        term, failures, at_once = self._shard.term, 0, PAGE_FILES
        while outbox and self._shard.term == term:
            parcels = outbox.next(at_once)
            try:
                await self._hand_over(owner, parcels)
            except RequestRefusedError as error:
                if len(parcels) > 1:
                    at_once = len(parcels) // 2
                    continue
                is_first = not outbox.refused
                outbox.set_aside(parcels[0])
                is_last = not outbox.waiting
                if is_first or is_last:
                    self._warn(owner, outbox, error)
                if not is_last:
                    continue
            except CoordinatorError as error:
                self._warn(owner, outbox, error)
            else:
                failures, at_once = 0, min(2 * at_once, PAGE_FILES)
                outbox.sent(parcels)
                continue
            failures += 1
            await asyncio.sleep(BACKOFF.pause_s(failures, self._clock))

    def _warn(self, owner: int, outbox: _Outbox, error: CoordinatorError) -> None:
        _log.warning(
            "objects could not be handed over, which is tried again",
            shard=str(self._shard.id),
            owner=owner,
            objects=len(outbox),
            refused=len(outbox.refused),
            error=str(error),
        )

    async def _hand_over(self, owner: int, parcels: Sequence[_Parcel]) -> None:
        coordinator = self._coordinators.get(owner)
        if coordinator is None:
            raise CoordinatorError(
                f"there is no Diskless coordinator {owner}, an owner of {parcels[0].file.object_key}"
            )
        await coordinator.hand_over([parcel.file for parcel in parcels])
        await self._shard.files_handed_over(
            [parcel.file.object_key for parcel in parcels if not parcel.is_reminder], owner
        )
        reminded = [parcel.file.object_key for parcel in parcels if parcel.is_reminder]
        remembered = reminded[: max(0, REMINDED_FILES - len(self._reminded))]
        self._reminded.update(remembered)
        self._offered_again.update(remembered)  # until the end of a round that begins after this


def _tell_of_defect(worker: asyncio.Task[None]) -> None:
    """The next round begins the work again."""
    if not worker.cancelled() and (error := worker.exception()) is not None:
        _log.error("a defect of the broker: handing objects over is begun again", exc_info=error)
