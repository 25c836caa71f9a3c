"""An Apache Kafka as clients of a log find it: partitions whose high watermark lags, and groups of consumers.

What is above the high watermark may be lost when a partition changes its leader, what is below it never is. Readers
find gaps in the offsets, where a control batch lies. Others may write into a partition: what they write is no entry.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from diskless_kafka.log_reader import Place, ReadMessage
from tests.simulation.processes import later_outside

FOREIGN_VALUES = (b"", b"not an entry", bytes(61))


class Stored(NamedTuple):
    """A message. `is_control`: a batch that consumers do not get."""

    offset: int
    key: bytes | None
    value: bytes
    is_control: bool = False
    landed: Callable[[bool], None] | None = None


class Partition:
    """One partition, as the brokers of a Kafka have it.

    Args:
        committed: is shown every message, in order, when it is below the high watermark, unless it is foreign.
    """

    def __init__(self, committed: Callable[[int, bytes], None]) -> None:
        self.start = 0
        self.high_watermark = 0
        self.known_watermark = 0
        self.changed = asyncio.Event()
        self._committed = committed
        self._messages: list[Stored] = []
        self._end = 0
        self._epoch = 0

    def append(
        self,
        key: bytes | None,
        value: bytes,
        lag_s: float,
        *,
        is_control: bool = False,
        landed: Callable[[bool], None] | None = None,
    ) -> None:
        """Write a message, which the other replicas have `lag_s` later. `landed` is told whether it stayed."""
        self._messages.append(Stored(self._end, key, value, is_control, landed))
        self._end += 1
        if lag_s:
            later_outside(lag_s, self._replicated, self._end, self._epoch)
        else:
            self._replicated(self._end, self._epoch)

    def change_leader(self) -> None:
        """The new leader has what is committed, and nothing else; for a moment it may not know how much that is."""
        self._epoch += 1
        first = self._index(self.high_watermark)
        gone = self._messages[first:]
        del self._messages[first:]
        self._end = self.high_watermark
        self.known_watermark = max(self.start, self.high_watermark - 3)
        later_outside(0.5, self._know)
        for message in gone:
            if message.landed is not None:
                message.landed(False)

    def read(self, offset: int, most: int) -> list[ReadMessage]:
        """What a consumer gets from an offset on, the end of the partition included where it is reached."""
        first, last = self._index(offset), self._index(self.high_watermark)
        some = self._messages[first : min(last, first + most)]
        read = [ReadMessage(one.offset, one.offset + 1, one.key, one.value) for one in some if not one.is_control]
        if first + most >= last:
            read.append(ReadMessage(self.high_watermark, self.high_watermark, None, None))
        return read

    def delete_records(self, before: int) -> int:
        """Forget what is below an offset; where the partition begins now."""
        before = min(before, self.high_watermark)
        if before > self.start:
            self.start = before
            self.known_watermark = max(self.known_watermark, before)
            del self._messages[: self._index(before)]
        return self.start

    def _replicated(self, end: int, epoch: int) -> None:
        if epoch != self._epoch or end <= self.high_watermark:
            return
        some = self._messages[self._index(self.high_watermark) : self._index(end)]
        self.high_watermark = self.known_watermark = end
        for message in some:
            if message.key is not None:
                self._committed(message.offset, message.value)
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        for message in some:
            if message.landed is not None:
                message.landed(True)

    def _know(self) -> None:
        self.known_watermark = self.high_watermark

    def _index(self, offset: int) -> int:
        return bisect_left(self._messages, offset, key=lambda message: message.offset)


@dataclass(slots=True, eq=False)
class GroupMember:
    """A member of a group. `generation` is that which it joined last, 0 for none."""

    name: str
    session_s: float
    seen_at: float = 0.0
    generation: int = 0


@dataclass(slots=True)
class Group:
    """The consumer group of one partition, and the offset that is committed for it, with its metadata.

    The partition stays with the member that has it. A member that is silent for its session is removed.

    Attributes:
        moves: how often the partition has changed hands. A member that had it before a move has lost it, even one
            that was frozen meanwhile and has it again.
    """

    members: list[GroupMember] = field(default_factory=list)
    generation: int = 0
    moves: int = 0
    committed: tuple[int, str] | None = None

    @property
    def assigned(self) -> GroupMember | None:
        return self.members[0] if self.members else None

    def join(self, member: GroupMember, now: float) -> None:
        """A heartbeat: of one that is no member, or has yet to hear of a new generation, it is a join."""
        for silent in [one for one in self.members if now - one.seen_at > one.session_s]:
            self.leave(silent)
        member.seen_at = now
        if member not in self.members:
            self._change([*self.members, member])
        member.generation = self.generation

    def leave(self, member: GroupMember) -> None:
        if member in self.members:
            self._change([one for one in self.members if one is not member])
        member.generation = 0

    def pass_on(self) -> None:
        """Give the partition to the next member."""
        self._change([*self.members[1:], *self.members[:1]])

    def commit(self, member: GroupMember, offset: int, metadata: str) -> bool:
        """Whether it was taken: only from a member of the present generation."""
        is_current = member in self.members and member.generation == self.generation
        if is_current:
            self.committed = offset, metadata
        return is_current

    def _change(self, members: list[GroupMember]) -> None:
        self.moves += members[:1] != self.members[:1]
        self.members = members
        self.generation += 1


class ModelledKafka:
    """All partitions and groups, and how what clients ask for goes.

    Attributes:
        error_rate: how often (0 to 1) a request, or a message, meets trouble.
        slow_rate: how often one takes seconds.
        foreign_rate: how often (0 to 1) somebody else's message or a control batch comes before one of ours.
    """

    def __init__(self, source: random.Random, committed: Callable[[Place, int, bytes], None]) -> None:
        self.error_rate = self.slow_rate = self.foreign_rate = 0.0
        self.random = source
        self._committed = committed
        self._partitions: dict[Place, Partition] = {}
        self._groups: dict[Place, Group] = {}
        self.paused: set[int] = set()
        self.resumed = asyncio.Event()

    def partition(self, place: Place) -> Partition:
        found = self._partitions.get(place)
        if found is None:

            def committed(offset: int, value: bytes) -> None:
                self._committed(place, offset, value)

            found = self._partitions[place] = Partition(committed)
        return found

    def group(self, place: Place) -> Group:
        return self._groups.setdefault(place, Group())

    def append(self, place: Place, key: bytes, value: bytes, landed: Callable[[bool], None]) -> None:
        """A message of ours arrives."""
        partition = self.partition(place)
        if self.random.random() < self.foreign_rate:
            partition.append(None, self.random.choice(FOREIGN_VALUES), self._lag_s())
        partition.append(key, value, self._lag_s(), landed=landed)
        if self.random.random() < self.foreign_rate:
            partition.append(None, b"", self._lag_s(), is_control=True)
        if self.random.random() < self.error_rate / 2:
            later_outside(self.random.uniform(0.0, 0.003), partition.change_leader)

    def pause(self, node_id: int) -> None:
        self.paused.add(node_id)

    def resume(self, node_id: int) -> None:
        self.paused.discard(node_id)
        resumed, self.resumed = self.resumed, asyncio.Event()
        resumed.set()

    def delay_s(self) -> float:
        """Of one request or answer."""
        if self.random.random() < self.slow_rate:
            return self.random.uniform(0.3, 4.0)
        return self.random.uniform(0.001, 0.005)

    def _lag_s(self) -> float:
        return self.random.uniform(0.0005, 0.003)

    def fails(self) -> bool:
        """Whether a request goes wrong."""
        return self.random.random() < self.error_rate
