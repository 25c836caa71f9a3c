"""A client whose every byte kio wrote is understood, and kio reads every answer to its last byte."""

from __future__ import annotations

import struct

import pytest

from diskless_core.protocol.messages import KAFKA_APIS
from tests.differential.language import VERSIONS
from tests.integration.plausible_requests import REQUESTS, Place
from tests.support.batches import batch_of
from tests.support.kio_codec import kio_bytes, kio_class, kio_read
from tests.support.requests import append, create_topic

APIS = {api.request.__name__.removesuffix("Request"): key for key, api in KAFKA_APIS.items()}

TIMELESS = {"CreateDelegationToken", "ExpireDelegationToken", "RenewDelegationToken"}
"""They are refused with times of -1, as by Apache Kafka, and kio reads no negative time."""


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        pytest.param(APIS[name], version, id=f"{name}-v{version}")
        for name, versions in VERSIONS.items()
        if name not in TIMELESS
        for version in versions
    ],
)
def test_the_broker_and_kio_understand_each_other(wire, topic, api_key, version):
    place = Place(topic, create_topic(wire, topic), f"group-of-{topic}")
    append(wire, topic, batch_of(b"first"))
    api = KAFKA_APIS[api_key]
    plausible = bytes(REQUESTS[api_key](place, version).encode(version=version))
    request, size = kio_read(kio_class(api.request, version), plausible)
    assert size == len(plausible)
    header = type(request).__header_schema__(
        request_api_key=api_key, request_api_version=version, correlation_id=7, client_id="kio"
    )
    sent = kio_bytes(header) + kio_bytes(request)

    wire.send_bytes(struct.pack(">i", len(sent)) + sent)
    frame = wire.receive_frame()

    assert frame is not None
    response_class = kio_class(api.response, version)
    answered, header_size = kio_read(response_class.__header_schema__, frame)
    assert answered.correlation_id == 7
    response, size = kio_read(response_class, frame, header_size)
    assert header_size + size == len(frame)
    assert kio_bytes(response) == frame[header_size:]
