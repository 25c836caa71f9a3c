"""`diskless.client.racks.by.listener` and `.by.network` as an operator writes them."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from diskless_core.config.broker import BrokerConfig
from diskless_core.config.describe import configured

BY_LISTENER, BY_NETWORK = "diskless.client.racks.by.listener", "diskless.client.racks.by.network"


def test_racks_come_back_as_they_were_written():
    written = {BY_LISTENER: "PLAINTEXT=eu-1a", BY_NETWORK: "10.0.16.0/20=eu-1a, fd00::/8=eu-1b ,10.1.2.3=eu-1c"}

    assert {
        key: value for key, value in configured(BrokerConfig.model_validate(written)).items() if key in written
    } == {
        BY_LISTENER: "PLAINTEXT=eu-1a",
        BY_NETWORK: "10.0.16.0/20=eu-1a,fd00::/8=eu-1b,10.1.2.3/32=eu-1c",
    }


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (BY_LISTENER, "PLAINTEXT", "'PLAINTEXT' is not of the form <listener>=<rack>"),
        (BY_LISTENER, "PLAINTEXT=", "is not of the form <listener>=<rack>"),
        (BY_LISTENER, "=eu-1a", "is not of the form <listener>=<rack>"),
        (BY_LISTENER, "PLAINTEXT=a,PLAINTEXT=b", "PLAINTEXT is there twice"),
        (BY_LISTENER, "ZONE_A=a", "'ZONE_A' is none of the listeners, which are PLAINTEXT"),
        (BY_NETWORK, "10.0.0.0/8", "'10.0.0.0/8' is not of the form <address>/<bits>=<rack>"),
        (BY_NETWORK, "10.0.0.0/8=", "is not of the form <address>/<bits>=<rack>"),
        (BY_NETWORK, "10.0.0.0/33=a", "'10.0.0.0/33' is no range of addresses"),
        (BY_NETWORK, "10.0.0.1/8=a", "10.0.0.1/8 has host bits set"),
        (BY_NETWORK, "broker.example=a", "'broker.example' is no range of addresses"),
        (BY_NETWORK, "10.0.0.0/8=a,10.0.0.0/8=b", "10.0.0.0/8 is there twice"),
    ],
)
def test_what_means_nothing_is_refused(key, text, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        BrokerConfig.model_validate({key: text})
