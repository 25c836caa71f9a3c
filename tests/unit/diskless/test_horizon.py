"""The horizon of a shard, by which objects are refused that were created too long ago."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeVar

import pytest

from diskless_core.coordinator.errors import ClockSkewError
from diskless_core.coordinator.slices import at_once
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import State, Transaction
from diskless_core.diskless import operations
from diskless_core.diskless.commands import BatchResult
from diskless_core.diskless.operations import HORIZON_AGE_MS, CommitRules, DisklessCommand
from diskless_core.diskless.records import DisklessRecord, HorizonRaised
from diskless_core.diskless.state_machine import DisklessMachine
from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode
from diskless_core.wal.format import object_key
from tests.support.shards import TOPIC, Sequential, batch, commit_of

R = TypeVar("R")

NOW_MS = 1_700_000_000_000


class Leader:
    """A shard's state, with a clock that may be set back."""

    def __init__(self) -> None:
        self.machine = DisklessMachine()
        self.state = State(self.machine.tables)
        self.now_ms = NOW_MS
        self.run(lambda command: operations.create_partitions(command, TOPIC, "t", [0]))

    def run(self, operation: Callable[[DisklessCommand], R]) -> tuple[R, list[DisklessRecord]]:
        command: DisklessCommand = Command(machine=self.machine, tx=Transaction(self.state), now_ms=self.now_ms)
        answer = operation(command)
        self.state.commit(command.tx.writes)
        return answer, command.records

    def raise_horizon(self, horizon_ms: int) -> list[DisklessRecord]:
        return self.run(lambda command: operations.raise_horizon(command, Passed(now_ms=self.now_ms), horizon_ms))[1]

    def commit(self, created_ms: int, number: int = 0) -> BatchResult:
        request = commit_of(object_key("wal", created_ms, uuid.UUID(int=number)), batch())
        rules = CommitRules(assignment=Sequential())
        ((result,), _) = self.run(lambda command: at_once(operations.commit_file(command, request, rules)))
        return result


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_what_was_created_before_is_refused_and_what_was_created_then_is_not(leader: Leader) -> None:
    horizon_ms = NOW_MS - HORIZON_AGE_MS
    leader.raise_horizon(horizon_ms)
    assert leader.commit(horizon_ms - 1).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert leader.commit(horizon_ms).error is ErrorCode.NONE


def test_it_never_goes_back_and_raising_it_again_writes_nothing(leader: Leader) -> None:
    horizon_ms = NOW_MS - HORIZON_AGE_MS
    assert leader.raise_horizon(horizon_ms) == [HorizonRaised(horizon_ms=horizon_ms)]
    assert leader.raise_horizon(horizon_ms) == []
    assert leader.raise_horizon(1) == []
    assert leader.commit(horizon_ms - 1).error is ErrorCode.KAFKA_STORAGE_ERROR


def test_young_objects_cannot_be_refused_whatever_clock_the_asker_has(leader: Leader) -> None:
    for too_late_ms in (NOW_MS - HORIZON_AGE_MS + 1, NOW_MS, NOW_MS + 10**9):
        with pytest.raises(ClockSkewError, match="set the clock"):
            leader.raise_horizon(too_late_ms)
    assert leader.commit(NOW_MS - HORIZON_AGE_MS).error is ErrorCode.NONE


def test_who_is_refused_is_told_a_time_that_is_late_enough(leader: Leader) -> None:
    leader.raise_horizon(NOW_MS - HORIZON_AGE_MS)
    refused = leader.commit(1)
    assert refused.append_time == NOW_MS
    assert leader.commit(refused.append_time, 1).error is ErrorCode.NONE


def test_the_time_told_is_late_enough_also_by_a_leader_whose_clock_was_set_back(leader: Leader) -> None:
    leader.raise_horizon(NOW_MS - HORIZON_AGE_MS)
    leader.now_ms = NOW_MS - 10**9
    refused = leader.commit(leader.now_ms)
    assert refused == BatchResult(ErrorCode.KAFKA_STORAGE_ERROR, append_time=NOW_MS - HORIZON_AGE_MS)
    assert leader.commit(refused.append_time, 1).error is ErrorCode.NONE
