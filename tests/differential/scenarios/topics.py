"""Metadata, CreateTopics, CreatePartitions, ListPartitionReassignments, DeleteTopics, DescribeTopicPartitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.differential.language import NO_ID, UNKNOWN_ID, Ask, The, ask, scenario
from tests.differential.words import (
    create_topics,
    delete_topics,
    gone,
    metadata,
    new_topic,
    ready,
    topic,
)

BAD_NAMES = ("", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n")
NO_BROKER = 99


def by_id(*topics: tuple[str | None, Any]) -> Ask:
    asked = [{"name": name, "topic_id": topic_id} for name, topic_id in topics]
    return ask("Metadata", topics=asked, allow_auto_topic_creation=False)


def assigned(*brokers: tuple[int, ...], name: str = "$", partitions: int = -1, replicas: int = -1) -> dict[str, Any]:
    assignments = [{"partition_index": index, "broker_ids": list(ids)} for index, ids in enumerate(brokers)]
    return new_topic(name, partitions, replicas=replicas) | {"assignments": assignments}


def create_partitions(*topics: tuple[str, int, list[tuple[int, ...]] | None], validate_only: bool = False) -> Ask:
    asked = [
        {
            "name": name,
            "count": count,
            "assignments": None if wanted is None else [{"broker_ids": list(ids)} for ids in wanted],
        }
        for name, count, wanted in topics
    ]
    return ask("CreatePartitions", topics=asked, timeout_ms=10_000, validate_only=validate_only)


def describe(*names: str, limit: int = 2000, cursor: dict[str, Any] | None = None) -> Ask:
    return ask(
        "DescribeTopicPartitions",
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor,
    )


ALL_TOPICS = replace(ask("Metadata", topics=None, allow_auto_topic_creation=False), only_own=True)

SCENARIOS = (
    scenario(
        "metadata by name",
        topic(partitions=3),
        topic("$-b", save="b"),
        metadata("$"),
        metadata("$", "$-b"),
        metadata("$", "$"),
        about="Metadata",
    ),
    scenario("metadata of an unknown topic", metadata("$-absent"), about="Metadata 4+"),
    scenario(
        "metadata of an unknown topic in versions that create it",
        metadata("$-absent"),
        about="Metadata 0 1 2 3",
        differs=("topics created by Metadata",),
    ),
    scenario("metadata of no topic and of all", topic(), metadata(), ALL_TOPICS, about="Metadata 1+"),
    scenario(
        "metadata of all topics in the oldest version", topic(), replace(metadata(), only_own=True), about="Metadata 0"
    ),
    scenario("metadata of bad names", *(metadata(name) for name in BAD_NAMES), about="Metadata ends"),
    scenario("metadata of bad names that may be created", *(metadata(name, create=True) for name in BAD_NAMES)),
    scenario(
        "metadata creates a topic",
        metadata("$", create=False),
        metadata("$", create=True),
        ready(),
        metadata("$"),
        about="Metadata 4+",
        differs=("topics created by Metadata",),
    ),
    scenario(
        "metadata by id",
        topic(partitions=2),
        by_id((None, The("id"))),
        by_id((None, UNKNOWN_ID)),
        by_id((None, The("id")), (None, UNKNOWN_ID)),
        by_id(("$", The("id"))),
        by_id(("$-absent", The("id"))),
        about="Metadata 12+",
    ),
    scenario(
        "metadata without a name or an id",
        by_id((None, None)),
        about="Metadata 12+",
        differs=("errors that nobody caught",),
    ),
    scenario(
        "metadata by id in a version too old",
        topic(),
        by_id((None, The("id"))),
        about="Metadata 10 11",
        differs=("brokers in a refused Metadata",),
    ),
    scenario(
        "metadata with authorized operations",
        topic(),
        metadata("$", include_cluster_authorized_operations=True, include_topic_authorized_operations=True),
        about="Metadata 8+",
    ),
    scenario(
        "create a topic",
        create_topics(new_topic(partitions=3, retention_ms="1000")),
        ready(partitions=3),
        metadata("$"),
        create_topics(new_topic()),
        create_topics(new_topic(), validate_only=True),
        about="CreateTopics",
    ),
    scenario(
        "create a topic with defaults",
        create_topics(new_topic(partitions=-1)),
        ready(),
        metadata("$"),
        about="CreateTopics 4+",
    ),
    scenario(
        "create topics with defaults in a version too old",
        create_topics(new_topic(partitions=-1)),
        create_topics(new_topic(replicas=-1)),
        about="CreateTopics 2 3",
    ),
    scenario(
        "only validate a topic",
        create_topics(new_topic(replicas=1), validate_only=True),
        create_topics(new_topic(replicas=1), validate_only=True),
        metadata("$"),
        about="CreateTopics",
    ),
    scenario(
        "create topics with bad names",
        *(create_topics(new_topic(name, replicas=1)) for name in BAD_NAMES),
        create_topics(new_topic("$_a", replicas=1)),
        create_topics(new_topic("$.a", replicas=1)),
        about="CreateTopics ends",
    ),
    scenario(
        "create topics with bad counts",
        *(create_topics(new_topic(f"$-{count}", count, replicas=1)) for count in (0, -2)),
        *(create_topics(new_topic(f"$-r{count}", replicas=count)) for count in (0, -2, 2, 3)),
        about="CreateTopics ends",
    ),
    scenario(
        "create topics with assignments",
        create_topics(assigned((1,), (1,), name="$")),
        ready(partitions=2),
        metadata("$"),
        create_topics(assigned((NO_BROKER,), name="$-b")),
        create_topics(assigned((1, 1), name="$-c")),
        create_topics(assigned((), name="$-d")),
        create_topics(assigned((1,), name="$-e", partitions=1)),
        create_topics(assigned((1,), name="$-f", replicas=1)),
        create_topics(assigned((1,), (1, NO_BROKER), name="$-g")),
        create_topics(
            new_topic("$-h", -1) | {"assignments": [{"partition_index": index, "broker_ids": [1]} for index in (0, 2)]}
        ),
        create_topics(
            new_topic("$-i", -1) | {"assignments": [{"partition_index": 0, "broker_ids": [1]} for _ in range(2)]}
        ),
        about="CreateTopics ends",
    ),
    scenario(
        "create topics with configs",
        create_topics(new_topic("$-a", replicas=1, retention_ms="abc")),
        create_topics(new_topic("$-b", replicas=1, retention_ms="-2")),
        create_topics(new_topic("$-c", replicas=1, no_such_thing="1")),
        create_topics(new_topic("$-d", replicas=1, retention_ms=None)),
        create_topics(new_topic("$-e", replicas=1, cleanup_policy="keep")),
        create_topics(new_topic("$-f", replicas=1, max_message_bytes="1", retention_bytes="2147483648")),
        create_topics(new_topic("$-g", replicas=1, retention_ms="")),
        create_topics(new_topic("$-i", replicas=1, message_timestamp_type="logappendtime")),
        create_topics(new_topic("$-j", replicas=1, retention_ms=" 5 ")),
        about="CreateTopics ends",
    ),
    scenario(
        "a topic twice in a request",
        create_topics(new_topic(replicas=1), new_topic(replicas=1)),
        create_topics(new_topic("$-b", replicas=1), new_topic("$-c", 0, replicas=1), new_topic("", replicas=1)),
        create_topics(),
        about="CreateTopics ends",
    ),
    scenario(
        "more partitions",
        topic(),
        create_partitions(("$", 3, None)),
        ready(partitions=3),
        metadata("$"),
        *(create_partitions(("$", count, None)) for count in (3, 2, 0, -1)),
        create_partitions(("$-absent", 3, None)),
        create_partitions(("", 3, None)),
        create_partitions(("$", 5, None), validate_only=True),
        create_partitions(("$", 5, None), ("$", 6, None)),
        create_partitions(),
        metadata("$"),
        about="CreatePartitions",
    ),
    scenario(
        "more partitions with assignments",
        topic(),
        create_partitions(("$", 2, [])),
        create_partitions(("$", 2, [(1,), (1,)])),
        create_partitions(("$", 2, [(NO_BROKER,)])),
        create_partitions(("$", 2, [(1, 1)])),
        create_partitions(("$", 2, [()])),
        create_partitions(("$", 3, [(1,)])),
        create_partitions(("$", 2, [(1,)])),
        ready(partitions=2),
        metadata("$"),
        about="CreatePartitions ends",
    ),
    scenario(
        "partitions that are being moved",
        topic(),
        ask("ListPartitionReassignments", timeout_ms=10_000, topics=None),
        *(
            ask("ListPartitionReassignments", timeout_ms=10_000, topics=[{"name": name, "partition_indexes": indexes}])
            for name, indexes in (("$", [0, 7]), ("$", []), ("$-absent", [0]), ("", [0]))
        ),
        ask("ListPartitionReassignments", timeout_ms=10_000, topics=[]),
    ),
    scenario(
        "delete topics by name",
        topic(),
        delete_topics("$-absent"),
        delete_topics("$"),
        gone(),
        metadata("$"),
        delete_topics("$"),
        delete_topics(""),
        delete_topics(),
        about="DeleteTopics",
    ),
    scenario(
        "delete a topic twice in a request",
        topic(),
        delete_topics("$", "$"),
        metadata("$"),
        about="DeleteTopics",
    ),
    scenario(
        "delete topics by id",
        topic(),
        topic("$-b", save="b"),
        delete_topics(ids=[UNKNOWN_ID]),
        delete_topics(ids=[NO_ID]),
        delete_topics(ids=[The("b"), The("b")]),
        delete_topics("$", ids=[The("id")]),
        delete_topics(ids=[The("id"), UNKNOWN_ID]),
        gone(),
        delete_topics(ids=[The("id")]),
        about="DeleteTopics 6",
    ),
    scenario(
        "name and id together in a deletion",
        topic(),
        ask("DeleteTopics", topics=[{"name": "$", "topic_id": The("id")}], timeout_ms=10_000),
    ),
    scenario(
        "describe the partitions of topics",
        topic(partitions=3),
        topic("$-b", 2, save="b"),
        describe("$"),
        describe("$-b", "$", "$-absent"),
        describe("$", "$-b", limit=1),
        describe("$", "$-b", limit=3),
        describe("$", "$-b", limit=4),
        describe("$", "$-b", limit=0),
        describe("$", "$-b", cursor={"topic_name": "$", "partition_index": 1}),
        describe("$", "$-b", cursor={"topic_name": "$-b", "partition_index": 1}),
        describe("$", "$-b", cursor={"topic_name": "$-a", "partition_index": 0}),
        describe("$", cursor={"topic_name": "$", "partition_index": 3}),
        describe("$", cursor={"topic_name": "$", "partition_index": -1}),
    ),
    scenario("describe the partitions of bad names", describe("", "a b"), differs=("errors that nobody caught",)),
)
