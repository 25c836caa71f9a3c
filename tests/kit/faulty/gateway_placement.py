"""Placements that choose brokers which cannot be gateways, or that are not the same everywhere."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

import pytest

from diskless_core.plugin.gateway_placement import Coordinator, GatewayPlacement, Gateways, LiveBroker, brokers_by_rack
from diskless_core.testing.gateway_placement import GatewayPlacementContract, MakePlacement
from tests.kit.fault import Correct, Fault, MakeSuite, Unfound

NOUN = "gateway_placement"


class Rendezvous(GatewayPlacement):
    """In each rack, the broker with a shard's highest weight."""

    def place(self, coordinators: Sequence[Coordinator], brokers: Sequence[LiveBroker]) -> Gateways:
        racks = self.racks(brokers)
        return {one.shard: {rack: self.chosen(one, here) for rack, here in racks.items()} for one in coordinators}

    def racks(self, brokers: Iterable[LiveBroker]) -> Mapping[str | None, Sequence[int]]:
        return brokers_by_rack(brokers)

    def chosen(self, coordinator: Coordinator, here: Sequence[int]) -> frozenset[int]:
        return frozenset({max(here, key=lambda node_id: self.weight(coordinator.shard, node_id))})

    def weight(self, shard: int, node_id: int) -> object:
        return blake2b(b"%d/%d" % (shard, node_id), digest_size=8).digest(), node_id


class Everyone(Rendezvous):
    """All brokers of a rack are gateways of every coordinator."""

    def chosen(self, coordinator, here):
        return frozenset(here)


class RacksAreIgnored(Rendezvous):
    """All brokers count as one rack."""

    def racks(self, brokers):
        return {None: sorted(broker.node_id for broker in brokers)} if brokers else {}


class OneBrokerForAllRacks(Rendezvous):
    """The gateway of every rack is one broker, of whatever rack it is."""

    def place(self, coordinators, brokers):
        racks, everybody = brokers_by_rack(brokers), [broker.node_id for broker in brokers]
        return {one.shard: {rack: self.chosen(one, everybody) for rack in racks} for one in coordinators}


class LeaderWhereverItIs(Rendezvous):
    """The leader of a shard is its gateway in every rack."""

    def chosen(self, coordinator, here):
        return frozenset({here[0] if coordinator.leader_id is None else coordinator.leader_id})


class LeaderMayBeDead(Rendezvous):
    """The leader is a gateway in its rack, also if it is not alive: of such a one the rack is taken for the first."""

    def place(self, coordinators, brokers):
        placed = super().place(coordinators, brokers)
        racks = {broker.node_id: broker.rack for broker in brokers}
        for one in coordinators:
            if one.leader_id is not None and placed[one.shard]:
                placed[one.shard][racks.get(one.leader_id, next(iter(placed[one.shard])))] = frozenset({one.leader_id})
        return placed


class NeedsALiveLeader(Rendezvous):
    """A leader that is not alive is a KeyError."""

    def place(self, coordinators, brokers):
        racks = {broker.node_id: broker.rack for broker in brokers}
        for one in coordinators:
            if one.leader_id is not None:
                racks[one.leader_id]
        return super().place(coordinators, brokers)


class OnlyTheLeadersRack(Rendezvous):
    """A coordinator has gateways only in the rack of its leader."""

    def place(self, coordinators, brokers):
        racks = {broker.node_id: broker.rack for broker in brokers}
        placed = super().place(coordinators, brokers)
        return {
            one.shard: {racks[one.leader_id]: placed[one.shard][racks[one.leader_id]]}
            if one.leader_id in racks
            else placed[one.shard]
            for one in coordinators
        }


class SharesBrokersOut(Rendezvous):
    """Each broker is the gateway of one coordinator, so that there is none left for others in a small rack."""

    def place(self, coordinators, brokers):
        placed: dict[int, dict[str | None, frozenset[int]]] = {one.shard: {} for one in coordinators}
        for rack, here in brokers_by_rack(brokers).items():
            free = list(here)
            for shard in sorted(placed):
                placed[shard][rack] = frozenset({free.pop()}) if free else frozenset()
        return placed


class WithoutARackIsNowhere(Rendezvous):
    """Brokers without a rack are left out."""

    def racks(self, brokers):
        return brokers_by_rack(broker for broker in brokers if broker.rack is not None)


class AnEmptyRackIsNone(Rendezvous):
    """A rack whose name is empty is taken for none."""

    def racks(self, brokers):
        return brokers_by_rack(LiveBroker(node_id=one.node_id, rack=one.rack or None) for one in brokers)


class ShardsWithoutALeaderAreLeftOut(Rendezvous):
    """A shard that nobody leads has no entry."""

    def place(self, coordinators, brokers):
        return super().place([one for one in coordinators if one.leader_id is not None], brokers)


class ShardsAreCounted(Rendezvous):
    """Shards are named by their position, not by their number."""

    def place(self, coordinators, brokers):
        placed = super().place(coordinators, brokers)
        return dict(enumerate(placed.values()))


