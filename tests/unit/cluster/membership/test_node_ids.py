"""Node ids that the cluster gives to brokers: no two brokers ever have the same one."""

from __future__ import annotations

import uuid

import pytest

from diskless_core.cluster.membership import node_ids, operations
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.node_ids import IDLE_MS, RETIRED, Idle
from diskless_core.cluster.membership.tables import (
    BROKERS,
    CONFIGURED_ID_RUNS,
    MAX_ALLOCATED_ID,
    NODE_ID_RUNS,
    NODE_IDS,
    is_in,
)
from diskless_core.cluster.operations import Refusal
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import Transaction
from diskless_core.passed_time import Passed
from diskless_core.protocol.errors import ErrorCode
from tests.unit.cluster.cluster_state import ClusterState


def allocation(number):
    return uuid.UUID(int=number + 1000)


class Registry(ClusterState):
    """Time is what `now_ms` says."""

    def __init__(self):
        super().__init__()
        self.now_ms = 5

    def run(self, operation):
        def at_this_time(command):
            command.now_ms = self.now_ms
            return operation(command)

        return super().run(at_this_time)

    def allocate(self, number):
        return self.run(lambda command: node_ids.allocate(command, allocation(number)))

    def register(self, node_id, number=None, incarnation=1):
        said = BrokerSpec(
            node_id=node_id,
            incarnation_id=uuid.UUID(int=incarnation),
            listeners=(BrokerListener("CLIENTS", "h", 9092),),
            rack=None,
            features={},
        )
        allocation_id = None if number is None else allocation(number)
        return self.run(
            lambda command: operations.register(command, said, is_live=lambda _: False, allocation_id=allocation_id)
        )

    def fence(self, registration, *, is_fenced):
        node_id, epoch = registration.spec.node_id, registration.epoch
        assert self.run(lambda command: operations.change(command, node_id, epoch, is_fenced=is_fenced))

    def unregister(self, node_id):
        return self.run(lambda command: operations.unregister(command, node_id))

    def idle(self, heard=()):
        return node_ids.idle(self.state, Passed(now_ms=self.now_ms), heard)

    def retire_idle(self):
        assert self.retire(self.idle())

    def retire(self, due):
        return self.run(lambda command: node_ids.retire(command, due, Passed(now_ms=self.now_ms)))


@pytest.fixture
def registry():
    return Registry()


def test_each_broker_gets_the_next_id_and_the_same_one_when_it_asks_again(registry):
    assert [registry.allocate(1), registry.allocate(2), registry.allocate(1), registry.allocate(3)] == [1, 2, 1, 3]


def test_an_id_that_an_operator_has_configured_is_never_given_to_anybody(registry):
    for node_id in (5, 2, 3, 0):
        registry.register(node_id)
    registry.register(3, incarnation=2)
    assert [registry.allocate(number) for number in (1, 2)] == [1, 4]
    assert registry.unregister(5) is None
    assert registry.allocate(3) == 6
    assert registry.register(7).spec.node_id == 7
    assert registry.allocate(4) == 8


@pytest.mark.parametrize("node_id", [2000, MAX_ALLOCATED_ID - 1, MAX_ALLOCATED_ID, MAX_ALLOCATED_ID + 1, 2**31 - 1])
def test_a_high_id_of_one_broker_takes_no_ids_from_the_others(registry, node_id):
    registry.register(node_id)
    assert [registry.allocate(1), registry.allocate(2)] == [1, 2]


def test_when_no_id_is_left_a_broker_is_told_to_configure_one(registry):
    assert registry.allocate(0) == 1
    for node_id in range(2, 6):
        registry.register(node_id)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_ids, "MAX_ALLOCATED_ID", 5)
        refusal = registry.allocate(1)
    assert refusal.code is ErrorCode.INVALID_REGISTRATION
    assert "set node.id" in refusal.message
    assert registry.allocate(1) == 6


def test_only_the_broker_that_asked_for_an_id_may_have_it(registry):
    node_id = registry.allocate(1)

    assert registry.register(node_id, number=2).code is RETIRED
    configured = registry.register(node_id)
    assert configured.code is ErrorCode.INVALID_REGISTRATION
    assert "2 is free" in configured.message
    assert registry.register(node_id, number=1).spec.node_id == node_id
    assert registry.register(node_id, number=1, incarnation=2).epoch == 2


def test_a_broker_that_comes_with_the_id_of_another_cluster_is_told_to_take_one_of_this(registry):
    assert registry.register(3, number=1).code is RETIRED
    assert registry.state.committed(BROKERS, (3,)) is None


