"""What the HTTP interface answers, as its OpenAPI shows it. Shapes follow Kafka Connect's where it has them."""

from __future__ import annotations

import base64
import uuid
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, PlainSerializer

from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)


def _uuid_of(value: Any) -> Any:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(f"{value}==")) if isinstance(value, str) else value


def _bytes_of(value: Any) -> Any:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


KafkaUuid = Annotated[uuid.UUID, BeforeValidator(_uuid_of), PlainSerializer(uuid_text, return_type=str)]
"""An id in Kafka's text form, 22 characters."""

Base64Text = Annotated[
    bytes,
    BeforeValidator(_bytes_of),
    PlainSerializer(lambda value: base64.b64encode(value).decode(), return_type=str),
]
"""Bytes in base64."""


class Readiness(BaseModel):
    """Whether clients can be served by this broker. `reasons` is empty when they can. `warnings` are of what does not
    affect clients, such as a log that can't be written.

    Its ids are null while it does not know them yet.
    """

    node_id: int | None
    cluster_id: str | None
    ready: bool
    reasons: list[str] = []
    warnings: list[str] = []


class ErrorAnswer(BaseModel):
    """Kafka Connect's shape of an error."""

    error_code: int
    message: str


class PluginAnswer(BaseModel):
    """One installed plugin. `error` is null where it can be used; `type` is its noun, `location` where its code is."""

    name: str
    type: str
    version: str
    distribution: str
    location: str
    default: bool = False
    api_version: str | None = None
    capabilities: list[str] = []
    help: str | None = None
    error: str | None = None
    traceback: str | None = None


class SelectedSetting(BaseModel):
    """A setting of a selected backend. `source` is `default`, a line of the file, a variable or `--override`."""

    name: str
    value: str | None
    source: str


class LastErrorAnswer(BaseModel):
    """The last error of a backend; `kind` is `error` for one of the noun's own, `foreign` for any other."""

    at_ms: int
    method: str
    kind: str
    message: str


class HealthAnswer(BaseModel):
    """What a backend did since `since_ms`, in seconds where it is time. The quantiles are ends of buckets."""

    since_ms: int | None
    calls: int
    under_way: int
    results: dict[str, int]
    stream_errors: dict[str, int]
    slow: int
    seconds_sum: float
    seconds_max: float
    seconds_p50: float | None
    seconds_p99: float | None
    loop_stalls: int
    loop_stall_seconds: float
    last_error: LastErrorAnswer | None


class SelectedBackend(BaseModel):
    """A backend that this broker uses. `state` is made, starting, started, failed or stopped."""

    noun: str
    name: str
    distribution: str
    version: str
    location: str
    api_version: str
    source: str
    state: str
    settings: list[SelectedSetting]
    health: HealthAnswer


class ProcessAnswer(BaseModel):
    """The process that all backends share. `threads` counts all, `python_threads` those that Python knows."""

    pid: int
    resident_bytes: int
    threads: int
    python_threads: int


class SelectedAnswer(BaseModel):
    """The selected backends of a broker."""

    process: ProcessAnswer
    selected: list[SelectedBackend]


class SettingAnswer(BaseModel):
    """One property that a plugin can be told. Passwords have no default to show."""

    name: str
    type: str
    required: bool
    default_value: str | None
    valid_values: str
    environment: str
    documentation: str


class SettingValidation(BaseModel):
    """One property as it was sent, with everything wrong with it. `value` is null where it is secret or unknown."""

    name: str
    value: str | None
    errors: list[str]


class ValidationAnswer(BaseModel):
    """A configuration of one plugin, judged. All properties of the plugin are listed, then those it does not have."""

    name: str
    type: str
    error_count: int
    configs: list[SettingValidation]


class RemoteSegment(BaseModel):
    """A copy of a segment in remote storage. Its state has KIP-405's name; leader epochs have their start offsets."""

    topic_id: KafkaUuid
    topic: str
    partition: int
    segment_id: KafkaUuid
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    leader_epochs: dict[int, int]
    state: str
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: Base64Text | None
    txn_index_empty: bool

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata) -> Self:
        """What is shown of a segment: all that is known."""
        topic_id, topic, partition = metadata.segment_id.topic_id_partition
        return cls(
            topic_id=topic_id,
            topic=topic,
            partition=partition,
            segment_id=metadata.segment_id.id,
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            size_bytes=metadata.segment_size_bytes,
            max_timestamp_ms=metadata.max_timestamp_ms,
            leader_epochs=dict(sorted(metadata.segment_leader_epochs.items())),
            state=metadata.state.name,
            broker_id=metadata.broker_id,
            event_timestamp_ms=metadata.event_timestamp_ms,
            custom_metadata=metadata.custom_metadata,
            txn_index_empty=metadata.txn_index_empty,
        )

    def metadata(self) -> RemoteLogSegmentMetadata:
        """The segment back."""
        partition = TopicIdPartition(self.topic_id, self.topic, self.partition)
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(partition, self.segment_id),
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp_ms,
            broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp_ms,
            segment_size_bytes=self.size_bytes,
            segment_leader_epochs=self.leader_epochs,
            state=RemoteLogSegmentState[self.state],
            custom_metadata=self.custom_metadata,
            txn_index_empty=self.txn_index_empty,
        )
