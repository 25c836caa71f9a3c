"""ApiVersions: what this listener serves."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from diskless_core.broker.dispatch import Handler, RequestContext
from diskless_core.protocol import api_versions
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import ApiVersionsRequest, ApiVersionsResponse


def handler_for(served: Collection[int]) -> Handler:
    """The handler of a listener that serves these api keys and ApiVersions."""
    keys = [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)
        for key, oldest, newest in api_versions.advertised({*served, ApiVersionsRequest.API_KEY})
    ]

    def answer(context: RequestContext, request: Any) -> Any:  # noqa: ARG001  # a handler's signature
        """An unknown version gets UNSUPPORTED_VERSION in version 0, so that the client can step down."""
        error = ErrorCode.NONE if request is not None else ErrorCode.UNSUPPORTED_VERSION
        return ApiVersionsResponse(
            error_code=int(error),
            api_keys=keys,
            throttle_time_ms=0,
            supported_features=[],
            finalized_features_epoch=-1,
            finalized_features=[],
            zk_migration_ready=False,
        )

    return answer
