"""One DisklessCommitFile for each node, however many of an object's coordinators it leads; one for a list of objects.

(KIP-1164, "Reducing multi-DC commit operations": logical commit requests bundled into fewer physical ones.)

Answers come in the order of a connection's requests. So only bundles share a connection, which the node answers
without the parts that are late. A commit for one coordinator goes by that coordinator's own connection, and so does
each commit of a coordinator that was late, until it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_core.coordinator.calls import PeerCalls, error_of
from diskless_core.coordinator.errors import CoordinatorError, OutcomeUnknownError
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.diskless.commands import BatchResult, CommitBatch, CommitFile
from diskless_core.protocol.commit_file import (
    CommitFileRequest,
    OtherFile,
    ShardPart,
    pack_request,
    unpack_response,
)
from diskless_core.protocol.errors import ErrorCode
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
    """A coordinator's part. Its answer is None where the node answered the bundle without it."""

    request: CommitFile
    answer: asyncio.Future[list[BatchResult] | None]


@dataclass(slots=True)
class _Bundle:
    key: _Key
    parts: dict[int, _Part] = field(default_factory=dict)


class CommitBundles:
    """All commits of a node with coordinators on other nodes.

    Args:
        calls: these carry the bundles.
        calls_of: calls to one coordinator, by its index, by connections of their own.
    """

    def __init__(self, calls: PeerCalls, calls_of: Callable[[int], PeerCalls]) -> None:
        self._calls = calls
        self._calls_of = calls_of
        self._late: set[int] = set()
        self._open: dict[_Key, _Bundle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def commit(self, node_id: int, shard: int, request: CommitFile) -> list[BatchResult]:
        """DisklessCommitFile of one coordinator; what is asked for at once, of one object and node, goes together.

        A part that the node leaves out of its answer is sent again at once, alone. The coordinator may have it already,
        and then gives the first answer. Until a coordinator that was left out answers, its parts are in no bundle.

        Raises:
            CoordinatorError: no answer; the same request can be sent again.
        """
        if shard in self._late:
            return await self._alone(node_id, shard, request)
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
        answer: asyncio.Future[list[BatchResult] | None] = loop.create_future()
        bundle.parts[shard] = _Part(request, answer)
        results = await answer
        if results is not None:
            return results
        self._late.add(shard)
        return await self._alone(node_id, shard, request)

    async def _alone(self, node_id: int, shard: int, request: CommitFile) -> list[BatchResult]:
        results = await self._exchange(self._calls_of(shard), node_id, [shard], [request.batches], request)
        answer = _of_a_shard(results)
        self._late.discard(shard)
        return answer

    async def commit_list(self, node_id: int, shard: int, requests: Sequence[CommitFile]) -> list[list[BatchResult]]:
        """DisklessCommitFile of one coordinator for several objects: all or none are committed, in this order.

        A node of a release before lists commits the first object only, and its answer has no results for the others.
        Then these are sent one by one: in order still, as each waits for the answer of the one before.

        Raises:
            CoordinatorError: no answer; the same list can be sent again.
        """
        first, others = requests[0], requests[1:]
        results = await self._exchange(self._calls_of(shard), node_id, [shard], [first.batches], first, others)
        if len(results) == len(first.batches):
            return [_of_a_shard(results)] + [await self._alone(node_id, shard, request) for request in others]
        answers, start = [], 0
        for request in requests:
            answers.append(_of_a_shard(results[start : start + len(request.batches)]))
            start += len(request.batches)
        return answers

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
        shards, parts = list(bundle.parts), list(bundle.parts.values())
        is_shared = len(parts) > 1
        calls = self._calls if is_shared else self._calls_of(shards[0])
        try:
            results = await self._exchange(
                calls, bundle.key.node_id, shards, [part.request.batches for part in parts], parts[0].request
            )
        except BaseException as error:
            failure = error if isinstance(error, Exception) else OutcomeUnknownError("the node stops")
            for part in parts:
                if not part.answer.done():
                    part.answer.set_exception(failure)
            if not isinstance(error, Exception):
                raise
            return
        first = 0
        for part in parts:
            after = first + len(part.request.batches)
            _settle(part, results[first:after], may_be_left_out=is_shared)
            first = after

    async def _exchange(
        self,
        calls: PeerCalls,
        node_id: int,
        shards: Sequence[int],
        batches: Sequence[Sequence[CommitBatch]],
        file: CommitFile,
        others: Sequence[CommitFile] = (),
    ) -> Sequence[BatchResult]:
        """Send one request, and return a result for each batch; for those of `others` only if the node knows lists.

        Args:
            batches: of `file`, for each of the shards.
            others: objects for the same, only shard, to be committed after `file`.
        """
        of_file = [batch for of_shard in batches for batch in of_shard]
        body = pack_request(
            CommitFileRequest(
                object_key=file.object_key,
                object_format=file.object_format,
                file_size=file.file_size,
                owner_ids=file.owner_ids,
                batches=of_file,
                timeout_ms=calls.timeout_ms,
                shards=[ShardPart(shard, len(of_shard)) for shard, of_shard in zip(shards, batches, strict=True)],
                uploader_id=file.uploader_id,
                others=[
                    OtherFile(other.object_key, other.object_format, other.file_size, other.owner_ids, other.batches)
                    for other in others
                ],
            )
        )
        answer = await calls.exchange(node_id, PeerRequest(DisklessCommitFileRequest.API_KEY, 0, body))
        try:
            results = unpack_response(answer).results
        except FrameError as error:
            raise OutcomeUnknownError(f"node {node_id} sent a malformed answer: {error}") from error
        total = len(of_file) + sum(len(other.batches) for other in others)
        if len(results) not in (len(of_file), total):
            raise OutcomeUnknownError(f"node {node_id} sent {len(results)} results for {total} batches")
        return results


def _settle(part: _Part, results: Sequence[BatchResult], *, may_be_left_out: bool) -> None:
    if part.answer.done():
        return
    if may_be_left_out and results and results[0].error is ErrorCode.REQUEST_TIMED_OUT:
        part.answer.set_result(None)
        return
    try:
        part.answer.set_result(_of_a_shard(results))
    except CoordinatorError as error:
        part.answer.set_exception(error)


def _of_a_shard(results: Sequence[BatchResult]) -> list[BatchResult]:
    """The answers that a shard of this node gives, and the log start, which this node may have no copy to look up in.

    Raises:
        CoordinatorError: there is no answer. A coordinator that does not answer says so of each of its batches.
    """
    error = error_of(results[0].error, results[0].message) if results else None
    if error is not None:
        raise error
    return [
        BatchResult.of(
            result.error, result.base_offset, result.append_time, result.is_duplicate, result.log_start_offset
        )
        for result in results
    ]
