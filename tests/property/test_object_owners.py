"""Brokers of a rack agree on who reads an object for all, and little changes hands when one of them comes or goes."""

from __future__ import annotations

import random
import uuid
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from diskless_core.fetch.object_owners import ObjectOwners, owner_of_slot
from diskless_core.wal.format import SLOTS, object_key, slot_of, slot_of_key

racks = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=12, unique=True)
slots = st.integers(0, SLOTS - 1)
ids = st.uuids(version=4)


@given(members=racks, slot=slots, order=st.randoms())
def test_the_order_in_which_brokers_are_known_does_not_matter(
    members: list[int], slot: int, order: random.Random
) -> None:
    shuffled = list(members)
    order.shuffle(shuffled)
    assert owner_of_slot(slot, members) == owner_of_slot(slot, shuffled)


@given(members=racks, slot=slots)
def test_when_a_broker_goes_only_what_it_had_changes_hands(members: list[int], slot: int) -> None:
    owner = owner_of_slot(slot, members)
    for gone in members:
        rest = [member for member in members if member != gone]
        if gone != owner and rest:
            assert owner_of_slot(slot, rest) == owner


def test_the_slots_are_spread_evenly() -> None:
    for size in (2, 3, 6, 20):
        counts = Counter(owner_of_slot(slot, range(1, size + 1)) for slot in range(SLOTS))
        fair = SLOTS / size
        assert len(counts) == size
        assert 0.7 * fair < min(counts.values()) <= max(counts.values()) < 1.3 * fair


@given(object_id=ids, prefix=st.sampled_from(["wal", "a/b-c", "x-1/y"]))
def test_a_key_has_the_slot_of_its_id(object_id: uuid.UUID, prefix: str) -> None:
    assert slot_of_key(object_key(prefix, 1_700_000_000_000, object_id)) == slot_of(object_id)


@settings(deadline=None, max_examples=20)
@given(members=racks, seed=st.integers(0, 2**32))
def test_a_broker_owns_the_objects_that_it_writes(members: list[int], seed: int) -> None:
    source, owners = random.Random(seed), ObjectOwners(members)

    def draw() -> uuid.UUID:
        return uuid.UUID(int=source.getrandbits(128))

    for member in members:
        drawn = [object_key("wal", 0, owners.draw_own(member, draw)) for _ in range(10)]
        own = sum(owners.owner_of(key) == member for key in drawn)
        assert own >= 9  # each misses once in 3,000 objects


def test_who_is_no_member_draws_once_and_other_keys_have_no_owner() -> None:
    drawn = [uuid.UUID(int=number) for number in (1, 2)]
    owners = ObjectOwners((1, 2))
    assert owners.draw_own(3, iter(drawn).__next__) == drawn[0]
    assert owners.owner_of("wal/probe/3") is None
    assert ObjectOwners(()).owner_of(object_key("wal", 0, drawn[0])) is None
