"""Registrations that no broker would send: nothing of them is written."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from diskless_core.cluster.membership import wire
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.operations import Refusal
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import BrokerRegistrationRequest

CLUSTER_ID = "c"
LONGEST = "n" * wire.MAX_TEXT

Listener = BrokerRegistrationRequest.Listener
Feature = BrokerRegistrationRequest.Feature


def listener(name: str = "CLIENTS", host: str = "h", port: int = 9092) -> Listener:
    return Listener(name=name, host=host, port=port, security_protocol=0)


def feature(name: str = "f", oldest: int = 1, newest: int = 1) -> Feature:
    return Feature(name=name, min_supported_version=oldest, max_supported_version=newest)


def registration(**changes: Any) -> BrokerRegistrationRequest:
    fields: Mapping[str, Any] = {
        "broker_id": 1,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": uuid.UUID(int=17),
        "listeners": [listener()],
        "features": [feature()],
        "rack": None,
        "allocation_id": None,
    }
    return BrokerRegistrationRequest(**fields | changes)


def refused(**changes: Any) -> ErrorCode:
    found = wire.spec_of(registration(**changes), CLUSTER_ID)
    assert isinstance(found, Refusal)
    assert found.message
    return found.code


def test_a_registration_within_all_bounds_is_taken() -> None:
    request = registration(
        rack=LONGEST,
        listeners=[listener(f"{number}".rjust(wire.MAX_TEXT, "n"), LONGEST) for number in range(wire.MAX_LISTENERS)],
        features=[feature(f"{number}".rjust(wire.MAX_TEXT, "n")) for number in range(wire.MAX_FEATURES)],
    )
    assert isinstance(wire.spec_of(request, CLUSTER_ID), BrokerSpec)


@pytest.mark.parametrize(
    "changes",
    [
        {"broker_id": -1},
        {"incarnation_id": None},
        {"listeners": []},
        {"listeners": [listener(), listener(host="other")]},
    ],
)
def test_a_broker_without_what_makes_one_is_refused(changes: Mapping[str, Any]) -> None:
    assert refused(**changes) is ErrorCode.INVALID_REQUEST


def test_a_broker_of_another_cluster_is_refused() -> None:
    assert refused(cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.parametrize(
    "changes",
    [
        {"rack": LONGEST + "n"},
        {"listeners": [listener(LONGEST + "n")]},
        {"listeners": [listener(host=LONGEST + "n")]},
        {"listeners": [listener(f"L{number}") for number in range(wire.MAX_LISTENERS + 1)]},
        {"features": [feature(LONGEST + "n")]},
        {"features": [feature(f"f{number}") for number in range(wire.MAX_FEATURES + 1)]},
    ],
)
def test_a_registration_that_would_fill_logs_and_memories_is_refused(changes: Mapping[str, Any]) -> None:
    assert refused(**changes) is ErrorCode.INVALID_REGISTRATION


@pytest.mark.parametrize(
    "changes",
    [
        {"listeners": [listener(port=0)]},
        {"features": [feature(oldest=2, newest=1)]},
        {"features": [feature(oldest=-1)]},
    ],
)
def test_a_registration_that_no_broker_can_mean_is_refused(changes: Mapping[str, Any]) -> None:
    assert refused(**changes) is ErrorCode.INVALID_REGISTRATION
