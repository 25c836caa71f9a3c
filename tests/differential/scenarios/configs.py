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


LONG_MAX = str(2**63 - 1)
SETTINGS: Mapping[str, Sequence[str]] = {
    "cleanup.policy": ("delete", ""),
    "compression.gzip.level": ("1", "9", "-1"),
    "compression.lz4.level": ("1", "17"),
    "compression.type": ("zstd", "uncompressed", "producer", "gzip", "snappy", "lz4", " lz4 "),
    "compression.zstd.level": ("-131072", "22", "0"),
    "delete.retention.ms": ("0", LONG_MAX),
    "file.delete.delay.ms": ("0", " 5 "),
    "flush.messages": ("1", LONG_MAX),
    "flush.ms": ("0", "+7"),
    "follower.replication.throttled.replicas": ("*", "0:1,1:1", ""),
    "index.interval.bytes": ("0",),
    "leader.replication.throttled.replicas": ("0:1", "*"),
    "local.retention.bytes": ("-2", "-1", "5"),
    "local.retention.ms": ("-2", "-1", "5"),
    "max.compaction.lag.ms": ("1",),
    "max.message.bytes": ("0", "2147483647"),
    "message.timestamp.after.max.ms": ("0",),
    "message.timestamp.before.max.ms": ("0",),
    "message.timestamp.type": ("LogAppendTime", " CreateTime"),
    "min.cleanable.dirty.ratio": ("0.25", "0", "1", "1e-2"),
    "min.compaction.lag.ms": ("0",),
    "min.insync.replicas": ("1", "2"),
    "preallocate": ("true", "FALSE"),
    "remote.log.copy.disable": ("true",),
    "remote.log.delete.on.disable": ("true",),
    "remote.storage.enable": ("false",),
    "retention.bytes": ("-1", "-7", "0"),
    "retention.ms": ("-1", "0"),
    "segment.bytes": ("1048576",),
    "segment.index.bytes": ("1024", "4"),
    "segment.jitter.ms": ("0", "9"),
    "segment.ms": ("1",),
    "unclean.leader.election.enable": ("true",),
}
"""All settings of a topic with values that they take."""

BAD: Mapping[str, Sequence[str]] = {
    "cleanup.policy": ("keep", "delete,keep"),
    "compression.gzip.level": ("0", "10", "-2", "x"),
    "compression.lz4.level": ("0", "18"),
    "compression.type": ("no codec", "none", "", "ZSTD"),
    "compression.zstd.level": ("23", "-131073"),
    "delete.retention.ms": ("-1", "1.5"),
    "file.delete.delay.ms": ("-1",),
    "flush.messages": ("0", "9223372036854775808"),
    "flush.ms": ("-1", ""),
    "follower.replication.throttled.replicas": ("0", "0:1;1:1", "*,0:1"),
    "index.interval.bytes": ("-1",),
    "leader.replication.throttled.replicas": ("a:b", "0:"),
    "local.retention.bytes": ("-3",),
    "local.retention.ms": ("-3",),
    "max.compaction.lag.ms": ("0",),
    "max.message.bytes": ("-1", "2147483648"),
    "message.timestamp.after.max.ms": ("-1",),
    "message.timestamp.before.max.ms": ("-1",),
    "message.timestamp.type": ("Never", "createtime"),
    "min.cleanable.dirty.ratio": ("-0.1", "1.1", "x", ""),
    "min.compaction.lag.ms": ("-1",),
    "min.insync.replicas": ("0",),
    "preallocate": ("yes", ""),
    "remote.log.copy.disable": ("1",),
    "remote.log.delete.on.disable": ("no",),
    "remote.storage.enable": ("on",),
    "retention.bytes": ("many",),
    "retention.ms": ("-2",),
    "segment.bytes": ("1048575",),
    "segment.index.bytes": ("3",),
    "segment.jitter.ms": ("-1",),
    "segment.ms": ("0",),
    "unclean.leader.election.enable": ("maybe",),
}