def test_an_id_is_retired_when_its_broker_was_fenced_for_a_day_and_nobody_has_it_again(registry):
    node_id = registry.allocate(1)
    registration = registry.register(node_id, number=1)
    registry.now_ms += 2 * IDLE_MS
    registry.fence(registration, is_fenced=False)
    assert registry.idle() == []
    registry.fence(registration, is_fenced=True)
    registry.now_ms += IDLE_MS - 1
    assert registry.idle() == []
    registry.now_ms += 1
    assert registry.idle() == [Idle(node_id=node_id, epoch=registration.epoch)]

    registry.retire_idle()

    assert registry.state.committed(BROKERS, (node_id,)) is None
    assert registry.register(node_id, number=1, incarnation=2).code is RETIRED
    assert registry.register(node_id).code is ErrorCode.INVALID_REGISTRATION
    assert registry.allocate(1) == node_id + 1


def test_an_id_that_nobody_registered_with_is_retired_as_well(registry):
    registry.allocate(1)
    registry.now_ms += IDLE_MS
    assert registry.idle() == [Idle(node_id=1, epoch=None)]
    registry.retire_idle()
    assert registry.register(1, number=1).code is RETIRED


def test_a_broker_that_is_heard_of_keeps_its_id_although_it_is_fenced(registry):
    registry.register(registry.allocate(1), number=1)
    registry.now_ms += IDLE_MS
    assert registry.idle(heard={1}) == []
    assert len(registry.idle(heard={2})) == 1


def test_a_configured_id_is_never_retired_and_may_come_back_after_it_was_unregistered(registry):
    registry.register(1)
    registry.now_ms += 100 * IDLE_MS
    assert registry.idle() == []
    assert registry.unregister(1) is None
    assert registry.allocate(1) == 2
    assert isinstance(registry.register(1), Registration)


def test_a_broker_that_has_changed_since_it_was_found_idle_is_not_retired(registry):
    registration, _ = (registry.register(registry.allocate(number), number=number) for number in (1, 2))
    registry.now_ms += IDLE_MS
    due = registry.idle()
    registry.fence(registration, is_fenced=False)
    assert [one.node_id for one in registry.retire(due)] == [2]
    assert registry.state.committed(BROKERS, (1,)).is_live
    assert registry.state.committed(BROKERS, (2,)) is None


def test_unregistering_a_broker_retires_the_id_that_the_cluster_gave_it(registry):
    registry.register(registry.allocate(1), number=1)
    assert registry.unregister(1) is None
    assert registry.register(1, number=1).code is RETIRED


def test_ids_that_were_given_are_known_as_such_also_between_configured_ones(registry):
    given = [registry.allocate(1), registry.allocate(2)]
    registry.register(3)
    given.append(registry.allocate(3))
    registry.register(6)
    registry.register(5)
    given.append(registry.allocate(4))
    assert given == [1, 2, 4, 7]
    for node_id in given:
        registry.unregister(node_id)
    assert [n for n in range(20) if is_in(NODE_ID_RUNS, n, registry.state)] == given


def test_there_are_not_more_brokers_than_each_of_them_can_remember(registry, monkeypatch):
    most = 20
    monkeypatch.setattr(node_ids, "MAX_BROKERS", most)
    command = Command(machine=registry.machine, tx=Transaction(registry.state), now_ms=0)
    for number in range(most):
        node_ids.allocate(command, allocation(number))

    for refusal in (
        node_ids.allocate(command, allocation(most)),
        operations.register(
            command,
            BrokerSpec(node_id=2**31 - 1, incarnation_id=uuid.UUID(int=1), listeners=(), rack=None, features={}),
            is_live=lambda _: False,
        ),
    ):
        assert isinstance(refusal, Refusal)
        assert refusal.code is ErrorCode.INVALID_REGISTRATION
        assert f"has {most} registered brokers" in refusal.message
    assert node_ids.allocate(command, allocation(7)) == 8


def test_what_is_known_of_an_id_is_kept_by_the_store(registry):
    registry.allocate(1)
    registry.register(3)
    for table in (NODE_ID_RUNS, CONFIGURED_ID_RUNS):
        [(key, last)] = registry.state.rows(table)
        assert table.entity(table.row(key, last)) == (key, last)
    known = registry.state.committed(NODE_IDS, (1,))
    assert (known.allocation_id, known.allocated_at_ms) == (allocation(1), 5)
    assert NODE_IDS.entity(NODE_IDS.row((1,), known)) == ((1,), known)
