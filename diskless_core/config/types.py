"""The types of the broker's settings, and the words that some of them choose from."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from diskless_core.config.client_racks import (
    ListenerRack,
    NetworkRack,
    parse_listener_racks,
    parse_network_racks,
)
from diskless_core.config.listeners import (
    Listener,
    ListenerProtocol,
    parse_admin_listener,
    parse_listeners,
    parse_protocol_map,
)
from diskless_core.config.placement import Placement, parse_placement
from diskless_core.plugin.config import split_list

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1

MIB = 1024 * 1024
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS

AUTO = "auto"
AUTOMATIC_NODE_ID = -1
"""In the place of a node id that is still to be asked for."""


def _node_id(value: Any) -> Any:
    if value == AUTO:
        return AUTOMATIC_NODE_ID
    if str(value).startswith("-"):
        raise ValueError(f"it has to be greater than or equal to 0, or {AUTO}")
    return value


Int = Annotated[int, Field(le=MAX_INT)]
Long = Annotated[int, Field(le=MAX_LONG)]
NodeId = Annotated[int, BeforeValidator(_node_id), Field(le=MAX_INT, json_schema_extra={"minimum": 0})]
OptionalText = Annotated[str | None, BeforeValidator(lambda value: value or None)]
Listeners = Annotated[tuple[Listener, ...], BeforeValidator(parse_listeners)]
AdminListener = Annotated[Listener | None, BeforeValidator(parse_admin_listener)]
ProtocolMap = Annotated[tuple[ListenerProtocol, ...], BeforeValidator(parse_protocol_map)]
Placements = Annotated[tuple[Placement, ...], BeforeValidator(parse_placement)]
ListenerRacks = Annotated[tuple[ListenerRack, ...], BeforeValidator(parse_listener_racks)]
NetworkRacks = Annotated[tuple[NetworkRack, ...], BeforeValidator(parse_network_racks)]
Folders = Annotated[tuple[Path, ...], BeforeValidator(split_list)]


class TimestampType(StrEnum):
    """Whose clock a record's timestamp comes from."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class CleanupPolicy(StrEnum):
    """What becomes of old records."""

    DELETE = "delete"


CleanupPolicies = Annotated[tuple[CleanupPolicy, ...], BeforeValidator(split_list)]


class CompressionType(StrEnum):
    """The codec that batches are stored with."""

    UNCOMPRESSED = "uncompressed"
    ZSTD = "zstd"
    LZ4 = "lz4"
    SNAPPY = "snappy"
    GZIP = "gzip"
    PRODUCER = "producer"


class RecordValidation(StrEnum):
    """How many records of a produced batch are checked."""

    AUTO = "auto"
    FIRST = "first"
    UNPACKED = "unpacked"
    ALL = "all"


class LogFormat(StrEnum):
    """How the broker writes its own log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The least severe message that the broker logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class ConsumerAssignor(StrEnum):
    """How the consumer protocol's partitions are shared out."""

    UNIFORM = "uniform"
    RANGE = "range"


ConsumerAssignors = Annotated[tuple[ConsumerAssignor, ...], BeforeValidator(split_list)]
