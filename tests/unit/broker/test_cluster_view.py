"""Where a broker has others told that its HTTP interface is."""

from __future__ import annotations

import uuid

import pytest
from pydantic import ValidationError

from diskless_core.broker.cluster_view import advertised_http
from diskless_core.broker.endpoint import Endpoint
from diskless_core.cluster.membership.model import HTTP_LISTENER, BrokerListener, BrokerSpec
from diskless_core.config.broker import BrokerConfig

ELSEWHERE = {"PLAINTEXT": Endpoint(1, "kafka.example.org", 9092), "INTERNAL": Endpoint(1, "10.0.0.6", 9093)}
HERE = {"PLAINTEXT": Endpoint(1, "127.0.0.1", 9092)}
BROKERS = {
    "listeners": "PLAINTEXT://0.0.0.0:9092,INTERNAL://10.0.0.6:9093",
    "advertised_listeners": "PLAINTEXT://kafka.example.org:9092,INTERNAL://10.0.0.6:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}
ADVERTISED = {"advertised_admin_listener": "http://admin.example.org:80"}
ANY_PORT = {"advertised_admin_listener": "http://admin.example.org:0"}


@pytest.mark.parametrize(
    ("listener", "more", "endpoints", "url"),
    [
        ("http://127.0.0.1:9644", {}, HERE, "http://127.0.0.1:5000"),
        ("http://[::1]:9644", {}, HERE, "http://[::1]:5000"),
        ("http://127.0.0.1:9644", BROKERS, ELSEWHERE, None),
        ("http://10.0.0.7:9644", BROKERS, ELSEWHERE, "http://10.0.0.7:5000"),
        ("http://0.0.0.0:9644", BROKERS, ELSEWHERE, "http://10.0.0.6:5000"),
        ("http://0.0.0.0:9644", {}, ELSEWHERE, "http://kafka.example.org:5000"),
        ("http://127.0.0.1:9644", BROKERS | ADVERTISED, ELSEWHERE, "http://admin.example.org:80"),
        ("http://0.0.0.0:9644", BROKERS | ANY_PORT, ELSEWHERE, "http://admin.example.org:5000"),
        ("", {}, ELSEWHERE, None),
    ],
)
def test_others_are_told_an_address_by_which_they_reach_it_or_none(
    listener: str, more: dict[str, str], endpoints: dict[str, Endpoint], url: str | None
) -> None:
    config = BrokerConfig.model_validate({"admin_listener": listener, **more})
    found = advertised_http(config, 5000, endpoints)
    listeners = () if found is None else (found,)
    assert registered(*listeners).http_url == url
    assert registered(*listeners).address == "kafka:9092"


def registered(*listeners: BrokerListener) -> BrokerSpec:

    first = BrokerListener("PLAINTEXT", "kafka", 9092)
    return BrokerSpec(node_id=1, incarnation_id=uuid.UUID(int=1), listeners=(first, *listeners), rack=None, features={})


def test_no_listener_of_kafkas_protocol_can_be_taken_for_it() -> None:
    with pytest.raises(ValidationError, match="is not of the form"):
        BrokerConfig.model_validate({"listeners": f"{HTTP_LISTENER}://127.0.0.1:1"})


@pytest.mark.parametrize(
    ("advertised", "listener", "problem"),
    [
        ("http://0.0.0.0:80", "http://0.0.0.0:9644", "no address that anybody can connect to"),
        ("http://a:80", "", "there is no HTTP interface"),
        ("https://a:80", "http://0.0.0.0:9644", "https"),
    ],
)
def test_an_address_that_nobody_could_use_is_refused(advertised: str, listener: str, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        BrokerConfig.model_validate({"admin_listener": listener, "advertised_admin_listener": advertised})
