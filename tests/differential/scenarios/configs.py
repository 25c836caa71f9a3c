"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.differential.language import Ask, ask, scenario
from tests.differential.words import create_topics, new_topic, topic, until

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC_CONFIGS = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "retention.bytes",
    "retention.ms",
)


def describe(kind: int = TOPIC, name: str = "$", keys: Sequence[str] | None = TOPIC_CONFIGS, **options: Any) -> Ask:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return ask(
        "DescribeConfigs",
        **({"include_synonyms": False, "include_documentation": False} | options),
        resources=[resource],
    )


def alter(configs: Mapping[str, str | None], *, kind: int = TOPIC, name: str = "$", validate_only: bool = False) -> Ask:
    entries = [{"name": key, "value": value} for key, value in configs.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    return ask("AlterConfigs", resources=[resource], validate_only=validate_only)


def change(
    *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = "$", validate_only: bool = False
) -> Ask:
    entries = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": entries}
    return ask("IncrementalAlterConfigs", resources=[resource], validate_only=validate_only)


def settled(key: str, value: str) -> Ask:
    """Wait until a broker shows the value."""
    return until(describe(keys=[key]), {"results.0.configs.0.value": value})


def list_resources(*kinds: int) -> Ask:
    return replace(ask("ListConfigResources", resource_types=list(kinds)), only_own=True)


SCENARIOS = (
    scenario(
        "list resources with configs",
        topic(),
        topic("$-b", save="b"),
        *map(list_resources, (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)),
        list_resources(),
        list_resources(TOPIC, BROKER),
        list_resources(77),
        list_resources(0),
        about="ListConfigResources",
    ),
    scenario(
        "configs of a topic",
        topic(retention_ms="1234", message_timestamp_type="LogAppendTime"),
        describe(),
        describe(keys=["retention.ms", "no.such.thing"]),
        describe(keys=[]),
        about="DescribeConfigs",
    ),
    scenario(
        "configs of a topic with what they come from",
        topic(retention_ms="1234"),
        describe(include_synonyms=True, include_documentation=True),
        about="DescribeConfigs",
        differs=("where settings come from",),
    ),
    scenario(
        "configs of what is not there",
        topic(),
        describe(name="$-absent"),
        describe(name=""),
        describe(name="a b"),
        describe(BROKER, "99", keys=["node.id"]),
        describe(BROKER, "one", keys=["node.id"]),
        describe(3, "$"),
        describe(0, "$"),
        describe(77, "$"),
        ask("DescribeConfigs", resources=[]),
        about="DescribeConfigs ends",
    ),
    scenario(
        "configs of the broker",
        *(describe(BROKER, "1", keys=[key]) for key in ("num.partitions", "message.max.bytes", "no.such.thing")),
        describe(BROKER, "", keys=["num.partitions"]),
        about="DescribeConfigs ends",
    ),
    scenario(
        "change configs of a topic",
        topic(),
        change(("retention.ms", SET, "5")),
        settled("retention.ms", "5"),
        describe(),
        change(("retention.ms", DELETE, None), ("max.message.bytes", SET, "2000")),
        settled("max.message.bytes", "2000"),
        describe(),
        change(("retention.ms", SET, "7"), validate_only=True),
        describe(),
        about="IncrementalAlterConfigs",
    ),
    scenario(
        "change configs of a topic wrongly",
        topic(),
        change(("retention.ms", SET, "abc")),
        change(("retention.ms", SET, "-2")),
        change(("retention.ms", SET, None)),
        change(("no.such.thing", SET, "1")),
        change(("no.such.thing", DELETE, None)),
        change(("retention.ms", APPEND, "1")),
        change(("retention.ms", SUBTRACT, "1")),
        change(("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        change(("retention.ms", SET, "1"), ("max.message.bytes", SET, "x")),
        change(("cleanup.policy", SET, "keep")),
        change(("", SET, "1")),
        change(),
        describe(),
        about="IncrementalAlterConfigs",
    ),
    scenario(
        "change configs in a way that does not exist",
        topic(),
        change(("retention.ms", 9, "1")),
        differs=("errors that nobody caught",),
    ),
    scenario(
        "change a list",
        topic(),
        change(("cleanup.policy", APPEND, "delete")),
        change(("cleanup.policy", SUBTRACT, "compact")),
        describe(keys=["cleanup.policy"]),
    ),
    scenario(
        "a compacted topic",
        topic(),
        change(("cleanup.policy", SET, "compact")),
        change(("cleanup.policy", SET, "compact,delete")),
        change(("cleanup.policy", SET, "")),
        create_topics(new_topic("$-b", cleanup_policy="compact"), validate_only=True),
        differs=("no compaction",),
    ),
    scenario(
        "a topic with a codec of its own",
        topic(),
        change(("compression.type", SET, "zstd")),
        change(("compression.type", SET, "uncompressed")),
        change(("compression.type", SET, "no codec")),
        create_topics(new_topic("$-b", compression_type="lz4"), validate_only=True),
        create_topics(new_topic("$-c", compression_type="producer"), validate_only=True),
        differs=("batches are not compressed again",),
    ),
    scenario(
        "a number of replicas in sync",
        topic(),
        change(("min.insync.replicas", SET, "0")),
        change(("min.insync.replicas", SET, "two")),
        change(("min.insync.replicas", SET, "2")),
        settled("min.insync.replicas", "2"),
        describe(keys=["min.insync.replicas"]),
        create_topics(new_topic("$-b", min_insync_replicas="3"), validate_only=True),
    ),
    scenario(
        "change configs of what is not there",
        change(("retention.ms", SET, "5"), name="$-absent"),
        change(("retention.ms", SET, "5"), name=""),
        change(("retention.ms", SET, "5"), name="a b"),
        change(("retention.ms", SET, "5"), kind=3),
        change(("retention.ms", SET, "5"), kind=77),
        change(("num.partitions", SET, "5"), kind=BROKER, name="99"),
        change(("num.partitions", SET, "5"), kind=BROKER, name="one"),
        ask("IncrementalAlterConfigs", resources=[], validate_only=False),
        about="IncrementalAlterConfigs",
    ),
    scenario(
        "a resource twice in a request",
        topic(),
        ask(
            "IncrementalAlterConfigs",
            validate_only=False,
            resources=[
                {
                    "resource_type": TOPIC,
                    "resource_name": "$",
                    "configs": [{"name": "retention.ms", "config_operation": SET, "value": value}],
                }
                for value in ("1", "2")
            ],
        ),
        describe(),
    ),
    scenario(
        "replace the configs of a topic",
        topic(max_message_bytes="2000"),
        alter({"retention.ms": "5"}),
        settled("retention.ms", "5"),
        describe(),
        alter({"retention.ms": "abc"}),
        alter({"retention.ms": None}),
        alter({"no.such.thing": "1"}),
        alter({"retention.ms": "9"}, validate_only=True),
        alter({"retention.ms": "9"}, name="$-absent"),
        alter({}, name="$-absent"),
        describe(),
        alter({}),
        until(describe(keys=["retention.ms"]), {"results.0.configs.0.value": "604800000"}),
        describe(),
        about="AlterConfigs",
    ),
)
