"""Apache Kafka's requests and responses: all that kafka-python has, two of them with records that are never copied.

Type checkers read the generated `kafka.pyi` instead of this module.
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin import *  # noqa: F403
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.consumer import *  # noqa: F403
from kafka.protocol.consumer import FetchResponse as _StockFetchResponse
from kafka.protocol.metadata import *  # noqa: F403
from kafka.protocol.producer import *  # noqa: F403
from kafka.protocol.sasl import *  # noqa: F403

from diskless_core.protocol.codec import ApiMessage, SplicedMessage, patch_records


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


# Defining a response registers it for kafka-python's clients in this process: theirs stays the stock one.
ResponseClassRegistry.register_response_class(_StockFetchResponse)

__all__ = [name for name, value in globals().items() if isinstance(value, type) and ApiMessage in value.__mro__[1:]]
