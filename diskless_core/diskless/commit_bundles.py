"""One DisklessCommitFile for each node, however many of an object's coordinators it leads.

(KIP-1164, "Reducing multi-DC commit operations": logical commit requests bundled into fewer physical ones.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.coordinator.calls import PeerCalls, error_of
from diskless_core.coordinator.errors import CoordinatorError, OutcomeUnknownError
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.diskless.commands import BatchResult, CommitFile
from diskless_core.protocol.commit_file import (
    CommitFileRequest,
    ShardPart,
    pack_request,
    unpack_response,
)
from diskless_core.protocol.framing import FrameError
from diskless_core.protocol.messages import DisklessCommitFileRequest


class _Key(NamedTuple):
    """What the parts of a bundle have in common."""

    node_id: int
    object_key: str
    object_format: int
    file_size: int
    uploader_id: int
    owner_ids: tuple[int, ...]


@dataclass(slots=True)
class _Part:
    request: CommitFile
    answer: asyncio.Future[list[BatchResult]]


@dataclass(slots=True)
class _Bundle:
    key: _Key
    parts: dict[int, _Part] = field(default_factory=dict)


class CommitBundles:
    """All commits of a node with coordinators on other nodes."""

    def __init__(self, calls: PeerCalls) -> None:
        self._calls = calls
        self._open: dict[_Key, _Bundle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, node_id: int, shard: int, request: CommitFile) -> list[BatchResult]:
        """DisklessCommitFile of one coordinator; what is asked for at once, of one object and node, goes together.

        Raises:
            CoordinatorError: no answer; the same request can be sent again.
        """
        key = _Key(
            node_id,
            request.object_key,
            request.object_format,
            request.file_size,
            request.uploader_id,
            tuple(request.owner_ids),
        )
        bundle = self._open.get(key)
        loop = asyncio.get_running_loop()
        if bundle is None or shard in bundle.parts:
            bundle = self._open[key] = _Bundle(key)
            loop.call_soon(self._seal, bundle)
        answer: asyncio.Future[list[BatchResult]] = loop.create_future()
        bundle.parts[shard] = _Part(request, answer)
        return await answer

    async def stop(self) -> None:
        """Give up what is under way: its callers get OutcomeUnknownError."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _seal(self, bundle: _Bundle) -> None:
        if self._open.get(bundle.key) is bundle:
            del self._open[bundle.key]
        task = asyncio.get_running_loop().create_task(self._send(bundle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, bundle: _Bundle) -> None:
        try:
            results = await self._exchange(bundle)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else OutcomeUnknownError("the node stops")
            for part in bundle.parts.values():
                if not part.answer.done():
                    part.answer.set_exception(failure)
            if not isinstance(error, Exception):
                raise
            return
        first = 0
        for part in bundle.parts.values():
            after = first + len(part.request.batches)
            _settle(part, results[first:after])
            first = after

    async def _exchange(self, bundle: _Bundle) -> Sequence[BatchResult]:
        key = bundle.key
        batches = [batch for part in bundle.parts.values() for batch in part.request.batches]
        body = pack_request(
            CommitFileRequest(
                object_key=key.object_key,
                object_format=key.object_format,
                file_size=key.file_size,
                owner_ids=key.owner_ids,
                batches=batches,
                timeout_ms=self._calls.timeout_ms,
                shards=[ShardPart(shard, len(part.request.batches)) for shard, part in bundle.parts.items()],
                uploader_id=key.uploader_id,
            )
        )
        answer = await self._calls.exchange(key.node_id, PeerRequest(DisklessCommitFileRequest.API_KEY, 0, body))
        try:
            results = unpack_response(answer).results
        except FrameError as error:
            raise OutcomeUnknownError(f"node {key.node_id} sent a malformed answer: {error}") from error
        if len(results) != len(batches):
            raise OutcomeUnknownError(f"node {key.node_id} sent {len(results)} results for {len(batches)} batches")
        return results


def _settle(part: _Part, results: Sequence[BatchResult]) -> None:
    if part.answer.done():
        return
    error = _no_answer(results)
    if error is not None:
        part.answer.set_exception(error)
    else:
        part.answer.set_result([_as_of_a_shard(result) for result in results])


def _no_answer(results: Sequence[BatchResult]) -> CoordinatorError | None:
    """A coordinator that does not answer says so of each of its batches."""
    return error_of(results[0].error, results[0].message) if results else None


def _as_of_a_shard(result: BatchResult) -> BatchResult:
    """The answer that a shard of this node gives, and the log start, which this node may have no copy to look up in."""
    return BatchResult.of(
        result.error, result.base_offset, result.append_time, result.is_duplicate, result.log_start_offset
    )
