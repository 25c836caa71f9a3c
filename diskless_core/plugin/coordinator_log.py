"""Hook noun `coordinator_log`: the replicated metadata log, source of truth of every coordinator shard.

A log plugin offers atomic append, the committed stream, a leadership hint and prune; nothing more is trusted. Who may
write is decided by the core from the log's content alone (claims and terms), so a plugin that nominates two leaders at
once costs time, never data. (KIP-1164, "Topic-based implementation".)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from diskless_core.plugin.descriptor import Descriptor
from diskless_core.plugin.hookspecs import hookspec
from diskless_core.plugin.shard import ShardId


class CoordinatorLogError(Exception):
    """The log could not do what was asked. The caller steps down, reloads and tries again."""


class LogNotFoundError(CoordinatorLogError):
    """There is no log yet: nobody has ever written there. Only `start_reading` raises it."""


class LogOffsetPrunedError(CoordinatorLogError):
    """The offset asked for lies below the log's start: a snapshot has to take over."""


class EntryRefusedError(CoordinatorLogError):
    """The log refused a batch for good: it was not appended and never will be, nor was any batch after it.

    Batches before it in the same call were appended. The core fails that one command and goes on in its term, so a log
    must be certain: after a timeout or a lost connection the outcome is unknown, and CoordinatorLogError says that.

    Attributes:
        position: the index of the refused batch in the `batches` of the call.
    """

    def __init__(self, message: str, *, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class LogBatch:
    """One committed entry.

    Attributes:
        offset: the one that the log assigned.
        next_offset: above `offset`; the entry that follows has this offset or a higher one. Of a batch that `append`
            took, it is above by as many offsets as the batch has records at most.
        data: the Kafka v2 record batch. Its base offset and leader epoch (bytes 0 to 7 and 12 to 15) are unspecified.
            From byte 16 on every reader of an offset gets the same bytes, on every node and at any time: a log that
            compresses batches, or sets their timestamps, does so once, when it takes them. Replicas compare digests of
            these bytes. Where others than brokers write into a log it may be anything, or nothing: all replicas
            ignore it.
    """

    offset: int
    next_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LogBounds:
    """`start` is the first offset that can be read, `end` the high watermark: the first offset not committed yet."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LeadershipHint:
    """Who should lead a shard, as the log nominates.

    Attributes:
        node_id: the nominated node; None while there is none.
        generation: grows with every nomination of the shard, across nodes and restarts. A hint with a lower generation
            than one that was seen before is stale and is ignored.
    """

    node_id: int | None
    generation: int


class CoordinatorLog(ABC):
    """A set of independent, ordered logs, one for each shard, of Kafka v2 record batches.

    All methods run on the broker's event loop and must not block it. Each takes a shard; shards know nothing of each
    other. A batch takes one offset or more, as the log likes: as many as it has records, or one for all of them.
    Offsets may have gaps, and never go back.

    Attributes:
        is_shared: whether other nodes can have the same log. With one that is not, this node has to be a candidate for
            every shard, or the broker does not start.
        nominates_all_shards: whether a shared log's hints are followed for every shard, as where the nodes that have
            the log elect leaders of its shards by themselves. Otherwise they are asked for the cluster shard only, and
            its leader nominates those of all other shards.
        group_coordinators: how many groups shards a new cluster has on this log where the operator does not say. Each
            has a log of its own, so it is less where every log that is written to costs requests.
        max_entry_bytes: the largest batch that `append` takes. The core refuses a command whose entry is larger before
            the log sees it.
    """

    is_shared: ClassVar[bool] = False
    nominates_all_shards: bool = False
    group_coordinators: ClassVar[int] = 16
    max_entry_bytes: int = 64 << 20

    @abstractmethod
    async def start(self) -> None:
        """Open the log: recover from a torn last write, take locks, connect.

        Raises:
            CoordinatorLogError: it can't be opened; the message says what to do.
        """

    async def start_reading(self) -> None:
        """Open the log for a tool, beside a broker that may be using it: take no lock, change nothing.

        Only `bounds`, `read` and `stop` are called then. `bounds` looks at the log anew at each call: what was
        acknowledged to anybody before the call lies below its end, and `read` gets there without waiting for more. The
        last entries may be of an append that is still under way. Damage that `start` would refuse is met by `read`,
        when it gets there.

        Optional: a log that has no such way refuses.

        Raises:
            LogNotFoundError: there is none, and this log does not take that for an empty one.
            CoordinatorLogError: it can't be opened; the message says what to do.
        """
        raise CoordinatorLogError(f"a {type(self).__name__} can't be read beside the broker that uses it")

    @abstractmethod
    async def stop(self) -> None:
        """Release everything. Idempotent. Reads that wait end; appends under way succeed or raise."""

    @abstractmethod
    async def append(self, shard: ShardId, batches: Sequence[bytes]) -> Sequence[int]:
        """Append complete v2 record batches in order, each of them atomically, and return their base offsets.

        Returns once all are durable and below the high watermark. It ends within 30 seconds, whatever the backend does:
        a log that has heard nothing by then raises. When it raises, any prefix of `batches` may have been appended or
        may still be. The core has at most one append of a shard under way.

        Raises:
            EntryRefusedError: a batch was certainly refused, because it is too large, say.
            CoordinatorLogError: some batch was not, or not knowingly, appended.
        """

    @abstractmethod
    def read(self, shard: ShardId, offset: int) -> AsyncIterator[Sequence[LogBatch]]:
        """Stream committed batches, from the one that contains `offset` on, in order and for ever.

        At the end it waits for more; it never skips and never repeats. What it has yielded once is never taken
        back. Ends only when the log is stopped.

        Raises:
            LogOffsetPrunedError: `offset` is below the start of the log.
            CoordinatorLogError: reading failed; the core reads again from where it was.
        """

    @abstractmethod
    async def bounds(self, shard: ShardId) -> LogBounds:
        """Where the shard's log starts and what is committed now. A log never written has both at 0, and no other has.

        The end is never beyond what is committed. It may lag behind, unless the log was opened by `start_reading`.
        There is no gap below it that will not be filled: a reader always gets there.
        """

    @abstractmethod
    def leadership(self, shard: ShardId, *, candidate: bool = True) -> AsyncIterator[LeadershipHint]:
        """Stream a hint of who should lead.

        The present hint comes at once, then each change. A hint may be wrong, late or the same on two nodes. A node
        withdraws its candidacy for a shard by closing the stream and asking for another one with `candidate=False`; it
        stands again by closing that and asking with `candidate=True`. The log then nominates another node, if there is
        one.

        Args:
            candidate: whether this node may lead the shard, as the operator has placed it. One that may not still wants
                to know who does, but should not be nominated: it would not lead.

        Raises:
            CoordinatorLogError: it cannot be said now; the core asks again.
        """

    def suspect(self, shard: ShardId, node_id: int) -> None:
        """The process of a node that this log may nominate has most likely ended: nobody listens where it did.

        A log that would wait for a lease or a session of that node to end may nominate another one at once, if it has
        not heard of the node since. It may be wrong: then two nodes claim, and the log's content decides.

        Optional: a log that does nothing nominates another node when it finds out by itself. It neither blocks nor
        raises.
        """
        del shard, node_id

    @abstractmethod
    async def prune(self, shard: ShardId, before: int) -> None:
        """Allow everything below the offset `before` to be forgotten; how much really goes is up to the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorLogPlugin(Descriptor[CoordinatorLog]):
    """Descriptor that `diskless_coordinator_logs` yields."""

    noun = "coordinator_log"


@hookspec
def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
    """Replicated metadata logs, chosen with `coordinator_log=<name>`.

    Example::

        @hookimpl
        def diskless_coordinator_logs() -> list[CoordinatorLogPlugin]:
            return [
                CoordinatorLogPlugin(
                    name="etcd",
                    factory=EtcdLog,
                    settings=EtcdLogSettings,
                    api_version="1.0",
                    help="Keeps the coordinator log in etcd.",
                )
            ]
    """
    raise NotImplementedError
