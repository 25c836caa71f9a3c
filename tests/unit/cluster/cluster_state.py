"""The state of a cluster shard without a log: operations are applied as soon as they are decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from diskless_core.cluster import operations
from diskless_core.cluster.operations import ClusterCommand, NewTopic
from diskless_core.cluster.records import ResourceType
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.cluster.tables import CONFIGS, PLACEMENTS
from diskless_core.coordinator.slices import at_once
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import State, Transaction

R = TypeVar("R")

TOPIC_ID = b"t" * 16


class ClusterState:
    """Runs operations and keeps what they do, as replaying their encoded records gives it."""

    def __init__(self) -> None:
        self.machine = ClusterMachine()
        self.state = State(self.machine.tables)

    def run(self, operation: Callable[[ClusterCommand], R]) -> R:
        """What the operation answers."""
        command: ClusterCommand = Command(machine=self.machine, tx=Transaction(self.state), now_ms=0)
        answer = operation(command)
        replayed = Transaction(self.state)
        for record in command.records:
            self.machine.replay(self.machine.decode(self.machine.encode(record)), replayed)
        self.state.commit(replayed.writes)
        return answer

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic_id=TOPIC_ID, name=name, partition_count=partitions, shard_count=1, configs=configs or {})
        assert self.run(lambda command: at_once(operations.create_topic(command, new))) is None

    def configs(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        return self.state.committed(CONFIGS, (int(resource_type), name)) or {}

    def placements(self) -> dict[int, int]:
        """Shard by partition, of the topics of one partition number or of one topic."""
        return {number: shard for _, shards in self.state.rows(PLACEMENTS) for number, shard in enumerate(shards)}
