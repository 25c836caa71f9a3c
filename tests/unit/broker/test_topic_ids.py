"""What a client that named a topic by id or by name is told when the topic went meanwhile."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

import pytest

from diskless_core.broker.handlers import topic_ids
from diskless_core.cluster.topics import TopicInfo
from diskless_core.protocol.errors import ErrorCode
from tests.support.guarantees import guarantee
from tests.support.produce_path import RULES

OLD = TopicInfo(name="t", topic_id=uuid.UUID(int=5), partition_count=2, configs={}, effective_configs={}, rules=RULES)
NEW = replace(OLD, topic_id=uuid.UUID(int=6))
GONE = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@dataclass
class Known:
    """What the node knows of topics."""

    topics: list[TopicInfo] = field(default_factory=list)

    def by_name(self, name: str) -> TopicInfo | None:
        return next((info for info in self.topics if info.name == name), None)

    def by_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        return next((info for info in self.topics if info.topic_id == topic_id), None)


@pytest.mark.parametrize(
    ("version", "missing"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_topic_is_found_by_name_or_by_id_as_the_version_has_it(version: int, missing: ErrorCode) -> None:
    found = topic_ids.find(Known([OLD]), version, "t" if version < 13 else "", OLD.topic_id)
    assert found.partition(1) == (OLD, OLD.key(1))
    assert found.partition(2) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic_ids.find(Known(), version, "t", OLD.topic_id).partition(0) is missing
    assert topic_ids.find(Known([OLD]), 13, "t", None).partition(0) is ErrorCode.UNKNOWN_TOPIC_ID


@guarantee(
    "Deletion and retention",
    "An id and a name that belong to different topics are INCONSISTENT_TOPIC_ID where Apache Kafka says so.",
)
def test_who_asked_by_id_is_told_whether_the_topic_is_gone_or_replaced() -> None:
    found = topic_ids.find(Known([OLD]), 13, "", OLD.topic_id)
    inconsistent = ErrorCode.INCONSISTENT_TOPIC_ID
    assert found.client_error(GONE, Known(), inconsistent) is ErrorCode.UNKNOWN_TOPIC_ID
    assert found.client_error(GONE, Known([NEW]), inconsistent) is inconsistent
    assert found.client_error(GONE, Known([NEW])) is ErrorCode.UNKNOWN_TOPIC_ID
    assert found.client_error(GONE, Known([OLD])) is GONE
    assert found.client_error(ErrorCode.NONE, Known()) is ErrorCode.NONE
    assert found.client_error(ErrorCode.KAFKA_STORAGE_ERROR, Known()) is ErrorCode.KAFKA_STORAGE_ERROR


def test_who_asked_by_name_hears_nothing_of_ids() -> None:
    found = topic_ids.find(Known([OLD]), 12, "t", None)
    assert [found.client_error(GONE, Known(topics)) for topics in ([], [NEW], [OLD])] == [GONE] * 3


def test_a_client_that_asks_by_name_hears_of_no_id_that_a_coordinator_does_not_know() -> None:
    by_name = topic_ids.find(Known([OLD]), 12, "t", None)
    assert [by_name.client_error(ErrorCode.UNKNOWN_TOPIC_ID, Known(topics)) for topics in ([], [OLD])] == [GONE] * 2
