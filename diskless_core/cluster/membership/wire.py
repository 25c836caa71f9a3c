"""The requests and responses of membership as plain data, and back. Pure. (KIP-631.)"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping

from diskless_core.cluster.membership.clocks import Compared, ControllersClock
from diskless_core.cluster.membership.heartbeats import Beat, Decision
from diskless_core.cluster.membership.lifecycle import RefusedRegistration
from diskless_core.cluster.membership.model import BrokerListener, BrokerSpec, Registration
from diskless_core.cluster.membership.operations import Duplicate
from diskless_core.cluster.membership.sessions import Health
from diskless_core.cluster.operations import Refusal
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.errors import ErrorCode, code_of
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.protocol.messages import (
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DisklessAllocateNodeIdResponse,
    DisklessIdentifyBrokerResponse,
)

MAX_LISTENERS = 32
MAX_FEATURES = 64
MAX_TEXT = 255
"""Characters of a name, a host or a rack: as many as a DNS name may have. All of a registration is kept in memory by
every broker, and a log entry has to hold it."""

_UNKNOWN_MS = -1
_NO_BROKER = -1


def registration_request(
    spec: BrokerSpec, cluster_id: str, allocation_id: uuid.UUID | None
) -> BrokerRegistrationRequest:
    """What a broker sends to register."""
    return BrokerRegistrationRequest(
        broker_id=spec.node_id,
        cluster_id=cluster_id,
        incarnation_id=spec.incarnation_id,
        listeners=[
            BrokerRegistrationRequest.Listener(
                name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
            )
            for one in spec.listeners
        ],
        features=[
            BrokerRegistrationRequest.Feature(
                name=name, min_supported_version=levels.oldest, max_supported_version=levels.newest
            )
            for name, levels in spec.features.items()
        ],
        rack=spec.rack,
        allocation_id=allocation_id,
    )


def spec_of(request: BrokerRegistrationRequest, cluster_id: str) -> BrokerSpec | Refusal:
    """What a broker says of itself in a request; why it cannot be taken, where it is malformed or another cluster's."""
    if request.cluster_id != cluster_id:
        message = f"this is the cluster {cluster_id}, not {request.cluster_id}"
        return Refusal(code=ErrorCode.INCONSISTENT_CLUSTER_ID, message=message)
    names = [one.name for one in request.listeners]
    if request.broker_id < 0 or request.incarnation_id is None or not names or len(set(names)) < len(names):
        message = "a broker has a node id, an incarnation id, and listeners of different names"
        return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)
    problem = _excess(request) or _nonsense(request)
    if problem is not None:
        return Refusal(code=ErrorCode.INVALID_REGISTRATION, message=problem)
    return BrokerSpec(
        node_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        listeners=tuple(
            BrokerListener(one.name, one.host, one.port, one.security_protocol) for one in request.listeners
        ),
        rack=request.rack,
        features={
            one.name: LevelRange(one.min_supported_version, one.max_supported_version) for one in request.features
        },
    )


def _excess(request: BrokerRegistrationRequest) -> str | None:
    """What there is too much of in a registration; None where all of it is within bounds."""
    if len(request.listeners) > MAX_LISTENERS:
        return f"a broker may have {MAX_LISTENERS} listeners at most, not {len(request.listeners)}"
    if len(request.features) > MAX_FEATURES:
        return f"a broker may name {MAX_FEATURES} features at most, not {len(request.features)}"
    texts = {
        "the rack": [request.rack or ""],
        "a listener's name": [one.name for one in request.listeners],
        "a listener's host": [one.host for one in request.listeners],
        "a feature's name": [one.name for one in request.features],
    }
    for what, values in texts.items():
        longest = max(map(len, values), default=0)
        if longest > MAX_TEXT:
            return f"{what} may have {MAX_TEXT} characters at most, not {longest}"
    return None


def _nonsense(request: BrokerRegistrationRequest) -> str | None:
    """What in a registration no broker can have; None where all of it makes sense."""
    for one in request.listeners:
        if not one.port:
            return f"the listener {one.name} has no port"
    for feature in request.features:
        if not 0 <= feature.min_supported_version <= feature.max_supported_version:
            return (
                f"the feature {feature.name} has levels {feature.min_supported_version} to "
                f"{feature.max_supported_version}"
            )
    return None


def registration_response(answer: Registration | Refusal | Duplicate) -> BrokerRegistrationResponse:
    """The response to a registration."""
    if isinstance(answer, Registration):
        return BrokerRegistrationResponse(throttle_time_ms=0, error_code=int(ErrorCode.NONE), broker_epoch=answer.epoch)
    refusal, silent_s = (answer.refusal, answer.silent_s) if isinstance(answer, Duplicate) else (answer, None)
    return BrokerRegistrationResponse(
        throttle_time_ms=0,
        error_code=int(refusal.code),
        error_message=refusal.message,
        incumbent_silent_ms=_UNKNOWN_MS if silent_s is None else int(silent_s * 1000),
    )


def refused_registration(response: BrokerRegistrationResponse) -> RefusedRegistration:
    """Why a broker was not registered."""
    code, silent_ms = code_of(response.error_code), response.incumbent_silent_ms
    return RefusedRegistration(
        code=code,
        message=response.error_message or code.name,
        silent_s=None if silent_ms == _UNKNOWN_MS else silent_ms / 1000,
    )


