"""`coordinator_log=kafka` with an Apache Kafka of several brokers, which learn of a new topic one after the other."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Uuid

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

    def create_topics(self, topics: list[Any], **_: Any) -> Any:
        self.created += 1
        self._is_there = True
        return {topics[0].topic: _done(None)}

    def describe_topics(self, *_: Any, **__: Any) -> Any:
        if not self._knows():
            return {TOPIC: _unknown()}
        partition = SimpleNamespace(id=0, replicas=[1, 2, 3])
        return {TOPIC: _done(SimpleNamespace(topic_id=Uuid(0, 7), partitions=[partition]))}

    def describe_configs(self, *_: Any, **__: Any) -> Any:
        if not self._knows():
            return {TOPIC: _unknown()}
        return {TOPIC: _done({name: SimpleNamespace(value=value) for name, value in SETTINGS.topic_configs().items()})}

    def _knows(self) -> bool:
        knows = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return self._is_there and knows


def _done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def _unknown() -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
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
