"""Finds out, before a broker takes part in a cluster, that it sees the storage that the others see.

The controller writes a small object beside the WAL objects, and a tiny segment into remote storage. Their names hold
the id of the cluster shard's log and the term of its leadership, which no folder of another machine can have by chance.
A broker that starts reads them. If it can't find what the controller wrote, its storage is its own, and nobody else
would see what it acknowledges.

Terms begin anew with another log, so a controller removes only what earlier terms of its own log wrote, and the log
before it, after it has proved through the log that it leads.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog

from diskless_core.broker.awaited_objects import standing_aside
from diskless_core.broker.errors import StartError
from diskless_core.clock import Clock
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.log_identity import LogName
from diskless_core.plugin.remote_storage import (
    LogSegmentData,
    RemoteResourceNotFoundError,
    RemoteStorage,
    RemoteStorageError,
)
from diskless_core.plugin.retrying import Backoff
from diskless_core.plugin.wal_object_store import (
    ObjectData,
    ObjectNotFoundError,
    WalObjectStore,
    WalObjectStoreError,
)
from diskless_core.protocol import record_batch
from diskless_core.protocol.record_batch import RecordData
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition

PATIENCE_S = 10.0
"""So long a broker that starts looks for what the controller, whose term has just begun, may still have to write."""

LOOK_S = 0.2
"""Between looks."""

WRITE_LIMIT_S = 30.0
"""How long the controller waits for a storage to take a probe before it tries again."""

RETRY = Backoff(first_ms=500, max_ms=5_000)
"""While the controller cannot write."""

SEGMENT_TOPIC = "__diskless_storage_probe"
"""The reserved topic of the probe segment. It is no topic of the cluster."""

_UNKNOWN = "whether this broker's remote storage is that of the cluster is not known"
_LIMIT_BYTES = 4096
_SEGMENT = "-segment"

_log = structlog.get_logger(__name__)


def probe_prefix(wal_object_prefix: str) -> str:
    """What the keys of probe objects begin with, without the '/' after it."""
    return f"{wal_object_prefix}-probe"


class ProbedShard(Protocol):
    """What the probe has to know of this node's replica of the cluster shard."""

    @property
    def term(self) -> int | None: ...

    @property
    def latest_term(self) -> int: ...

    @property
    def log_name(self) -> LogName | None: ...

    async def barrier(self) -> None: ...

    async def until_term_changes(self, term: int | None) -> int | None: ...

    def stand_aside(self) -> None: ...

    def stand_again(self) -> None: ...


