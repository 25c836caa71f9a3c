"""What a broker of a large cluster holds of the coordinators, and what it reads to keep that up.

A replica of each kind replays what its leader writes, on the real state machine, and the controller's own rule says of
how many shards each broker has a copy. It follows from both what that comes to in a cluster of any size.
"""

from __future__ import annotations

import gc
import tracemalloc
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from diskless_core.cluster import operations as cluster_operations
from diskless_core.cluster.membership.model import LiveBroker
from diskless_core.cluster.nominations import Electorate, Nomination, plan
from diskless_core.cluster.operations import NewTopic
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.coordinator import entries
from diskless_core.coordinator.readers import Committed
from diskless_core.coordinator.slices import Slices
from diskless_core.coordinator.state_machine import Command, StateMachine
from diskless_core.coordinator.tables import State, Transaction
from diskless_core.diskless import operations as diskless_operations
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.groups.model import CommittedOffset
from diskless_core.groups.records import OffsetRecord
from diskless_core.groups.state_machine import GroupsMachine
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import GROUPS
from tests.benchmarks.apart import Add
from tests.benchmarks.machine import MIB
from tests.support.shards import Sequential, batch, commit_of

ABOUT = (
    "What brokers of a large cluster hold of the coordinators. The bytes of a partition and of an offset are those of "
    "replicas that replay what leaders write; the shares are those that the controller's rule comes to at rest."
)

BROKERS = 100
PARTITIONS = 1_000_000
SHARDS = 50
"""Of each kind: as Apache Kafka's `__consumer_offsets` has, and as somebody with so many brokers would choose."""

SAMPLE = 20_000
"""Partitions and offsets that are replayed: their memory grows evenly."""

PARTITIONS_A_TOPIC = 100
BATCHES_AN_OBJECT = 100
OBJECTS_A_SECOND = 4
"""That each broker commits: one for each `diskless.append.commit.interval.ms`."""

OFFSET_COMMIT_INTERVAL_S = 5.0
"""Of a consumer, by default."""

NOW_MS = 1_700_000_000_000


class Cost(NamedTuple):
    """What a replica pays: bytes of memory for each thing that it knows, bytes of the log for each command."""

    memory: float
    log: float


class _Copy:
    """A leader and a follower of one shard. The store of the follower takes all at once."""

    def __init__(self, machine: StateMachine[Any]) -> None:
        self._machine = machine
        self._leader, self._follower = (State(entries.tables_of(machine)) for _ in range(2))
        self._sequence = 0

    def run(self, operation: Any) -> int:
        """Have it judged, and replayed by the follower; the size of its entry in the log."""
        command = Command(machine=self._machine, tx=Transaction(Committed(self._leader)), now_ms=NOW_MS)
        _finish(operation(command))
        _commit(self._leader, command.tx)
        records = [self._machine.encode(record) for record in command.records]
        entry = entries.encode_entry(1, self._sequence, records, NOW_MS, uuid.UUID(int=1))
        self._sequence += 1
        tx = Transaction(Committed(self._follower))
        for data in entries.decode(entry).records:
            _finish(self._machine.replay_in_slices(self._machine.decode(data), tx))
        _commit(self._follower, tx)
        return len(entry)

    def forget_leader(self) -> None:
        """Only the follower is measured."""
        self._leader = State(())


def _finish(slices: Slices[Any] | None) -> None:
    for _ in slices if slices is not None else ():
        pass


def _commit(state: State, tx: Transaction) -> None:
    state.commit(tx.writes)
    state.close_page(0)
    state.page_stored()


def _measured(fill: Iterator[int], copy: _Copy, things: int) -> Cost:
    """What the follower has in memory in the end, and what the entries took in the middle."""
    gc.collect()
    tracemalloc.start()
    log_bytes = list(fill)
    copy.forget_leader()
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return Cost(memory=memory / things, log=sum(log_bytes) / len(log_bytes))


