"""Answers DisklessCommitFile for the shards of this node that it is for (KIP-1164, "DisklessCommitFile")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from diskless_core.diskless.attempts import ONLY_SHARD, Attempts
from diskless_core.diskless.commands import NO_OFFSET, BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.diskless.commit_results import reason_of
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.commit_file import CommitFileRequest, CommitFileResponse, ShardPart
from diskless_core.protocol.errors import ErrorCode


async def commit_file(attempts: Attempts, request: CommitFileRequest) -> CommitFileResponse:
    """Commit each shard's part by itself, all at once; results in the order of the request's batches."""
    parts = request.shards or [ShardPart(ONLY_SHARD, len(request.batches))]
    if not _fit(parts, len(request.batches)):
        message = "The coordinators and their numbers of batches do not fit the batches."
        results = [_refused(ErrorCode.INVALID_REQUEST, message)] * len(request.batches)
        return CommitFileResponse(results=results)
    answers, first = [], 0
    for part in parts:
        after = first + part.batch_count
        answers.append(_commit_part(attempts, part.shard_index, request, request.batches[first:after]))
        first = after
    return CommitFileResponse(results=[result for answer in await asyncio.gather(*answers) for result in answer])


def _fit(parts: Sequence[ShardPart], batch_count: int) -> bool:
    counts = [part.batch_count for part in parts]
    indexes = {part.shard_index for part in parts}
    return len(indexes) == len(parts) and min(counts) >= 0 and sum(counts) == batch_count


async def _commit_part(
    attempts: Attempts, index: int, request: CommitFileRequest, batches: Sequence[CommitBatch]
) -> Sequence[BatchResult]:
    part = CommitFile(
        object_key=request.object_key,
        object_format=request.object_format,
        file_size=request.file_size,
        uploader_id=request.uploader_id,
        owner_ids=tuple(request.owner_ids),
        batches=batches,
    )

    async def commit(shard: DisklessShard) -> list[BatchResult]:
        results = await shard.commit_file(part)
        return [_told(shard, batch, result) for batch, result in zip(batches, results, strict=True)]

    done = await attempts.ask(index, commit, request.timeout_ms)
    return done.answer or [_refused(done.error, done.message)] * len(batches)


def _refused(error: ErrorCode, message: str | None) -> BatchResult:
    return BatchResult(error, message=message)


def _told(shard: DisklessShard, batch: CommitBatch, result: BatchResult) -> BatchResult:
    """A broker without a copy of the shard tells its client the log start of a refused batch too, as Kafka does."""
    head = shard.head(PartitionKey(batch.topic_id, batch.partition))
    log_start = head.log_start_offset if head is not None else NO_OFFSET
    if result.error is not ErrorCode.NONE:
        return result._replace(log_start_offset=log_start, message=reason_of(result.error, batch))
    return BatchResult.of(result.error, result.base_offset, result.append_time, result.is_duplicate, log_start)
