"""Answers DisklessCommitFile for the shards of this node that it is for (KIP-1164, "DisklessCommitFile").

Answers go out in the order of a connection's requests, so a bundle that waits for a stalled coordinator would hold up
the commits of all others. A bundle is therefore answered without the parts that take much longer than the rest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from diskless_core.diskless.attempts import ONLY_SHARD, Attempts
from diskless_core.diskless.commands import NO_OFFSET, BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.diskless.commit_results import reason_of
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.commit_file import CommitFileRequest, CommitFileResponse, OtherFile, ShardPart
from diskless_core.protocol.errors import ErrorCode

LEAST_WAIT_S = 0.15
"""How long all parts of a bundle have, at least."""

MOST_WAIT_S = 1.0
"""How long a bundle waits while none of its parts is done, unless commits take longer than half of it lately."""

_RECENT_COMMITS = 32


def wait_s(done_s: float | None, longest_s: float) -> float:
    """How long after its arrival a bundle is answered with what is done by then.

    Args:
        done_s: how long the latest part that is done took; None while no part is done.
        longest_s: the longest of recent commits. On a slow log all parts take long, and none of them is late.
    """
    limit_s = max(MOST_WAIT_S, 2 * longest_s)
    return limit_s if done_s is None else min(max(LEAST_WAIT_S, 2 * done_s), limit_s)


class FileCommits:
    """The commits of other brokers.

    Args:
        attempts: where the parts of a request go.
    """

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._given_up: set[asyncio.Task[Any]] = set()
        self._took_s: deque[float] = deque(maxlen=_RECENT_COMMITS)

    async def answer(self, request: CommitFileRequest) -> CommitFileResponse:
        """Commit each shard's part on its own, all at once; results in the order of the request's batches.

        A request for one shard waits for the shard's answer. In a request for several, each batch of a part that takes
        much longer than the others has the result REQUEST_TIMED_OUT: that part may be committed, now or later. The
        sender asks again for this part alone, and gets the part's first answer.

        A request with other objects names one shard, which commits all of them in one entry, or none.
        """
        parts = request.shards or [ShardPart(ONLY_SHARD, len(request.batches))]
        if not _fit(parts, len(request.batches)) or (request.others and len(parts) != 1):
            message = "The coordinators and their numbers of batches do not fit the batches."
            return CommitFileResponse(results=[_refused(ErrorCode.INVALID_REQUEST, message)] * request.batch_count)
        commits, first = [], 0
        for part in parts:
            after = first + part.batch_count
            files = [_file(request, request.uploader_id, request.batches[first:after])]
            files += [_file(other, request.uploader_id, other.batches) for other in request.others]
            commits.append(self._commit_part(part.shard_index, files, request.timeout_ms))
            first = after
        if len(commits) == 1:
            return CommitFileResponse(results=await commits[0])
        message = "The coordinator is slower than others that were asked with it: ask it again, alone."
        late = _refused(ErrorCode.REQUEST_TIMED_OUT, message)
        answers = await self._in_time(commits)
        return CommitFileResponse(
            results=[
                result
                for part, answer in zip(parts, answers, strict=True)
                for result in (answer if answer is not None else [late] * part.batch_count)
            ]
        )

    async def _in_time(
        self, commits: Sequence[Coroutine[Any, Any, Sequence[BatchResult]]]
    ) -> list[Sequence[BatchResult] | None]:
        """The answers in order; None for each part that is still under way when the time is over."""
        loop = asyncio.get_running_loop()
        begun_s, done_s = loop.time(), None
        tasks = [asyncio.create_task(commit) for commit in commits]
        under_way = set(tasks)
        longest_s = max(self._took_s, default=0.0)
        try:
            while under_way:
                left_s = begun_s + wait_s(done_s, longest_s) - loop.time()
                done, under_way = await asyncio.wait(
                    under_way, timeout=max(0, left_s), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                done_s = loop.time() - begun_s
        finally:
            self._give_up(under_way)
        return [None if task in under_way else task.result() for task in tasks]

    async def _commit_part(self, index: int, files: Sequence[CommitFile], timeout_ms: int) -> Sequence[BatchResult]:
        async def commit(shard: DisklessShard) -> list[BatchResult]:
            return [
                _told(shard, batch, result)
                for file, results in zip(files, await shard.commit_files(files), strict=True)
                for batch, result in zip(file.batches, results, strict=True)
            ]

        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        done = await self._attempts.ask(index, commit, timeout_ms)
        if not done.answer:
            return [_refused(done.error, done.message)] * sum(len(file.batches) for file in files)
        self._took_s.append(loop.time() - begun_s)
        return done.answer

    def _give_up(self, tasks: set[asyncio.Task[Sequence[BatchResult]]]) -> None:
        """Wait no longer. What a coordinator has put into its log takes effect all the same.

        So nothing is kept of a part that is late, however often it is asked for again. A task that reads a store ends
        only when that has answered; this broker does not wait for that.
        """
        for task in tasks:
            self._given_up.add(task)
            task.add_done_callback(self._given_up.discard)
            task.cancel()


def _fit(parts: Sequence[ShardPart], batch_count: int) -> bool:
    counts = [part.batch_count for part in parts]
    indexes = {part.shard_index for part in parts}
    return len(indexes) == len(parts) and min(counts) >= 0 and sum(counts) == batch_count


def _file(file: CommitFileRequest | OtherFile, uploader_id: int, batches: Sequence[CommitBatch]) -> CommitFile:
    return CommitFile(
        object_key=file.object_key,
        object_format=file.object_format,
        file_size=file.file_size,
        uploader_id=uploader_id,
        owner_ids=tuple(file.owner_ids),
        batches=batches,
    )


def _refused(error: ErrorCode, message: str | None) -> BatchResult:
    return BatchResult(error, message=message)


def _told(shard: DisklessShard, batch: CommitBatch, result: BatchResult) -> BatchResult:
    """A broker without a copy of the shard tells its client the log start of a refused batch too, as Kafka does."""
    head = shard.head(PartitionKey(batch.topic_id, batch.partition))
    log_start = head.log_start_offset if head is not None else NO_OFFSET
    if result.error is not ErrorCode.NONE:
        return result._replace(log_start_offset=log_start, message=reason_of(result.error, batch))
    return BatchResult.of(result.error, result.base_offset, result.append_time, result.is_duplicate, log_start)
