"""UnregisterBroker: there is no broker but this one, which runs."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import UnregisterBrokerRequest, UnregisterBrokerResponse


def unregister_broker(context: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    """Handle UnregisterBroker."""
    if request.broker_id == context.services.config.node_id:
        error, message = ErrorCode.INVALID_REQUEST, f"Broker {request.broker_id} is running."
    else:
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
        message = f"Broker ID {request.broker_id} is not currently registered"
    return UnregisterBrokerResponse(throttle_time_ms=0, error_code=int(error), error_message=message)
