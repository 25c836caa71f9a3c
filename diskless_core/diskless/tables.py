"""The tables of a diskless shard and what their rows hold.

Resident: topics, partition heads and their segments, producer windows, the horizon and what is forgotten of producers.
Runs, their blocks and files live in the store. (KIP-1164, "Local state machine".)
"""

from __future__ import annotations

from typing import NamedTuple

from diskless_core.coordinator.tables import Table
from diskless_core.diskless import producer_state, time_index
from diskless_core.diskless.commands import NO_TIMESTAMP
from diskless_core.diskless.producer_state import ProducerWindow
from diskless_core.diskless.time_index import Block, RunCount
from diskless_core.plugin.coordinator_store import Column, ColumnType, TableSpec
from diskless_core.remote_log import tiered
from diskless_core.remote_log.tiered import TieredLog
from diskless_core.wal.runs import Run


class Topic(NamedTuple):
    """A topic's partitions of this shard. `partitions` are their indexes.

    No producer above `seen_up_to` had written to this shard when the topic came, nor so to an earlier one of its name.
    """

    name: str
    partitions: tuple[int, ...]
    seen_up_to: int = -1


class PartitionHead(NamedTuple):
    """Where a partition begins and ends, in offsets and in bytes counted from its first record ever.

    `max_timestamp` is the greatest that it ever had. Records below `local_start_offset` are in segments, the others in
    WAL objects. `run_count` says where its blocks end, see `time_index`.
    """

    log_start_offset: int = 0
    next_offset: int = 0
    max_timestamp: int = NO_TIMESTAMP
    log_start_bytes: int = 0
    appended_bytes: int = 0
    local_start_offset: int = 0
    local_start_bytes: int = 0
    run_count: RunCount = RunCount()

    @property
    def size_bytes(self) -> int:
        """Size of the batches in the segments and runs that are not wholly deleted."""
        return self.appended_bytes - self.log_start_bytes


class FileState(NamedTuple):
    """A committed (or wholly refused) object, and the answer to its CommitFile; or the `TOMBSTONE`."""

    object_format: int
    size: int
    uploader_id: int
    owner_ids: tuple[int, ...]
    committed_at: int
    digest: bytes
    results: bytes

    @property
    def is_tombstone(self) -> bool:
        """Whether it stands for an object that was handed over before it was committed here, and so never will be."""
        return self == TOMBSTONE


TOMBSTONE = FileState(object_format=0, size=0, uploader_id=-1, owner_ids=(), committed_at=-1, digest=b"", results=b"")
"""See `FileState.is_tombstone`."""


class LiveFile(NamedTuple):
    """An object with live batches in this shard: so many runs of it have not been trimmed yet."""

    live_runs: int
    committed_at: int
    owner_ids: tuple[int, ...]


class DeadFile(NamedTuple):
    """An object without live batches in this shard. Times in milliseconds; `dead_at` is when that was noticed."""

    dead_at: int
    committed_at: int
    owner_ids: tuple[int, ...]


class ReceivedFile(NamedTuple):
    """An object that an owner before handed over to this shard.

    `dead_at` is the time of the latest death in the owners before, in milliseconds since the epoch.
    """

    dead_at: int
    was_unknown: bool


DELETED = -1
"""As the next owner of an object that is gone: nobody. It was deleted from the object store."""


class GoneFile(NamedTuple):
    """An object that this shard is through with: `next_owner` has it, or it was deleted."""

    next_owner: int


class ProducerIds(NamedTuple):
    """Of which producers a window may have been dropped, from any partition: ids are given in ascending order.

    Nothing has expired of a producer above `forgotten_up_to`, and none above `deleted_up_to` has lost anything with a
    topic that was deleted, so its first batch has to be its first. No producer above `seen_up_to` has had a window.
    """

    forgotten_up_to: int = -1
    seen_up_to: int = -1
    deleted_up_to: int = -1


def _integers(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, ColumnType.INTEGER) for name in names)


def _text(owner_ids: tuple[int, ...]) -> str:
    return ",".join(map(str, owner_ids))


def _owner_ids(column: str) -> tuple[int, ...]:
    return tuple(int(owner) for owner in column.split(",") if owner)


_TOPIC_ID = Column("topic_id", ColumnType.BLOB)

TOPICS: Table[Topic] = Table(
    spec=TableSpec(
        name="topics",
        key=(_TOPIC_ID,),
        values=(
            Column("name", ColumnType.TEXT),
            Column("partitions", ColumnType.TEXT),
            Column("seen_up_to", ColumnType.INTEGER),
        ),
    ),
    encode=lambda topic: (topic.name, ",".join(map(str, topic.partitions)), topic.seen_up_to),
    decode=lambda row: Topic(row[1], tuple(map(int, row[2].split(","))), row[3]),
)
PARTITIONS: Table[PartitionHead] = Table(
    spec=TableSpec(
        name="partitions",
        key=(_TOPIC_ID, *_integers("partition")),
        values=(*_integers(*PartitionHead._fields[:-1]), Column("run_count", ColumnType.BLOB)),
    ),
    encode=lambda head: (*head[:-1], time_index.pack(head.run_count)),
    decode=lambda row: PartitionHead._make((*row[2:-1], time_index.unpack(row[-1]))),
)
PRODUCERS: Table[ProducerWindow] = Table(
    spec=TableSpec(
        name="producers",
        key=(_TOPIC_ID, *_integers("partition", "producer_id")),
        values=(*_integers("epoch", "last_append_time", "preceding"), Column("batches", ColumnType.BLOB)),
    ),
    encode=producer_state.pack,
    decode=lambda row: producer_state.unpack(row[3], row[5], row[6]),
    grouped=True,
)
"""Those of a partition are a group. They outlive it, until the leader says that they have expired."""

