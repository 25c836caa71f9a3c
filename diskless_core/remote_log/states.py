"""KIP-405's states of a segment and of a partition's deletion, and which follows which. Pure.

    COPY_SEGMENT_STARTED ──► COPY_SEGMENT_FINISHED
            │                        │
            └──────────┬─────────────┘
                       ▼
            DELETE_SEGMENT_STARTED ──► DELETE_SEGMENT_FINISHED

    DELETE_PARTITION_MARKED ──► DELETE_PARTITION_STARTED ──► DELETE_PARTITION_FINISHED

What has come to its last state can be forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any

from diskless_core.remote_log.metadata import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
)

SEGMENT_TRANSITIONS: Mapping[RemoteLogSegmentState | None, frozenset[RemoteLogSegmentState]] = {
    None: frozenset({RemoteLogSegmentState.COPY_SEGMENT_STARTED}),
    RemoteLogSegmentState.COPY_SEGMENT_STARTED: frozenset(
        {RemoteLogSegmentState.COPY_SEGMENT_FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED}
    ),
    RemoteLogSegmentState.COPY_SEGMENT_FINISHED: frozenset({RemoteLogSegmentState.DELETE_SEGMENT_STARTED}),
    RemoteLogSegmentState.DELETE_SEGMENT_STARTED: frozenset({RemoteLogSegmentState.DELETE_SEGMENT_FINISHED}),
    RemoteLogSegmentState.DELETE_SEGMENT_FINISHED: frozenset(),
}
"""The states that may follow each one; None is a segment that is not known."""

PARTITION_TRANSITIONS: Mapping[RemotePartitionDeleteState | None, frozenset[RemotePartitionDeleteState]] = {
    None: frozenset({RemotePartitionDeleteState.DELETE_PARTITION_MARKED}),
    RemotePartitionDeleteState.DELETE_PARTITION_MARKED: frozenset(
        {RemotePartitionDeleteState.DELETE_PARTITION_STARTED}
    ),
    RemotePartitionDeleteState.DELETE_PARTITION_STARTED: frozenset(
        {RemotePartitionDeleteState.DELETE_PARTITION_FINISHED}
    ),
    RemotePartitionDeleteState.DELETE_PARTITION_FINISHED: frozenset(),
}
"""The states that may follow each one; None is a partition whose segments are not to be deleted."""


def is_over(known: RemoteLogSegmentMetadata | RemotePartitionDeleteMetadata) -> bool:
    """Whether it has come to its last state, so that it can be forgotten."""
    if isinstance(known, RemoteLogSegmentMetadata):
        return known.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED
    return known.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED


class RemoteLogStateError(Exception):
    """An event does not follow from what is known; the message says why. A retry does not help."""


def apply(
    current: RemoteLogSegmentMetadata | None, event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate
) -> RemoteLogSegmentMetadata | None:
    """What is known of a segment after an event; None where it is not known, before and after.

    An event that changes nothing gives `current` itself: the same metadata again, an update into the state that there
    is, and the deletion's end of a segment that is not known.

    Raises:
        RemoteLogStateError: there is no such transition, the metadata is impossible, or not what the id stood for.
    """
    if isinstance(event, RemoteLogSegmentMetadata):
        return _begun(current, event)
    if event.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise RemoteLogStateError(f"{_name(event)} cannot be updated to {event.state.name}: a copy begins once")
    if current is None:
        if event.state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            return None
        raise RemoteLogStateError(f"{_name(event)} is not known and cannot become {event.state.name}")
    if current.state is event.state:
        return current
    _require(_name(event), current.state, event.state, SEGMENT_TRANSITIONS)
    return replace(
        current,
        state=event.state,
        broker_id=event.broker_id,
        event_timestamp_ms=event.event_timestamp_ms,
        custom_metadata=current.custom_metadata if event.custom_metadata is None else event.custom_metadata,
    )


def apply_deletion(
    current: RemotePartitionDeleteMetadata | None, event: RemotePartitionDeleteMetadata
) -> RemotePartitionDeleteMetadata | None:
    """What is known of a partition's deletion after an event; None where none is under way, before and after.

    An event that changes nothing gives `current` itself: the state that there is, and the end of what is not known.

    Raises:
        RemoteLogStateError: there is no such transition.
    """
    if current is None and event.state is RemotePartitionDeleteState.DELETE_PARTITION_FINISHED:
        return None
    if current is not None and current.state is event.state:
        return current
    partition = event.topic_id_partition
    name = f"the deletion of {partition.name} ({partition.topic_id})"
    _require(name, None if current is None else current.state, event.state, PARTITION_TRANSITIONS)
    return event


def _begun(
    current: RemoteLogSegmentMetadata | None, event: RemoteLogSegmentMetadata
) -> RemoteLogSegmentMetadata | None:
    if event.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED:
        raise RemoteLogStateError(f"{_name(event)} is to be added as {event.state.name}: a copy has to begin first")
    if current == event:
        return current
    if current is not None:
        raise RemoteLogStateError(f"{_name(event)} is there already, as {current.state.name} or for other records")
    if not 0 <= event.start_offset <= event.end_offset:
        raise RemoteLogStateError(f"{_name(event)} has the offsets {event.start_offset} to {event.end_offset}")
    if not event.segment_leader_epochs:
        raise RemoteLogStateError(f"{_name(event)} has no leader epoch")
    return event


def _require(name: str, current: IntEnum | None, target: IntEnum, transitions: Mapping[Any, frozenset[Any]]) -> None:
    if target not in transitions[current]:
        present = "not known" if current is None else current.name
        raise RemoteLogStateError(f"{name} is {present} and cannot become {target.name}")


def _name(event: RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate) -> str:
    partition, copy = event.segment_id
    return f"segment {copy} of {partition.name} ({partition.topic_id})"
