"""Which versions are advertised and which are answered."""

from __future__ import annotations

import pytest

from diskless_core.broker.apis import CLIENT_APIS, INTER_BROKER_APIS
from diskless_core.broker.dispatch import ApiVersionRange, with_unstable
from diskless_core.protocol.messages import REQUESTS

PRODUCE, FETCH, LIST_OFFSETS, METADATA, INIT_PRODUCER_ID, COMMIT_FILE = 0, 1, 2, 3, 22, 95


def advertised(api_key: int) -> ApiVersionRange:
    return INTER_BROKER_APIS[api_key].advertised


def is_supported(api_key: int, version: int) -> bool:
    _, oldest, newest = INTER_BROKER_APIS[api_key].supported
    return oldest <= version <= newest


def test_produce_is_advertised_from_0_but_supported_from_3() -> None:
    assert advertised(PRODUCE) == (PRODUCE, 0, 13)
    assert [is_supported(PRODUCE, version) for version in (-1, 0, 2, 3, 13, 14)] == [False] * 3 + [True] * 2 + [False]


def test_the_oldest_version_is_that_of_the_schema() -> None:
    assert advertised(FETCH) == (FETCH, 4, 18)
    assert not is_supported(FETCH, 3)


@pytest.mark.parametrize(("api_key", "newest"), [(LIST_OFFSETS, 11), (INIT_PRODUCER_ID, 5)])
def test_versions_that_kafka_holds_back_are_held_back(api_key: int, newest: int) -> None:
    assert advertised(api_key).max_version == newest
    assert not is_supported(api_key, newest + 1)


def test_what_is_advertised_is_what_the_listener_serves_by_ascending_key() -> None:
    assert list(INTER_BROKER_APIS) == sorted(INTER_BROKER_APIS)
    assert list(CLIENT_APIS) == sorted(CLIENT_APIS)
    assert COMMIT_FILE in INTER_BROKER_APIS
    assert COMMIT_FILE not in CLIENT_APIS


def test_every_supported_version_can_be_decoded_and_answered() -> None:
    for api_key, api in INTER_BROKER_APIS.items():
        _, oldest, newest = api.supported
        for message_class in REQUESTS[api_key]:
            first, last = message_class.valid_versions
            assert first <= oldest <= newest <= last


def test_an_api_without_messages_is_not_supported() -> None:
    assert 999 not in INTER_BROKER_APIS


def test_unstable_versions_are_served_where_they_are_enabled_and_nothing_else_changes() -> None:
    unstable = with_unstable(CLIENT_APIS)
    more = {
        api.name: (CLIENT_APIS[api_key].newest, api.newest)
        for api_key, api in unstable.items()
        if api.advertised != CLIENT_APIS[api_key].advertised
    }

    assert more == {"Metadata": (13, 14), "DescribeTopicPartitions": (0, 1)}
    assert unstable[METADATA].handler is CLIENT_APIS[METADATA].handler
    assert list(unstable) == list(CLIENT_APIS)
