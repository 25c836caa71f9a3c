"""Registrations in the cluster shard: who may register, what a registration is worth, and what records keep of it."""

from __future__ import annotations

import uuid

import pytest

from diskless_core.cluster.membership import operations
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import LevelRange
from tests.unit.cluster.cluster_state import ClusterState


def spec(node_id=1, incarnation=1, rack="r", port=9092):
    return BrokerSpec(
        node_id=node_id,
        incarnation_id=uuid.UUID(int=incarnation + 16),
        listeners=(BrokerListener("CLIENTS", "h", port), BrokerListener("BROKERS", "h", port + 1, 2)),
        rack=rack,
        features={"diskless.version": LevelRange(1, 2)},
    )


class Registry(ClusterState):
    def register(self, said, *, first_is_live=False):
        return self.run(lambda command: operations.register(command, said, is_live=lambda _: first_is_live))

    def change(self, epoch, node_id=1, **to):
        return self.run(lambda command: operations.change(command, node_id, epoch, **to))

    def get(self, node_id=1):
        return self.state.committed(BROKERS, (node_id,))


@pytest.fixture
def registry():
    return Registry()


@pytest.mark.parametrize("rack", ["r", None])
def test_all_that_a_broker_says_of_itself_is_kept_by_records_and_by_the_store(registry, rack):
    said = spec(rack=rack)
    answer = registry.register(said)

    assert answer == Registration(spec=said, epoch=1, is_fenced=True) == registry.get()
    assert BROKERS.entity(BROKERS.row((1,), answer)) == ((1,), answer)


def test_each_registration_has_a_higher_epoch_also_after_the_broker_was_forgotten(registry):
    assert registry.register(spec(1)).epoch == 1
    assert registry.register(spec(2)).epoch == 2
    assert registry.run(lambda command: operations.unregister(command, 2)) is None
    assert registry.register(spec(2)).epoch == 3


def test_the_same_process_keeps_its_registration_and_its_state(registry):
    registry.register(spec())
    registry.change(1, is_fenced=False)

    assert registry.register(spec(), first_is_live=True) == Registration(spec=spec(), epoch=1, is_fenced=False)


def test_the_same_process_with_another_address_has_a_new_registration(registry):
    registry.register(spec())

    assert registry.register(spec(port=1), first_is_live=True).epoch == 2


def test_another_process_takes_the_place_of_one_that_is_dead(registry):
    registry.register(spec())
    registry.change(1, is_fenced=False, shuts_down=True)

    registry.register(spec(incarnation=2))
    assert registry.get() == Registration(spec=spec(incarnation=2), epoch=2, is_fenced=True)


def test_another_process_is_refused_while_the_first_lives(registry):
    registry.register(spec())

    refusal = registry.register(spec(incarnation=2, port=7), first_is_live=True)
    assert refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert "h:9092" in refusal.message
    assert registry.get().spec == spec()


def test_an_objection_refuses_a_broker(registry):
    objection = Refusal(code=ErrorCode.UNSUPPORTED_VERSION, message="too old")

    def register(command):
        return operations.register(command, spec(), is_live=lambda _: False, objection=lambda *_: objection)

    assert registry.run(register) is objection
    assert registry.get() is None


def test_changes_that_change_nothing_write_nothing(registry):
    registry.register(spec())

    assert not registry.change(1, is_fenced=True)
    assert registry.change(1, is_fenced=False)
    assert not registry.change(1, is_fenced=False)
    assert registry.change(1, shuts_down=True)
    assert not registry.change(1, shuts_down=True)
    assert registry.get() == Registration(spec=spec(), epoch=1, is_fenced=False, is_shutting_down=True)


def test_a_change_of_an_old_registration_changes_nothing(registry):
    registry.register(spec())
    registry.register(spec(incarnation=2))

    assert not registry.change(1, is_fenced=False)
    assert registry.get().is_fenced


def test_of_brokers_that_are_fenced_together_those_that_have_registered_again_stay_what_they_are(registry):
    found = [registry.register(spec(node_id)) for node_id in (1, 2, 3)]
    registry.change(1, is_fenced=False)
    registry.change(2, node_id=2, is_fenced=False)
    registry.register(spec(2, incarnation=2))
    registry.change(4, node_id=2, is_fenced=False)

    assert registry.run(lambda command: operations.fence(command, found)) == [1], "the third is fenced already"
    assert [registry.get(node_id).is_fenced for node_id in (1, 2, 3)] == [True, False, True]


def test_a_request_with_an_old_epoch_is_refused(registry):
    registry.register(spec())
    registry.register(spec(incarnation=2))

    assert operations.check_epoch(registry.state, 1, 1) is ErrorCode.STALE_BROKER_EPOCH
    assert operations.check_epoch(registry.state, 7, 1) is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert operations.check_epoch(registry.state, 1, 2).epoch == 2


def test_only_a_fenced_broker_is_forgotten(registry):
    registry.register(spec())
    registry.change(1, is_fenced=False)

    def unregister(node_id):
        return registry.run(lambda command: operations.unregister(command, node_id))

    assert unregister(1).code is ErrorCode.INVALID_REQUEST
    assert unregister(2).code is ErrorCode.BROKER_ID_NOT_REGISTERED
    registry.change(1, is_fenced=True)
    assert unregister(1) is None
    assert registry.get() is None
