"""`coordinator_log=kafka` with an Apache Kafka of several brokers, which learn of a new topic one after the other."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid
from confluent_kafka.admin import OffsetSpec

from diskless_core.plugin.coordinator_log import CoordinatorLogError
from diskless_core.plugin.shard import ShardId
from diskless_kafka.log_config import KafkaLogSettings
from diskless_kafka.log_topics import LogTopics
from diskless_kafka.topic_ids import TopicIds

SETTINGS = KafkaLogSettings.model_validate({"bootstrap.servers": "kafka:9092"})
SHARD, TOPIC = ShardId("__cluster_metadata", 0), "__diskless_cluster_metadata"


class LaggingKafka:
    """An admin client of a Kafka where `TOPIC` is, but of whose brokers the first ones that are asked do not know it.

    Args:
        answers: whether the broker of each description knows the topic, in turn; the last answer stays.
    """

    def __init__(self, answers: list[bool], *, is_there: bool) -> None:
        self.created = 0
        self._answers = answers
        self._is_there = is_there

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(topics={TOPIC: None} if self._is_there else {})

    def create_topics(self, topics: list[Any], *, validate_only: bool = False) -> Any:
        if self._is_there and validate_only:
            return {topics[0].topic: _failed(KafkaError.TOPIC_ALREADY_EXISTS)}
        if not validate_only:
            self.created += 1
            self._is_there = True
        return {topics[0].topic: _done(None)}

    def create_partitions(self, topics: list[Any], *, validate_only: bool = False) -> Any:
        if topics[0].new_total_count <= 1:
            return {topics[0].topic: _failed(KafkaError.INVALID_PARTITIONS)}
        self.created += not validate_only
        return {topics[0].topic: _done(None)}

    def describe_topics(self, *_: Any, **__: Any) -> Any:
        if not self._knows():
            return {TOPIC: _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)}
        partition = SimpleNamespace(id=0, replicas=[1, 2, 3])
        return {TOPIC: _done(SimpleNamespace(topic_id=Uuid(0, 7), partitions=[partition]))}

    def describe_configs(self, *_: Any, **__: Any) -> Any:
        if not self._knows():
            return {TOPIC: _failed(KafkaError.UNKNOWN_TOPIC_OR_PART)}
        return {TOPIC: _done({name: SimpleNamespace(value=value) for name, value in SETTINGS.topic_configs().items()})}

    def _knows(self) -> bool:
        knows = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._is_there and knows


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _failed(code: int) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


def topics_of(kafka: LaggingKafka, folder: Path) -> LogTopics:
    admin: Any = kafka
    return LogTopics(admin, SETTINGS, TopicIds(folder), threading.Event())


@pytest.mark.parametrize("answers", [[True, False, True], [False, True], [True, True, False, True]])
def test_a_topic_that_another_broker_has_just_created_is_waited_for(answers: list[bool], tmp_path: Path) -> None:
    kafka = LaggingKafka(answers, is_there=True)
    topics_of(kafka, tmp_path).check_all()
    assert kafka.created == 0


@pytest.mark.parametrize("answers", [[False, False, True], [False, True, False, True, True, False, True]])
def test_a_topic_is_created_though_some_brokers_do_not_know_it_yet(answers: list[bool], tmp_path: Path) -> None:
    kafka = LaggingKafka(answers, is_there=False)
    topics_of(kafka, tmp_path).ensure(SHARD)
    assert kafka.created == 1


def test_a_topic_that_stays_away_is_reported_once_nobody_waits_any_more(tmp_path: Path) -> None:
    closing = threading.Event()
    closing.set()
    admin: Any = LaggingKafka([False], is_there=True)
    topics = LogTopics(admin, SETTINGS, TopicIds(tmp_path), closing)
    with pytest.raises(CoordinatorLogError, match="is not there with 1 partition"):
        topics.check_all()


@pytest.mark.parametrize(("is_topic_there", "index"), [(False, 0), (False, 2), (True, 1), (True, 4)])
def test_who_asks_for_a_partition_that_is_not_there_does_not_create_it(
    is_topic_there: bool, index: int, tmp_path: Path
) -> None:
    kafka = LaggingKafka([True], is_there=is_topic_there)
    assert not topics_of(kafka, tmp_path).is_there(ShardId(SHARD.topic, index))
    assert kafka.created == 0


@pytest.mark.parametrize("answers", [[True], [False, True], [False, False, True], [True, False, True]])
def test_a_topic_that_a_broker_does_not_know_yet_is_not_taken_for_missing(answers: list[bool], tmp_path: Path) -> None:
    kafka = LaggingKafka(answers, is_there=True)
    assert topics_of(kafka, tmp_path).is_there(SHARD)
    assert kafka.created == 0


def test_a_topic_that_was_there_before_is_not_taken_for_one_that_was_never_written(tmp_path: Path) -> None:
    TopicIds(tmp_path).remember(TOPIC, uuid.UUID(int=7))
    ids = TopicIds(tmp_path)
    ids.load()
    admin: Any = LaggingKafka([True], is_there=False)
    with pytest.raises(CoordinatorLogError, match="is gone"):
        LogTopics(admin, SETTINGS, ids, threading.Event()).is_there(SHARD)


def test_a_topic_that_was_created_anew_is_not_pruned_for_the_one_before(tmp_path: Path) -> None:
    """The cluster was moved to another log and back, and the topics that were left were deleted in between."""
    ids = TopicIds(tmp_path)
    ids.remember(TOPIC, uuid.UUID(int=6))
    deleted = list[Any]()

    class Pruned(LaggingKafka):
        def delete_records(self, wanted: list[Any]) -> Any:
            deleted.extend(wanted)
            return {wanted[0]: _done(SimpleNamespace(low_watermark=wanted[0].offset))}

        def list_offsets(self, wanted: dict[Any, Any], **_: Any) -> Any:
            ((partition, position),) = wanted.items()
            offset = 0 if position._value == OffsetSpec.earliest()._value else 9
            return {partition: _done(SimpleNamespace(offset=offset))}

    admin: Any = Pruned([True], is_there=True)
    with pytest.raises(CoordinatorLogError, match="it was deleted and made anew"):
        LogTopics(admin, SETTINGS, ids, threading.Event()).prune(SHARD, 5)
    assert deleted == []
    admin = Pruned([True], is_there=True)
    assert topics_of(admin, tmp_path / "other").prune(SHARD, 5) == 5
    assert [one.offset for one in deleted] == [5]