class StorageProbe:
    """Writes probes while this node is the controller, and reads those of another one.

    Args:
        prefix: of the probe objects' keys, see `probe_prefix`.
        has_segments: whether this broker makes segments, so that there is remote storage to be probed.
    """

    def __init__(
        self,
        objects: WalObjectStore,
        shard: ProbedShard,
        clock: Clock,
        *,
        prefix: str,
        node_id: int,
        cluster_id: str,
        has_segments: bool,
    ) -> None:
        self._objects = objects
        self._shard = shard
        self._clock = clock
        self._prefix = prefix
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._has_segments = has_segments

    # --- the controller ------------------------------------------------------------------------------------------

    async def write_objects(self) -> None:
        """Write an object for each term that this node leads the cluster shard in. Runs for ever."""
        while True:
            term = await self._shard.until_term_changes(None)
            if term is not None:
                await self._in_term(term, partial(self._write_object, term))
                await self._in_term(term, partial(self._delete_objects, term))
                await self._shard.until_term_changes(term)

    async def write_segments(self, segments: RemoteStorage) -> None:
        """Write a segment for each such term, and the object that says where it is. Runs for ever."""
        while True:
            term = await self._shard.until_term_changes(None)
            if term is not None:
                await self._in_term(term, partial(self._write_segment, term, segments))
                await self._in_term(term, partial(self._delete_segments, term, segments))
                await self._shard.until_term_changes(term)

    async def _in_term(self, term: int, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        failures = 0
        while self._shard.term == term:
            try:
                await self._while_in_term(term, step())
            except (CoordinatorError, WalObjectStoreError, RemoteStorageError) as error:
                failures += 1
                _log.warning(
                    "a probe of the storage can't be written, or older ones can't be removed", error=str(error)
                )
                await asyncio.sleep(RETRY.pause_s(failures, self._clock))
            else:
                return

    async def _while_in_term(self, term: int, step: Coroutine[Any, Any, None]) -> None:
        """Do a step, `WRITE_LIMIT_S` at most: a storage that hangs must not keep a later term waiting.

        Raises:
            WalObjectStoreError, RemoteStorageError: it failed, or took too long.
        """
        work = asyncio.create_task(step, name="probe")
        over = asyncio.create_task(self._shard.until_term_changes(term), name="end of the term")
        try:
            await asyncio.wait((work, over), timeout=WRITE_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            elif not over.done():
                raise WalObjectStoreError(f"there was no answer for {WRITE_LIMIT_S:g} s")
        finally:
            work.cancel()
            over.cancel()

    async def _write_object(self, term: int) -> None:
        probe = {
            "cluster_id": self._cluster_id,
            "broker_id": self._node_id,
            "has_segments": self._has_segments,
        }
        await self._objects.put(self._key(self._of(term)), json.dumps(probe).encode())

    async def _write_segment(self, term: int, segments: RemoteStorage) -> None:
        metadata, data = self._segment(self._of(term))

        async def log() -> AsyncIterator[ObjectData]:
            yield data

        custom = await segments.copy(metadata, LogSegmentData(log=log, indexes=dict))
        probe = {"custom_metadata": None if custom is None else base64.b64encode(custom).decode()}
        await self._objects.put(self._key(self._of(term)) + _SEGMENT, json.dumps(probe).encode())

    async def _delete_objects(self, term: int) -> None:
        older = await self._older(term, "")
        await self._shard.barrier()
        for probe in older:
            await self._objects.delete([self._key(probe)])

    async def _delete_segments(self, term: int, segments: RemoteStorage) -> None:
        older = await self._older(term, _SEGMENT)
        await self._shard.barrier()
        for probe in older:
            key = self._key(probe) + _SEGMENT
            try:
                said = _parsed(await self._objects.get(key, 0, _LIMIT_BYTES))
            except ObjectNotFoundError:
                continue
            await segments.delete(self._segment(probe, custom=_custom(said))[0])
            await self._objects.delete([key])

    async def _older(self, term: int, suffix: str) -> list[_Term]:
        """The terms before this one of which there is a probe: those of its own log, and all of the log before it."""
        name = self._log_name()
        older = list[_Term]()
        for log_id in (name.log_id, name.moved_from):
            if log_id is None:
                continue
            folder = f"{self._prefix}/{log_id}/"
            async for page in self._objects.list(folder):
                for found in page:
                    number = found.key.removeprefix(folder).removesuffix(suffix)
                    if number.isdigit() and (log_id != name.log_id or int(number) < term):
                        older.append(_Term(log_id, int(number)))
        return older

    # --- a broker that starts ------------------------------------------------------------------------------------

    async def read_object(self) -> None:
        """Find the object that the present controller wrote. Nothing is looked for while that is this node.

        Raises:
            StartError: it is not there, so the WAL objects of this broker are not those of the cluster.
            WalObjectStoreError: it cannot be found out.
        """
        found = await self._found("")
        if self._is_controller:
            return
        if found is None:
            raise StartError(
                f"the wal_object_store of this broker has no object {self._key(self._latest())}, which the "
                f"controller writes when it comes to lead: the broker's objects are not where the other brokers of "
                f"the cluster have theirs, or the controller can't write. All brokers need the same "
                f"wal_object_store: a bucket, or a folder that all of them share, and no folder of this machine"
            )
        owner = found.probe.get("cluster_id")
        if owner != self._cluster_id:
            raise StartError(
                f"the object {self._key(found.term)} is of the cluster {owner}, and this broker is of "
                f"{self._cluster_id}. Give each cluster a diskless.wal.object.prefix of its own"
            )

    async def read_segment(self, segments: RemoteStorage) -> None:
        """Find the segment that the present controller wrote, where it makes segments.

        A remote storage that does not answer is no reason not to start.

        Raises:
            StartError: it is not there, so the segments of this broker are not those of the cluster.
            WalObjectStoreError: it cannot be found out.
        """
        written = await self._found("")
        if written is None or not written.probe.get("has_segments"):
            return
        found = await self._found(_SEGMENT)
        if found is None:
            if not self._is_controller:
                _log.warning(_UNKNOWN, error="the controller has no access to its remote storage")
            return
        metadata, expected = self._segment(found.term, custom=_custom(found.probe))
        try:
            async with asyncio.timeout(PATIENCE_S):
                data = bytes(await segments.fetch(metadata, 0, len(expected)))
        except RemoteResourceNotFoundError:
            data = b""
        except (RemoteStorageError, TimeoutError) as error:
            _log.warning(_UNKNOWN, error=str(error) or f"it has not answered within {PATIENCE_S:.0f} s")
            return
        if data != expected and self._latest() == found.term:
            raise StartError(
                "the remote_storage of this broker does not have the segment that the controller wrote to its own: "
                "segments of one could not be read by the other. All brokers need the same remote_storage, such as one "
                "remote_storage.fsspec.url: a bucket, or a folder that all of them share, and no folder of this machine"
            )

    @property
    def _is_controller(self) -> bool:
        return self._shard.term is not None

    async def _found(self, suffix: str) -> _Found | None:
        """A probe of the present term, whichever that is by then; None if none comes, or this node leads."""
        deadline = self._clock.monotonic() + PATIENCE_S
        while not self._is_controller:
            term = self._latest()
            try:
                with standing_aside(self._shard):
                    data = await self._objects.get(self._key(term) + suffix, 0, _LIMIT_BYTES)
            except ObjectNotFoundError:
                if self._clock.monotonic() >= deadline:
                    return None
                await asyncio.sleep(LOOK_S)
            else:
                return _Found(term, _parsed(data))
        return None

    # --- both ----------------------------------------------------------------------------------------------------

    def _log_name(self) -> LogName:
        name = self._shard.log_name
        if name is None:  # a log gets its id with the cluster's, and this broker knows the cluster's
            raise CoordinatorError("the cluster shard's log has no id")
        return name

    def _latest(self) -> _Term:
        return _Term(self._log_name().log_id, self._shard.latest_term)

    def _of(self, term: int) -> _Term:
        return _Term(self._log_name().log_id, term)

    def _key(self, term: _Term) -> str:
        return f"{self._prefix}/{term.log_id}/{term.number}"

    def _segment(self, term: _Term, *, custom: bytes | None = None) -> tuple[RemoteLogSegmentMetadata, bytes]:
        """The segment of a term, the same for all brokers of a cluster, and its log."""
        digest = hashlib.sha256(self._cluster_id.encode()).digest()
        partition = TopicIdPartition(uuid.UUID(bytes=digest[:16]), SEGMENT_TOPIC, 0)
        text = f"{self._cluster_id} {term.log_id} {term.number}".encode()
        log = bytes(record_batch.build([RecordData(key=None, value=text)], timestamp_ms=0))
        metadata = RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, uuid.uuid5(term.log_id, str(term.number))),
            start_offset=0,
            end_offset=0,
            max_timestamp_ms=0,
            broker_id=0,
            event_timestamp_ms=0,
            segment_size_bytes=len(log),
            segment_leader_epochs={0: 0},
            custom_metadata=custom,
        )
        return metadata, log


class _Term(NamedTuple):
    """A term of a log."""

    log_id: uuid.UUID
    number: int


class _Found(NamedTuple):
    term: _Term
    probe: dict[str, Any]


def _custom(probe: dict[str, Any]) -> bytes | None:
    custom = probe.get("custom_metadata")
    return base64.b64decode(custom) if isinstance(custom, str) else None


def _parsed(data: ObjectData) -> dict[str, Any]:
    try:
        found = json.loads(bytes(data))
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