class KeepsARackThatIsEmpty(Rendezvous):
    """A rack that once had brokers has an entry for ever, without gateways."""

    def __init__(self) -> None:
        self.seen: dict[str | None, None] = {}

    def place(self, coordinators, brokers):
        self.seen.update(dict.fromkeys(broker.rack for broker in brokers))
        placed = super().place(coordinators, brokers)
        return {shard: dict.fromkeys(self.seen, frozenset()) | dict(racks) for shard, racks in placed.items()}


class NeedsABroker(Rendezvous):
    """A cluster without live brokers is a ValueError."""

    def place(self, coordinators, brokers):
        max(broker.node_id for broker in brokers)
        return super().place(coordinators, brokers)


class NeedsACoordinator(Rendezvous):
    """A cluster without coordinators is a ZeroDivisionError."""

    def place(self, coordinators, brokers):
        wanted = max(1, len(brokers) // len(coordinators))
        return super().place(coordinators, brokers) if wanted else {}


class FirstBrokerGiven(Rendezvous):
    """The gateway is the first broker of a rack in the order given."""

    def racks(self, brokers):
        racks: dict[str | None, list[int]] = {}
        for broker in brokers:
            racks.setdefault(broker.rack, [broker.node_id])
        return racks


class InTheOrderOfCoordinators(Rendezvous):
    """Brokers are dealt out to the coordinators in the order given."""

    def place(self, coordinators, brokers):
        racks = brokers_by_rack(brokers)
        return {
            one.shard: {rack: frozenset({here[at % len(here)]}) for rack, here in racks.items()}
            for at, one in enumerate(coordinators)
        }


class AtRandom(Rendezvous):
    """The gateway is drawn by lot each time."""

    def chosen(self, coordinator, here):
        return frozenset({random.choice(here)})


class SeededByInstance(Rendezvous):
    """Each instance weighs brokers in its own way."""

    seeds = itertools.count()

    def __init__(self) -> None:
        self.seed = next(self.seeds)

    def weight(self, shard, node_id):
        return blake2b(b"%d/%d/%d" % (self.seed, shard, node_id)).digest()


class SeededByTheClock(Rendezvous):
    """Weights depend on the time, so that gateways rotate."""

    def weight(self, shard, node_id):
        return blake2b(b"%d/%d/%d" % (time.monotonic_ns() // 1_000, shard, node_id)).digest()


class SeededByProcess(Rendezvous):
    """Weights are Python's hashes of text, which every process seeds differently."""

    def weight(self, shard, node_id):
        return hash(f"{shard}/{node_id}")


class TakesTurns(Rendezvous):
    """The next call chooses the next broker."""

    def __init__(self) -> None:
        self.turn = 0

    def place(self, coordinators, brokers):
        self.turn += 1
        return super().place(coordinators, brokers)

    def chosen(self, coordinator, here):
        return frozenset({here[(coordinator.shard + self.turn) % len(here)]})


class StaysWhereItWas(Rendezvous):
    """A gateway stays one as long as it lives: a broker that has seen less of the past chooses others."""

    def __init__(self) -> None:
        self.chosen_before: dict[int, set[int]] = {}

    def chosen(self, coordinator, here):
        before = self.chosen_before.setdefault(coordinator.shard, set())
        node_id = next(iter(sorted(before.intersection(here))), None)
        if node_id is None:
            (node_id,) = super().chosen(coordinator, here)
            before.add(node_id)
        return frozenset({node_id})


class ByRemainder(Rendezvous):
    """The gateway is found by the remainder of the shard's number: all of a rack's move with one broker."""

    def chosen(self, coordinator, here):
        return frozenset({here[coordinator.shard % len(here)]})


class WeighedByTheirNumber(Rendezvous):
    """Weights depend on how many brokers the rack has: all of them are dealt out anew when one leaves."""

    def chosen(self, coordinator, here):
        best = max(here, key=lambda node_id: self.weight(coordinator.shard + 1000 * len(here), node_id))
        return frozenset({best})


class GroupsByPosition(Rendezvous):
    """Brokers are split into as many groups as there are coordinators, by position: neighbours move along."""

    def place(self, coordinators, brokers):
        racks, shards = brokers_by_rack(brokers), sorted(one.shard for one in coordinators)
        return {
            shard: {
                rack: frozenset(
                    here[at * len(here) // len(shards) : (at + 1) * len(here) // len(shards)]
                    or [here[at * len(here) // len(shards)]]
                )
                for rack, here in racks.items()
            }
            for at, shard in enumerate(shards)
        }


class SortsItsArguments(Rendezvous):
    """The lists that it was given are sorted in place."""

    def place(self, coordinators, brokers):
        if isinstance(brokers, list):
            brokers.sort(key=lambda broker: broker.node_id)
        return super().place(coordinators, brokers)


class NeedsLists(Rendezvous):
    """Brokers in a tuple are an AttributeError."""

    def place(self, coordinators, brokers):
        return super().place(coordinators, brokers.copy())


class GivesOneMapping(Rendezvous):
    """The mapping that one call gave is filled anew by the next."""

    def __init__(self) -> None:
        self.placed: dict[int, Mapping[str | None, frozenset[int]]] = {}

    def place(self, coordinators, brokers):
        placed = super().place(coordinators, brokers)
        self.placed.clear()
        self.placed.update(placed)
        return self.placed


def _suite(backend: type[GatewayPlacement]) -> MakeSuite:
    class Suite(GatewayPlacementContract):
        @pytest.fixture
        def make_placement(self) -> MakePlacement:
            return backend

    return lambda: Suite


def _fault(name: str, backend: type[GatewayPlacement], promise: str) -> Fault:
    return Fault(noun=NOUN, name=name, says=(backend.__doc__ or "").strip(), promise=promise, suite=_suite(backend))


_EVERYWHERE = "every coordinator has live gateways in every rack"
_OWN = "each rack has gateways of its own"
_DEAD = "a leader that is not alive or not known is no gateway"
_SAME = "another instance that hears in another order gives the same gateways"
_STABLE = "a broker that joins or leaves changes little on the others"

FAULTS = (
    _fault("racks-are-ignored", RacksAreIgnored, _OWN),
    _fault("one-broker-for-all-racks", OneBrokerForAllRacks, _OWN),
    _fault("the-leader-in-every-rack", LeaderWhereverItIs, _OWN),
    _fault("a-dead-leader-is-a-gateway", LeaderMayBeDead, _DEAD),
    _fault("a-dead-leader-fails", NeedsALiveLeader, _DEAD),
    _fault("only-the-rack-of-the-leader", OnlyTheLeadersRack, _OWN),
    _fault("a-small-rack-has-too-few", SharesBrokersOut, _EVERYWHERE),
    _fault("no-rack-is-nowhere", WithoutARackIsNowhere, "a single broker is the gateway of every coordinator"),
    _fault("an-empty-rack-is-no-rack", AnEmptyRackIsNone, _OWN),
    _fault("shards-without-a-leader-are-left-out", ShardsWithoutALeaderAreLeftOut, _DEAD),
    _fault("shards-are-counted", ShardsAreCounted, _OWN),
    _fault("racks-stay-for-ever", KeepsARackThatIsEmpty, "what an instance saw before does not matter"),
    _fault("no-brokers-fail", NeedsABroker, "without brokers no coordinator has gateways"),
    _fault("no-coordinators-fail", NeedsACoordinator, "without coordinators nothing is placed"),
    _fault("the-first-broker-given", FirstBrokerGiven, _SAME),
    _fault("in-the-order-of-coordinators", InTheOrderOfCoordinators, _SAME),
    _fault("at-random", AtRandom, _SAME),
    _fault("by-instance", SeededByInstance, _SAME),
    _fault("by-the-clock", SeededByTheClock, _SAME),
    _fault("by-the-process", SeededByProcess, "another process gives the same gateways"),
    _fault("by-turns", TakesTurns, "what an instance saw before does not matter"),
    _fault("gateways-stay-where-they-were", StaysWhereItWas, "saw the cluster grow and shrink"),
    _fault("by-remainder", ByRemainder, _STABLE),
    _fault("by-the-number-of-brokers", WeighedByTheirNumber, _STABLE),
    _fault("groups-by-position", GroupsByPosition, _STABLE),
    _fault("its-arguments-are-sorted", SortsItsArguments, "its arguments are left alone"),
    _fault("its-arguments-have-to-be-lists", NeedsLists, "may be any sequence"),
    _fault("the-answer-is-a-shared-mapping", GivesOneMapping, "later calls do not change gateways that were given"),
)

CORRECT = (
    Correct(noun=NOUN, name="rendezvous", suite=_suite(Rendezvous)),
    Correct(noun=NOUN, name="everyone", suite=_suite(Everyone)),
)

UNFOUND = (
    Unfound(
        noun=NOUN,
        says="That all clients of a rack are led to one broker.",
        reason="Nothing is promised of load: a placement may set some brokers aside for it. `diskless gateways plan` "
        "shows what a cluster would have.",
    ),
    Unfound(
        noun=NOUN,
        says="That much moves when a coordinator does.",
        reason="Stability is promised where coordinators stay: the KIP wants them to be gateways themselves.",
    ),
    Unfound(
        noun=NOUN,
        says="That much moves in clusters of a certain shape.",
        reason="The promise is of an average. The suite takes it of three even racks and 12 coordinators.",
    ),
    Unfound(
        noun=NOUN,
        says="That gateways depend on the node, its files or its environment.",
        reason="A suite has one machine. It compares instances, the order of calls, and two processes of it.",
    ),
    Unfound(
        noun=NOUN,
        says="That a call does I/O.",
        reason="As long as its answer does not depend on it, nothing shows it. The broker logs calls that take longer "
        "than 0.1 s.",
    ),
)
