"""A diskless shard's state alone, for decisions that need no log, no store and no loop."""

from __future__ import annotations

from diskless_core.coordinator.slices import at_once
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import State, Transaction
from diskless_core.diskless import operations, records
from diskless_core.diskless.commands import BatchResult, CommitFile, PartitionKey
from diskless_core.diskless.operations import CommitRules
from diskless_core.diskless.records import DisklessRecord
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.diskless.tables import PARTITIONS, PRODUCERS
from diskless_core.passed_time import Passed
from tests.support.shards import TOPIC, Sequential, commit_of

NOW_MS = 1000
EXPIRATION_MS = 500


class Desk:
    """A shard's state, to which commands are applied at once. What is replayed elsewhere must come to the same."""

    def __init__(self) -> None:
        self.machine = DisklessMachine()
        self.state = State(self.machine.tables)
        self.replica = State(self.machine.tables)
        self.now_ms = NOW_MS
        self.records: list[DisklessRecord] = []
        self.run(lambda command: operations.create_partitions(command, TOPIC, "t", [0, 1]))

    def run(self, operation):
        command: Command[DisklessRecord] = Command(machine=self.machine, tx=Transaction(self.state), now_ms=self.now_ms)
        answer = operation(command)
        self.state.commit(command.tx.writes)
        self.records = command.records
        replayed = Transaction(self.replica)
        for record in command.records:
            self.machine.replay(records.decode(records.encode(record)), replayed)
        self.replica.commit(replayed.writes)
        for table in self.machine.tables:
            assert dict(self.state.rows(table)) == dict(self.replica.rows(table))
        return answer

    def commit(self, *batches, key: str | None = None) -> list[BatchResult]:
        self._objects = getattr(self, "_objects", 0) + 1
        return self.send(commit_of(key or f"object-{self._objects}", *batches))

    def send(self, request: CommitFile) -> list[BatchResult]:
        rules = CommitRules(assignment=Sequential())
        answer: list[BatchResult] = self.run(lambda command: at_once(operations.commit_file(command, request, rules)))
        return answer

    def expire_producers(self) -> None:
        """Forget those that have been silent for `EXPIRATION_MS`, and those of deleted topics."""
        keys = [key for key, _ in self.state.rows(PRODUCERS)]
        self.run(lambda command: operations.expire_producers(command, keys, Passed(now_ms=self.now_ms), EXPIRATION_MS))

    def next_offset(self, partition: int = 0) -> int:
        head = self.state.get(PARTITIONS, PartitionKey(TOPIC, partition))
        assert head is not None
        return head.next_offset
