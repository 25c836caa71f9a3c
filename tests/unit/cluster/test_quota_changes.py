"""Quotas of clients as the cluster shard decides them, and the filters that they are described by."""

from __future__ import annotations

import pytest

from diskless_core.cluster import quota_changes, quota_filters
from diskless_core.cluster.quota_changes import QuotaAlteration, QuotaChange
from diskless_core.cluster.quota_filters import Component, MatchType
from diskless_core.cluster.tables import CLIENT_QUOTAS
from diskless_core.protocol.errors import ErrorCode
from diskless_core.quotas.entities import decode_entity, entity_of
from tests.unit.cluster.cluster_state import ClusterState

EXACT, DEFAULT, SPECIFIED = MatchType
APP = {"client-id": "app"}


@pytest.fixture
def cluster():
    return ClusterState()


def alteration(parts, quotas):
    changes = [QuotaChange(*item) for item in (quotas.items() if isinstance(quotas, dict) else quotas)]
    return QuotaAlteration(parts=list(parts.items()) if isinstance(parts, dict) else parts, changes=changes)


def alter(cluster, *alterations, validate_only=False):
    return cluster.run(
        lambda command: quota_changes.alter_quotas(
            command, [alteration(*one) for one in alterations], validate_only=validate_only
        )
    )


def quotas_of(cluster):
    return {decode_entity(text): values for (text,), values in cluster.state.rows(CLIENT_QUOTAS)}


def test_quotas_are_set_changed_and_removed_key_by_key(cluster):
    assert alter(cluster, (APP, {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0})) == [None]
    assert alter(cluster, (APP, {"producer_byte_rate": 7.0, "consumer_byte_rate": None})) == [None]
    assert quotas_of(cluster) == {entity_of(APP): {"producer_byte_rate": 7.0}}

    assert alter(cluster, (APP, {"producer_byte_rate": None, "consumer_byte_rate": None})) == [None]
    assert quotas_of(cluster) == {}


def test_a_default_is_another_entity_than_any_name(cluster):
    parts = [{"user": None}, {"user": None, "client-id": "app"}, {"client-id": None, "user": "u"}]

    assert alter(cluster, *((one, {"producer_byte_rate": 5.0}) for one in parts)) == [None] * 3

    assert set(quotas_of(cluster)) == {entity_of(one) for one in parts}


@pytest.mark.parametrize(
    ("parts", "quotas", "hint"),
    [
        ({}, {"producer_byte_rate": 5.0}, "empty"),
        ([("user", "a"), ("user", "b")], {"producer_byte_rate": 5.0}, "twice"),
        ({"ip": "127.0.0.1"}, {"connection_creation_rate": 5.0}, "ip"),
        ({"group": "g"}, {"producer_byte_rate": 5.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 5.0}, "Empty user not supported"),
        (APP, {"request_percentage": 50.0}, "request_percentage"),
        (APP, {"controller_mutation_rate": 5.0}, "controller_mutation_rate"),
        (APP, {"consumer_byte_rate": 5.0, "producer_byte_rate": 0.0}, "greater than 0"),
        (APP, {"producer_byte_rate": -1.0}, "greater than 0"),
        (APP, {"producer_byte_rate": float("nan")}, "greater than 0"),
        (APP, {"producer_byte_rate": 1.5}, "fractional"),
        (APP, {"producer_byte_rate": float("inf")}, "too large"),
        (APP, [("producer_byte_rate", 5.0), ("producer_byte_rate", None)], "Duplicate quota key producer_byte_rate"),
    ],
)
def test_what_cannot_be_had_is_an_invalid_request_and_changes_nothing_of_that_entity(cluster, parts, quotas, hint):
    other = ({"client-id": "other"}, {"producer_byte_rate": 5.0})

    refusal, fine = alter(cluster, (parts, quotas), other)

    assert (refusal.code, fine) == (ErrorCode.INVALID_REQUEST, None)
    assert hint in refusal.message
    assert quotas_of(cluster) == {entity_of(other[0]): other[1]}


def test_an_entity_that_is_named_twice_is_refused(cluster):
    one, same = {"user": "u", "client-id": "c"}, {"client-id": "c", "user": "u"}

    refusals = alter(cluster, (one, {"producer_byte_rate": 5.0}), (same, {"producer_byte_rate": 6.0}))

    assert [refusal.code for refusal in refusals] == [ErrorCode.INVALID_REQUEST] * 2
    assert quotas_of(cluster) == {}


def test_validate_only_changes_nothing_and_finds_what_altering_would(cluster):
    answers = alter(
        cluster, (APP, {"producer_byte_rate": 5.0}), ({"user": "u"}, {"producer_byte_rate": 0.0}), validate_only=True
    )

    assert (answers[0], answers[1].code) == (None, ErrorCode.INVALID_REQUEST)
    assert quotas_of(cluster) == {}


USER, DEFAULT_USER, BOTH = {"user": "u"}, {"user": None}, {"user": "u", "client-id": "app"}
ALL = [USER, DEFAULT_USER, BOTH, APP]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, ALL),
        ([], True, []),
        ([("user", EXACT, "u")], False, [USER, BOTH]),
        ([("user", EXACT, "u")], True, [USER]),
        ([("user", DEFAULT, None)], False, [DEFAULT_USER]),
        ([("user", SPECIFIED, None)], False, [USER, DEFAULT_USER, BOTH]),
        ([("user", SPECIFIED, None)], True, [USER, DEFAULT_USER]),
        ([("user", EXACT, "u"), ("client-id", SPECIFIED, None)], True, [BOTH]),
        ([("client-id", EXACT, "absent")], False, []),
        ([("ip", SPECIFIED, None)], False, []),
    ],
)
def test_a_filter_lets_through_what_fulfils_all_its_conditions(components, strict, expected):
    quotas = {entity_of(one): {"producer_byte_rate": 5.0} for one in ALL}

    found = quota_filters.matching(quotas, [Component(*one) for one in components], strict=strict)

    assert found == {entity_of(one): {"producer_byte_rate": 5.0} for one in expected}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "u"), ("user", DEFAULT, None)], ErrorCode.INVALID_REQUEST),
        ([("group", EXACT, "g")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", SPECIFIED, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", SPECIFIED, None), ("user", SPECIFIED, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(components, code):
    assert quota_filters.matching({}, [Component(*one) for one in components], strict=False).code is code
