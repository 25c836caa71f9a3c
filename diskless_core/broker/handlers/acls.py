"""DescribeAcls, CreateAcls and DeleteAcls: refused, as by a Kafka without an authorizer."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)

_ERROR = int(ErrorCode.SECURITY_DISABLED)
_MESSAGE = "No Authorizer is configured."


def describe_acls(_context: RequestContext, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Handle DescribeAcls."""
    return DescribeAclsResponse(throttle_time_ms=0, error_code=_ERROR, error_message=_MESSAGE, resources=[])


def create_acls(_context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Handle CreateAcls."""
    refused = CreateAclsResponse.AclCreationResult(error_code=_ERROR, error_message=_MESSAGE)
    return CreateAclsResponse(throttle_time_ms=0, results=[refused] * len(request.creations))


def delete_acls(_context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Handle DeleteAcls."""
    refused = DeleteAclsResponse.DeleteAclsFilterResult(error_code=_ERROR, error_message=_MESSAGE, matching_acls=[])
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=[refused] * len(request.filters))