BATCHES: Table[Run] = Table(
    spec=TableSpec(
        name="batches",
        key=(_TOPIC_ID, *_integers("partition", "base_offset")),
        values=tuple(
            Column(name, ColumnType.TEXT if name == "object_key" else ColumnType.INTEGER) for name in Run._fields[1:]
        ),
    ),
    encode=lambda run: run[1:],
    decode=lambda row: Run._make(row[2:]),
    resident=False,
)
"""The runs. A row is the partition and then a `Run`, field for field: its first field is the last one of the key."""

BLOCKS: Table[Block] = Table(
    spec=TableSpec(
        name="blocks",
        key=(_TOPIC_ID, *_integers("partition", "level", "base_offset")),
        values=_integers("last_offset", "max_timestamp"),
    ),
    encode=lambda block: block[1:],
    decode=lambda row: Block._make(row[3:]),
    resident=False,
)
"""The full blocks of `time_index`."""

FILES: Table[FileState] = Table(
    spec=TableSpec(
        name="files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(
            *_integers("object_format", "size", "uploader_id"),
            Column("owner_ids", ColumnType.TEXT),
            *_integers("committed_at"),
            Column("digest", ColumnType.BLOB),
            Column("results", ColumnType.BLOB),
        ),
    ),
    encode=lambda file: (*file[:3], _text(file.owner_ids), *file[4:]),
    decode=lambda row: FileState._make((*row[1:4], _owner_ids(row[4]), *row[5:])),
    resident=False,
)
LIVE_FILES: Table[LiveFile] = Table(
    spec=TableSpec(
        name="live_files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(*_integers("live_runs", "committed_at"), Column("owner_ids", ColumnType.TEXT)),
    ),
    encode=lambda live: (live.live_runs, live.committed_at, _text(live.owner_ids)),
    decode=lambda row: LiveFile(row[1], row[2], _owner_ids(row[3])),
    resident=False,
)
"""Apart from FILES, whose rows grow with an object's batches: this one is written again for each part that goes."""

DEAD_FILES: Table[DeadFile] = Table(
    spec=TableSpec(
        name="dead_files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=(*_integers("dead_at", "committed_at"), Column("owner_ids", ColumnType.TEXT)),
    ),
    encode=lambda dead: (dead.dead_at, dead.committed_at, _text(dead.owner_ids)),
    decode=lambda row: DeadFile(row[1], row[2], _owner_ids(row[3])),
    resident=False,
)
RECEIVED_FILES: Table[ReceivedFile] = Table(
    spec=TableSpec(
        name="received_files",
        key=(Column("object_key", ColumnType.TEXT),),
        values=_integers(*ReceivedFile._fields),
    ),
    encode=lambda received: (received.dead_at, int(received.was_unknown)),
    decode=lambda row: ReceivedFile(row[1], bool(row[2])),
    resident=False,
)
"""Apart from LIVE_FILES and DEAD_FILES, which trimming rewrites beside replay. The same goes for GONE_FILES."""

GONE_FILES: Table[GoneFile] = Table(
    spec=TableSpec(
        name="gone_files", key=(Column("object_key", ColumnType.TEXT),), values=_integers(*GoneFile._fields)
    ),
    encode=lambda gone: gone,
    decode=lambda row: GoneFile(row[1]),
    resident=False,
)
TRIMS: Table[int] = Table(
    spec=TableSpec(name="trims", key=(_TOPIC_ID, *_integers("partition")), values=_integers("before_offset")),
    encode=lambda before_offset: (before_offset,),
    decode=lambda row: int(row[2]),
    resident=False,
)
"""Partitions with runs that end below an offset and are garbage. Replay puts a row, the trimmer removes it."""

TIERED: Table[TieredLog] = Table(
    spec=TableSpec(
        name="tiered", key=(_TOPIC_ID, *_integers("partition")), values=(Column("segments", ColumnType.BLOB),)
    ),
    encode=lambda log: (tiered.pack(log),),
    decode=lambda row: tiered.unpack(row[2]),
)
"""The segments of partitions that have any, down to the log start."""

HORIZON: Table[int] = Table(
    spec=TableSpec(name="horizon", key=_integers("id"), values=_integers("horizon_ms")),
    encode=lambda horizon_ms: (horizon_ms,),
    decode=lambda row: int(row[1]),
)
"""One row, `THE_HORIZON`: see `HorizonRaised`."""

THE_HORIZON = (0,)

PRODUCER_IDS: Table[ProducerIds] = Table(
    spec=TableSpec(
        name="producer_ids", key=_integers("id"), values=_integers("forgotten_up_to", "seen_up_to", "deleted_up_to")
    ),
    encode=tuple,
    decode=lambda row: ProducerIds(*row[1:]),
)
"""One row, `THE_PRODUCER_IDS`."""

THE_PRODUCER_IDS = (0,)
