"""Events of remote segments as text, exactly as Apache Kafka's `RemoteLogMetadataFormatter` prints them. Pure."""

from __future__ import annotations

from diskless_core.protocol.names import uuid_text
from diskless_core.remote_log.metadata import (
    RemoteLogMetadataEvent,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    TopicIdPartition,
)


def format_record(partition: int, offset: int, event: RemoteLogMetadataEvent) -> str:
    """The line for a record of `__remote_log_metadata`, which is at `offset` of `partition` there."""
    return f"partition: {partition}, offset: {offset}, value: {format_event(event)}"


def format_event(event: RemoteLogMetadataEvent) -> str:
    """The event alone."""
    match event:
        case RemoteLogSegmentMetadata():
            epochs = ", ".join(f"{epoch}={start}" for epoch, start in sorted(event.segment_leader_epochs.items()))
            return (
                f"RemoteLogSegmentMetadata{{remoteLogSegmentId={_segment_id(event.segment_id)}, "
                f"startOffset={event.start_offset}, endOffset={event.end_offset}, brokerId={event.broker_id}, "
                f"maxTimestampMs={event.max_timestamp_ms}, eventTimestampMs={event.event_timestamp_ms}, "
                f"segmentLeaderEpochs={{{epochs}}}, segmentSizeInBytes={event.segment_size_bytes}, "
                f"customMetadata={_custom(event.custom_metadata)}, state={event.state.name}, "
                f"txnIdxEmpty={str(event.txn_index_empty).lower()}}}"
            )
        case RemoteLogSegmentMetadataUpdate():
            return (
                f"RemoteLogSegmentMetadataUpdate{{remoteLogSegmentId={_segment_id(event.segment_id)}, "
                f"customMetadata={_custom(event.custom_metadata)}, state={event.state.name}, "
                f"eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
            )
        case RemotePartitionDeleteMetadata():
            return (
                f"RemotePartitionDeleteMetadata{{topicPartition={_partition(event.topic_id_partition)}, "
                f"state={event.state.name}, eventTimestampMs={event.event_timestamp_ms}, brokerId={event.broker_id}}}"
            )


def _segment_id(segment_id: RemoteLogSegmentId) -> str:
    partition = _partition(segment_id.topic_id_partition)
    return f"RemoteLogSegmentId{{topicIdPartition={partition}, id={uuid_text(segment_id.id)}}}"


def _partition(partition: TopicIdPartition) -> str:
    return f"{uuid_text(partition.topic_id)}:{partition.name}"


def _custom(custom_metadata: bytes | None) -> str:
    return "Optional.empty" if custom_metadata is None else f"Optional[CustomMetadata{{{len(custom_metadata)} bytes}}]"
