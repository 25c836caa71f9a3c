"""DescribeLogDirs and AlterReplicaLogDirs: the one folder of this broker, where all partitions are said to be.

Their sizes are those that they have in the object store.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster.topics import TopicInfo
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

AskedTopic = DescribeLogDirsRequest.DescribableLogDirTopic
LogDir = DescribeLogDirsResponse.DescribeLogDirsResult
LogDirTopic = LogDir.DescribeLogDirsTopic
LogDirPartition = LogDirTopic.DescribeLogDirsPartition
MovedTopic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
MovedPartition = MovedTopic.AlterReplicaLogDirPartitionResult


class _Volume(NamedTuple):
    error: ErrorCode
    total_bytes: int
    usable_bytes: int


async def describe_log_dirs(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Handle DescribeLogDirs. A partition that is asked for and does not exist is left out, as in Kafka."""
    folder = context.services.config.data_dir.absolute()
    volume = await asyncio.to_thread(_volume, folder)
    sound = volume.error is ErrorCode.NONE
    return DescribeLogDirsResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        results=[
            LogDir(
                error_code=int(volume.error),
                log_dir=str(folder),
                topics=list(_topics(context, request.topics)) if sound else [],
                total_bytes=volume.total_bytes,
                usable_bytes=volume.usable_bytes,
                is_cordoned=False,
            )
        ],
    )


def _volume(folder: Path) -> _Volume:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return _Volume(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1)
    return _Volume(ErrorCode.NONE, usage.total, usage.free)


def _topics(context: RequestContext, asked: Iterable[AskedTopic] | None) -> Iterator[LogDirTopic]:
    for info, partitions in _wanted(context, asked):
        sizes = list(_partitions(context, info, partitions))
        if sizes:
            yield LogDirTopic(name=info.name, partitions=sizes)


def _wanted(context: RequestContext, asked: Iterable[AskedTopic] | None) -> Iterator[tuple[TopicInfo, Iterable[int]]]:
    topics = context.services.topics
    if asked is None:
        yield from ((info, range(info.partition_count)) for info in topics.all())
        return
    for topic in asked:
        info = topics.by_name(topic.topic)
        if info is not None:
            yield info, topic.partitions


def _partitions(context: RequestContext, info: TopicInfo, partitions: Iterable[int]) -> Iterator[LogDirPartition]:
    for partition in partitions:
        key = info.key(partition)
        shard = context.services.topics.replica_of(key) if key is not None else None
        head = shard.head(key) if shard is not None and key is not None else None
        if head is not None:
            yield LogDirPartition(
                partition_index=partition, partition_size=head.size_bytes, offset_lag=0, is_future_key=False
            )


def alter_replica_log_dirs(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Handle AlterReplicaLogDirs: partitions are where they are; any other folder is unknown."""
    results: dict[str, dict[int, ErrorCode]] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            moved = {partition: _moved(context, folder.path, topic.name, partition) for partition in topic.partitions}
            results.setdefault(topic.name, {}).update(moved)
    return AlterReplicaLogDirsResponse(
        throttle_time_ms=0,
        results=[
            MovedTopic(
                topic_name=topic,
                partitions=[
                    MovedPartition(partition_index=partition, error_code=int(error))
                    for partition, error in partitions.items()
                ],
            )
            for topic, partitions in results.items()
        ],
    )


def _moved(context: RequestContext, path: str, topic: str, partition: int) -> ErrorCode:
    if Path(path).absolute() != context.services.config.data_dir.absolute():
        return ErrorCode.LOG_DIR_NOT_FOUND
    info = context.services.topics.by_name(topic)
    is_there = info is not None and info.key(partition) is not None
    return ErrorCode.NONE if is_there else ErrorCode.REPLICA_NOT_AVAILABLE
