"""All messages and records that Diskless speaks, and which response belongs to which request.

Apache Kafka's own come from kafka-python. Those that it lacks, those of KIP-1164, KRaft's and the group coordinator's
records and our extensions are JSON schemas in this folder. A `uuid` field that holds the zero id decodes to None. Their
types are generated from the schemas: `make docs` writes a `.pyi` beside each module.
"""

# ruff: noqa: F403  the names are those of the modules, and each is listed only there

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple, cast

from diskless_core.protocol.codec import ApiMessage, ApiRequest, ResponseT_co
from diskless_core.protocol.messages import administration as _administration
from diskless_core.protocol.messages import consumer_group as _consumer_group
from diskless_core.protocol.messages import diskless, kafka
from diskless_core.protocol.messages import membership as _membership
from diskless_core.protocol.messages import share_group as _share_group
from diskless_core.protocol.messages import streams_group as _streams_group
from diskless_core.protocol.messages.administration import *
from diskless_core.protocol.messages.consumer_group import *
from diskless_core.protocol.messages.diskless import *
from diskless_core.protocol.messages.kafka import *
from diskless_core.protocol.messages.membership import *
from diskless_core.protocol.messages.records import *
from diskless_core.protocol.messages.share_group import *
from diskless_core.protocol.messages.streams_group import *


class MessagePair(NamedTuple):
    """Request and response of one api key. Each class serves all versions."""

    request: type[ApiMessage]
    response: type[ApiMessage]


def _pairs(*modules: ModuleType) -> dict[int, MessagePair]:
    named = {name: value for module in modules for name, value in vars(module).items() if _is_message(value)}
    return {
        request.API_KEY: MessagePair(request, named[name.removesuffix("Request") + "Response"])
        for name, request in named.items()
        if name.endswith("Request")
    }


def _is_message(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, ApiMessage) and value is not ApiMessage


KAFKA_APIS = _pairs(kafka, _administration, _consumer_group, _membership, _share_group, _streams_group)
"""Apache Kafka's APIs by api key, served or not."""

DISKLESS_APIS = _pairs(diskless)
"""KIP-1164's APIs, with the extensions to them, by api key, for the inter-broker listener. On a client listener these
keys mean what Kafka means."""

REQUESTS = KAFKA_APIS | DISKLESS_APIS
"""Both, by api key."""


def response_class(request: ApiRequest[ResponseT_co]) -> type[ResponseT_co]:
    """The class of the response to a request."""
    return cast("type[ResponseT_co]", REQUESTS[request.API_KEY].response)
