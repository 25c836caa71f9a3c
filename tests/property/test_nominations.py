"""Nominations of leaders, for any brokers, placements and nominations before."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from diskless_core.cluster.membership.model import LiveBroker
from diskless_core.cluster.nominations import FOLLOWERS, Electorate, Nomination, plan
from diskless_core.plugin.shard import ShardId
from diskless_core.shards import DISKLESS

NODES = range(1, 6)
SHARDS = [DISKLESS.shard(index) for index in range(6)]

Nominations = dict[ShardId, Nomination]
Placement = Mapping[ShardId, frozenset[int]]

candidates = st.builds(
    LiveBroker,
    node_id=st.sampled_from(NODES),
    rack=st.sampled_from([None, "a", "b", "c"]),
    is_healthy=st.sampled_from([True, True, True, False]),
    barred=st.sampled_from([frozenset[ShardId]()] * 4 + [frozenset(SHARDS[:2])]),
    doubtful=st.sampled_from([frozenset[ShardId]()] * 4 + [frozenset(SHARDS[1:3]), frozenset(SHARDS)]),
)
brokers_of = st.lists(candidates, unique_by=lambda one: one.node_id, max_size=len(NODES))
sound_brokers_of = brokers_of.map(
    lambda brokers: [replace(one, is_healthy=True, barred=frozenset(), doubtful=frozenset()) for one in brokers]
)
placements = st.dictionaries(st.sampled_from(SHARDS), st.frozensets(st.sampled_from(NODES), min_size=1))
shards_of = st.integers(0, len(SHARDS)).map(lambda count: SHARDS[:count])


@st.composite
def nominations_of(draw: st.DrawFn) -> Nominations:
    """Any that hold, by whatever brokers there once were."""
    found = {}
    for shard in SHARDS:
        if draw(st.booleans()):
            leader, *followers = draw(st.permutations(NODES))[: draw(st.integers(1, 4))]
            found[shard] = Nomination(
                shard=shard, generation=draw(st.integers(1, 9)), leader=leader, followers=tuple(sorted(followers))
            )
    return found


def electorate(
    shards: Sequence[ShardId], brokers: Sequence[LiveBroker], placement: Placement | None = None
) -> Electorate:
    placement = placement or {}
    return Electorate(
        shards=shards, brokers=brokers, may_lead=lambda shard, node_id: node_id in placement.get(shard, {node_id})
    )


def until_rest(known: Electorate, present: Nominations) -> tuple[Nominations, list[Nomination]]:
    """What holds in the end, and all changes on the way."""
    held, changes = dict(present), list[Nomination]()
    while found := plan(known, held):
        urgent = [one for one in found if not is_sound(known, held.get(one.shard))]
        assert len(found) == 1 or len(found) == len(urgent), "several changes that nobody waits for"
        for one in found:
            before = held.get(one.shard)
            assert one.generation == (before.generation + 1 if before else 1)
            held[one.shard] = one
        changes += found
        assert len(changes) <= 3 * len(known.shards) + len(known.shards) * len(known.brokers), "it does not settle"
    return held, changes


def fitness(known: Electorate, shard: ShardId, node_id: int) -> int:
    """0: it cannot lead; 1: if nobody else can; 2: if nobody is better, and what it leads; 3: well."""
    for broker in known.brokers:
        if broker.node_id == node_id and shard not in broker.barred and known.may_lead(shard, node_id):
            return 1 if shard in broker.doubtful else 3 if broker.is_healthy else 2
    return 0


def best(known: Electorate, shard: ShardId) -> int:
    return max((fitness(known, shard, broker.node_id) for broker in known.brokers), default=0)


def is_sound(known: Electorate, held: Nomination | None) -> bool:
    if held is None:
        return False
    return fitness(known, held.shard, held.leader) >= min(2, best(known, held.shard))


@given(shards_of, brokers_of, placements, nominations_of())
def test_in_the_end_a_broker_leads_that_can_and_new_leaders_are_the_fittest(shards, brokers, placement, present):
    known = electorate(shards, brokers, placement)

    held, _ = until_rest(known, present)

    for shard in shards:
        if best(known, shard):
            leader = held[shard].leader
            assert fitness(known, shard, leader) >= min(2, best(known, shard))
            if shard not in present or leader != present[shard].leader:
                assert fitness(known, shard, leader) == best(known, shard)
        elif shard not in present:
            assert shard not in held


@given(shards_of, brokers_of, placements, nominations_of())
def test_all_shards_that_need_another_leader_get_one_at_once(shards, brokers, placement, present):
    known = electorate(shards, brokers, placement)

    first = {one.shard for one in plan(known, present)}

    stuck = {shard for shard in shards if not is_sound(known, present.get(shard)) and best(known, shard)}
    if stuck:
        assert first == stuck


@given(shards_of, brokers_of, placements, nominations_of())
def test_a_change_names_only_brokers_that_are_up_and_may_lead(shards, brokers, placement, present):
    known = electorate(shards, brokers, placement)

    _, changes = until_rest(known, present)

    for one in changes:
        assert one.leader not in one.followers
        assert len(set(one.followers)) == len(one.followers)
        assert all(fitness(known, one.shard, follower) >= 1 for follower in one.followers)
        assert fitness(known, one.shard, one.leader) >= 1


@given(shards_of, brokers_of, placements, nominations_of())
def test_in_the_end_a_leader_has_two_followers_or_all_that_there_are_in_as_many_racks_as_can_be(
    shards, brokers, placement, present
):
    known = electorate(shards, brokers, placement)

    held, _ = until_rest(known, present)

    racks = {broker.node_id: broker.rack for broker in brokers}
    for shard in shards:
        if shard not in held or not fitness(known, shard, held[shard].leader):
            continue
        leader = held[shard].leader
        others = {fit: [] for fit in (1, 2, 3)}
        for broker in brokers:
            if broker.node_id != leader and (fit := fitness(known, shard, broker.node_id)):
                others[fit].append(broker.node_id)
        followers = [one for one in held[shard].followers if fitness(known, shard, one)]
        assert len(followers) >= min(FOLLOWERS, sum(map(len, others.values())))
        assert len(set(followers) & set(others[3])) >= min(FOLLOWERS, len(others[3]))
        if not others[1] and not others[2]:
            pairs = itertools.combinations(others[3], min(FOLLOWERS, len(others[3])))
            reachable = max(len({racks[one] for one in (leader, *pair)}) for pair in pairs)
            assert len({racks[one] for one in (leader, *followers)}) >= reachable


def sound(node_id: int) -> LiveBroker:
    return LiveBroker(node_id=node_id, rack=None, is_healthy=True, barred=frozenset())


@example(  # nobody that is up may lead the second shard, and broker 3 does not, though it is nominated
    shards=SHARDS[:4],
    brokers=[sound(2), sound(3), sound(4)],
    placement={SHARDS[1]: frozenset({1})},
    present={SHARDS[1]: Nomination(shard=SHARDS[1], generation=1, leader=3, followers=())},
)
@given(shards_of, sound_brokers_of, placements, nominations_of())
def test_in_the_end_shards_are_spread_as_evenly_as_placement_lets_them_be(shards, brokers, placement, present):
    known = electorate(shards, brokers, placement)

    held, _ = until_rest(known, present)

    choices = [[one.node_id for one in brokers if known.may_lead(shard, one.node_id)] for shard in shards]
    least = min(
        (sum(count**2 for count in Counter(leaders).values()) for leaders in itertools.product(*filter(None, choices))),
        default=0,
    )
    led = Counter(held[shard].leader for shard, choice in zip(shards, choices, strict=True) if choice)
    assert sum(count**2 for count in led.values()) == least


@given(shards_of, sound_brokers_of.filter(len), nominations_of())
def test_no_more_leaders_move_than_have_to(shards, brokers, present):
    known = electorate(shards, brokers)
    up = {broker.node_id for broker in brokers}
    present = {shard: one for shard, one in present.items() if one.leader in up}

    held, _ = until_rest(known, present)

    kept = {shard: present[shard].leader for shard in shards if shard in present}
    loads = sorted((Counter(kept.values())[one] for one in up), reverse=True)
    share, extra = divmod(len(shards), len(up))
    shares = [share + (index < extra) for index in range(len(up))]
    too_many = sum(max(0, load - fair) for load, fair in zip(loads, shares, strict=True))
    moved = [shard for shard, leader in kept.items() if held[shard].leader != leader]
    assert len(moved) <= too_many


@given(shards_of, sound_brokers_of.filter(lambda brokers: len(brokers) > 2), st.data())
def test_when_a_leader_dies_one_of_its_followers_leads_and_other_leaders_stay(shards, brokers, data):
    held, _ = until_rest(electorate(shards, brokers), {})
    dead = data.draw(st.sampled_from([broker.node_id for broker in brokers]))

    known = electorate(shards, [broker for broker in brokers if broker.node_id != dead])
    changes = plan(replace(known, may_balance=False), held)

    orphaned = {shard for shard in shards if held[shard].leader == dead}
    if orphaned:
        assert {one.shard for one in changes} == orphaned
        assert all(one.leader in held[one.shard].followers for one in changes)


@given(shards_of, sound_brokers_of.filter(len), nominations_of())
def test_no_leader_moves_for_balance_while_it_may_not(shards, brokers, present):
    known = replace(electorate(shards, brokers), may_balance=False)
    up = {broker.node_id for broker in brokers}

    held, _ = until_rest(known, present)

    for shard in shards:
        if shard in present and present[shard].leader in up:
            assert held[shard].leader == present[shard].leader


@given(shards_of, sound_brokers_of, nominations_of())
def test_in_the_end_copies_are_spread_as_evenly_as_racks_let_them_be(shards, brokers, present):
    brokers = [replace(one, rack=None) for one in brokers]
    known = electorate(shards, brokers)

    held, _ = until_rest(known, present)

    copies = Counter({broker.node_id: 0 for broker in brokers})
    for shard in shards if brokers else ():
        named = [one for one in (held[shard].leader, *held[shard].followers) if one in copies]
        assert len(named) == min(1 + FOLLOWERS, len(brokers))
        copies.update(named)
    led = Counter(held[shard].leader for shard in shards) if brokers else Counter()
    movable = {one: count for one, count in copies.items() if count > led[one]}
    assert max(movable.values(), default=0) - min(copies.values(), default=0) <= 1


@given(shards_of, brokers_of, placements, nominations_of(), st.data())
def test_it_settles_while_copies_do_not_catch_up_too(shards, brokers, placement, present, data):
    copies = st.none() | st.frozensets(st.sampled_from(SHARDS))
    brokers = [replace(one, ready=data.draw(copies)) for one in brokers]

    until_rest(electorate(shards, brokers, placement), present)


@given(shards_of, sound_brokers_of.filter(len), nominations_of(), st.data())
def test_no_broker_leads_for_balance_and_none_is_let_go_before_copies_have_caught_up(shards, brokers, present, data):
    up = {broker.node_id for broker in brokers}
    held = {shard: one for shard, one in present.items() if shard in shards and one.leader in up}
    ready = {one: {shard for shard, known in held.items() if known.leader == one} for one in up}

    for _ in range(200):
        known = electorate(shards, [replace(one, ready=frozenset(ready[one.node_id])) for one in brokers])
        changes = plan(known, held)
        for change in changes:
            before = held.get(change.shard)
            if before is not None and before.leader != change.leader:
                assert change.shard in ready[change.leader]
            if before is not None and before.leader == change.leader:
                gone = set(before.followers) - set(change.followers)
                if gone & up:
                    assert all(change.shard in ready[one] for one in change.followers) or not gone & {
                        one for one in up if change.shard in ready[one]
                    }
            held[change.shard] = change
        named = {one: {shard for shard, known in held.items() if one in (known.leader, *known.followers)} for one in up}
        behind = sorted((one, shard) for one in up for shard in named[one] - ready[one])
        ready = {one: ready[one] & named[one] for one in up}
        if behind and (not changes or data.draw(st.booleans())):
            one, shard = data.draw(st.sampled_from(behind))
            ready[one].add(shard)
        elif not changes:
            break
    else:
        raise AssertionError("it does not settle")


def test_a_follower_that_is_there_to_take_anothers_place_is_waited_for_and_not_let_go():
    """Once it was let go because all others had caught up, and named again because it had few copies, for ever."""
    named = [(2, (1, 5)), (5, (1, 2)), (4, (2, 5)), (3, (1, 5)), (2, (3, 5)), (1, (2, 5))]
    present = {
        shard: Nomination(shard=shard, generation=1, leader=leader, followers=followers)
        for shard, (leader, followers) in zip(SHARDS, named, strict=True)
    }
    ready = dict.fromkeys(NODES, frozenset(SHARDS)) | {4: frozenset({SHARDS[2]})}
    known = electorate(SHARDS, [replace(sound(one), ready=ready[one]) for one in NODES])

    held, changes = until_rest(known, present)
    assert [one.followers for one in changes] == [(1, 4, 5)]

    ready[4] |= {changes[0].shard}
    known = electorate(SHARDS, [replace(sound(one), ready=ready[one]) for one in NODES])
    assert [(one.shard, len(one.followers)) for one in plan(known, held)] == [(changes[0].shard, 2)]
