"""In which rack a client is."""

from __future__ import annotations

import pytest

from diskless_core.cluster.client_racks import ClientRacks, rack_in_client_id
from diskless_core.config.broker import BrokerConfig

ADDRESS = "10.0.17.3"


def racks(*, listeners="", networks=""):
    return ClientRacks(
        BrokerConfig.model_validate(
            {
                "listeners": "ZONE_A://127.0.0.1:1,ZONE_B://127.0.0.1:2,OTHER://127.0.0.1:3",
                "listener.security.protocol.map": "ZONE_A:PLAINTEXT,ZONE_B:PLAINTEXT,OTHER:PLAINTEXT",
                "diskless.client.racks.by.listener": listeners,
                "diskless.client.racks.by.network": networks,
            }
        )
    )


@pytest.mark.parametrize(
    ("client_id", "rack"),
    [
        ("diskless_az=eu-1a", "eu-1a"),
        ("orders diskless_az=eu-1a", "eu-1a"),
        ("orders,diskless_az=eu-1a,v=2", "eu-1a"),
        ("diskless_az=eu-1a|source->target|heartbeat", "eu-1a"),
        ("diskless_az=eu-1a diskless_az=eu-1b", "eu-1a"),
        ("diskless_az= diskless_az=eu-1b", "eu-1b"),
        ("diskless_az=a=b", "a=b"),
        ("diskless_az=", None),
        ("my-diskless_az=eu-1a", None),
        ("DISKLESS_AZ=eu-1a", None),
        ("orders", None),
        ("", None),
    ],
)
def test_a_client_id_says_the_rack_between_delimiters(client_id, rack):
    assert rack_in_client_id(client_id) == rack
    assert racks().rack_of(client_id, ADDRESS, "OTHER") == rack


def test_what_a_client_says_comes_before_what_is_known_of_its_way():
    known = racks(listeners="ZONE_A=by-listener", networks="10.0.0.0/8=by-network")

    assert known.rack_of("diskless_az=by-id", ADDRESS, "ZONE_A", "said") == "said"
    assert known.rack_of("diskless_az=by-id", ADDRESS, "ZONE_A", "") == "by-id"
    assert known.rack_of("orders", ADDRESS, "ZONE_A") == "by-listener"
    assert known.rack_of(None, ADDRESS, "OTHER") == "by-network"
    assert known.rack_of(None, "192.168.0.1", "OTHER") is None


@pytest.mark.parametrize(
    ("host", "rack"),
    [
        ("10.0.17.3", "narrow"),
        ("10.0.17.4", "host"),
        ("10.1.0.1", "wide"),
        ("::ffff:10.0.17.3", "narrow"),
        ("fd00::17", "six"),
        ("[fd00::17]", "six"),
        ("fd00::17%eth0", "six"),
        ("fe80::1", None),
        ("11.0.0.1", None),
        ("?", None),
        ("", None),
    ],
)
def test_the_smallest_range_that_has_the_address_counts(host, rack):
    networks = "10.0.0.0/8=wide, 10.0.17.4=host, 10.0.16.0/20=narrow, fd00::/8=six"

    assert racks(networks=networks).rack_of("orders", host, "OTHER") == rack


def test_with_one_rack_for_everybody_no_address_is_in_none():
    known = racks(networks="0.0.0.0/0=four,::/0=six")

    assert known.rack_of(None, "1.2.3.4", "OTHER") == "four"
    assert known.rack_of(None, "2001:db8::1", "OTHER") == "six"
