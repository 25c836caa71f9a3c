"""Asks the brokers of this one's rack for what their caches have, or will have, of WAL objects.

Whom to ask is `object_owners`' decision, and how long `peer_patience`'s. No answer is waited for longer than it is
worth: then the object store is asked as well, as far as `second_reads` allow it, and whatever comes first is used.
Nothing here looks into the bytes; who gets them checks them, and tells when they were wrong. (Extension to KIP-1164.)
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import structlog

from diskless_core.clock import Clock
from diskless_core.coordinator.peers import PeerError, PeerRequest, PeerTransport
from diskless_core.fetch.object_owners import ObjectOwners
from diskless_core.fetch.peer_patience import PeerPatience
from diskless_core.fetch.planner import MAX_RANGE_BYTES, ObjectRange
from diskless_core.fetch.second_reads import SecondReads
from diskless_core.metrics import Metrics
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import DisklessReadObjectRequest
from diskless_core.protocol.read_object import ReadObjectAnswer, unpack
from diskless_core.protocol.structure import FrameError

LANES = 3
"""Connections to each broker: answers come in the order of requests, and one that waits for the object store would hold
up those that wait for memory."""

MAX_UNDER_WAY = 12
"""Requests to one broker. What is beyond that is asked of the object store."""

TIMEOUT_S = 5.0
"""For an answer that nobody waits for any more: then the connection is given up."""

LAST_WAIT_S = 2.0
"""For an answer, where there may be no second read. Then there is one all the same."""

_VERSION = 0

R = TypeVar("R")

_log = structlog.get_logger(__name__)


class Lent(NamedTuple):
    """Bytes that a broker has sent."""

    node_id: int
    data: memoryview


@dataclass(slots=True)
class _Peer:
    patience: PeerPatience = field(default_factory=PeerPatience)
    lanes: list[int] = field(default_factory=lambda: [0] * LANES)

    @property
    def under_way(self) -> int:
        return sum(self.lanes)


class PeerObjects:
    """See the module.

    Args:
        rack: the live brokers of this one's rack, itself included if it is live; the same sequence while nothing has
            changed.
        new_transport: makes connections to other brokers.
    """

    def __init__(
        self,
        node_id: int,
        rack: Callable[[], Sequence[int]],
        new_transport: Callable[[], PeerTransport],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._rack = rack
        self._transports = [new_transport() for _ in range(LANES)]
        self._clock = clock
        self._metrics = metrics
        self._owners = ObjectOwners(())
        self._peers: defaultdict[int, _Peer] = defaultdict(_Peer)
        self._second_reads = SecondReads()
        self._under_way: set[asyncio.Task[Lent | None]] = set()

    @property
    def reads_for_others(self) -> bool:
        """Whether other brokers of the rack ask this one."""
        members = self._current().members
        return len(members) > 1 and self._node_id in members

    def is_lent(self, wanted: ObjectRange) -> bool:
        """Whether another broker reads this object for the others."""
        return self._owner_of(wanted) is not None

    def new_object_id(self) -> uuid.UUID:
        """An id for an object that this broker is about to write: one whose owner it is."""
        return self._current().draw_own(self._node_id, self._clock.new_uuid)

    async def read(self, wanted: ObjectRange, from_store: Callable[[], Coroutine[Any, Any, R]]) -> Lent | R:
        """What the broker sends that reads this object for the others, or what the object store has.

        Errors are those of `from_store`, where that broker has no answer either.
        """
        owner = self._whom_to_ask(wanted)
        if owner is None:
            return await from_store()
        peer = self._peers[owner]
        asking = self._begin_asking(owner, peer, wanted)
        wait_s = peer.patience.wait_s
        await asyncio.wait([asking], timeout=wait_s)
        if not asking.done() and not self._second_reads.take():
            await asyncio.wait([asking], timeout=LAST_WAIT_S - wait_s)
        if asking.done():
            return asking.result() or await from_store()
        peer.patience.late(self._clock.monotonic())
        self._count("late")
        reading = asyncio.create_task(from_store(), name="object that another broker is late with")
        try:
            await asyncio.wait([asking, reading], return_when=asyncio.FIRST_COMPLETED)
            store_failed = reading.done() and reading.exception() is not None
            lent = await asyncio.shield(asking) if asking.done() or store_failed else None
            return lent or await reading
        finally:
            reading.cancel()

    def _begin_asking(self, node_id: int, peer: _Peer, wanted: ObjectRange) -> asyncio.Task[Lent | None]:
        """It counts as under way from now on, not when its task begins: many readers may come before that."""
        lane = min(range(LANES), key=peer.lanes.__getitem__)
        peer.lanes[lane] += 1
        self._second_reads.asked()
        asking = asyncio.create_task(self._ask(node_id, peer, lane, wanted), name="object of another broker")
        self._under_way.add(asking)

        def end(_: asyncio.Task[Lent | None]) -> None:
            peer.lanes[lane] -= 1
            self._under_way.discard(asking)

        asking.add_done_callback(end)
        return asking

    def _whom_to_ask(self, wanted: ObjectRange) -> int | None:
        """Who reads this object for the others. None where that is this broker, or it is not worth it."""
        owner = self._owner_of(wanted)
        if owner is None:
            return None
        peer = self._peers[owner]
        is_on_trial = peer.patience.is_on_trial and peer.under_way > 0
        if is_on_trial or not peer.patience.may_ask(self._clock.monotonic()):
            self._count("skipped")
            return None
        if peer.under_way >= MAX_UNDER_WAY:
            self._count("crowded")
            return None
        return owner

    def _owner_of(self, wanted: ObjectRange) -> int | None:
        """The other broker that reads this object. No answer has room for a range of unusual size."""
        owner = self._current().owner_of(wanted.object_key)
        return owner if owner != self._node_id and wanted.size_bytes <= MAX_RANGE_BYTES else None

    async def _ask(self, node_id: int, peer: _Peer, lane: int, wanted: ObjectRange) -> Lent | None:
        """None where there is no answer, or none that helps."""
        began = self._clock.monotonic()
        try:
            request = DisklessReadObjectRequest(object_key=wanted.object_key, start=wanted.start, end=wanted.end)
            body = bytes(request.encode(version=_VERSION))
            message = PeerRequest(DisklessReadObjectRequest.API_KEY, _VERSION, body)
            answer = unpack(await self._transports[lane].send(node_id, message, TIMEOUT_S))
        except PeerError as error:
            peer.patience.failed(self._clock.monotonic())
            self._count("failed")
            _log.info("another broker's cache cannot be asked", node=node_id, error=str(error))
            return None
        except FrameError as error:
            self.sent_wrong_bytes(node_id, wanted, str(error))
            return None
        taken_s = self._clock.monotonic() - began
        return self._judged(node_id, peer, wanted, answer, taken_s)

    def _judged(
        self, node_id: int, peer: _Peer, wanted: ObjectRange, answer: ReadObjectAnswer, taken_s: float
    ) -> Lent | None:
        if answer.error_code == ErrorCode.BROKER_NOT_AVAILABLE:  # it shares no cache, or has just begun to
            peer.patience.failed(self._clock.monotonic())
            self._count("refused")
            return None
        peer.patience.answered(taken_s, in_time=taken_s <= peer.patience.wait_s)
        if answer.error_code != ErrorCode.NONE:
            self._count("refused")
            return None
        if (answer.object_key, answer.start, len(answer.data)) != (wanted.object_key, wanted.start, wanted.size_bytes):
            got = f"bytes {answer.start} to {answer.start + len(answer.data)} of {answer.object_key}"
            self.sent_wrong_bytes(node_id, wanted, got)
            return None
        self._count("answered")
        self._metrics.peer_read_seconds.observe(taken_s)
        self._metrics.peer_bytes_read.inc(len(answer.data))
        return Lent(node_id, memoryview(answer.data))

    def sent_wrong_bytes(self, node_id: int, wanted: ObjectRange, problem: str) -> None:
        """What a broker sent is not what was committed."""
        self._count("wrong")
        self._peers[node_id].patience.sent_wrong_bytes(self._clock.monotonic())
        _log.error(
            "another broker sent other bytes than an object has: the object store is asked, and it is not for a while",
            node=node_id,
            object_key=wanted.object_key,
            start=wanted.start,
            end=wanted.end,
            problem=problem,
        )

    async def stop(self) -> None:
        """End what is under way."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _current(self) -> ObjectOwners:
        members = self._rack()
        if members is not self._owners.members:
            self._owners = ObjectOwners(members)
        return self._owners

    def _count(self, outcome: str) -> None:
        self._metrics.peer_reads.labels(outcome).inc()