def cost_of_partition() -> Cost:
    """Of a partition of a Diskless coordinator, and of a batch that is committed to it."""
    copy = _Copy(DisklessMachine())
    topics = [bytes([index // 256, index % 256]) + b"t" * 14 for index in range(SAMPLE // PARTITIONS_A_TOPIC)]

    def fill() -> Iterator[int]:
        for index, topic in enumerate(topics):
            copy.run(
                lambda command, topic=topic, index=index: diskless_operations.create_partitions(
                    command, topic, f"topic-{index}", range(PARTITIONS_A_TOPIC)
                )
            )
        for index, topic in enumerate(topics):
            batches = [batch(partition, topic=topic) for partition in range(BATCHES_AN_OBJECT)]
            request = commit_of(f"wal/0018bcfe5680-{index:032d}", *batches)
            yield (
                copy.run(
                    lambda command, request=request: diskless_operations.commit_file(
                        command, request, CommitRules(assignment=Sequential())
                    )
                )
                / BATCHES_AN_OBJECT
            )

    return _measured(fill(), copy, SAMPLE)


def cost_of_placement() -> Cost:
    """Of a partition in the cluster shard, and of its placement."""
    copy = _Copy(ClusterMachine())

    def fill() -> Iterator[int]:
        for index in range(SAMPLE // PARTITIONS_A_TOPIC):
            topic = NewTopic(
                topic_id=uuid.UUID(int=index + 1).bytes,
                name=f"topic-{index}",
                partition_count=PARTITIONS_A_TOPIC,
                shard_count=16,
                configs={},
            )
            size = copy.run(lambda command, topic=topic: cluster_operations.create_topic(command, topic))
            yield size / PARTITIONS_A_TOPIC

    return _measured(fill(), copy, SAMPLE)


def cost_of_offset() -> Cost:
    """Of a group's offset of one partition, and of its commit."""
    copy = _Copy(GroupsMachine())

    def fill() -> Iterator[int]:
        for index in range(SAMPLE):
            value = CommittedOffset(offset=index, commit_timestamp_ms=NOW_MS, topic_id=uuid.UUID(int=1 + index // 100))
            record = OffsetRecord(
                group_id=f"group-{index // 10}", topic=f"topic-{index // 100}", partition=index % 100, value=value
            )
            yield copy.run(lambda command, record=record: command.emit(record))

    return _measured(fill(), copy, SAMPLE)


def copies_at_rest(brokers: int, shards: int) -> Mapping[int, int]:
    """How many of these shards each broker has a copy of, once the controller has nothing to change any more."""
    ids = [GROUPS.shard(index) for index in range(shards)]
    racks = [
        LiveBroker(node_id=1 + n, rack=f"rack-{n % 3}", is_healthy=True, barred=frozenset()) for n in range(brokers)
    ]
    electorate = Electorate(shards=ids, brokers=racks, may_lead=lambda *_: True)
    held: dict[ShardId, Nomination] = {}
    while changes := plan(electorate, held):
        held |= {change.shard: change for change in changes}
    copies = Counter({broker.node_id: 0 for broker in racks})
    for one in held.values():
        copies.update((one.leader, *one.followers))
    return copies


def measure(add: Add) -> None:
    """One broker of `BROKERS`, with `PARTITIONS` partitions and one group's offset of each."""
    partition, placement, offset = cost_of_partition(), cost_of_placement(), cost_of_offset()
    copies = copies_at_rest(BROKERS, SHARDS)
    add("A partition in a copy of its Diskless coordinator", f"{partition.memory:,.0f} bytes of memory")
    add("A partition in a copy of the cluster shard", f"{placement.memory:,.0f} bytes of memory")
    add("A committed offset in a copy of its group coordinator", f"{offset.memory:,.0f} bytes of memory")
    share = max(copies.values()) / SHARDS
    commits = PARTITIONS / OFFSET_COMMIT_INTERVAL_S
    batches = BROKERS * OBJECTS_A_SECOND * BATCHES_AN_OBJECT
    add(
        f"Copies of {SHARDS} coordinators of a kind at one of {BROKERS} brokers",
        f"{min(copies.values())} to {max(copies.values())} (each followed by all: {SHARDS})",
    )
    add(
        f"Offsets of {PARTITIONS:,} partitions, held by one of {BROKERS} brokers",
        f"{share * PARTITIONS * offset.memory / MIB:,.0f} MiB (each followed by all: "
        f"{PARTITIONS * offset.memory / MIB:,.0f} MiB)",
    )
    add(
        "the same, read while each is committed every five seconds",
        f"{share * commits * offset.log / MIB:,.1f} MiB/s (each followed by all: "
        f"{commits * offset.log / MIB:,.1f} MiB/s)",
    )
    add(
        f"{PARTITIONS:,} partitions of {SHARDS} Diskless coordinators, held by one of {BROKERS} brokers",
        f"{share * PARTITIONS * partition.memory / MIB:,.0f} MiB (each followed by all: "
        f"{PARTITIONS * partition.memory / MIB:,.0f} MiB), and "
        f"{PARTITIONS * placement.memory / MIB:,.0f} MiB of the cluster shard",
    )
    add(
        f"the same, read while {BROKERS} brokers commit {batches:,} batches a second",
        f"{share * batches * partition.log / MIB:,.1f} MiB/s (each followed by all: "
        f"{batches * partition.log / MIB:,.1f} MiB/s)",
    )
