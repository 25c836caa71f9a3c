"""The settings of a broker that can be altered while it runs, and those of Kafka's that mean nothing here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from diskless_core.cluster import topic_configs
from diskless_core.cluster.config_model import ConfigType
from diskless_core.cluster.config_values import MAX_INT, MAX_LONG, ValueCheck, anything, boolean, decimal, number
from diskless_core.cluster.topic_configs import TopicConfig
from diskless_core.config.describe import SettingDescription

MAX_CONNECTIONS = "max.connections"

_NO_COMPACTION = "There are no compacted topics."
_NO_THREADS = "All requests are served by one event loop."
_NO_REPLICAS = "Brokers do not copy records from each other."
_NO_FILES = "Records are not in local files."
_ROLL_BY_TOPIC = "Segments are made when there is something to put in them."


def _without_effect(
    type: ConfigType,  # noqa: A002  # as TopicConfig has it
    check: ValueCheck,
    default: str,
    help: str,  # noqa: A002
) -> TopicConfig:
    return TopicConfig(type=type, check=check, default=default, help=help, has_effect=False)


_INT, _LONG, _DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE

_OF_TOPICS: Mapping[str, TopicConfig] = {
    name: config for name, config in topic_configs.FOLLOWED.items() if not config.has_effect
}

_OF_BROKERS: Mapping[str, TopicConfig] = {
    "background.threads": _without_effect(
        _INT, number(1, MAX_INT), "10", f"Threads for what goes on in the background. {_NO_THREADS}"
    ),
    "follower.fetch.last.tiered.offset.enable": _without_effect(
        ConfigType.BOOLEAN,
        boolean,
        "false",
        f"Whether an empty replica would begin behind the segments. {_NO_REPLICAS}",
    ),
    "follower.replication.throttled.rate": _without_effect(
        _LONG,
        number(0, MAX_LONG),
        str(MAX_LONG),
        f"Bytes a second that a throttled replica would fetch. {_NO_REPLICAS}",
    ),
    "leader.replication.throttled.rate": _without_effect(
        _LONG, number(0, MAX_LONG), str(MAX_LONG), f"Bytes a second that throttled replicas would get. {_NO_REPLICAS}"
    ),
    "log.cleaner.backoff.ms": _without_effect(
        _LONG, number(0, MAX_LONG), "15000", f"Wait between looks for logs to compact, in ms. {_NO_COMPACTION}"
    ),
    "log.cleaner.dedupe.buffer.size": _without_effect(
        _LONG, number(-MAX_LONG - 1, MAX_LONG), "134217728", f"Memory for the keys of a compaction. {_NO_COMPACTION}"
    ),
    "log.cleaner.io.buffer.load.factor": _without_effect(
        _DOUBLE, decimal(), "0.9", f"How full the memory for keys may become. {_NO_COMPACTION}"
    ),
    "log.cleaner.io.buffer.size": _without_effect(
        _INT, number(0, MAX_INT), "524288", f"Memory for what a compaction reads and writes. {_NO_COMPACTION}"
    ),
    "log.cleaner.io.max.bytes.per.second": _without_effect(
        _DOUBLE, decimal(), "1.7976931348623157E308", f"Bytes a second of all compactions. {_NO_COMPACTION}"
    ),
    "log.cleaner.threads": _without_effect(
        _INT, number(0, MAX_INT), "1", f"Threads that compact logs. {_NO_COMPACTION}"
    ),
    "max.connection.creation.rate": _without_effect(
        _INT, number(0, MAX_INT), str(MAX_INT), "New connections a second. They are limited by max.connections alone."
    ),
    "max.connections.per.ip": _without_effect(
        _INT, number(0, MAX_INT), str(MAX_INT), "Connections of one address. They are limited by max.connections alone."
    ),
    "max.connections.per.ip.overrides": _without_effect(
        ConfigType.STRING, anything, "", "Other limits for some addresses. max.connections alone limits connections."
    ),
    "metric.reporters": _without_effect(
        ConfigType.LIST, anything, "", "Java classes that get the metrics. They are at /metrics of admin.listener."
    ),
    "num.io.threads": _without_effect(_INT, number(1, MAX_INT), "8", f"Threads that serve requests. {_NO_THREADS}"),
    "num.network.threads": _without_effect(
        _INT, number(1, MAX_INT), "3", f"Threads that receive requests and send answers. {_NO_THREADS}"
    ),
    "num.recovery.threads.per.data.dir": _without_effect(
        _INT, number(1, MAX_INT), "2", f"Threads that read logs when the broker starts. {_NO_FILES}"
    ),
    "num.replica.fetchers": _without_effect(
        _INT, number(1, MAX_INT), "1", f"Threads that fetch from each other broker. {_NO_REPLICAS}"
    ),
    "remote.log.manager.copy.max.bytes.per.second": _without_effect(
        _LONG, number(1, MAX_LONG), str(MAX_LONG), "Bytes a second that go into remote storage. They are not limited."
    ),
    "remote.log.manager.expiration.thread.pool.size": _without_effect(
        _INT, number(1, MAX_INT), "10", "Threads that remove old segments. It takes none of its own."
    ),
    "remote.log.manager.fetch.max.bytes.per.second": _without_effect(
        _LONG, number(1, MAX_LONG), str(MAX_LONG), "Bytes a second that come from remote storage. They are not limited."
    ),
    "remote.log.manager.follower.thread.pool.size": _without_effect(
        _INT, number(1, MAX_INT), "2", f"Threads that follow the segments of leaders. {_NO_REPLICAS}"
    ),
    "replica.alter.log.dirs.io.max.bytes.per.second": _without_effect(
        _LONG, number(0, MAX_LONG), str(MAX_LONG), f"Bytes a second between folders of a broker. {_NO_FILES}"
    ),
    "transaction.partition.verification.enable": _without_effect(
        ConfigType.BOOLEAN, boolean, "true", "Whether transactions are verified. There are no transactions."
    ),
}

WITHOUT_EFFECT: Mapping[str, TopicConfig] = dict(sorted({**_OF_TOPICS, **_OF_BROKERS}.items()))
"""Apache Kafka's settings that can be altered while a broker runs and have nothing to change here. They are kept."""

