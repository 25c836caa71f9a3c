"""The engine `spark`: plans on the driver, a Spark job a round, and the segments of each partition finished in order.

Every attempt of a task copies the same segments under the same ids, byte for byte: tries again, speculative ones and
those of lost executors do no harm to what is finished, however late they come. What depends on other tasks, the
snapshots of producers, the driver adds. When all have ended, other tasks read the copies back, and a copy that is not
what was written is not finished. Only this process notes, finishes and abandons; it begins nothing before Spark
is there. Of two rounds, one is planned and begun while the other one runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from diskless_core.log import producer_snapshot
from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.context import PluginContext
from diskless_core.plugin.remote_storage import IndexType, RemoteStorageError
from diskless_core.plugin.segment_building.job import defect, raise_failures
from diskless_core.plugin.segment_compaction import (
    MAX_RANGES,
    CompactionJob,
    SegmentCompaction,
    SegmentCompactionError,
    SegmentPlan,
)
from diskless_core.remote_log.metadata import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition
from diskless_spark.backends import why_unreachable
from diskless_spark.config import SparkCompactionSettings
from diskless_spark.executor import ComparisonTask, Copied, CopyToCompare, NotedSegment, Part, Task, TaskResult
from diskless_spark.lookahead import ahead
from diskless_spark.planning import cut, producers_after
from diskless_spark.session import is_local, spark_context

if TYPE_CHECKING:
    from pyspark import SparkContext

T = TypeVar("T")

ROUND_RANGES = 500_000
"""Ranges of WAL objects in a round, and as many planned ahead: a memory bound of the driver, some 250 MB each."""

PARTITIONS_AT_ONCE = 128
"""Partitions whose segments are planned ahead, noted, or finished at the same time."""


class SparkCompaction(SegmentCompaction):
    """Runs jobs; several at once share one Spark."""

    def __init__(self, context: PluginContext, settings: SparkCompactionSettings) -> None:
        self._clock = context.clock
        self._settings = settings

    async def compact(self, job: CompactionJob) -> None:
        run = _Run(job, self._settings, name=self._clock.new_uuid().hex)
        async with AsyncExitStack() as stack:
            await run.all(stack)
        raise_failures(run.failures)


@dataclass(slots=True)
class _Partition:
    """A partition as far as the job has come.

    Attributes:
        producers: those behind the last segment that was finished; None before the first one was begun.
        rounds: how many rounds have segments of it that are not finished.
        planning_ended: whether no more of it is to be planned. What has been goes on.
        is_over: whether no more of it is to be finished, and so none to be planned or begun.
    """

    producers: ProducerState | None = None
    rounds: int = 0
    planning_ended: bool = False
    is_over: bool = False


@dataclass(slots=True, kw_only=True)
class _Round:
    """What one Spark job copies, and a second one reads back.

    Attributes:
        chains: the segments of each partition, in order.
        without_snapshot: segments that their tasks copy without a producer snapshot.
        ended: segments of tasks that have ended.
        copied: those of them that were copied.
        compared: those whose log was read back and is the same.
        failed: why segments could not be made.
    """

    chains: Sequence[Sequence[NotedSegment]]
    without_snapshot: set[RemoteLogSegmentId] = field(default_factory=set)
    ended: set[RemoteLogSegmentId] = field(default_factory=set)
    copied: dict[RemoteLogSegmentId, Copied] = field(default_factory=dict)
    compared: set[RemoteLogSegmentId] = field(default_factory=set)
    failed: dict[RemoteLogSegmentId, str] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """For Spark's own UI."""
        size_bytes = sum(segment.size_bytes for chain in self.chains for segment in chain)
        first, last = (chain[0].plan.partition.name for chain in (self.chains[0], self.chains[-1]))
        names = first if first == last else f"{first} to {last}"
        return f"{names}: {sum(map(len, self.chains))} segments, {size_bytes / 2**20:,.1f} MiB"


