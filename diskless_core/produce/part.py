"""The produce path of one node, as a part: made from its settings and its neighbours.

A broker, the simulation, tests and benchmarks make it alike.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from diskless_core.clock import Clock
from diskless_core.config.broker import BrokerConfig
from diskless_core.diskless.api import DisklessCoordinator
from diskless_core.diskless.commands import PartitionKey
from diskless_core.metrics import Metrics
from diskless_core.plugin.wal_object_store import WalObjectStore
from diskless_core.produce.committer import Committer, ShardOf
from diskless_core.produce.sequence_gaps import SequenceGaps
from diskless_core.produce.uploader import Uploader
from diskless_core.produce.writer import WalWriter, WriterSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSettings:
    """How WAL objects are packed, how many of them are uploaded at once, and how long a stop waits for them."""

    writer: WriterSettings
    upload_parallelism: int
    shutdown_timeout_ms: int

    @classmethod
    def of(cls, config: BrokerConfig, *, requests_are_billed: bool) -> ProduceSettings:
        """The settings of a broker, on an object store that bills requests or does not."""
        return cls(
            writer=WriterSettings(
                commit_interval_ms=config.diskless_append_commit_interval_ms,
                linger_ms=config.append_linger_ms(requests_are_billed=requests_are_billed),
                buffer_max_bytes=config.diskless_append_buffer_max_bytes,
                inflight_max_bytes=config.diskless_append_inflight_max_bytes,
                object_prefix=config.diskless_wal_object_prefix,
                record_validation=config.record_validation,
            ),
            upload_parallelism=config.diskless_append_upload_parallelism,
            shutdown_timeout_ms=config.diskless_shutdown_timeout_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceNeighbours:
    """What the produce path stands on.

    Attributes:
        objects: the store that objects are uploaded to, started by others.
        coordinators: the Diskless coordinators by index, wherever they are led.
        shard_of: which of them owns a partition.
        is_awaited: whether a partition is in the cluster's metadata and not in its coordinator yet.
        on_uploaded: called with the key and the bytes of each object when it is stored.
        is_one_of_many: whether producers may write to the same partitions by other brokers too.
        new_object_id: draws the id of an object; by default as any id is drawn.
    """

    node_id: int
    objects: WalObjectStore
    coordinators: Mapping[int, DisklessCoordinator]
    shard_of: ShardOf
    is_awaited: Callable[[PartitionKey], bool]
    on_uploaded: Callable[[str, memoryview], None]
    is_one_of_many: bool = False
    new_object_id: Callable[[], uuid.UUID] | None = None
    clock: Clock
    metrics: Metrics


class Produce:
    """From valid batches to committed offsets. It needs no start.

    Attributes:
        writer: takes batches.
    """

    def __init__(self, settings: ProduceSettings, neighbours: ProduceNeighbours) -> None:
        clock, metrics = neighbours.clock, neighbours.metrics
        self._shutdown_timeout_s = settings.shutdown_timeout_ms / 1000
        self._uploader = Uploader(neighbours.objects, settings.upload_parallelism, clock, metrics)
        committer = Committer(neighbours.node_id, neighbours.coordinators, neighbours.shard_of, clock, metrics)
        self.writer = WalWriter(
            settings.writer,
            self._uploader,
            committer,
            clock,
            metrics,
            on_uploaded=neighbours.on_uploaded,
            new_object_id=neighbours.new_object_id or clock.new_uuid,
            is_awaited=neighbours.is_awaited,
            gaps=SequenceGaps(clock) if neighbours.is_one_of_many else None,
        )

    @property
    def failing(self) -> str | None:
        """Why uploads fail now; see `Uploader.failing`."""
        return self._uploader.failing

    async def stop(self) -> None:
        """Commit what is under way. What takes too long is given up; its producers have no answer and send it again."""
        try:
            async with asyncio.timeout(self._shutdown_timeout_s):
                await self.writer.drain()
        except TimeoutError:
            _log.warning("what could not be stored in time is given up: its producers have no answer and send it again")
        finally:
            self.writer.abort()
