"""Every API in every version that ApiVersions names is answered, and the answer is a message of that version."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest

from diskless_core.broker.apis import CLIENT_APIS
from diskless_core.protocol.errors import ErrorCode
from tests.integration.plausible_requests import REQUESTS, Place
from tests.support.batches import batch_of
from tests.support.requests import append, create_topic, fetch_request, metadata_request, produce_request

UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION)
SERVED = {key: (api.advertised.min_version, api.advertised.max_version) for key, api in CLIENT_APIS.items()}
KAFKA_4_3 = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    38: (1, 3),
    39: (1, 2),
    40: (1, 2),
    41: (1, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    51: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    64: (0, 0),
    65: (0, 0),
    66: (0, 2),
    68: (0, 1),
    69: (0, 1),
    74: (0, 1),
    75: (0, 0),
    76: (1, 1),
    77: (1, 1),
    78: (1, 2),
    79: (1, 2),
    80: (0, 1),
    81: (0, 0),
    83: (0, 0),
    84: (0, 0),
    85: (0, 1),
    86: (0, 0),
    87: (0, 1),
    88: (0, 0),
    89: (0, 0),
    90: (0, 1),
    91: (0, 0),
    92: (0, 0),
}
"""What a broker of Apache Kafka 4.2 or 4.3 advertises, but for telemetry, which has to be configured."""

WRITE_TXN_MARKERS = 27
"""Between brokers only, and not there yet. The guess at a broker's version that kadm (franz-go) makes leaves it out."""

OLDEST_PRODUCE_VERSION = 3
"""Older ones are advertised only for librdkafka to see that there is compression (KAFKA-18659)."""


UNKNOWN_MEMBER = {25}
UNKNOWN_GROUP = {69}
NO_TRANSACTIONS = {int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)}
NO_SASL = {int(ErrorCode.ILLEGAL_SASL_STATE)}
NO_ACLS = {int(ErrorCode.SECURITY_DISABLED)}
NO_TOKENS = {int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)}
NO_SUCH_FEATURE = {UNSUPPORTED_VERSION}
EXPECTED_ERRORS = {
    11: {0, 79},
    12: UNKNOWN_MEMBER,
    13: {0} | UNKNOWN_MEMBER,
    14: UNKNOWN_MEMBER,
    15: {0} | UNKNOWN_GROUP,
    17: NO_SASL,
    20: {3},
    25: NO_TRANSACTIONS,
    26: NO_TRANSACTIONS,
    28: NO_TRANSACTIONS,
    **dict.fromkeys((29, 30, 31), NO_ACLS),
    34: {int(ErrorCode.LOG_DIR_NOT_FOUND)},
    36: NO_SASL,
    **dict.fromkeys((38, 39, 40, 41), NO_TOKENS),
    42: UNKNOWN_GROUP,
    43: {0, int(ErrorCode.ELECTION_NOT_NEEDED)},
    47: UNKNOWN_GROUP,
    50: {0, 91},
    51: NO_SUCH_FEATURE,
    64: {int(ErrorCode.BROKER_ID_NOT_REGISTERED)},
    65: {int(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)},
    69: UNKNOWN_GROUP,
    **dict.fromkeys((76, 77, 78, 79, 80, 81, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92), NO_SUCH_FEATURE),
}
"""Error codes that the plausible request gets, where it is not 0."""


def _error_codes(message: Any) -> set[int]:
    """Every error code anywhere in a response."""
    if isinstance(message, dict):
        own = {value for key, value in message.items() if key == "error_code"}
        return own.union(*map(_error_codes, message.values()))
    if isinstance(message, list):
        return set().union(*map(_error_codes, message))
    return set()


def test_the_apis_and_versions_of_apache_kafka_4_3_are_advertised(wire):
    response = wire.call(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 4)

    assert response.error_code == 0
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    assert advertised == SERVED
    assert advertised == {key: versions for key, versions in KAFKA_4_3.items() if key != WRITE_TXN_MARKERS}


@pytest.mark.parametrize(
    ("api_key", "version"),
    [
        (key, version)
        for key, (oldest, newest) in SERVED.items()
        for version in range(OLDEST_PRODUCE_VERSION if key == 0 else oldest, newest + 1)
    ],
)
def test_each_advertised_version_is_answered_in_that_version(wire, topic, api_key, version):
    place = Place(topic, create_topic(wire, topic), f"group-of-{topic}")
    append(wire, topic, batch_of(b"first"))
    request = REQUESTS[api_key](place, version)

    response = wire.call(request, version)

    assert _error_codes(response.to_dict()) <= EXPECTED_ERRORS.get(api_key, {0})


@pytest.mark.parametrize("version", range(OLDEST_PRODUCE_VERSION))
def test_produce_versions_that_are_advertised_for_compression_only_are_refused_as_kafka_does(wire, topic, version):
    create_topic(wire, topic)

    wire.send(produce_request(topic, {0: batch_of(b"v")}), version)

    assert wire.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_version_0(wire, version):
    wire.send_bytes(struct.pack(">ihhih4sb", 15, 18, version, 77, 4, b"wire", 0))

    frame = wire.receive_frame()

    assert frame is not None
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code, count) == (77, UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", frame, 10) == (18, 0, 4)
    assert len(frame) == 10 + 6 * count


def test_a_connection_goes_on_after_an_unknown_version_of_api_versions(wire):
    wire.send_bytes(struct.pack(">ihhih4sb", 15, 18, 50, 77, 4, b"wire", 0))
    wire.receive_frame()

    assert wire.call(ApiVersionsRequest(), 0).error_code == 0


def test_answers_come_in_the_order_of_the_requests_though_a_slow_one_is_first(wire, topic):
    create_topic(wire, topic)
    wire.send(fetch_request(topic, {0: 0}, max_wait_ms=400), 12)
    wire.send(ApiVersionsRequest(), 0)
    wire.send(metadata_request(topic), 9)

    assert type(wire.receive()).__name__ == "FetchResponse"
    assert len(wire.receive().api_keys) == len(SERVED)
    assert wire.receive().topics[0].name == topic


def test_requests_of_one_connection_are_processed_concurrently(broker, wire, topic):
    create_topic(wire, topic)
    wire.send(fetch_request(topic, {0: 0}, max_wait_ms=15_000), 12)
    wire.send(produce_request(topic, {0: batch_of(b"wakes the fetch before it")}), 9)

    fetched = wire.receive()

    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert wire.receive().responses[0].partition_responses[0].base_offset == 0


def test_produced_batches_of_one_connection_keep_their_order(wire, topic):
    create_topic(wire, topic)
    for number in range(50):
        wire.send(produce_request(topic, {0: batch_of(b"%d" % number)}), 9)

    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(50)]

    assert offsets == list(range(50))


@pytest.mark.parametrize("version", range(3, 14))
def test_no_leader_hints_are_in_produce_answers(wire, topic, version):
    topic_id = create_topic(wire, topic)
    response = wire.call(produce_request(topic, {0: batch_of(b"v"), 7: batch_of(b"v")}, topic_id=topic_id), version)

    assert [answer.error_code for answer in response.responses[0].partition_responses] == [0, 3]
    if version >= 10:
        assert response.node_endpoints in (None, [])
        hints = [answer.current_leader for answer in response.responses[0].partition_responses]
        assert all(hint is None or hint.leader_id == -1 for hint in hints)
