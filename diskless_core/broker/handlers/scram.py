"""DescribeUserScramCredentials and AlterUserScramCredentials: there are none, and none can be made yet.

`kafka-configs` has to know it before it shows a user's quotas.
"""

from __future__ import annotations

from collections import Counter

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

AlteredUser = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def describe_user_scram_credentials(
    _context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Handle DescribeUserScramCredentials: all users are none, and each that is named is unknown."""
    times_named = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message="",
        results=[_unknown(name, times) for name, times in times_named.items()],
    )


def _unknown(name: str, times: int) -> Result:
    if times > 1:
        error, message = (
            ErrorCode.DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a request: {name}",
        )
    else:
        error = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return Result(user=name, error_code=int(error), error_message=message, credential_infos=[])


def alter_user_scram_credentials(
    _context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Handle AlterUserScramCredentials: each user is refused, as by a Kafka whose metadata cannot have credentials."""
    users = dict.fromkeys(one.name for changes in (request.deletions, request.upsertions) for one in changes)
    message = "This broker does not support SCRAM."
    return AlterUserScramCredentialsResponse(
        throttle_time_ms=0,
        results=[
            AlteredUser(user=user, error_code=int(ErrorCode.UNSUPPORTED_VERSION), error_message=message)
            for user in users
        ],
    )
