"""The records of brokers as plain data, and as KRaft's messages. Pure."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec
from diskless_core.protocol import messages, record_frames
from diskless_core.protocol.feature_levels import LevelRange

VERSION = 1
"""Of the records of registrations that are written."""

_FENCED, _UNFENCED, _UNCHANGED = 1, -1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistered:
    """A broker is a member, fenced at first. It takes the place of the node's registration before.

    Attributes:
        at_ms: when, by the controller's clock, in milliseconds since the epoch.
    """

    spec: BrokerSpec
    epoch: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChanged:
    """A registration changes. `is_fenced` is None where that stays as it is; a shutdown is never taken back.

    Attributes:
        at_ms: when, by the controller's clock, in milliseconds since the epoch.
    """

    node_id: int
    epoch: int
    at_ms: int
    is_fenced: bool | None = None
    shuts_down: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerUnregistered:
    """A broker is no member any more. A node id that the cluster gave it is nobody's from then on.

    Attributes:
        epoch: of its registration; -1 where it never had one.
    """

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdAllocated:
    """A broker has a node id that no broker had before.

    Attributes:
        allocation_id: drawn by the broker, which shows it when it registers.
        allocated_at_ms: by the controller's clock, in milliseconds since the epoch.
    """

    node_id: int
    allocation_id: uuid.UUID
    allocated_at_ms: int


BrokerRecord = BrokerRegistered | BrokerChanged | BrokerUnregistered | NodeIdAllocated


def registered(message: messages.RegisterBrokerRecord) -> BrokerRegistered:
    """The record that a message is."""
    return BrokerRegistered(
        spec=BrokerSpec(
            node_id=message.broker_id,
            incarnation_id=record_frames.required_id(message.incarnation_id),
            listeners=tuple(
                BrokerListener(one.name, one.host, one.port, one.security_protocol) for one in message.end_points
            ),
            rack=message.rack,
            features={
                one.name: LevelRange(one.min_supported_version, one.max_supported_version) for one in message.features
            },
        ),
        epoch=message.broker_epoch,
        at_ms=message.fenced_at_ms,
    )


def changed(message: messages.BrokerRegistrationChangeRecord) -> BrokerChanged:
    """The record that a message is."""
    return BrokerChanged(
        node_id=message.broker_id,
        epoch=message.broker_epoch,
        at_ms=message.fenced_at_ms,
        is_fenced=None if message.fenced == _UNCHANGED else message.fenced == _FENCED,
        shuts_down=message.in_controlled_shutdown != 0,
    )


def unregistered(message: messages.UnregisterBrokerRecord) -> BrokerUnregistered:
    """The record that a message is."""
    return BrokerUnregistered(node_id=message.broker_id, epoch=message.broker_epoch)


def allocated(message: messages.NodeIdAllocatedRecord) -> NodeIdAllocated:
    """The record that a message is."""
    return NodeIdAllocated(
        node_id=message.node_id,
        allocation_id=record_frames.required_id(message.allocation_id),
        allocated_at_ms=message.allocated_at_ms,
    )


def encode(record: BrokerRecord) -> bytes:
    """The record in KRaft's framing."""
    match record:
        case BrokerRegistered():
            return record_frames.encode_record(_registration(record), VERSION)
        case BrokerChanged():
            return record_frames.encode_record(_change(record), VERSION)
        case BrokerUnregistered():
            message = messages.UnregisterBrokerRecord(broker_id=record.node_id, broker_epoch=record.epoch)
            return record_frames.encode_record(message)
        case NodeIdAllocated():
            return record_frames.encode_record(
                messages.NodeIdAllocatedRecord(
                    node_id=record.node_id,
                    allocation_id=record.allocation_id,
                    allocated_at_ms=record.allocated_at_ms,
                )
            )


def _registration(record: BrokerRegistered) -> messages.RegisterBrokerRecord:
    message, spec = messages.RegisterBrokerRecord, record.spec
    return message(
        broker_id=spec.node_id,
        incarnation_id=spec.incarnation_id,
        broker_epoch=record.epoch,
        end_points=[
            message.BrokerEndpoint(name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol)
            for one in spec.listeners
        ],
        features=[
            message.BrokerFeature(name=name, min_supported_version=levels.oldest, max_supported_version=levels.newest)
            for name, levels in spec.features.items()
        ],
        rack=spec.rack,
        fenced=True,
        in_controlled_shutdown=False,
        fenced_at_ms=record.at_ms,
    )


def _change(record: BrokerChanged) -> messages.BrokerRegistrationChangeRecord:
    fenced = _UNCHANGED if record.is_fenced is None else _FENCED if record.is_fenced else _UNFENCED
    return messages.BrokerRegistrationChangeRecord(
        broker_id=record.node_id,
        broker_epoch=record.epoch,
        fenced=fenced,
        in_controlled_shutdown=int(record.shuts_down),
        fenced_at_ms=record.at_ms,
    )
