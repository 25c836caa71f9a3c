"""SaslHandshake and SaslAuthenticate: out of place where a listener asks nobody who he is, as on Kafka's."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

_ERROR = int(ErrorCode.ILLEGAL_SASL_STATE)


def sasl_handshake(_context: RequestContext, _request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Handle SaslHandshake."""
    return SaslHandshakeResponse(error_code=_ERROR, mechanisms=[])


def sasl_authenticate(_context: RequestContext, _request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Handle SaslAuthenticate."""
    message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=_ERROR, error_message=message, auth_bytes=b"", session_lifetime_ms=0)
