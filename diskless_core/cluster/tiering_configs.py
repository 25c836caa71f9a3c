"""What a topic's settings say of tiered storage, and which of them go together. Pure, as Apache Kafka has it."""

from __future__ import annotations

from collections.abc import Mapping

from diskless_core.cluster.config_values import InvalidTopicConfigError, value_of_boolean
from diskless_core.cluster.topic_configs import COPY_DISABLE, FOLLOWS_RETENTION, STORAGE_ENABLE
from diskless_core.tiering.planning import OFF, SegmentRules, TopicTiering

_KEEP_FOR_EVER = -1


def is_on(configs: Mapping[str, str], name: str) -> bool:
    """The value of a boolean setting that has passed its check."""
    return value_of_boolean(configs[name])


def check_tiering(configs: Mapping[str, str], *, was_tiered: bool, is_enabled: bool) -> None:
    """Check that settings can be had together.

    Args:
        configs: all settings of a topic, defaults included.
        was_tiered: whether the topic had `remote.storage.enable=true` before.
        is_enabled: the broker's `remote.log.storage.system.enable`.

    Raises:
        InvalidTopicConfigError: they cannot.
    """
    if not is_on(configs, STORAGE_ENABLE):
        if was_tiered:
            raise InvalidTopicConfigError(
                "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote "
                f"data and turn to read only, please set `{STORAGE_ENABLE}=true,{COPY_DISABLE}=true`."
            )
        return
    if not is_enabled:
        raise InvalidTopicConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    for unit in ("bytes", "ms"):
        _check_local_retention(configs, f"local.retention.{unit}", f"retention.{unit}")


def _check_local_retention(configs: Mapping[str, str], local_name: str, name: str) -> None:
    local, total = int(configs[local_name]), int(configs[name])
    if is_on(configs, COPY_DISABLE) and local not in (FOLLOWS_RETENTION, total):
        raise InvalidTopicConfigError(
            f"When `{COPY_DISABLE}` is set to true, the `{local_name}` and `{name}` must be set to the identical value "
            "because there will be no more logs copied to the remote storage."
        )
    if total <= _KEEP_FOR_EVER or local == FOLLOWS_RETENTION:
        return
    prefix = f"Invalid value {local} for configuration {local_name}: "
    if local == _KEEP_FOR_EVER:
        raise InvalidTopicConfigError(f"{prefix}Value must not be -1 as {name} value is set as {total}.")
    if local > total:
        raise InvalidTopicConfigError(f"{prefix}Value must not be more than {name} property value: {total}")


def topic_tiering(topic: str, configs: Mapping[str, str]) -> TopicTiering:
    """What follows for tiered storage from all settings of a topic."""
    return TopicTiering(topic=topic, rules=segment_rules(configs), is_tiered=is_tiered(configs))


def segment_rules(configs: Mapping[str, str]) -> SegmentRules:
    """What follows for a topic's segments from all its settings."""
    return SegmentRules(
        segment_bytes=int(configs["segment.bytes"]),
        segment_ms=int(configs["segment.ms"]),
        index_interval_bytes=int(configs["index.interval.bytes"]),
        local_retention_ms=max(OFF, int(configs["local.retention.ms"])),
        local_retention_bytes=max(OFF, int(configs["local.retention.bytes"])),
    )


def is_tiered(configs: Mapping[str, str]) -> bool:
    """Whether segments are made without being asked for."""
    return is_on(configs, STORAGE_ENABLE) and not is_on(configs, COPY_DISABLE)