_FIXED: Mapping[str, TopicConfig] = {
    "log.cleaner.enable": _without_effect(
        ConfigType.BOOLEAN, boolean, "true", f"Whether topics are compacted whose policy says so. {_NO_COMPACTION}"
    ),
    "log.flush.scheduler.interval.ms": _without_effect(
        _LONG, number(-MAX_LONG - 1, MAX_LONG), str(MAX_LONG), f"Looks for files to force to their disk. {_NO_FILES}"
    ),
    "log.roll.jitter.hours": _without_effect(
        _INT, number(0, MAX_INT), "0", f"By how many hours segments would begin apart. {_ROLL_BY_TOPIC}"
    ),
}
"""Kafka's settings without an effect here that can't be altered either, and that are asked for with those."""

ALTERABLE: Mapping[str, TopicConfig] = {
    **topic_configs.FOLLOWED,
    MAX_CONNECTIONS: TopicConfig(
        type=ConfigType.INT,
        help="How many client connections the broker accepts at the same time.",
        check=number(1, MAX_INT),
    ),
    **WITHOUT_EFFECT,
}
"""Those that topics follow, those that the broker itself asks for whenever it needs them, and those without effect."""


def only_in_kafka(described: Iterable[str]) -> Sequence[SettingDescription]:
    """Kafka's settings that are shown besides those that `described` has already."""
    return [
        SettingDescription(
            name=name,
            type=config.type.name.lower(),
            required=False,
            default=_default(config),
            valid_values=config.check.valid_values,
            secret=False,
            environment="",
            help=config.help,
        )
        for name, config in sorted({**WITHOUT_EFFECT, **_FIXED}.items())
        if name not in set(described)
    ]


def _default(config: TopicConfig) -> str | None:
    """None for what a coarser setting decides."""
    return config.default or (None if len(config.follows) > 1 else "")


def without_effect(names: Iterable[str]) -> Sequence[str]:
    """Those of a broker's settings that change nothing here."""
    return [name for name in names if name in WITHOUT_EFFECT]
