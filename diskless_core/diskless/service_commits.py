"""Answers DisklessCommitFile for the shards of this node that it is for (KIP-1164, "DisklessCommitFile")."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from diskless_core.diskless.attempts import ONLY_SHARD, Attempts
from diskless_core.diskless.commands import NO_OFFSET, BatchResult, CommitBatch, CommitFile, PartitionKey
from diskless_core.diskless.commit_results import reason_of
from diskless_core.diskless.shard import DisklessShard
from diskless_core.protocol.commit_file import CommitFileRequest, CommitFileResponse, OtherFile, ShardPart
from diskless_core.protocol.errors import ErrorCode


async def commit_file(attempts: Attempts, request: CommitFileRequest) -> CommitFileResponse:
    """Commit each shard's part by itself, all at once; results in the order of the request's batches.

    A request with other objects names one shard, which commits all of them in one entry, or none.
    """
    parts = request.shards or [ShardPart(ONLY_SHARD, len(request.batches))]
    if not _fit(parts, len(request.batches)) or (request.others and len(parts) != 1):
        message = "The coordinators and their numbers of batches do not fit the batches."
        return CommitFileResponse(results=[_refused(ErrorCode.INVALID_REQUEST, message)] * request.batch_count)
    answers, first = [], 0
    for part in parts:
        after = first + part.batch_count
        files = [_file(request, request.uploader_id, request.batches[first:after])]
        files += [_file(other, request.uploader_id, other.batches) for other in request.others]
        answers.append(_commit_part(attempts, part.shard_index, files, request.timeout_ms))
        first = after
    return CommitFileResponse(results=[result for answer in await asyncio.gather(*answers) for result in answer])


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


async def _commit_part(
    attempts: Attempts, index: int, files: Sequence[CommitFile], timeout_ms: int
) -> Sequence[BatchResult]:
    async def commit(shard: DisklessShard) -> list[BatchResult]:
        return [
            _told(shard, batch, result)
            for file, results in zip(files, await shard.commit_files(files), strict=True)
            for batch, result in zip(file.batches, results, strict=True)
        ]

    done = await attempts.ask(index, commit, timeout_ms)
    return done.answer or [_refused(done.error, done.message)] * sum(len(file.batches) for file in files)


def _refused(error: ErrorCode, message: str | None) -> BatchResult:
    return BatchResult(error, message=message)


def _told(shard: DisklessShard, batch: CommitBatch, result: BatchResult) -> BatchResult:
    """A broker without a copy of the shard tells its client the log start of a refused batch too, as Kafka does."""
    head = shard.head(PartitionKey(batch.topic_id, batch.partition))
    log_start = head.log_start_offset if head is not None else NO_OFFSET
    if result.error is not ErrorCode.NONE:
        return result._replace(log_start_offset=log_start, message=reason_of(result.error, batch))
    return BatchResult.of(result.error, result.base_offset, result.append_time, result.is_duplicate, log_start)