OF_BROKERS: Mapping[str, Sequence[str]] = {
    "background.threads": ("10", "0", "x"),
    "compression.gzip.level": ("-1", "9", "0"),
    "compression.lz4.level": ("9", "18"),
    "compression.type": ("producer", "zstd", "none"),
    "compression.zstd.level": ("3", "23"),
    "follower.fetch.last.tiered.offset.enable": ("true", "no"),
    "follower.replication.throttled.rate": ("0", "-1"),
    "leader.replication.throttled.rate": ("1000", "x"),
    "log.cleaner.backoff.ms": ("0", "-1"),
    "log.cleaner.delete.retention.ms": ("0", "-1"),
    "log.cleaner.enable": ("false",),
    "log.cleaner.io.buffer.size": ("524288", "-1"),
    "log.cleaner.io.max.bytes.per.second": ("1.5", "x"),
    "log.cleaner.max.compaction.lag.ms": ("9", "0"),
    "log.cleaner.min.cleanable.ratio": ("0.1", "2"),
    "log.cleaner.min.compaction.lag.ms": ("9", "-1"),
    "log.cleaner.threads": ("1", "-1"),
    "log.cleanup.policy": ("delete", "keep"),
    "log.flush.interval.messages": ("9", "0"),
    "log.flush.interval.ms": ("9", "x"),
    "log.flush.scheduler.interval.ms": ("9",),
    "log.index.size.max.bytes": ("1024", "3"),
    "log.preallocate": ("true", "yes"),
    "log.retention.bytes": ("-5", "x"),
    "log.roll.jitter.hours": ("1",),
    "log.roll.jitter.ms": ("1", "x"),
    "log.segment.delete.delay.ms": ("0", "-1"),
    "max.connection.creation.rate": ("5", "-1"),
    "max.connections.per.ip": ("5", "-1"),
    "max.connections.per.ip.overrides": ("127.0.0.1:500",),
    "num.io.threads": ("8", "7", "16", "0", "x"),
    "num.network.threads": ("3", "4", "0"),
    "num.recovery.threads.per.data.dir": ("2", "3", "0"),
    "num.replica.fetchers": ("1", "2", "0"),
    "remote.log.manager.copy.max.bytes.per.second": ("9", "0"),
    "remote.log.manager.expiration.thread.pool.size": ("10", "11", "0"),
    "remote.log.manager.fetch.max.bytes.per.second": ("9", "0"),
    "remote.log.manager.follower.thread.pool.size": ("2", "0"),
    "replica.alter.log.dirs.io.max.bytes.per.second": ("9", "-1"),
    "transaction.partition.verification.enable": ("false", "x"),
    "unclean.leader.election.enable": ("true", "x"),
    "num.partitions": ("5",),
    "node.id": ("5",),
}
"""Settings of a broker with good values and, in most cases, a bad one last."""

