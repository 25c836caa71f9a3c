"""Watches the lease of one shard, and holds it where it can: the requests around the decisions of `leases`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import structlog

from diskless_bucket_log.leases import (
    Act,
    ForgedLeaseError,
    Lease,
    Seen,
    act,
    after_reading,
    after_reading_garbage,
    after_suspicion,
    decode_lease,
    encode_lease,
    next_lease,
)
from diskless_bucket_log.objects import Names
from diskless_bucket_log.requests import REQUEST_TIMEOUT_S
from diskless_core.clock import Clock
from diskless_core.plugin.coordinator_log import CoordinatorLogError, LeadershipHint
from diskless_core.plugin.wal_object_store import (
    ConditionalObjectStore,
    ConditionFailedError,
    ObjectNotFoundError,
    WalObjectStoreError,
)

LEAST_PAUSE_S = 2.0
"""Between two writes of one node: some stores allow one write of an object in a second."""

RELEASE_PAUSE_S = 1.0
"""Between the last write and a release, which somebody waits for, in a store that bills requests: no less than such
stores allow."""

_WRITES_IN_A_TERM = 4

_log = structlog.get_logger(__name__)


class LeaseKeeper:
    """One shard's lease, as one node sees it. It watches for as long as somebody asks for hints.

    Args:
        poll_s: how often at least the lease is read while another node holds it.
        release_pause_s: least time between a write and a release.
    """

    def __init__(
        self,
        store: ConditionalObjectStore,
        names: Names,
        clock: Clock,
        *,
        node_id: int,
        lease_ms: int,
        poll_s: float,
        release_pause_s: float = RELEASE_PAUSE_S,
    ) -> None:
        self._store = store
        self._names = names
        self._clock = clock
        self._node_id = node_id
        self._lease_ms = lease_ms
        self._pause_s = max(LEAST_PAUSE_S, lease_ms / 1000 / _WRITES_IN_A_TERM)
        self._poll_s = min(poll_s, self._pause_s)
        self._least_pause_s = {Act.RELEASE: release_pause_s, Act.TAKE: LEAST_PAUSE_S, Act.RENEW: 0.0}
        self._candidate = False
        self._suspected: int | None = None
        self._seen = Seen()
        self._version: str | None = None
        self._own_nonce = ""
        self._wrote_at = float("-inf")
        self._hint: LeadershipHint | None = None
        self._error: CoordinatorLogError | None = None
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._listeners = 0
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    async def hints(self, *, candidate: bool) -> AsyncIterator[LeadershipHint]:
        """As `CoordinatorLog.leadership`. The node is a candidate as the latest call says."""
        self._candidate = candidate
        self._wanted.set()
        self._listeners += 1
        if self._task is None or self._task.done():
            self._hint, self._error = None, None
            self._task = asyncio.create_task(self._keep(), name=f"{self._names.shard} lease")
        elif self._holds != candidate:
            self._hint = None  # what is known may be over at once: it is looked at again first
        told: LeadershipHint | None = None
        try:
            while not self._stopped:
                changed, hint, error = self._changed, self._hint, self._error
                if hint is not None and hint != told:
                    told = hint
                    yield hint
                    continue
                if error is not None and told is None:
                    raise error
                await changed.wait()
        finally:
            self._listeners -= 1

    def suspect(self, node_id: int) -> None:
        """As `CoordinatorLog.suspect`. The lease is read first: it may be another one's by now."""
        if node_id != self._node_id:
            self._suspected = node_id
            self._wanted.set()

    async def stop(self) -> None:
        """End the hints, and release the lease if this node holds it, so that another one is nominated at once."""
        self._stopped = True
        self._notify()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._holds:
            self._candidate = False
            try:
                async with asyncio.timeout(LEAST_PAUSE_S + REQUEST_TIMEOUT_S):
                    await self._step()
            except (CoordinatorLogError, TimeoutError) as error:
                _log.info("the lease was not released, it ends by itself", shard=self._shard, error=str(error))

    @property
    def _shard(self) -> str:
        return str(self._names.shard)

    @property
    def _holds(self) -> bool:
        lease = self._seen.lease
        return lease is not None and lease.holder == self._node_id and lease.nonce == self._own_nonce

    async def _keep(self) -> None:
        while self._listeners:
            self._wanted.clear()
            suspected, self._suspected = self._suspected, None
            try:
                await self._read()
                if suspected is not None:
                    self._seen = after_suspicion(self._seen, suspected)
                await self._step()
                self._error = None
                self._tell()
            except CoordinatorLogError as error:
                _log.warning("the lease cannot be kept", shard=self._shard, error=str(error))
                self._error = error
                if self._hint is None:
                    self._notify()
                    return
            await self._wait()

    async def _wait(self) -> None:
        """Until it is time to read again, or the lease that was seen is over, or the candidacy changed."""
        pause_s = self._pause_s if self._holds else self._poll_s
        lease = self._seen.lease
        if lease is not None and not self._holds and self._seen.is_held(self._clock.monotonic()):
            over_at = self._seen.since + lease.duration_ms / 1000
            pause_s = min(pause_s, max(over_at - self._clock.monotonic(), 0.01))
        try:
            async with asyncio.timeout(pause_s):
                await self._wanted.wait()
        except TimeoutError:
            return

    async def _read(self) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                found = await self._store.get_versioned(self._names.lease)
        except ObjectNotFoundError:
            self._version = None
            self._seen = after_reading(self._seen, None, self._clock.monotonic())
            return
        except (WalObjectStoreError, TimeoutError) as error:
            raise CoordinatorLogError(f"the lease of {self._shard} can't be read: {error or 'no answer'}") from error
        self._version = found.version
        now = self._clock.monotonic()
        try:
            self._seen = after_reading(self._seen, decode_lease(found.data), now)
            reason = "its generation went back"
        except ForgedLeaseError as error:
            self._seen = after_reading_garbage(self._seen, now)
            reason = str(error)
        if self._seen.is_forged:
            _log.warning("a lease is ignored, and replaced by a candidate", key=self._names.lease, reason=reason)

    async def _step(self) -> None:
        """Take, renew or release the lease, if one of these is due."""
        what = self._due()
        if what is Act.NOTHING:
            return
        await asyncio.sleep(max(self._wrote_at + self._least_pause_s[what] - self._clock.monotonic(), 0))
        lease = next_lease(
            self._seen,
            what,
            self._node_id,
            nonce=self._clock.new_uuid().hex,
            duration_ms=self._lease_ms,
            floor=self._clock.now_ms(),
        )
        await self._write(lease)

    def _due(self) -> Act:
        # One write in a pause: the reading that comes before it costs nothing in comparison, and finds who took over.
        return act(
            self._seen,
            self._node_id,
            self._clock.monotonic(),
            candidate=self._candidate,
            holds=self._holds,
            renew_after_s=self._pause_s * 0.9,
        )

    async def _write(self, lease: Lease) -> None:
        began_at = self._wrote_at = self._clock.monotonic()
        data = encode_lease(lease)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                if self._version is None:
                    self._version = await self._store.create(self._names.lease, data)
                else:
                    self._version = await self._store.replace(self._names.lease, data, self._version)
        except ConditionFailedError:
            await self._read()  # another node was quicker, or it was this one's own, repeated by its client
            return
        except (WalObjectStoreError, TimeoutError) as error:
            raise CoordinatorLogError(f"the lease of {self._shard} can't be written: {error or 'no answer'}") from error
        self._own_nonce = lease.nonce
        self._seen = after_reading(self._seen, lease, began_at)

    def _tell(self) -> None:
        hint = self._seen.hint(self._clock.monotonic())
        if hint != self._hint:
            self._hint = hint
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
