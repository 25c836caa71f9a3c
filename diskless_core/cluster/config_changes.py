"""What AlterConfigs and IncrementalAlterConfigs do to the settings of a topic, a group, or brokers. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from diskless_core.cluster import group_configs, tiering_configs, topic_configs
from diskless_core.cluster.broker_configs import ALTERABLE
from diskless_core.cluster.config_model import ConfigType
from diskless_core.cluster.config_values import MAX_VALUE_CHARS, InvalidTopicConfigError, elements
from diskless_core.cluster.group_configs import BrokerValue
from diskless_core.cluster.operations import ClusterCommand, Refusal, check_topic_name
from diskless_core.cluster.records import ConfigSet, ResourceType
from diskless_core.cluster.tables import CONFIGS, TOPIC_IDS
from diskless_core.cluster.topic_configs import TopicConfig
from diskless_core.protocol.errors import ErrorCode

ALL_BROKERS = ""
"""The name of the resource whose settings hold for every broker that has none of its own."""


class AlterOperation(IntEnum):
    """Kafka's AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """What to do to one setting. `operation` is an AlterOperation, or a number that a client made up."""

    name: str
    value: str | None
    operation: int = AlterOperation.SET


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What to do to the settings of one resource.

    Attributes:
        replace: whether those that are not named are removed (AlterConfigs) or stay.
    """

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replace: bool = False


def check_alteration(alteration: Alteration, node_ids: Collection[int]) -> Refusal | None:
    """What can be said against it without knowing any settings, where these brokers can have settings of their own."""
    times_named = Counter(change.name for change in alteration.changes)
    if any(times > 1 for times in times_named.values()):
        return _invalid("Error due to duplicate config keys")
    nulls = [one.name for one in alteration.changes if one.value is None and one.operation != AlterOperation.DELETE]
    if nulls:
        return _invalid(f"Null value not supported for : {', '.join(nulls)}")
    unknown = [one.operation for one in alteration.changes if one.operation not in list(AlterOperation)]
    if unknown:
        return _invalid(f"Unknown operation type {unknown[0]}")
    if alteration.resource_type == ResourceType.BROKER:
        return _check_broker(alteration.resource_name, node_ids)
    if alteration.resource_type == ResourceType.GROUP:
        return _check_group(alteration.resource_name)
    if alteration.resource_type != ResourceType.TOPIC:
        return _invalid(f"Unknown resource type {alteration.resource_type}")
    if not alteration.resource_name:
        return _invalid("Default topic resources are not allowed.")
    return check_topic_name(alteration.resource_name)


def _check_group(name: str) -> Refusal | None:
    if not name:
        return _invalid("Default group resources are not allowed.")
    if len(name) > MAX_VALUE_CHARS:  # it need not exist, so nothing else keeps it short
        return _invalid(f"A group id of {len(name)} characters is too long: it can have {MAX_VALUE_CHARS}")
    return None


def _check_broker(name: str, node_ids: Collection[int]) -> Refusal | None:
    if name == ALL_BROKERS or name in map(str, node_ids):
        return None
    if not name.lstrip("-").isdecimal():
        return _invalid(f"Node id must be an integer, but it is: {name}")
    expected = ", ".join(map(str, sorted(node_ids)))
    return _invalid(f"Unexpected broker id, expected {expected}, but received {name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSide:
    """What the broker's own settings say.

    Attributes:
        defaults: what they are without having been altered, those that are anything.
        properties: the names of all of them.
        topic_defaults: what holds for a topic without settings of its own.
        tiering_is_enabled: `remote.log.storage.system.enable`.
        group_value: see `group_configs.broker_value`.
    """

    properties: Collection[str]
    defaults: Mapping[str, str]
    topic_defaults: Mapping[str, str]
    tiering_is_enabled: bool
    group_value: BrokerValue


_KNOWN: Mapping[ResourceType, Mapping[str, TopicConfig]] = {
    ResourceType.TOPIC: topic_configs.CONFIGS,
    ResourceType.BROKER: ALTERABLE,
    ResourceType.GROUP: group_configs.CONFIGS,
}


def alter(
    command: ClusterCommand, alteration: Alteration, broker: BrokerSide, *, validate_only: bool
) -> Refusal | None:
    """Change the settings of a resource, all as asked or none. `alteration` has passed `check_alteration`."""
    resource_type, name = ResourceType(alteration.resource_type), alteration.resource_name
    if resource_type is ResourceType.TOPIC and command.get(TOPIC_IDS, (name,)) is None:
        return Refusal(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"The topic '{name}' does not exist.")
    current = command.get(CONFIGS, (int(resource_type), name)) or {}
    known = _KNOWN[resource_type]
    set_here = [change.name for change in alteration.changes if change.operation != AlterOperation.DELETE]
    strange = [name for name in set_here if name not in {*known, *current}]
    if strange:
        fixed = [one for one in strange if one in broker.properties] if resource_type is ResourceType.BROKER else []
        return _strange(strange, fixed, resource_type)
    try:
        defaults = broker.topic_defaults if resource_type is ResourceType.TOPIC else broker.defaults
        changed = _changed({**defaults, **current}, current, alteration, known)
        if resource_type is ResourceType.TOPIC:
            _check_together(current, changed, broker)
        elif resource_type is ResourceType.GROUP:
            group_configs.check_together(_own(current, changed), broker.group_value)
    except InvalidTopicConfigError as error:
        is_broker = resource_type is ResourceType.BROKER  # Apache Kafka tells a broker's bad values so
        return Refusal(code=ErrorCode.INVALID_REQUEST if is_broker else ErrorCode.INVALID_CONFIG, message=str(error))
    if not validate_only:
        for key, value in changed.items():
            command.emit(ConfigSet(resource_type=resource_type, resource_name=name, name=key, value=value))
    return None


def _check_together(current: Mapping[str, str], changed: Mapping[str, str | None], broker: BrokerSide) -> None:
    own = _own(current, changed)
    topic_configs.check_together({**broker.topic_defaults, **own})
    tiering_configs.check_tiering(
        {**broker.topic_defaults, **own},
        was_tiered=tiering_configs.is_on({**broker.topic_defaults, **current}, topic_configs.STORAGE_ENABLE),
        is_enabled=broker.tiering_is_enabled,
    )


def _own(current: Mapping[str, str], changed: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**current, **changed}.items() if value is not None}


def _strange(strange: Sequence[str], fixed: Sequence[str], resource_type: ResourceType) -> Refusal:
    if fixed:
        return _invalid(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    if resource_type is ResourceType.TOPIC:
        return Refusal(code=ErrorCode.INVALID_CONFIG, message=topic_configs.unknown(strange))
    kind = resource_type.name.lower()
    return Refusal(code=ErrorCode.INVALID_CONFIG, message=f"Unknown {kind} config name: {', '.join(strange)}")


def _changed(
    effective: Mapping[str, str], current: Mapping[str, str], alteration: Alteration, known: Mapping[str, TopicConfig]
) -> Mapping[str, str | None]:
    """The settings that will have another value; None for those that go."""
    wanted: dict[str, str | None] = dict.fromkeys(current) if alteration.replace else {}
    for change in alteration.changes:
        value = _applied(effective, change, known)
        if value is not None:
            value = topic_configs.check_value(change.name, known[change.name], value)
        wanted[change.name] = value
    return {name: value for name, value in wanted.items() if value != current.get(name)}


def _applied(effective: Mapping[str, str], change: ConfigChange, known: Mapping[str, TopicConfig]) -> str | None:
    match change.operation:
        case AlterOperation.DELETE:
            return None
        case AlterOperation.SET:
            return change.value
    config = known[change.name]
    if config.type is not ConfigType.LIST:
        operation = AlterOperation(change.operation).name
        raise InvalidTopicConfigError(f"Can't {operation} to key {change.name} because its type is not LIST.")
    present = elements(effective.get(change.name, config.default))
    named = elements(change.value or "")
    if change.operation == AlterOperation.APPEND:
        return ",".join([*present, *(one for one in named if one not in present)])
    return ",".join(one for one in present if one not in named)


def _invalid(message: str) -> Refusal:
    return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
