"""Compactions of this node, one at a time: on demand, and those of the periodic worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import structlog

from diskless_core.background import end
from diskless_core.coordinator.errors import CoordinatorError, NotCoordinatorError
from diskless_core.coordinator.shard import CoordinatorShard
from diskless_core.coordinator.strict_reads import catch_up
from diskless_core.diskless.commands import PartitionKey
from diskless_core.diskless.shard import DisklessShard
from diskless_core.diskless.tables import TOPICS
from diskless_core.plugin.coordinator_store import CoordinatorStoreError
from diskless_core.plugin.remote_log_metadata import RemoteLogMetadataError
from diskless_core.plugin.remote_storage import RemoteStorage
from diskless_core.plugin.segment_compaction import BackendSources, SegmentCompaction, SegmentCompactionError
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import TopicIdPartition
from diskless_core.tiering.copies import Copies, SegmentServices
from diskless_core.tiering.external_job import ExternalJob, JobNotRunningError
from diskless_core.tiering.job import PartitionWork, TieringJob, planned
from diskless_core.tiering.planning import NotDue, Pause, TopicTiering
from diskless_core.tiering.report import JobReport, JobState, PlannedSegment
from diskless_core.tiering.retrying import MeteredObjects, MeteredRemoteStorage
from diskless_core.tiering.topics import UnknownTopicError, key_of

REPORTS = 50
"""Reports of jobs that are kept, besides those of more that have not ended."""

PARTITIONS_AT_ONCE = 250
"""Partitions that are looked at before others get their turn: about a millisecond."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionServices:
    """What compactions need.

    Attributes:
        cluster: the shard that has the topics.
        copies: the node's, on `segments`.
        backends: what makes `objects` and the remote storage in other processes.
        topic_of: what holds for a partition, which is the same for all of its topic; None where that is gone.
        is_topic: whether there is a topic of a name, as this node knows.
        require_allowed: raises PluginError where nothing may be compacted.
        engine_of: the engine of a name, None for the one that is configured, with its name. Raises PluginError, also
            where nothing may be compacted.
        driver_session_timeout_ms: see `ExternalJob`.
    """

    cluster: CoordinatorShard[Any]
    segments: SegmentServices
    copies: Copies
    objects: WalObjectStore
    backends: BackendSources
    topic_of: Callable[[PartitionKey], TopicTiering | None]
    is_topic: Callable[[str], bool]
    require_allowed: Callable[[], None]
    engine_of: Callable[[str | None], tuple[str, SegmentCompaction]]
    parallel_partitions: int
    producer_id_expiration_ms: int
    driver_session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """What is to be compacted.

    Attributes:
        topics: by name; None for all.
        shards: the Diskless coordinators whose partitions are compacted, by index; None for all that the node leads.
        engine: None for the one that is configured.
        everything: whether the last segments are made although they are not full, up to the high watermark.
    """

    topics: Sequence[str] | None = None
    shards: Sequence[int] | None = None
    engine: str | None = None
    everything: bool = False


class UnknownJobError(Exception):
    """There is no such job, or none any more."""


def compaction_obstacle(
    objects: WalObjectStore, remote_storage: RemoteStorage, *, log_is_shared: bool = False
) -> str | None:
    """Why nothing may be compacted: records would be less safe than they are. None if they would not.

    Args:
        log_is_shared: whether there may be other brokers, which have to read the segments too.
    """
    if remote_storage.is_process_local and not objects.is_process_local:
        place = "the memory of this process, where they are lost when it ends"
    elif remote_storage.is_node_local and not objects.is_node_local:
        place = "the disk of this broker, where they are lost with it"
    elif remote_storage.is_broker_local and log_is_shared:
        place = "a folder of this broker alone, where they are lost with it"
    else:
        return None
    return (
        f"a compaction would move records out of the WAL object store to {place} and other brokers cannot read them: "
        "set remote_storage to a place that all brokers share, such as remote_storage.fsspec.url=s3://bucket/prefix"
    )


