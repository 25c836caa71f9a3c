"""Error codes have Kafka's names and numbers."""

from __future__ import annotations

from kio.schema.errors import ErrorCode as KioErrorCode

from diskless_core.protocol.errors import ErrorCode


def test_names_numbers_and_retriability_are_those_of_another_kafka_library() -> None:
    ours = {error.name.lower(): (error.value, error.retriable) for error in ErrorCode}
    assert ours == {error.name: (error.value, error.retriable) for error in KioErrorCode}


def test_codes_are_numbers_of_the_protocol() -> None:
    assert ErrorCode(100) is ErrorCode.UNKNOWN_TOPIC_ID
    assert int(ErrorCode.OFFSET_OUT_OF_RANGE) == 1
    assert not ErrorCode.NONE.retriable