def heartbeat_request(beat: Beat) -> BrokerHeartbeatRequest:
    """What a broker sends as a heartbeat."""
    return BrokerHeartbeatRequest(
        broker_id=beat.node_id,
        broker_epoch=beat.epoch,
        current_metadata_offset=beat.applied_offset,
        want_fence=beat.want_fence,
        want_shut_down=beat.want_shut_down,
        has_clients=beat.has_clients,
        log_is_ok=beat.health.log_is_ok,
        bucket_is_ok=beat.health.bucket_is_ok,
        barred_shards=_names(beat.health.barred),
        doubtful_shards=_names(beat.health.doubtful),
        ready_shards=_names(beat.health.ready) if beat.health.ready is not None else None,
        led_shards=_names(beat.health.led),
        clock_compared_with=_NO_BROKER if beat.compared is None else beat.compared.controller,
        clock_ahead_ms=0 if beat.compared is None else beat.compared.ahead_ms,
    )


def beat_of(request: BrokerHeartbeatRequest, shards: Mapping[str, ShardId]) -> Beat:
    """What a heartbeat says.

    Args:
        shards: those of this cluster, by their names. All others are left out: a broker could name any number of them.
    """

    def known(names: Iterable[str]) -> frozenset[ShardId]:
        return frozenset(shards[name] for name in names if name in shards)

    return Beat(
        node_id=request.broker_id,
        epoch=request.broker_epoch,
        applied_offset=request.current_metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        has_clients=request.has_clients,
        compared=(
            Compared(controller=request.clock_compared_with, ahead_ms=request.clock_ahead_ms)
            if request.clock_compared_with != _NO_BROKER
            else None
        ),
        health=Health(
            log_is_ok=request.log_is_ok,
            bucket_is_ok=request.bucket_is_ok,
            barred=known(request.barred_shards),
            doubtful=known(request.doubtful_shards),
            ready=known(request.ready_shards) if request.ready_shards is not None else None,
            led=known(request.led_shards),
        ),
    )


def _names(shards: Collection[ShardId]) -> list[str]:
    return sorted(map(str, shards))


def heartbeat_response(
    answer: Decision | ErrorCode, *, is_fenced: bool, clock: ControllersClock | None = None
) -> BrokerHeartbeatResponse:
    """The response to a heartbeat.

    Args:
        is_fenced: what the broker is now.
        clock: of the controller; nothing is said of it where there is an error.
    """
    if isinstance(answer, ErrorCode):
        return BrokerHeartbeatResponse(
            throttle_time_ms=0, error_code=int(answer), is_caught_up=False, is_fenced=True, should_shut_down=False
        )
    return BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        is_caught_up=answer.is_caught_up,
        is_fenced=is_fenced,
        should_shut_down=answer.may_stop,
        fenced_reason=answer.reason,
        is_unreachable=answer.is_unreachable,
        **_clock_fields(clock),
    )


def _clock_fields(clock: ControllersClock | None) -> dict[str, int]:
    if clock is None:
        return {}
    if not clock.ahead_ms:
        return {"clock_ms": clock.now_ms}
    behind, ahead = min(clock.ahead_ms.items(), key=_ahead), max(clock.ahead_ms.items(), key=_ahead)
    return {
        "clock_ms": clock.now_ms,
        "clock_behind_broker": behind[0],
        "clock_behind_ms": -behind[1],
        "clock_ahead_broker": ahead[0],
        "clock_ahead_ms": ahead[1],
    }


def _ahead(item: tuple[int, int]) -> int:
    return item[1]


def clock_of(response: BrokerHeartbeatResponse) -> ControllersClock | None:
    """What the controller says of clocks; None where it says nothing, since it is of an earlier version."""
    if response.clock_ms < 0:
        return None
    told = {
        response.clock_behind_broker: -response.clock_behind_ms,
        response.clock_ahead_broker: response.clock_ahead_ms,
    }
    told.pop(_NO_BROKER, None)
    return ControllersClock(now_ms=response.clock_ms, ahead_ms=told)


def node_id_response(answer: int | Refusal) -> DisklessAllocateNodeIdResponse:
    """The response to a broker that asks for a node id."""
    if isinstance(answer, Refusal):
        return DisklessAllocateNodeIdResponse(error_code=int(answer.code), error_message=answer.message)
    return DisklessAllocateNodeIdResponse(error_code=int(ErrorCode.NONE), error_message=None, node_id=answer)


def identity_response(spec: BrokerSpec, cluster_id: str) -> DisklessIdentifyBrokerResponse:
    """What a broker answers to the one who wants to know whether it is there."""
    return DisklessIdentifyBrokerResponse(
        error_code=int(ErrorCode.NONE),
        broker_id=spec.node_id,
        incarnation_id=spec.incarnation_id,
        cluster_id=cluster_id,
    )


def producer_ids_response(answer: range | ErrorCode) -> AllocateProducerIdsResponse:
    """The response to a broker that asks for producer ids. (KIP-730.)"""
    code, ids = (answer, range(0)) if isinstance(answer, ErrorCode) else (ErrorCode.NONE, answer)
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=int(code), producer_id_start=ids.start, producer_id_len=len(ids)
    )