class Compactor:
    """Only partitions are compacted whose coordinator this node leads: others are other nodes'."""

    def __init__(self, services: CompactionServices) -> None:
        self._services = services
        self._copies = services.copies
        self._turn = asyncio.Lock()
        self._reports: dict[str, JobReport] = {}
        self._external: dict[str, ExternalJob] = {}
        self._waits: dict[PartitionKey, NotDue | Pause] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End what is under way. What it leaves, the next compaction finishes or removes."""
        await end(self._tasks)

    # --- on demand -----------------------------------------------------------------------------------------------

    async def learn_topics(self, request: CompactionRequest) -> None:
        """See to it that this node knows the topics of a request: another one may have created them a moment ago.

        Raises:
            CoordinatorLogError, CoordinatorError: it cannot say now which topics there are.
        """
        if self._unknown(request):
            followed = [shard for shard in self._services.segments.shards.values() if shard.is_followed]
            await catch_up([self._services.cluster, *followed])

    def begin(self, request: CompactionRequest) -> JobReport:
        """Begin a job in the background. Its report is kept up to date.

        Raises:
            UnknownTopicError: of one of the topics there is nothing on this node.
            PluginError: there is no such engine, or it cannot be used.
        """
        self._require_topics(request)
        name, engine = self._services.engine_of(request.engine)
        report = self._new_report(name)
        self._begin(request, report, engine)
        return report

    def begin_external(self, request: CompactionRequest, engine: str, driver: str) -> JobReport:
        """Begin a job whose engine, of this name, is another process's; see `external`.

        Args:
            driver: an id that the driver has drawn. Again, it gets the same job, although that may have ended.

        Raises:
            UnknownTopicError: as `begin`.
            PluginError: no engine may compact here.
        """
        for report in self._reports.values():
            if report.driver == driver:
                return report
        self._require_topics(request)
        self._services.require_allowed()
        report = self._new_report(engine, driver)
        timeout_ms = self._services.driver_session_timeout_ms
        self._external[report.id] = job = ExternalJob(
            report, self._services.segments.clock, session_timeout_ms=timeout_ms
        )
        self._begin(request, report, job).add_done_callback(lambda _: self._external.pop(report.id))
        return report

    def external(self, job_id: str) -> ExternalJob:
        """The external job of this id, for its driver.

        Raises:
            UnknownJobError: there is none.
            JobNotRunningError: it has ended.
        """
        report = self._external_report(job_id)
        if job_id not in self._external:
            raise JobNotRunningError("; ".join(["the compaction has ended", *report.failures]))
        return self._external[job_id]

    def end_external(self, job_id: str, bytes_copied: int, failure: str | None) -> JobReport:
        """See `ExternalJob.end`.

        Raises:
            UnknownJobError: there is no such job.
        """
        report = self._external_report(job_id)
        if job_id in self._external:
            self._external[job_id].end(bytes_copied, failure)
        return report

    def _external_report(self, job_id: str) -> JobReport:
        report = self._reports.get(job_id)
        if report is None:
            raise UnknownJobError(f"there is no compaction {job_id}: the broker may have been started anew")
        if report.driver is None:
            raise UnknownJobError(f"compaction {job_id} has no driver: its engine is the broker's own")
        return report

    def _begin(self, request: CompactionRequest, report: JobReport, engine: SegmentCompaction) -> asyncio.Task[None]:
        self._reports[report.id] = report
        ended = [report.id for report in self._reports.values() if report.ended_at_ms is not None]
        for job_id in ended[: max(0, len(self._reports) - REPORTS)]:
            del self._reports[job_id]
        task = asyncio.create_task(self._run(request, report, engine), name=f"compaction {report.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def report(self, job_id: str) -> JobReport | None:
        """The report of a job of this process; None for an unknown one."""
        return self._reports.get(job_id)

    async def plan(self, request: CompactionRequest) -> AsyncIterator[PlannedSegment]:
        """The segments that a job would make now.

        Raises:
            UnknownTopicError: as `begin`.
            NotCoordinatorError: another node leads one of the shards that are asked for.
            CoordinatorError, CoordinatorStoreError: a shard did not answer.
            SegmentCompactionError: see `planned`.
        """
        self._require_topics(request)
        now_ms = self._services.segments.clock.now_ms()
        for index in request.shards or ():
            shard = self._services.segments.shards.get(index)
            if shard is None or not shard.leading:
                raise NotCoordinatorError(f"this broker does not lead the Diskless coordinator {index}")
        works, _ = await self._works(request, self._led(request))
        for work in works:
            async with aclosing(planned(work, now_ms, self._services.objects)) as segments:
                async for segment in segments:
                    yield PlannedSegment.of(segment)

    async def _run(self, request: CompactionRequest, report: JobReport, engine: SegmentCompaction) -> None:
        async with self._turn:
            terms = self._led(request)
            report.shards = list(terms)
            try:
                works, report.skipped = await self._works(request, terms)
                await self._compact(works, report, engine, terms)
                for work in works:
                    if not work.has_failed:
                        self._waits.pop(key_of(work.partition), None)
            except (CoordinatorError, CoordinatorStoreError) as error:
                self._end(report, [str(error)], terms)

    # --- periodic ------------------------------------------------------------------------------------------------

    async def run(self, interval_ms: int) -> None:
        """Compact what is due for ever (KIP-405, `remote.log.manager.task.interval.ms`), first after one interval.

        A partition that has nothing new to compact costs no I/O.
        """
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self.compact_due()
            except (CoordinatorError, CoordinatorStoreError) as error:
                _log.warning("compaction is put off", error=str(error))

    async def compact_due(self) -> JobReport | None:
        """Compact what is due of the topics that are tiered; None when nothing is, or a job is under way.

        Raises:
            CoordinatorError, CoordinatorStoreError: a shard did not answer.
        """
        if self._turn.locked():
            return None
        async with self._turn:
            due = await self._due()
            if not due:
                return None
            name, engine = self._services.engine_of(None)
            report = self._new_report(name)
            await self._compact(due, report, engine, self._led(CompactionRequest()))
            for work in due:
                self._note(work)
            return report

    async def _due(self) -> Sequence[PartitionWork]:
        """What may be due of tiered topics. Their lag is told."""
        now_ms, metrics = self._services.segments.clock.now_ms(), self._services.segments.metrics
        due, lag_bytes, lag_segments, waits, count = [], 0, 0, 0, 0
        for topic_id, partitions, topic, shard in self._topics():
            if not shard.leading:
                continue
            for partition in partitions:
                count += 1
                if count % PARTITIONS_AT_ONCE == 0:
                    await asyncio.sleep(0)
                key = PartitionKey(topic_id, partition)
                head, wait = shard.head(key), self._waits.get(key)
                if head is None:
                    continue
                waits += wait is not None
                if not topic.is_tiered:
                    continue
                full = (head.appended_bytes - head.local_start_bytes) // topic.rules.segment_bytes
                lag_segments += full
                lag_bytes += full * topic.rules.segment_bytes
                if wait is None or wait.may_be_due(head, topic.rules, now_ms):
                    due.append(_work(key, topic, shard))
        metrics.remote_copy_lag_bytes.set(lag_bytes)
        metrics.remote_copy_lag_segments.set(lag_segments)
        if waits < len(self._waits):
            await self._forget_others()
        return due

    async def _forget_others(self) -> None:
        """Forget partitions that have been deleted, or that other nodes compact now."""
        for count, key in enumerate(list(self._waits), start=1):
            if count % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
            shards = self._services.segments.shards.values()
            if not any(shard.leading and shard.head(key) is not None for shard in shards):
                del self._waits[key]

    def _note(self, work: PartitionWork) -> None:
        """Remember what a partition waits for, so that it need not be looked at."""
        key = key_of(work.partition)
        before = self._waits.pop(key, None)
        if work.has_failed:
            self._waits[key] = Pause.after(None if work.swapped else before, self._services.segments.clock.now_ms())
        elif work.not_due is not None:
            self._waits[key] = work.not_due

    # --- both ----------------------------------------------------------------------------------------------------

    def _topics(self) -> Iterable[tuple[bytes, Sequence[int], TopicTiering, DisklessShard]]:
        """Ids and partitions of the topics of this node's shards."""
        for shard in list(self._services.segments.shards.values()):
            for (topic_id,), topic in shard.state.rows(TOPICS):
                tiering = self._services.topic_of(PartitionKey(topic_id, topic.partitions[0]))
                if tiering is not None:
                    yield topic_id, topic.partitions, tiering, shard

    def _require_topics(self, request: CompactionRequest) -> None:
        unknown = self._unknown(request)
        if unknown:
            raise UnknownTopicError(f"there is no topic {', '.join(unknown)}")

    def _unknown(self, request: CompactionRequest) -> Sequence[str]:
        if not request.topics:
            return []
        return sorted({name for name in request.topics if not self._services.is_topic(name)})

    def _led(self, request: CompactionRequest) -> Mapping[int, int]:
        """The shards of a request that this node leads, by index, and the terms that it leads them in."""
        return {
            index: shard.term
            for index, shard in self._services.segments.shards.items()
            if shard.term is not None and (request.shards is None or index in request.shards)
        }

    async def _works(self, request: CompactionRequest, led: Collection[int]) -> tuple[Sequence[PartitionWork], int]:
        """The partitions of a request in shards that this node leads, with all that is committed by now; and how many
        there are that others lead.
        """
        shards = self._services.segments.shards
        await asyncio.gather(*(shards[index].barrier() for index in led))
        works, skipped = list[PartitionWork](), 0
        for topic_id, partitions, topic, shard in self._topics():
            if request.topics is not None and topic.topic not in request.topics:
                continue
            if request.shards is not None and shard.id.index not in request.shards:
                continue
            await asyncio.sleep(0)
            if shard.id.index in led:
                keys = [PartitionKey(topic_id, partition) for partition in partitions]
                works += [_work(key, topic, shard, everything=request.everything) for key in keys]
            else:
                skipped += len(partitions)
        return works, skipped

    async def _compact(
        self,
        works: Sequence[PartitionWork],
        report: JobReport,
        engine: SegmentCompaction,
        terms: Mapping[int, int],
    ) -> None:
        services, segments = self._services, self._services.segments
        by_partition = {work.partition: work for work in works}
        for partition in by_partition:
            report.of(partition.topic).partitions += 1
        report.state = JobState.RUNNING
        job = TieringJob(
            by_partition,
            self._copies,
            report,
            objects=MeteredObjects(services.objects, segments.retries, segments.metrics),
            remote_storage=MeteredRemoteStorage(segments.remote_storage, segments.retries, segments.metrics),
            backends=services.backends,
            parallel_partitions=services.parallel_partitions,
            producer_id_expiration_ms=services.producer_id_expiration_ms,
            now_ms=segments.clock.now_ms(),
        )
        failures: list[str] = []
        try:
            await engine.compact(job)
        except SegmentCompactionError as error:
            failures.append(str(error))
        except asyncio.CancelledError:
            self._end(report, ["the broker stops"], terms)
            report.moved = list(terms)
            raise
        except Exception as error:
            _log.error("a defect, of the segment_compaction plugin perhaps, ended a compaction", exc_info=True)
            failures.append(f"a defect: {type(error).__name__}: {error}")
        finally:
            job.end()
        failures += await self._clear(works)
        self._end(report, failures, terms)

    async def _clear(self, works: Sequence[PartitionWork]) -> Sequence[str]:
        """Remove the copies that the job has passed."""
        failures = []
        for work in works:
            if work.swapped:
                try:
                    await self._copies.clear(work.shard, work.partition)
                except (CoordinatorError, CoordinatorStoreError, RemoteLogMetadataError) as error:
                    failures.append(f"what was left of {work.partition.topic} is removed later: {error}")
                except Exception as error:
                    _log.error("a defect, of a storage perhaps, kept copies from being removed", exc_info=True)
                    failures.append(f"a defect: {type(error).__name__}: {error}")
        return failures

    def _new_report(self, engine: str, driver: str | None = None) -> JobReport:
        clock = self._services.segments.clock
        return JobReport(
            id=uuid_text(clock.new_uuid()),
            node_id=self._services.segments.node_id,
            engine=engine,
            driver=driver,
            begun_at_ms=clock.now_ms(),
        )

    def _end(self, report: JobReport, failures: Sequence[str], terms: Mapping[int, int]) -> None:
        shards = self._services.segments.shards
        report.moved = [index for index, term in terms.items() if shards[index].term != term]
        report.failures += failures
        report.state = JobState.FAILED if report.failures else JobState.FINISHED
        report.ended_at_ms = self._services.segments.clock.now_ms()
        metrics = self._services.segments.metrics
        if report.segments or report.failures:
            metrics.compaction_jobs.labels(report.state).inc()
            _log.info(
                "compaction ended",
                job=report.id,
                engine=report.engine,
                segments=report.segments,
                bytes=report.bytes_copied,
                failures=report.failures,
            )


def _work(key: PartitionKey, topic: TopicTiering, shard: DisklessShard, *, everything: bool = False) -> PartitionWork:
    partition = TopicIdPartition(uuid.UUID(bytes=key.topic_id), topic.topic, key.partition)
    return PartitionWork(partition=partition, shard=shard, rules=topic.rules, everything=everything)
