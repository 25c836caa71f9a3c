"""The hand-packed response of Produce has the bytes of the generic codec, in every version."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskless_core.protocol import produce_response
from diskless_core.protocol.messages import ProduceResponse
from diskless_core.protocol.produce_response import PartitionAnswer, ProduceAnswer, TopicAnswer

VERSIONS = range(3, 14)
FIELDS = PartitionAnswer._fields[1:]
int64 = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(
    PartitionAnswer,
    partition=st.integers(0, 2**31 - 1),
    error_code=st.integers(-1, 200),
    base_offset=int64,
    log_append_time_ms=int64,
    log_start_offset=int64,
    error_message=st.none() | st.text(max_size=20) | st.just("long" * 50),
)
topics = st.builds(
    TopicAnswer,
    name=st.sampled_from(["t", "a.topic", "n" * 249]),
    topic_id=st.binary(min_size=16, max_size=16),
    partitions=st.lists(partitions, max_size=3),
)


def generic(answer: ProduceAnswer, version: int) -> bytes:
    topic_class = ProduceResponse.TopicProduceResponse
    message = ProduceResponse(
        version=version,
        throttle_time_ms=answer.throttle_time_ms,
        responses=[
            topic_class(
                version=version,
                name=topic.name,
                topic_id=uuid.UUID(bytes=topic.topic_id),
                partition_responses=[
                    topic_class.PartitionProduceResponse(
                        version=version, index=index, record_errors=[], **dict(zip(FIELDS, rest, strict=True))
                    )
                    for index, *rest in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )
    return bytes(message.encode(version=version))


@given(
    version=st.sampled_from(VERSIONS),
    answer=st.builds(ProduceAnswer, topics=st.lists(topics, max_size=3), throttle_time_ms=st.integers(0, 2**31 - 1)),
)
def test_packed_bytes_equal_the_generic_codecs(version: int, answer: ProduceAnswer) -> None:
    assert produce_response.pack(answer, version) == generic(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_lengths_of_more_than_one_byte_are_packed_alike(version: int) -> None:
    many = [PartitionAnswer(index, 0, 7, -1, 0) for index in range(130)]
    answer = ProduceAnswer([TopicAnswer("t", bytes(range(16)), many)] * 130)
    assert produce_response.pack(answer, version) == generic(answer, version)


def test_all_versions_that_are_served_are_covered() -> None:
    first, last = ProduceResponse.valid_versions
    assert (first, last) == (VERSIONS[0], VERSIONS[-1])