class _Run:
    """One job."""

    def __init__(self, job: CompactionJob, settings: SparkCompactionSettings, *, name: str) -> None:
        self.failures: list[str] = []
        self._job = job
        self._settings = settings
        self._name = name
        self._context: SparkContext | None = None
        self._partitions = {partition: _Partition() for partition in job.partitions}
        self._can_cut = job.remote_storage.can_replace_index
        self._groups = 0

    async def all(self, stack: AsyncExitStack) -> None:
        """Do the job; `stack` ends Spark, which is started when there is something to do.

        Raises:
            SegmentCompactionError: nothing of it can be done.
        """
        before: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._rounds()) as rounds:
                async for chains in rounds:
                    self._require_fit(self._settings.master)
                    if before is not None and not self._can_cut:
                        await before
                    context = await self._started(stack)
                    one = _Round(chains=await self._noted(chains))
                    current = asyncio.create_task(self._do(one, self._tasks(one, context), context, before))
                    before, previous = current, before
                    if previous is not None:
                        await previous
            if before is not None:
                await before
        except BaseException:
            if before is not None:
                before.cancel()
                await asyncio.wait([before])
            raise

    async def _started(self, stack: AsyncExitStack) -> SparkContext:
        if self._context is None:
            from diskless_spark.stage import warm_up

            try:
                context = await stack.enter_async_context(spark_context(self._settings.session()))
                self._require_fit(context.master or "")
                await warm_up(context, self._job.backends)
            except SegmentCompactionError:
                raise
            except Exception as error:
                raise SegmentCompactionError(f"Spark does not start: {_first_line(error)}") from error
            self._context = context
        return self._context

    def _require_fit(self, master: str) -> None:
        """That tasks get at both backends, and may be tried again.

        Raises:
            SegmentCompactionError: they do not.
        """
        objects, remote_storage = self._job.objects, self._job.remote_storage
        elsewhere = None if is_local(master) else master
        if why := why_unreachable(objects, remote_storage, elsewhere=elsewhere):
            raise SegmentCompactionError(why)
        if not remote_storage.copies_may_overlap:
            raise SegmentCompactionError(
                "Spark may run a task twice at once, and the remote_storage says that this would spoil segments: "
                "use a folder (file://), S3 or Google Cloud Storage"
            )

    # --- planning --------------------------------------------------------------------------------------------------

    async def _rounds(self) -> AsyncGenerator[Sequence[Sequence[SegmentPlan]], None]:
        """The segments of each round, by partition."""
        chains: list[list[SegmentPlan]] = []
        size_bytes = ranges = 0
        coming = ahead(
            self._job.partitions,
            self._job.segments,
            count=PARTITIONS_AT_ONCE,
            weigh=lambda plan: len(plan.ranges),
            reserve=MAX_RANGES,
            limit=ROUND_RANGES,
        )
        async with aclosing(coming) as plans:
            async for partition, planned in plans:
                state, chain = self._partitions[partition], list[SegmentPlan]()
                try:
                    async with aclosing(planned) as segments:
                        async for segment in segments:
                            if state.planning_ended or state.is_over:
                                break
                            chain.append(segment)
                            size_bytes += segment.size_bytes
                            ranges += len(segment.ranges)
                            if size_bytes >= self._settings.round_bytes or ranges >= ROUND_RANGES:
                                yield [*chains, chain]
                                chains, chain, size_bytes, ranges = [], [], 0, 0
                except Exception as error:
                    state.planning_ended = True
                    self._failed(partition, error)
                if chain:
                    chains.append(chain)
        if chains:
            yield chains

    async def _noted(self, chains: Sequence[Sequence[SegmentPlan]]) -> Sequence[Sequence[NotedSegment]]:
        noted: list[list[NotedSegment]] = [[] for _ in chains]

        async def note(number: int) -> None:
            partition = chains[number][0].partition
            state = self._partitions[partition]
            try:
                if state.producers is None and not state.rounds:
                    state.producers = await self._job.producers_before(chains[number][0])
                for plan in chains[number]:
                    if state.is_over:
                        break
                    noted[number].append(NotedSegment(plan=plan, metadata=await self._job.begin(plan)))
            except Exception as error:
                state.planning_ended = True
                self._failed(partition, error)

        await _each(note, range(len(chains)))
        return [chain for chain in noted if chain]

    def _tasks(self, one: _Round, context: SparkContext) -> Sequence[Task]:
        cuts = cut(
            one.chains,
            task_bytes=self._settings.task_bytes,
            least_tasks=context.defaultParallelism,
            can_cut=self._can_cut,
        )
        known = {chain[0].metadata.segment_id: self._known(chain[0].plan.partition) for chain in one.chains}
        for chain in one.chains:
            self._partitions[chain[0].plan.partition].rounds += 1
        tasks: list[Task] = []
        for segments_of_parts in cuts:
            parts = []
            for segments in segments_of_parts:
                producers = known.get(segments[0].metadata.segment_id)
                if producers is None:
                    one.without_snapshot.update(segment.metadata.segment_id for segment in segments)
                parts.append(Part(segments=segments, producers=producers))
            tasks.append(
                Task(
                    number=len(tasks),
                    parts=parts,
                    parallel_partitions=self._settings.parallel_partitions,
                    backends=self._job.backends,
                    building=self._settings.building(),
                    producer_id_expiration_ms=self._job.producer_id_expiration_ms,
                )
            )
        return tasks

    def _known(self, partition: TopicIdPartition) -> ProducerState | None:
        """The producers before the round that is about to begin, if they are known by now."""
        state = self._partitions[partition]
        return state.producers if not state.rounds else None

    # --- doing -----------------------------------------------------------------------------------------------------

    async def _do(
        self, one: _Round, tasks: Sequence[Task], context: SparkContext, before: asyncio.Task[None] | None
    ) -> None:
        def ended(result: TaskResult) -> None:
            sizes = tasks[result.number].sizes()
            one.ended.update(sizes)
            one.failed.update(result.failed)
            for copied in result.copied:
                one.copied[copied.segment_id] = copied
                self._job.progressed(sizes[copied.segment_id])

        await self._run_stage(context, tasks, f"compaction of {one.description}", ended)
        await self._compare(one, context)
        if before is not None:
            await asyncio.wait([before])
        await _each(lambda chain: self._settle(one, chain), one.chains)

    async def _compare(self, one: _Round, context: SparkContext) -> None:
        """Have the logs read back by other tasks than those that wrote them. The job compares the indexes."""
        copies = [
            [CopyToCompare(metadata=_complete(segment, copied), written=copied.written)]
            for chain in one.chains
            for segment in chain
            if (copied := one.copied.get(segment.metadata.segment_id)) is not None
        ]
        cuts = cut(copies, task_bytes=self._settings.task_bytes, least_tasks=context.defaultParallelism, can_cut=True)
        tasks = [
            ComparisonTask(
                number=number,
                copies=[copy for piece in pieces for copy in piece],
                parallel_partitions=self._settings.parallel_partitions,
                backends=self._job.backends,
            )
            for number, pieces in enumerate(cuts)
        ]

        def ended(result: TaskResult) -> None:
            segment_ids = {copy.metadata.segment_id for copy in tasks[result.number].copies}
            one.compared.update(segment_ids - result.failed.keys())
            one.failed.update(result.failed)

        await self._run_stage(context, tasks, f"comparison of {one.description}", ended)

    async def _run_stage(
        self,
        context: SparkContext,
        tasks: Sequence[Task | ComparisonTask],
        description: str,
        ended: Callable[[TaskResult], None],
    ) -> None:
        """Run tasks. What Spark gives up is noted as a failure; what has ended well by then counts."""
        from diskless_spark.stage import run_stage

        self._groups += 1
        try:
            if tasks:
                await run_stage(
                    context, tasks, group=f"{self._name}-{self._groups}", description=description, ended=ended
                )
        except Exception as error:
            self.failures.append(f"Spark gave up: {_first_line(error)}")

    async def _settle(self, one: _Round, chain: Sequence[NotedSegment]) -> None:
        """Finish the segments of a partition that are there as they were written, up to the first that is not."""
        partition = chain[0].plan.partition
        state = self._partitions[partition]
        for segment in chain:
            copied = one.copied.get(segment.metadata.segment_id)
            try:
                if state.is_over or copied is None or segment.metadata.segment_id not in one.compared:
                    await self._give_up(one, segment, copied, state)
                else:
                    await self._finish(one, segment, copied, state)
            except Exception as error:
                state.is_over = True
                self._failed(partition, error)
        state.rounds -= 1

    async def _give_up(self, one: _Round, segment: NotedSegment, copied: Copied | None, state: _Partition) -> None:
        """What a task may still be working on is left for the next job to remove."""
        state.is_over = True
        segment_id = segment.metadata.segment_id
        if segment_id in one.failed:
            self.failures.append(one.failed[segment_id])
        if segment_id in one.ended:
            await self._job.abandon(segment.metadata if copied is None else _complete(segment, copied))

    async def _finish(self, one: _Round, segment: NotedSegment, copied: Copied, state: _Partition) -> None:
        state.producers = producers_after(
            state.producers or {},
            producer_snapshot.decode(copied.noted),
            max_timestamp_ms=segment.plan.max_timestamp_ms,
            expiration_ms=self._job.producer_id_expiration_ms,
        )
        written = copied.written
        if segment.metadata.segment_id in one.without_snapshot:
            snapshot = producer_snapshot.encode(state.producers.values())
            known = _complete(segment, copied)
            try:
                await self._job.remote_storage.replace_index(known, IndexType.PRODUCER_SNAPSHOT, snapshot)
            except RemoteStorageError as error:
                await self._job.abandon(known)
                where = f"{segment.plan.partition.name} at offset {segment.plan.start_offset}"
                raise SegmentCompactionError(f"{where}: {error}") from error
            written = written.with_index(IndexType.PRODUCER_SNAPSHOT, snapshot)
        if not await self._job.finish(segment.metadata, copied.custom_metadata, written):
            state.is_over = True

    def _failed(self, partition: TopicIdPartition, error: Exception) -> None:
        is_known = isinstance(error, SegmentCompactionError)
        self.failures.append(str(error) if is_known else defect(error, partition.name))


def _complete(segment: NotedSegment, copied: Copied) -> RemoteLogSegmentMetadata:
    """The metadata of a segment as its storage wants to find them, once it is copied."""
    return replace(segment.metadata, custom_metadata=copied.custom_metadata)


async def _each(do: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    """Do something with each item, several at once."""
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await do(item)

    async with asyncio.TaskGroup() as workers:
        for _ in range(PARTITIONS_AT_ONCE):
            workers.create_task(work())


def _first_line(error: Exception) -> str:
    """Of what Java says, the exception without its stack."""
    lines = str(error).splitlines() or [type(error).__name__]
    return next((line for line in lines if "Exception: " in line), lines[0])[:500]
