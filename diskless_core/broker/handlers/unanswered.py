"""The answer to a request that the controller did not answer: one error for everything that it asked for. Pure."""

from __future__ import annotations

from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterConfigsRequest,
    AlterConfigsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UNSET = -1


def unanswered(request: ApiMessage, error: ErrorCode, message: str) -> ApiMessage:
    """The response, as Apache Kafka's `getErrorResponse` makes it.

    Raises:
        TypeError: the request is none that the controller decides.
    """
    code = int(error)
    match request:
        case CreateTopicsRequest():
            return _topics_not_created(request, code, message)
        case CreatePartitionsRequest():
            result = CreatePartitionsResponse.CreatePartitionsTopicResult
            names = dict.fromkeys(topic.name for topic in request.topics)
            results = [result(name=name, error_code=code, error_message=message) for name in names]
            return CreatePartitionsResponse(throttle_time_ms=0, results=results)
        case DeleteTopicsRequest():
            return _topics_not_deleted(request, code, message)
        case AlterConfigsRequest():
            of_alter = AlterConfigsResponse.AlterConfigsResourceResponse
            altered = [
                of_alter(
                    error_code=code,
                    error_message=message,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                )
                for one in request.resources
            ]
            return AlterConfigsResponse(throttle_time_ms=0, responses=altered)
        case IncrementalAlterConfigsRequest():
            of_increment = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
            incremented = [
                of_increment(
                    error_code=code,
                    error_message=message,
                    resource_type=one.resource_type,
                    resource_name=one.resource_name,
                )
                for one in request.resources
            ]
            return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=incremented)
        case AlterClientQuotasRequest():
            return _quotas_not_altered(request, code, message)
        case UpdateFeaturesRequest():
            return UpdateFeaturesResponse(throttle_time_ms=0, error_code=code, error_message=message, results=[])
        case UnregisterBrokerRequest():
            return UnregisterBrokerResponse(throttle_time_ms=0, error_code=code, error_message=message)
    raise TypeError(f"{type(request).__name__} is not for the controller")


def _topics_not_created(request: CreateTopicsRequest, code: int, message: str) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        throttle_time_ms=0,
        topics=[
            CreateTopicsResponse.CreatableTopicResult(
                name=name,
                topic_id=None,
                error_code=code,
                error_message=message,
                topic_config_error_code=0,
                num_partitions=_UNSET,
                replication_factor=_UNSET,
                configs=[],
            )
            for name in dict.fromkeys(topic.name for topic in request.topics)
        ],
    )


def _topics_not_deleted(request: DeleteTopicsRequest, code: int, message: str) -> DeleteTopicsResponse:
    """Topics are named in one of two fields by the request's version; the other one is empty."""
    named = dict.fromkeys([(topic.name, topic.topic_id) for topic in request.topics or ()])
    named |= dict.fromkeys([(name, None) for name in request.topic_names or ()])
    result = DeleteTopicsResponse.DeletableTopicResult
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            result(name=name, topic_id=topic_id, error_code=code, error_message=message) for name, topic_id in named
        ],
    )


def _quotas_not_altered(request: AlterClientQuotasRequest, code: int, message: str) -> AlterClientQuotasResponse:
    entry = AlterClientQuotasResponse.EntryData
    return AlterClientQuotasResponse(
        throttle_time_ms=0,
        entries=[
            entry(
                error_code=code,
                error_message=message,
                entity=[
                    entry.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in one.entity
                ],
            )
            for one in request.entries
        ],
    )
