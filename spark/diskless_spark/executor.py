"""What Spark tasks do: they build the segments of a few partitions and copy them, and others read the copies back.

Only metadata goes back.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import uvloop

from diskless_core.clock import SystemClock
from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.errors import PluginFactoryError
from diskless_core.plugin.remote_storage import RemoteStorage, RemoteStorageError
from diskless_core.plugin.retrying import is_retriable
from diskless_core.plugin.segment_building.backends import started_backends
from diskless_core.plugin.segment_building.builder import SegmentBuilder, SegmentBuildError
from diskless_core.plugin.segment_building.comparing import CopyDiffersError, NotingRemoteStorage, compare
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings
from diskless_core.plugin.segment_compaction import BackendSources, SegmentPlan, WrittenCopy
from diskless_core.plugin.wal_object_store import WalObjectStore, WalObjectStoreError
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata

if TYPE_CHECKING:
    from pyspark import Accumulator


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedSegment:
    """A segment whose copy has been noted as begun."""

    plan: SegmentPlan
    metadata: RemoteLogSegmentMetadata

    @property
    def size_bytes(self) -> int:
        """Of its `.log`."""
        return self.plan.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Adjacent segments of a partition.

    Attributes:
        producers: those before the first; None where they depend on other tasks. Then the segments are copied without
            producer snapshots, so that an attempt never writes one which is not right.
    """

    segments: Sequence[NotedSegment]
    producers: ProducerState | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a task has to do, and all that it needs for it. `number` is its own among those of its job."""

    number: int
    parts: Sequence[Part]
    parallel_partitions: int
    backends: BackendSources
    building: SegmentBuildingSettings
    producer_id_expiration_ms: int

    def sizes(self) -> Mapping[RemoteLogSegmentId, int]:
        """Its segments, and how many bytes their logs have."""
        return {segment.metadata.segment_id: segment.size_bytes for part in self.parts for segment in part.segments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """A segment that a task has copied.

    Attributes:
        noted: the producers that it has batches of, as a producer snapshot.
        written: what the storage was given.
    """

    segment_id: RemoteLogSegmentId
    custom_metadata: bytes | None
    noted: bytes
    written: WrittenCopy


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyToCompare:
    """A segment that a task has copied, with the metadata of the complete copy."""

    metadata: RemoteLogSegmentMetadata
    written: WrittenCopy

    @property
    def size_bytes(self) -> int:
        """Of its `.log`."""
        return self.written.log.size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTask:
    """A task that reads back the logs that other tasks have copied. Its result has what `failed`.

    No cache of the process that wrote a log answers for the storage then, and most are read on another machine.
    """

    number: int
    copies: Sequence[CopyToCompare]
    parallel_partitions: int
    backends: BackendSources


@dataclass(slots=True, kw_only=True)
class TaskResult:
    """What came of a task. Of a part whose segment failed, the later ones were not begun.

    Attributes:
        number: the task's.
        failed: why, by the first segment of a part that could not be made.
    """

    number: int
    copied: list[Copied] = field(default_factory=list)
    failed: dict[RemoteLogSegmentId, str] = field(default_factory=dict)


class TaskError(Exception):
    """Something that another attempt can do better: Spark tries the task again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRunner:
    """What Spark calls for each task, with a pickled `Task`.

    Attributes:
        results: an accumulator of lists of `TaskResult`, to which Spark adds those of one attempt of each task.
        attempts: how often Spark tries a task. The last one reports what failed, so that no other task is ended.
    """

    results: Accumulator[list[TaskResult]]
    attempts: int

    def __call__(self, tasks: Iterable[bytes]) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        is_last = context is None or context.attemptNumber() + 1 >= self.attempts
        for pickled in tasks:
            self.results.add([run_task(pickle.loads(pickled), is_last=is_last)])  # noqa: S301 - the driver's own


def import_all(backends: Iterable[bytes]) -> None:
    """Import what tasks need, this module and the plugins of pickled `BackendSources`."""
    for pickled in backends:
        pickle.loads(pickled)  # noqa: S301 - the driver's own


def run_task(task: Task | ComparisonTask, *, is_last: bool) -> TaskResult:
    """Do a task.

    Args:
        is_last: whether nobody will try it again.

    Raises:
        TaskError: another attempt can do better.
    """
    attempt = _Copying(task) if isinstance(task, Task) else _Comparing(task)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(attempt.run())
    if attempt.retriable and not is_last:
        raise TaskError("; ".join(attempt.retriable))
    return attempt.result


