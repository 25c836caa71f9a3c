"""Answers what other brokers ask of the controller, who this broker is, and UnregisterBroker of administrators.

It knows no connection: the broker's listeners and a simulated network put their requests to it alike.
"""

from __future__ import annotations

from collections.abc import Iterable

from diskless_core.cluster.membership import wire
from diskless_core.cluster.membership.model import BrokerSpec
from diskless_core.cluster.membership.registrar import Link, Registrar
from diskless_core.cluster.operations import Refusal
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.coordinator.peers import PeerRequest
from diskless_core.plugin.shard import ShardId
from diskless_core.protocol.codec import ApiMessage
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.framing import Request, Response, decode_request, encode_body
from diskless_core.protocol.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DisklessAllocateNodeIdRequest,
    DisklessAllocateNodeIdResponse,
    DisklessIdentifyBrokerRequest,
    DisklessIdentifyBrokerResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

MEMBERSHIP_REQUESTS: dict[int, type[ApiMessage]] = {
    request.API_KEY: request
    for request in (
        BrokerRegistrationRequest,
        BrokerHeartbeatRequest,
        AllocateProducerIdsRequest,
        DisklessAllocateNodeIdRequest,
        DisklessIdentifyBrokerRequest,
    )
}
"""What brokers send to the controller, or it to them, and clients do not, by api key."""


class MembershipService:
    """What one node answers. All but its leader refuse what is for the controller with NOT_CONTROLLER.

    Args:
        spec: of this node's own process.
        shards: those of the cluster.
    """

    def __init__(self, registrar: Registrar, spec: BrokerSpec, *, cluster_id: str, shards: Iterable[ShardId]) -> None:
        self._registrar = registrar
        self._spec = spec
        self._cluster_id = cluster_id
        self._shards = {str(shard): shard for shard in shards}

    async def answer(self, request: PeerRequest, link: Link | None = None) -> bytes:
        """The body of a response to the body of a request of another broker, as a `PeerTransport` carries them.

        Raises:
            FrameError: the request is malformed.
            KeyError: the api key is none of membership's.
        """
        message = decode_request(MEMBERSHIP_REQUESTS[request.api_key], request.api_version, memoryview(request.body), 0)
        return b"".join(encode_body(await self.handle(message, link), request.api_version))

    async def handle(self, request: Request, link: Link | None = None) -> Response:
        """The response to one of `MEMBERSHIP_REQUESTS`.

        Raises:
            TypeError: it is none.
        """
        match request:
            case BrokerRegistrationRequest():
                return await self.register(request, link)
            case BrokerHeartbeatRequest():
                return await self.heartbeat(request, link)
            case AllocateProducerIdsRequest():
                return await self.allocate_producer_ids(request)
            case DisklessAllocateNodeIdRequest():
                return await self.allocate_node_id(request)
            case DisklessIdentifyBrokerRequest():
                return self.identify()
            case _:
                raise TypeError(type(request))

    async def register(
        self, request: BrokerRegistrationRequest, link: Link | None = None
    ) -> BrokerRegistrationResponse:
        """BrokerRegistration."""
        spec = wire.spec_of(request, self._cluster_id)
        if isinstance(spec, Refusal):
            return wire.registration_response(spec)
        try:
            return wire.registration_response(await self._registrar.register(spec, link, request.allocation_id))
        except CoordinatorError as error:
            return wire.registration_response(Refusal(code=error.code, message=str(error)))

    async def heartbeat(self, request: BrokerHeartbeatRequest, link: Link | None = None) -> BrokerHeartbeatResponse:
        """BrokerHeartbeat."""
        beat = wire.beat_of(request, self._shards)
        try:
            answer = await self._registrar.heartbeat(beat, link)
        except CoordinatorError as error:
            return wire.heartbeat_response(error.code, is_fenced=True)
        is_fenced = self._registrar.is_fenced(beat.node_id)
        return wire.heartbeat_response(answer, is_fenced=is_fenced, clock=self._registrar.clock())

    async def allocate_producer_ids(self, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
        """AllocateProducerIds."""
        try:
            taken = await self._registrar.take_producer_ids(request.broker_id, request.broker_epoch)
        except CoordinatorError as error:
            taken = error.code
        return wire.producer_ids_response(taken)

    async def allocate_node_id(self, request: DisklessAllocateNodeIdRequest) -> DisklessAllocateNodeIdResponse:
        """DisklessAllocateNodeId."""
        if request.cluster_id != self._cluster_id:
            message = f"this is the cluster {self._cluster_id}, not {request.cluster_id}"
            return wire.node_id_response(Refusal(code=ErrorCode.INCONSISTENT_CLUSTER_ID, message=message))
        if request.allocation_id is None:
            message = "a node id is asked for with an allocation id"
            return wire.node_id_response(Refusal(code=ErrorCode.INVALID_REQUEST, message=message))
        try:
            return wire.node_id_response(await self._registrar.allocate_node_id(request.allocation_id))
        except CoordinatorError as error:
            return wire.node_id_response(Refusal(code=error.code, message=str(error)))

    def identify(self) -> DisklessIdentifyBrokerResponse:
        """DisklessIdentifyBroker."""
        return wire.identity_response(self._spec, self._cluster_id)

    async def unregister(self, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
        """UnregisterBroker."""
        try:
            refusal = await self._registrar.unregister(request.broker_id)
        except CoordinatorError as error:
            return _unregistered(error.code, str(error))
        return _unregistered(ErrorCode.NONE, None) if refusal is None else _unregistered(refusal.code, refusal.message)


def _unregistered(code: ErrorCode, message: str | None) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=int(code), error_message=message)
