"""Which versions are advertised and which are answered."""

from __future__ import annotations

import pytest

from diskless_core.protocol.api_versions import advertised, is_supported, supported_versions
from diskless_core.protocol.messages import REQUESTS

PRODUCE, FETCH, LIST_OFFSETS, INIT_PRODUCER_ID, COMMIT_FILE = 0, 1, 2, 22, 95


def test_produce_is_advertised_from_0_but_supported_from_3() -> None:
    assert advertised([PRODUCE]) == [(PRODUCE, 0, 13)]
    assert [is_supported(PRODUCE, version) for version in (-1, 0, 2, 3, 13, 14)] == [False] * 3 + [True] * 2 + [False]


def test_the_oldest_version_is_that_of_the_schema() -> None:
    assert advertised([FETCH]) == [(FETCH, 4, 18)]
    assert not is_supported(FETCH, 3)


@pytest.mark.parametrize(("api_key", "newest"), [(LIST_OFFSETS, 11), (INIT_PRODUCER_ID, 5)])
def test_versions_that_kafka_holds_back_are_held_back(api_key: int, newest: int) -> None:
    assert advertised([api_key])[0].max_version == newest
    assert not is_supported(api_key, newest + 1)


def test_what_is_advertised_is_what_the_listener_serves_by_ascending_key() -> None:
    assert [entry.api_key for entry in advertised({COMMIT_FILE, 18, PRODUCE})] == [PRODUCE, 18, COMMIT_FILE]
    with pytest.raises(KeyError):
        advertised([999])


def test_every_supported_version_can_be_decoded_and_answered() -> None:
    for api_key, api in REQUESTS.items():
        _, oldest, newest = supported_versions(api_key)
        for message_class in api:
            first, last = message_class.valid_versions
            assert first <= oldest <= newest <= last


def test_an_api_without_messages_is_not_supported() -> None:
    assert not is_supported(999, 0)
