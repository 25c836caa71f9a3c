"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TypedDict

from diskless_core.broker.dispatch import RequestContext
from diskless_core.cluster import operations
from diskless_core.cluster.config_changes import ALL_BROKERS, Alteration, ConfigChange
from diskless_core.cluster.config_model import ConfigEntry
from diskless_core.cluster.operations import Refusal
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_TYPES_SINCE = 1

AskedResource = DescribeConfigsRequest.DescribeConfigsResource
DescribedResource = DescribeConfigsResponse.DescribeConfigsResult
DescribedConfig = DescribedResource.DescribeConfigsResourceResult


class _Resource(IntEnum):
    """Kafka's ConfigResource.Type, of which only topics, brokers and groups have settings here."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class _Altered(TypedDict):
    """What both ways to alter answer of a resource."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str


def describe_configs(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Handle DescribeConfigs: all settings of each resource, or those asked for."""
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_described(context, request, resource) for resource in request.resources]
    )


def _described(
    context: RequestContext, request: DescribeConfigsRequest, resource: DescribeConfigsRequest.DescribeConfigsResource
) -> DescribedResource:
    found = _entries(context, resource.resource_type, resource.resource_name)
    refusal = found if isinstance(found, Refusal) else None
    entries = [] if isinstance(found, Refusal) else found
    wanted = set(resource.configuration_keys or ())
    return DescribedResource(
        error_code=int(refusal.code if refusal is not None else ErrorCode.NONE),
        error_message=refusal.message if refusal is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(entry, request) for entry in entries if not wanted or entry.name in wanted],
    )


def _entries(context: RequestContext, resource_type: int, name: str) -> Sequence[ConfigEntry] | Refusal:
    services = context.services
    if resource_type == _Resource.TOPIC:
        refusal = operations.check_topic_name(name)
        if refusal is None and services.topics.by_name(name) is None:
            refusal = Refusal(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message=f"The topic '{name}' does not exist.")
        return refusal or services.configs.of_topic(name)
    if resource_type == _Resource.GROUP:
        return services.configs.of_group(name) if name else _invalid("Group name must not be empty")
    if resource_type != _Resource.BROKER:
        return _invalid(f"Unsupported resource type: {resource_type}")
    if name == ALL_BROKERS:
        return services.configs.of_all_brokers()
    if name == str(services.config.node_id):
        return services.configs.of_broker()
    if not name.lstrip("-").isdecimal():
        return _invalid(f"Broker id must be an integer, but it is: {name}")
    return _invalid(f"Unexpected broker id, expected {services.config.node_id} or empty string, but received {name}")


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribedConfig:
    return DescribedConfig(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=int(entry.source),
        is_sensitive=entry.secret,
        synonyms=[
            DescribedConfig.DescribeConfigsSynonym(name=one.name, value=one.value, source=int(one.source))
            for one in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=int(entry.type),
        documentation=entry.help if request.include_documentation else None,
    )


async def alter_configs(context: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Handle AlterConfigs: what a resource is not given here it does not keep."""
    alterations = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            changes=[ConfigChange(one.name, one.value) for one in resource.configs],
            replace=True,
        )
        for resource in request.resources
    ]
    answers = await _alter(context, alterations, validate_only=request.validate_only)
    answer_class = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(throttle_time_ms=0, responses=[answer_class(**answer) for answer in answers])


async def incremental_alter_configs(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Handle IncrementalAlterConfigs."""
    alterations = [
        Alteration(
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            changes=[ConfigChange(one.name, one.value, one.config_operation) for one in resource.configs],
            replace=False,
        )
        for resource in request.resources
    ]
    answers = await _alter(context, alterations, validate_only=request.validate_only)
    answer_class = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[answer_class(**answer) for answer in answers])


async def _alter(context: RequestContext, alterations: Sequence[Alteration], *, validate_only: bool) -> list[_Altered]:
    times_named = Counter((one.resource_type, one.resource_name) for one in alterations)
    answers = []
    for alteration in alterations:
        if times_named[alteration.resource_type, alteration.resource_name] > 1:
            refusal: Refusal | None = _invalid("Each resource must appear at most once.")
        else:
            refusal = await _alter_one(context, alteration, validate_only=validate_only)
        answers.append(
            _Altered(
                error_code=int(refusal.code if refusal is not None else ErrorCode.NONE),
                error_message=refusal.message if refusal is not None else None,
                resource_type=alteration.resource_type,
                resource_name=alteration.resource_name,
            )
        )
    return answers


async def _alter_one(context: RequestContext, alteration: Alteration, *, validate_only: bool) -> Refusal | None:
    try:
        return await context.services.configs.alter(alteration, validate_only=validate_only)
    except CoordinatorError as error:
        return Refusal(code=error.code, message=str(error))


def list_config_resources(context: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Handle ListConfigResources. Version 0 asks for client metrics, of which there are none."""
    asked = list(request.resource_types or _Resource) if context.api_version >= _TYPES_SINCE else []
    if any(one not in list(_Resource) for one in asked):
        return _listed(ErrorCode.UNSUPPORTED_VERSION, [])
    found: list[tuple[_Resource, str]] = []
    if _Resource.TOPIC in asked:
        found += [(_Resource.TOPIC, info.name) for info in context.services.topics.all()]
    if _Resource.BROKER in asked:
        found.append((_Resource.BROKER, str(context.services.config.node_id)))
    if _Resource.GROUP in asked:
        found += [(_Resource.GROUP, group_id) for group_id in context.services.configs.groups()]
    return _listed(ErrorCode.NONE, found)


def _listed(error: ErrorCode, resources: Iterable[tuple[_Resource, str]]) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=int(error),
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=int(kind))
            for kind, name in resources
        ],
    )


def _invalid(message: str) -> Refusal:
    return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
