"""ApiVersions: what this listener serves."""

from __future__ import annotations

import re

from diskless_core.broker import features
from diskless_core.broker.dispatch import Api, RequestContext
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import LevelRange
from diskless_core.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

_SUPPORT_FROM_LEVEL_0_SINCE = 4
"""Clients of older versions take a lowest level of 0 for a malformed answer (KAFKA-17011)."""

_SOFTWARE_SINCE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(context: RequestContext, request: ApiVersionsRequest | None) -> ApiVersionsResponse:
    """An unknown version gets UNSUPPORTED_VERSION in version 0, with those of ApiVersions to step down to."""
    if request is None:
        own = [_versions(context.apis[ApiVersionsRequest.API_KEY])]
        return ApiVersionsResponse(error_code=int(ErrorCode.UNSUPPORTED_VERSION), api_keys=own, throttle_time_ms=0)
    if context.api_version >= _SOFTWARE_SINCE and not _is_fit(request):
        return ApiVersionsResponse(error_code=int(ErrorCode.INVALID_REQUEST), api_keys=[], throttle_time_ms=0)
    cluster = context.services.cluster_shard
    level = cluster.level
    return ApiVersionsResponse(
        error_code=int(ErrorCode.NONE),
        api_keys=[_versions(api) for api in context.apis.values()],
        throttle_time_ms=0,
        supported_features=_supported_features(cluster.supported_levels, context.api_version),
        finalized_features_epoch=level,  # it grows with each change: only this level changes, and only upwards
        finalized_features=_finalized_features(level),
        zk_migration_ready=False,
    )


def _versions(api: Api) -> ApiVersionsResponse.ApiVersion:
    key, oldest, newest = api.advertised
    return ApiVersionsResponse.ApiVersion(api_key=key, min_version=oldest, max_version=newest)


def _is_fit(request: ApiVersionsRequest) -> bool:
    """Whether the client names its software in a way that can be shown in metrics and logs (KIP-511)."""
    texts = (request.client_software_name, request.client_software_version)
    return all(_SOFTWARE.fullmatch(text) is not None for text in texts)


def _supported_features(levels: LevelRange, version: int) -> list[ApiVersionsResponse.SupportedFeatureKey]:
    return [
        ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=oldest, max_version=newest)
        for name, (oldest, newest) in features.supported(levels).items()
        if oldest > 0 or version >= _SUPPORT_FROM_LEVEL_0_SINCE
    ]


def _finalized_features(level: int) -> list[ApiVersionsResponse.FinalizedFeatureKey]:
    return [
        ApiVersionsResponse.FinalizedFeatureKey(name=name, min_version_level=newest, max_version_level=newest)
        for name, newest in features.finalized(level).items()
    ]
