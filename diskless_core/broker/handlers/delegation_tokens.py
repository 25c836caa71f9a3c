"""The APIs of delegation tokens: refused, as by Kafka on a listener where nobody shows who he is."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_ERROR = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
_NEVER = -1
_USER = "User"


def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Handle CreateDelegationToken. The owner is the one who asks where no other one is named."""
    owner = request.owner_principal_name or context.user
    owner_type = (request.owner_principal_type or "") if request.owner_principal_name else _USER
    return CreateDelegationTokenResponse(
        error_code=_ERROR,
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=_USER,
        token_requester_principal_name=context.user,
        issue_timestamp_ms=_NEVER,
        expiry_timestamp_ms=_NEVER,
        max_timestamp_ms=_NEVER,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


def renew_delegation_token(
    _context: RequestContext, _request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Handle RenewDelegationToken."""
    return RenewDelegationTokenResponse(error_code=_ERROR, expiry_timestamp_ms=_NEVER, throttle_time_ms=0)


def expire_delegation_token(
    _context: RequestContext, _request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Handle ExpireDelegationToken."""
    return ExpireDelegationTokenResponse(error_code=_ERROR, expiry_timestamp_ms=_NEVER, throttle_time_ms=0)


def describe_delegation_token(
    _context: RequestContext, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Handle DescribeDelegationToken."""
    return DescribeDelegationTokenResponse(error_code=_ERROR, tokens=[], throttle_time_ms=0)
