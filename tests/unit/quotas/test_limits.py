"""Which quota holds for a client, and with whom it shares it."""

from __future__ import annotations

import itertools

import pytest

from diskless_core.quotas.entities import decode_entity, encode_entity, entity_of
from diskless_core.quotas.limits import Bucket, Limit, Limits

USER, CLIENT = "ANONYMOUS", "app"
LEVELS = [
    ({"user": USER, "client-id": CLIENT}, Bucket(USER, CLIENT)),
    ({"user": USER, "client-id": None}, Bucket(USER, CLIENT)),
    ({"user": USER}, Bucket(USER, "")),
    ({"user": None, "client-id": CLIENT}, Bucket(USER, CLIENT)),
    ({"user": None, "client-id": None}, Bucket(USER, CLIENT)),
    ({"user": None}, Bucket(USER, "")),
    ({"client-id": CLIENT}, Bucket("", CLIENT)),
    ({"client-id": None}, Bucket("", CLIENT)),
]
"""From the most to the least specific, as in Apache Kafka's documentation."""

OTHERS = {
    entity_of({"user": "somebody"}): 1.0,
    entity_of({"client-id": "other"}): 2.0,
    entity_of({"user": USER, "client-id": "other"}): 3.0,
    entity_of({"user": "somebody", "client-id": CLIENT}): 4.0,
}


@pytest.mark.parametrize("present", [set(chosen) for n in (1, 2, 8) for chosen in itertools.combinations(range(8), n)])
def test_the_most_specific_quota_holds(present):
    quotas = {entity_of(LEVELS[level][0]): 100.0 + level for level in present}

    assert Limits(quotas | OTHERS).of(USER, CLIENT) == Limit(LEVELS[min(present)][1], 100.0 + min(present))


def test_without_a_quota_of_its_own_or_a_default_a_client_is_not_limited():
    assert Limits(OTHERS).of(USER, CLIENT) is None
    assert not Limits({})


def test_however_many_client_ids_there_are_the_answers_are_right():
    limits = Limits({entity_of({"client-id": None}): 5.0, entity_of({"client-id": "c1"}): 6.0})

    for number in [*range(10_010), 1, 2]:
        limit = limits.of(USER, f"c{number}")
        assert limit == Limit(Bucket("", f"c{number}"), 6.0 if number == 1 else 5.0)


@pytest.mark.parametrize("parts", [parts for parts, _ in LEVELS] + [{"client-id": 'ä"\n'}])
def test_an_entity_as_text_is_the_same_whatever_the_order_of_its_parts(parts):
    entity = entity_of(dict(reversed(parts.items())))

    assert encode_entity(entity) == encode_entity(entity_of(parts))
    assert decode_entity(encode_entity(entity)) == entity
