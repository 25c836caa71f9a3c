"""Bytes are counted by whether their two ends are in the same rack."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from diskless_core.broker.rack_traffic import ClientTraffic, PeerTraffic, Racks, relation
from diskless_core.metrics import Metrics
from diskless_core.protocol.messages import (
    DisklessCommitFileRequest,
    DisklessFindBatchesRequest,
    DisklessFollowShardRequest,
    DisklessReadObjectRequest,
    EnvelopeRequest,
)

RACKS = {"here": "a", "there": "b"}


def rack_of(client_id: str | None, host: str, listener: str, said: str | None) -> str | None:
    del host, listener
    return said or RACKS.get(client_id or "")


def connection() -> Any:
    return SimpleNamespace(peer="10.0.0.1:4711", listener="PLAINTEXT", traffic=None)


def counted(metrics: Metrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a", "a", Racks.SAME),
        ("a", "b", Racks.OTHER),
        (None, "b", Racks.UNKNOWN),
        ("a", None, Racks.UNKNOWN),
        ("", "", Racks.UNKNOWN),
    ],
)
def test_two_racks_that_are_known_are_the_same_or_not(one: str | None, other: str | None, expected: Racks) -> None:
    assert relation(one, other) is expected


@pytest.mark.parametrize(("client_id", "racks"), [("here", "same"), ("there", "other"), ("anybody", "unknown")])
def test_a_client_adds_to_the_counters_of_its_rack(client_id: str, racks: str) -> None:
    metrics = Metrics()

    found = ClientTraffic(metrics, "a", rack_of).of(connection(), client_id, None)
    found.produced.inc(7)

    assert counted(metrics, "diskless_client_bytes_total", kind="produced", racks=racks) == 7


def test_a_fetch_that_says_a_rack_settles_it_for_the_rest_of_the_connection() -> None:
    metrics, asking = Metrics(), connection()
    traffic = ClientTraffic(metrics, "a", rack_of)
    traffic.of(asking, "anybody", None).other.inc(1)
    fetch: Any = SimpleNamespace(rack_id="b")

    traffic.of(asking, "anybody", fetch).consumed.inc(10)
    traffic.of(asking, "anybody", None).consumed.inc(100)

    assert counted(metrics, "diskless_client_bytes_total", kind="other", racks="unknown") == 1
    assert counted(metrics, "diskless_client_bytes_total", kind="consumed", racks="other") == 110


def test_each_purpose_of_asking_another_broker_is_counted_apart() -> None:
    metrics = Metrics()
    there = PeerTraffic(metrics, "a", {2: "b"}.get).to(2)
    purposes = {
        DisklessCommitFileRequest.API_KEY: "commits",
        DisklessFollowShardRequest.API_KEY: "entries",
        EnvelopeRequest.API_KEY: "forwarded",
        DisklessReadObjectRequest.API_KEY: "objects",
        DisklessFindBatchesRequest.API_KEY: "questions",
    }
    for size, api_key in enumerate(purposes, start=1):
        there.sent(api_key, size)
        there.received(api_key, 100 * size)
    there.sent(-1, 9)

    for size, purpose in enumerate(purposes.values(), start=1):
        labels = {"purpose": purpose, "racks": "other"}
        assert counted(metrics, "diskless_inter_broker_bytes_total", direction="sent", **labels) == size
        assert counted(metrics, "diskless_inter_broker_bytes_total", direction="received", **labels) == 100 * size
    assert counted(metrics, "diskless_inter_broker_bytes_total", purpose="other", direction="sent", racks="other") == 9
