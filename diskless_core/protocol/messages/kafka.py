"""Apache Kafka's requests and responses: all that kafka-python has, some of them changed.

The records of two are never copied, DescribeCluster says more, and two requests have a version more, in which clients
say their rack.

Type checkers read the generated `kafka.pyi` instead of this module.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import *  # noqa: F403
from kafka.protocol.admin import DescribeClusterResponse as _StockDescribeClusterResponse
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import *  # noqa: F403
from kafka.protocol.consumer import FetchResponse as _StockFetchResponse
from kafka.protocol.metadata import *  # noqa: F403
from kafka.protocol.metadata import MetadataResponse as _StockMetadataResponse
from kafka.protocol.producer import *  # noqa: F403
from kafka.protocol.sasl import *  # noqa: F403

from diskless_core.protocol.codec import ApiMessage, SplicedMessage, patch_records

_FENCED_REASON = {
    "name": "FencedReason",
    "type": "string",
    "versions": "2+",
    "nullableVersions": "2+",
    "default": "null",
    "taggedVersions": "2+",
    "tag": 10000,
    "ignorable": True,
    "about": "Extension: why the broker is fenced, for people; null where it is not, or nobody knows.",
}


METADATA_WITH_RACK = 14
"""The version of Metadata in which clients say their rack (KIP-1181). Apache Kafka has no such version yet."""

DESCRIBE_TOPIC_PARTITIONS_WITH_RACK = 1
"""The same of DescribeTopicPartitions. The KIP has the field in versions that the request lacks."""


def _rack_since(version: int) -> dict[str, Any]:
    return {
        "name": "RackId",
        "type": "string",
        "versions": f"{version}+",
        "default": "",
        "ignorable": True,
        "about": "The rack of the client, its client.rack; empty if it has none.",
    }


def _up_to(version: int, json: dict[str, Any]) -> dict[str, Any]:
    json["validVersions"] = f"0-{version}"
    return json


class MetadataRequest(ApiMessage):
    """Metadata, with a version in which clients say their rack."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        json["fields"].append(_rack_since(METADATA_WITH_RACK))
        return _up_to(METADATA_WITH_RACK, json)


class MetadataResponse(ApiMessage):
    """Metadata's answer, in that version the same as in the one before."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return _up_to(METADATA_WITH_RACK, _StockMetadataResponse.json_patch(json))


class DescribeTopicPartitionsRequest(ApiMessage):
    """DescribeTopicPartitions, with a version in which clients say their rack."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        json["fields"].append(_rack_since(DESCRIBE_TOPIC_PARTITIONS_WITH_RACK))
        return _up_to(DESCRIBE_TOPIC_PARTITIONS_WITH_RACK, json)


class DescribeTopicPartitionsResponse(ApiMessage):
    """DescribeTopicPartitions' answer, in that version the same as in the one before."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return _up_to(DESCRIBE_TOPIC_PARTITIONS_WITH_RACK, json)


class ProduceRequest(ApiMessage):
    """Produce, whose records decode to memoryviews of the frame."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return patch_records(json)


class FetchResponse(SplicedMessage, ApiMessage):
    """Fetch's answer, whose records may be None, a buffer, or a list of buffers that follow one another."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        return patch_records(json)


class DescribeClusterResponse(ApiMessage):
    """DescribeCluster's answer, with a tagged field more: why a broker is fenced, as its controller says."""

    @classmethod
    def json_patch(cls, json: dict[str, Any]) -> dict[str, Any]:
        stock: dict[str, Any] = _StockDescribeClusterResponse.json_patch(json)
        for field in stock["fields"]:
            if field["name"] == "Brokers":
                field["fields"].append(_FENCED_REASON)
        return stock


# Defining a response registers it for kafka-python's clients in this process: that of Fetch stays the stock one.
ResponseClassRegistry.register_response_class(_StockFetchResponse)

__all__ = [name for name, value in globals().items() if isinstance(value, type) and ApiMessage in value.__mro__[1:]]
