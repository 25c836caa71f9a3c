"""When gateways are placed anew, among whom, and what becomes of a plugin that fails."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest

from diskless_core.cluster.gateways import GatewayNeighbours, ProduceGateways
from diskless_core.cluster.leader_choice import ClientIdentity
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.tables import BROKERS
from diskless_core.metrics import Metrics
from diskless_core.plugin.gateway_placement import GatewayPlacement, LiveBroker
from tests.support.gateways import placement

CLIENT = ClientIdentity("ANONYMOUS", "client", "10.0.0.1")
CLIENTS = [ClientIdentity("ANONYMOUS", f"client-{number}", "10.0.0.1") for number in range(50)]


def registration(node_id, rack, *, listeners=("PLAINTEXT",), fenced=False, leaves=False):
    spec = BrokerSpec(
        node_id=node_id,
        incarnation_id=uuid.UUID(int=node_id),
        listeners=tuple(BrokerListener(name, "localhost", 1) for name in listeners),
        rack=rack,
        features={},
    )
    return Registration(spec=spec, epoch=1, is_fenced=fenced, is_shutting_down=leaves)


class Watched(GatewayPlacement):
    """A placement of the policy, which remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def place(self, coordinators, brokers):
        self.asked.append((list(coordinators), list(brokers)))
        return placement("kip1164").place(coordinators, brokers)


class Broken(GatewayPlacement):
    """Raises, or places what it was not asked for."""

    def __init__(self, answer):
        self.answer = answer

    def place(self, coordinators, brokers):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class World:
    """A broker's view of its cluster."""

    def __init__(self, *registrations, policy=None, shards=2):
        self.registrations = list(registrations)
        self.policy = policy or Watched()
        self.shards = {index: SimpleNamespace(leader_hint=1) for index in range(shards)}
        self.metrics = Metrics()
        self.lost = frozenset()
        listeners = []
        self.gateways = ProduceGateways(
            GatewayNeighbours(
                placement=self.policy,
                itself=LiveBroker(node_id=7, rack="own"),
                brokers=SimpleNamespace(live=lambda: [one for one in self.registrations if one.is_live]),
                lost=lambda: self.lost,
                cluster=SimpleNamespace(on_commit=listeners.append),
                coordinators=self.shards,
                metrics=self.metrics,
            )
        )
        [self._committed] = listeners

    def change(self, *registrations):
        self.registrations = list(registrations)
        self._committed({BROKERS: {}})

    def told(self, rack=None, listener="PLAINTEXT"):
        """The leaders that any client is told."""
        return {
            leaders.of(shard)
            for client in CLIENTS
            for leaders in [self.gateways.leaders(listener, client, rack)]
            for shard in (*self.shards, None)
        }

    @property
    def failures(self):
        return self.metrics.registry.get_sample_value("diskless_gateway_placement_failures_total")


def test_gateways_are_placed_once_for_all_clients_until_brokers_or_leaders_change():
    world = World(registration(1, "a"), registration(2, "b"))
    for _ in range(3):
        world.told("a")
    assert len(world.policy.asked) == 1

    world.change(registration(1, "a"))
    world.told("a")
    assert len(world.policy.asked) == 2

    world.shards[1].leader_hint = None
    world.told("a")
    world.told("a")
    assert len(world.policy.asked) == 3
    assert [one.leader_id for one in world.policy.asked[-1][0]] == [1, None]


def test_other_changes_of_the_cluster_place_nothing():
    world = World(registration(1, "a"))
    world.told()
    world._committed({})
    world.told()
    assert len(world.policy.asked) == 1


def test_nobody_is_sent_to_a_broker_that_has_most_likely_just_ended_though_it_is_not_fenced_yet():
    world = World(registration(1, "a"), registration(2, "a"), registration(3, "b"))
    assert world.told() == {1, 2, 3}
    world.lost = frozenset({1})
    assert world.told() == {2, 3}
    assert world.told("a") == {2}
    world.lost = frozenset({1, 2})
    assert world.told("a") == {3}, "another rack is better than nobody"
    world.lost = frozenset({1, 2, 3})
    assert world.told() == {1, 2, 3}, "where all are lost, nobody knows better"
    world.lost = frozenset()
    assert world.told("a") == {1, 2}


def test_nobody_is_sent_to_a_broker_that_is_fenced_or_shuts_down():
    world = World(registration(1, "a"), registration(2, "a", fenced=True), registration(3, "a", leaves=True))

    assert world.told("a") == {1}
    assert world.told() == {1}


def test_a_rack_whose_last_broker_shuts_down_has_none():
    world = World(registration(1, "a", leaves=True), registration(2, "b"))

    assert world.told("a") == {2}


def test_while_all_shut_down_they_are_still_better_than_nobody():
    assert World(registration(1, "a", leaves=True)).told("a") == {1}


def test_while_nobody_is_known_to_be_live_this_broker_is_named():
    assert World(registration(1, "a", fenced=True)).told("a") == {7}


def test_clients_of_a_listener_are_sent_to_brokers_that_have_it():
    world = World(registration(1, "a", listeners=("PLAINTEXT", "OTHER")), registration(2, "a"), registration(3, "a"))

    assert world.told("a", "OTHER") == {1}
    assert world.told("a") <= {1, 2, 3}
    assert len(world.policy.asked) == 2


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no idea"),
        {},
        {0: {"a": frozenset({9})}, 1: {"a": frozenset({1})}},
        {0: {"a": frozenset()}, 1: {"a": frozenset({1})}},
        None,
        "nonsense",
    ],
)
def test_a_plugin_that_fails_costs_gateways_and_no_answer(answer):
    world = World(registration(1, "a"), registration(2, "a"), registration(3, "b"), policy=Broken(answer))

    assert world.told("a") == {1, 2}
    assert world.told("b") == {3}
    assert world.told() == {1, 2, 3}
    assert world.failures == 1
