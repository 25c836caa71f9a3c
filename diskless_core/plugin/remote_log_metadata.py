"""Hook noun `remote_log_metadata`: which segments there are and what state they are in, strongly consistent.

KIP-405's RemoteLogMetadataManager.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from diskless_core.remote_log.partition_log import PartitionLog


class RemoteLogMetadataError(Exception):
    """It could not be done. `retriable` says whether the same call can succeed later."""

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


class IllegalTransitionError(RemoteLogMetadataError):
    """The segment or partition cannot come into this state from the one that it is in. Nothing has changed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retriable=False)


class RemoteLogLedger(Protocol):
    """The events of remote segments that the Diskless coordinators keep, each those of its own partitions."""

    async def append(self, event: RemoteLogMetadataEvent) -> None:
        """Add an event, after checking it against all that came before.

        Raises:
            IllegalTransitionError: it does not follow from them.
            RemoteLogMetadataError: no answer: it may have been added, and can be added again.
        """
        ...

    def log(self, partition: TopicIdPartition) -> PartitionLog:
        """The segments of a partition as this node knows them now. Not to be changed, nor kept across an await."""
        ...

    def delete_states(self) -> Sequence[RemotePartitionDeleteMetadata]:
        """The partitions whose segments are being deleted and are not all gone."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogMetadataServices:
    """What the broker gives to a `remote_log_metadata` when it starts.

    Attributes:
        cluster_id: the id of this Diskless cluster.
        ledger: a place for the events in the coordinators' own log.
    """

    cluster_id: str
    ledger: RemoteLogLedger


class RemoteLogMetadata(ABC):
    """Metadata of remote segments. All methods run on the broker's event loop and must not block it.

    What a method that changes something has returned from, every later read of this instance shows. Reads of other
    nodes show it soon.
    """

    @abstractmethod
    async def start(self, services: RemoteLogMetadataServices) -> None:
        """Connect, and learn what there is.

        Raises:
            RemoteLogMetadataError: it can't; the message says what to do, without secrets.
        """

    @abstractmethod
    async def stop(self) -> None:
        """Release connections and threads. Idempotent."""

    @abstractmethod
    async def add(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Note that a copy begins. The same again, field for field, changes nothing.

        Raises:
            IllegalTransitionError: its state is not COPY_SEGMENT_STARTED, or the id is known for something else or in
                a later state.
            RemoteLogMetadataError: no answer; it may have been noted.
        """

    @abstractmethod
    async def update(self, update: RemoteLogSegmentMetadataUpdate) -> None:
        """Bring a segment into another state. Into the one that it is in already, it changes nothing.

        A segment that is DELETE_SEGMENT_FINISHED can be forgotten, so that one that is not known is in that state.

        Raises:
            IllegalTransitionError: KIP-405 has no such transition, or there is no such segment.
            RemoteLogMetadataError: no answer; it may have been noted.
        """

    @abstractmethod
    async def update_partition(self, update: RemotePartitionDeleteMetadata) -> None:
        """Mark a partition's segments for deletion, or note how far that is. The same state again changes nothing.

        Nor does DELETE_PARTITION_FINISHED change anything where no deletion is known: it can be forgotten then.

        Raises:
            IllegalTransitionError: KIP-405 has no such transition.
            RemoteLogMetadataError: no answer; it may have been noted.
        """

    @abstractmethod
    async def find(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        """A COPY_SEGMENT_FINISHED segment that has this leader epoch at `offset`, any of several; None without one."""

    @abstractmethod
    async def highest_offset(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        """The last offset of this leader epoch that a COPY_SEGMENT_FINISHED segment has; None without any."""

    @abstractmethod
    async def list(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> Sequence[RemoteLogSegmentMetadata]:
        """All segments that are not DELETE_SEGMENT_FINISHED, of one leader epoch or of all, by start offset."""

    @abstractmethod
    async def deleting_partitions(self) -> Sequence[RemotePartitionDeleteMetadata]:
        """Partitions that are marked for deletion, or being deleted, by this Diskless cluster."""

    async def on_leadership_changes(  # noqa: B027 - most have no use for it
        self, leaders: Collection[TopicIdPartition], followers: Collection[TopicIdPartition]
    ) -> None:
        """This node now leads, or only follows, the coordinators of these partitions."""

    async def on_stop_partitions(self, partitions: Collection[TopicIdPartition]) -> None:  # noqa: B027
        """These partitions are gone from this node: deleted."""


DELETING = frozenset(
    {RemotePartitionDeleteState.DELETE_PARTITION_MARKED, RemotePartitionDeleteState.DELETE_PARTITION_STARTED}
)
"""The states of what `deleting_partitions` lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogMetadataPlugin(Descriptor[RemoteLogMetadata]):
    """Descriptor that `diskless_remote_log_metadatas` yields."""

    noun = "remote_log_metadata"


@hookspec
def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
    """Keepers of the metadata of segments, chosen with `remote_log_metadata=<name>`.

    Example::

        @hookimpl
        def diskless_remote_log_metadatas() -> list[RemoteLogMetadataPlugin]:
            return [
                RemoteLogMetadataPlugin(
                    name="postgres",
                    factory=PostgresMetadata,
                    settings=PostgresSettings,
                    api_version="1.0",
                    help="Keeps the metadata of segments in PostgreSQL.",
                )
            ]
    """
    raise NotImplementedError
