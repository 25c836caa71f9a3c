"""When the cluster's feature level is raised, and which brokers may be members at it."""

from __future__ import annotations

import uuid

import pytest

from diskless_core.cluster import feature_levels, operations
from diskless_core.cluster.feature_levels import object_to, refuse_broker, registered_levels
from diskless_core.cluster.membership.model import BrokerSpec, Registration
from diskless_core.cluster.membership.operations import register
from diskless_core.cluster.operations import ClusterCommand, Refusal
from diskless_core.cluster.state_machine import ClusterMachine
from diskless_core.coordinator import entries
from diskless_core.coordinator.state_machine import Command
from diskless_core.coordinator.tables import State, Transaction
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import LevelRange

BUILD = LevelRange(2, 3)
LOG_ID = uuid.UUID(int=5)


class Shard:
    """A cluster shard without a log."""

    def __init__(self) -> None:
        self.state = State(entries.tables_of(ClusterMachine()))

    def command(self) -> ClusterCommand:
        return Command(machine=ClusterMachine(), tx=Transaction(self.state), now_ms=0)

    def at(self, level: int) -> Shard:
        command = self.command()
        command.raise_level(level)
        self.state.commit(command.tx.writes)
        return self

    def raised(
        self, level: int, brokers: dict[int, LevelRange | None] | None = None, *, validate_only: bool = False
    ) -> int | Refusal | None:
        """The level that is written, or why none is."""
        command = self.command()
        refusal = feature_levels.raise_level(
            command, level, build=BUILD, brokers=brokers or {}, validate_only=validate_only
        )
        return refusal or (command.level if command.common else None)


def test_a_new_cluster_begins_at_the_level_and_with_the_counts_of_the_build_that_names_it_and_keeps_them():
    shard = Shard()
    command = shard.command()
    assert operations.name_cluster(command, "a", level=3, log_id=LOG_ID, counts={"t": 4}) == "a"
    assert command.level == 3
    shard.state.commit(command.tx.writes)

    later = shard.command()
    assert operations.name_cluster(later, "b", level=4, log_id=uuid.UUID(int=6), counts={"t": 5}) == "a"
    assert later.common == []
    assert later.records == []
    assert later.level == 3


def test_a_level_that_all_brokers_support_is_raised_and_asking_again_changes_nothing():
    shard = Shard().at(2)
    assert shard.raised(3, {1: BUILD, 2: BUILD}) == 3
    assert shard.raised(3, {1: BUILD}, validate_only=True) is None
    assert shard.at(3).raised(3, {1: LevelRange(1, 2)}) is None


@pytest.mark.parametrize(
    ("wanted", "brokers", "reason"),
    [
        (1, {}, "is never taken back"),
        (4, {}, "The broker only supports versions 2-3"),
        (3, {1: BUILD, 7: LevelRange(1, 2)}, "Broker 7 only supports versions 1-2"),
        (3, {1: BUILD, 7: None}, "Broker 7 does not support this feature"),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
def test_a_level_is_not_raised_beyond_what_brokers_support_and_never_taken_back(wanted, brokers, reason, validate_only):
    refusal = Shard().at(2).raised(wanted, brokers, validate_only=validate_only)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_UPDATE_VERSION
    assert reason in refusal.message


def test_a_broker_may_register_if_it_supports_the_level_in_force():
    assert refuse_broker(5, BUILD, 2) is None
    assert refuse_broker(5, BUILD, 3) is None
    for supported, level, todo in [(BUILD, 4, "upgrade"), (BUILD, 1, "downgrade"), (None, 1, "upgrade")]:
        refusal = refuse_broker(5, supported, level)
        assert refusal is not None
        assert refusal.code is ErrorCode.UNSUPPORTED_VERSION
        assert f"diskless.version is {level}" in refusal.message
        assert f"{todo} the broker" in refusal.message


def broker(node_id: int, **features: tuple[int, int]) -> BrokerSpec:
    return BrokerSpec(
        node_id=node_id,
        incarnation_id=uuid.UUID(int=node_id),
        listeners=(),
        rack=None,
        features={name.replace("_", "."): LevelRange(*levels) for name, levels in features.items()},
    )


def test_a_registration_is_refused_by_the_level_in_force_and_a_raise_by_those_that_are_registered():
    shard = Shard().at(2)
    command = shard.command()
    for spec in (broker(1, diskless_version=(2, 3)), broker(2, diskless_version=(1, 2))):
        assert isinstance(register(command, spec, is_live=lambda _: False, objection=object_to), Registration)
    for spec in (broker(3, diskless_version=(1, 1)), broker(4, group_version=(0, 1))):
        refusal = register(command, spec, is_live=lambda _: False, objection=object_to)
        assert isinstance(refusal, Refusal)
        assert refusal.code is ErrorCode.UNSUPPORTED_VERSION
    shard.state.commit(command.tx.writes)

    levels = registered_levels(shard.command().tx)
    assert levels == {1: BUILD, 2: LevelRange(1, 2)}
    refusal = shard.raised(3, dict(levels))
    assert isinstance(refusal, Refusal)
    assert "Broker 2 only supports versions 1-2" in refusal.message