class _Attempt:
    """One attempt of one task."""

    def __init__(self, task: Task | ComparisonTask) -> None:
        self._backends = task.backends
        self.result = TaskResult(number=task.number)
        self.retriable: list[str] = []

    async def run(self) -> None:
        """Do it. What fails is in the result, and in `retriable` where another attempt can do better."""
        try:
            async with started_backends(self._backends, SystemClock()) as (objects, remote_storage):
                await self._do(objects, remote_storage)
        except (PluginFactoryError, WalObjectStoreError, RemoteStorageError) as error:
            for segment in self._first_segments():
                self._failed(segment, f"{_where(segment)}: {error}", retriable=is_retriable(error))

    async def _do(self, objects: WalObjectStore, remote_storage: RemoteStorage) -> None:
        raise NotImplementedError

    def _first_segments(self) -> Iterable[RemoteLogSegmentMetadata]:
        """What fails if no backend can be reached."""
        raise NotImplementedError

    def _failed(self, segment: RemoteLogSegmentMetadata, message: str, *, retriable: bool) -> None:
        self.result.failed[segment.segment_id] = message
        if retriable:
            self.retriable.append(message)


class _Copying(_Attempt):
    """Builds and copies segments."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._task = task

    def _first_segments(self) -> Iterable[RemoteLogSegmentMetadata]:
        return [part.segments[0].metadata for part in self._task.parts]

    async def _do(self, objects: WalObjectStore, remote_storage: RemoteStorage) -> None:
        task, noting = self._task, NotingRemoteStorage(remote_storage)
        with ThreadPoolExecutor(1, thread_name_prefix="compaction") as executor:
            builder = SegmentBuilder(
                objects,
                noting,
                task.building,
                executor,
                progressed=lambda _: None,
                producer_id_expiration_ms=task.producer_id_expiration_ms,
            )
            waiting = iter(task.parts)
            async with asyncio.TaskGroup() as workers:
                for _ in range(min(task.parallel_partitions, len(task.parts))):
                    workers.create_task(self._work(waiting, builder, noting))

    async def _work(self, waiting: Iterator[Part], builder: SegmentBuilder, noting: NotingRemoteStorage) -> None:
        for part in waiting:
            producers = part.producers
            for segment in part.segments:
                try:
                    built = await builder.build(segment.plan, segment.metadata, producers)
                    written = noting.written(segment.metadata.segment_id)
                except SegmentBuildError as error:
                    self._failed(segment.metadata, str(error), retriable=error.retriable)
                    break
                except Exception as error:
                    message = f"{_where(segment.metadata)}: a defect: {type(error).__name__}: {error}"
                    self._failed(segment.metadata, message, retriable=True)
                    break
                producers = built.producers
                self.result.copied.append(
                    Copied(
                        segment_id=segment.metadata.segment_id,
                        custom_metadata=built.custom_metadata,
                        noted=producer_snapshot.encode(built.noted.values()),
                        written=written,
                    )
                )


class _Comparing(_Attempt):
    """Reads logs back."""

    def __init__(self, task: ComparisonTask) -> None:
        super().__init__(task)
        self._task = task

    def _first_segments(self) -> Iterable[RemoteLogSegmentMetadata]:
        return [copy.metadata for copy in self._task.copies]

    async def _do(self, objects: WalObjectStore, remote_storage: RemoteStorage) -> None:
        del objects
        waiting = iter(self._task.copies)
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(self._task.parallel_partitions, len(self._task.copies))):
                workers.create_task(self._work(waiting, remote_storage))

    async def _work(self, waiting: Iterator[CopyToCompare], remote_storage: RemoteStorage) -> None:
        for copy in waiting:
            try:
                await compare(remote_storage, copy.metadata, copy.written, with_indexes=False)
            except CopyDiffersError as error:
                self._failed(copy.metadata, str(error), retriable=False)
            except RemoteStorageError as error:
                message = f"{_where(copy.metadata)} cannot be read back: {error}"
                self._failed(copy.metadata, message, retriable=is_retriable(error))
            except Exception as error:
                message = f"{_where(copy.metadata)}: a defect: {type(error).__name__}: {error}"
                self._failed(copy.metadata, message, retriable=True)


def _where(segment: RemoteLogSegmentMetadata) -> str:
    return f"{segment.segment_id.topic_id_partition.name} at offset {segment.start_offset}"