SHOWN = (
    *("log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.delete.retention.ms"),
    *("log.cleaner.enable", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.buffer.size"),
    *("log.cleaner.io.max.bytes.per.second", "log.cleaner.max.compaction.lag.ms", "log.cleaner.min.cleanable.ratio"),
    *("log.cleaner.min.compaction.lag.ms", "log.cleaner.threads", "log.cleanup.policy", "log.preallocate"),
    *("log.flush.interval.messages", "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    *("log.index.size.max.bytes", "log.roll.jitter.hours", "log.roll.jitter.ms", "log.segment.delete.delay.ms"),
    *("compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level"),
    *("num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir"),
    *("background.threads", "max.connections.per.ip", "max.connections.per.ip.overrides"),
    *("max.connection.creation.rate", "unclean.leader.election.enable"),
)
"""Settings of a broker that tools ask for."""


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
        "configs of the broker that mean nothing here",
        *(describe(BROKER, "1", keys=[key]) for key in SHOWN),
    ),
    scenario(
        "every setting of a broker",
        *(
            change((name, SET, value), kind=BROKER, name=broker, validate_only=True)
            for name, values in OF_BROKERS.items()
            for value in values
            for broker in ("1", "")
        ),
    ),
    scenario(
        "settings of a broker that need a restart",
        *(
            change((name, SET, value), kind=BROKER, name="", validate_only=True)
            for name, value in {
                "group.consumer.assignment.interval.ms": "1000",
                "group.coordinator.cached.buffer.max.bytes": "1048588",
                "no.such.thing": "1",
                "producer.id.expiration.ms": "86400000",
                "remote.fetch.max.wait.ms": "500",
                "remote.list.offsets.request.timeout.ms": "30000",
                "remote.log.index.file.cache.total.size.bytes": "1073741824",
                "remote.log.manager.copier.thread.pool.size": "10",
                "remote.log.reader.threads": "10",
            }.items()
        ),
        differs=("settings of brokers that need a restart",),
    ),
    scenario(
        "listeners of a broker that is running",
        *(
            change((name, SET, value), kind=BROKER, name="1", validate_only=True)
            for name, value in {
                "listener.name.plaintext.max.connections": "100",
                "principal.builder.class": "no.such.Class",
                "ssl.keystore.location": "x",
                "sasl.jaas.config": "x",
            }.items()
        ),
        differs=("settings of brokers that need a restart",),
    ),
    scenario(
        "the number of replicas in sync, for one broker",
        change(("min.insync.replicas", SET, "1"), kind=BROKER, name="1", validate_only=True),
        change(("min.insync.replicas", SET, "1"), kind=BROKER, name="", validate_only=True),
        change(("min.insync.replicas", SET, "0"), kind=BROKER, name="", validate_only=True),
        differs=("min.insync.replicas of one broker",),
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
        "a topic that keeps everything",
        topic(cleanup_policy=""),
        describe(keys=["cleanup.policy"]),
        change(("cleanup.policy", APPEND, "delete")),
        settled("cleanup.policy", "delete"),
        change(("cleanup.policy", SUBTRACT, "delete")),
        settled("cleanup.policy", ""),
        change(("cleanup.policy", SET, "delete,delete")),
    ),
    scenario(
        "every setting of a topic",
        topic(**{name.replace(".", "_"): values[0] for name, values in SETTINGS.items()}),
        describe(keys=None),
        *(change((name, SET, value), validate_only=True) for name, values in SETTINGS.items() for value in values),
    ),
    scenario(
        "every setting of a topic that has none of its own",
        topic(),
        describe(keys=None),
    ),
    scenario(
        "values that can be written in several ways",
        topic(),
        create_topics(
            new_topic("$-b", flush_ms=" +07 ", preallocate="TRUE", compression_type="lz4 ", cleanup_policy="delete ,"),
            validate_only=True,
        ),
        change(
            ("flush.ms", SET, " +07 "),
            ("preallocate", SET, "TRUE"),
            ("compression.type", SET, " lz4"),
            ("leader.replication.throttled.replicas", SET, "0:1 , 1:1"),
            ("min.cleanable.dirty.ratio", SET, " 1e-4"),
        ),
        settled("min.cleanable.dirty.ratio", "1.0E-4"),
        describe(keys=["flush.ms", "preallocate", "compression.type", "leader.replication.throttled.replicas"]),
        *(
            replies
            for text, shown in (("1", "1.0"), (".5", "0.5"), ("0.0012", "0.0012"), ("0.00000012345", "1.2345E-7"))
            for replies in (
                change(("min.cleanable.dirty.ratio", SET, text)),
                settled("min.cleanable.dirty.ratio", shown),
            )
        ),
    ),
    scenario(
        "a bad value for every setting of a topic",
        topic(),
        *(change((name, SET, value), validate_only=True) for name, values in BAD.items() for value in values),
        *(create_topics(new_topic("$-b", **{name.replace(".", "_"): BAD[name][0]})) for name in BAD),
    ),
    scenario(
        "settings of a topic that contradict each other",
        topic(max_compaction_lag_ms="10"),
        change(("min.compaction.lag.ms", SET, "10")),
        change(("min.compaction.lag.ms", SET, "11")),
        change(("min.compaction.lag.ms", SET, "11"), ("max.compaction.lag.ms", SET, "11")),
        change(("max.compaction.lag.ms", SET, "10")),
        create_topics(new_topic("$-b", min_compaction_lag_ms="5", max_compaction_lag_ms="4")),
        create_topics(new_topic("$-b", remote_storage_enable="true")),
    ),
    scenario(
        "replicas that are throttled",
        topic(),
        change(("leader.replication.throttled.replicas", APPEND, "0:1")),
        change(("leader.replication.throttled.replicas", APPEND, "1:1,0:1")),
        settled("leader.replication.throttled.replicas", "0:1,1:1"),
        change(("leader.replication.throttled.replicas", SUBTRACT, "0:1")),
        settled("leader.replication.throttled.replicas", "1:1"),
        change(("leader.replication.throttled.replicas", SET, "*")),
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
