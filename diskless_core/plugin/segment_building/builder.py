"""Builds one segment: its batches are read, prepared, indexed and copied as they go by."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from diskless_core.log.producer_snapshot import ProducerState
from diskless_core.plugin.remote_storage import LogSegmentData, RemoteStorage, RemoteStorageError
from diskless_core.plugin.retrying import is_retriable
from diskless_core.plugin.segment_building.reads import SharedReads
from diskless_core.plugin.segment_building.settings import SegmentBuildingSettings
from diskless_core.plugin.segment_building.stream import SegmentStream
from diskless_core.plugin.segment_compaction import SegmentCompactionError, SegmentPlan
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.remote_log.metadata import RemoteLogSegmentMetadata


class SegmentBuildError(SegmentCompactionError):
    """A segment could not be made. `retriable` says whether the same can succeed later, or elsewhere."""

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltSegment:
    """A segment that has been copied.

    Attributes:
        custom_metadata: what the storage returned.
        producers: the idempotent producers behind the segment's end, as its snapshot has them; None if it has none.
        noted: of all producers, those that the segment has batches of, whether or not they have expired.
    """

    custom_metadata: bytes | None
    producers: ProducerState | None
    noted: ProducerState


class SegmentBuilder:
    """Builds segments, any number at once. Those that are built at once share reads of WAL objects.

    Args:
        executor: one thread, which checks and prepares batches.
        progressed: told how many more bytes have been copied; less than zero when a copy is begun anew.
        producer_id_expiration_ms: as `CompactionJob.producer_id_expiration_ms`.
    """

    def __init__(
        self,
        objects: WalObjectStore,
        remote_storage: RemoteStorage,
        settings: SegmentBuildingSettings,
        executor: Executor,
        *,
        progressed: Callable[[int], None],
        producer_id_expiration_ms: int,
    ) -> None:
        self._remote_storage = remote_storage
        self._settings = settings
        self._executor = executor
        self._progressed = progressed
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._reads = SharedReads(
            objects, buffer_max_bytes=settings.buffer_max_bytes, read_max_bytes=settings.read_max_bytes
        )

    async def build(
        self, plan: SegmentPlan, metadata: RemoteLogSegmentMetadata, producers: ProducerState | None
    ) -> BuiltSegment:
        """Make and copy a segment.

        Args:
            metadata: what `CompactionJob.begin` gave.
            producers: those before its first batch; None where they are not known. Then the segment is copied without
                a producer snapshot, which somebody adds who knows them.

        Raises:
            SegmentBuildError: its batches cannot be read or are not what was planned, or it cannot be copied.
        """
        stream = SegmentStream(
            plan,
            producers,
            self._reads,
            self._executor,
            parallel_reads=self._settings.parallel_reads,
            read_max_bytes=self._settings.read_max_bytes,
            progressed=self._progressed,
            producer_id_expiration_ms=self._producer_id_expiration_ms,
        )
        try:
            custom_metadata = await self._remote_storage.copy(
                metadata, LogSegmentData(log=stream.log, indexes=stream.indexes)
            )
        except (RemoteStorageError, SegmentCompactionError) as error:
            cause = stream.failure or error
            raise SegmentBuildError(
                f"{plan.partition.name} at offset {plan.start_offset}: {cause}",
                retriable=is_retriable(cause),
            ) from error
        finally:
            await stream.close()
        return BuiltSegment(custom_metadata=custom_metadata, producers=stream.producers, noted=stream.noted)
