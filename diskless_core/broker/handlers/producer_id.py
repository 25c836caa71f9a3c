"""InitProducerId: ids for idempotent producers."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


async def init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Handle InitProducerId. A transactional id is refused with an error that ends the client's attempts."""
    has_half_of_a_producer = (request.producer_id == _NONE) != (request.producer_epoch == _NONE)
    if request.transactional_id == "" or has_half_of_a_producer:
        return _response(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    try:
        return _response(ErrorCode.NONE, await context.services.producer_ids.next(), 0)
    except CoordinatorError:
        # As Kafka says when it is out of ids. Any other code of a coordinator is about one of transactions: a Java
        # producer would look for that of the transactional id null.
        return _response(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _response(error: ErrorCode, producer_id: int = _NONE, epoch: int = _NONE) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=int(error), producer_id=producer_id, producer_epoch=epoch
    )
