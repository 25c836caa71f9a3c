"""UpdateFeatures: raises the cluster's own feature. The others are at their highest level and stay there."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.features import refusal, refuse_level
from diskless_core.cluster.operations import Refusal
from diskless_core.coordinator.errors import CoordinatorError
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.feature_levels import FEATURE
from diskless_core.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

_RESULT = UpdateFeaturesResponse.UpdatableFeatureResult


async def update_features(context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Handle UpdateFeatures: one update that cannot be made refuses all of them."""
    for update in request.feature_updates:
        reason = refuse_level(update.feature, update.max_version_level, update.upgrade_type)
        if reason is not None:
            return _refused(reason)
    for update in request.feature_updates:
        if update.feature != FEATURE:
            continue
        level = update.max_version_level
        try:
            found = await context.services.cluster_shard.raise_level(level, validate_only=request.validate_only)
        except CoordinatorError as error:
            return _failed(Refusal(code=error.code, message=str(error)))
        if found is not None:
            return _refused(refusal(FEATURE, level, found.message))
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        results=[
            _RESULT(feature=update.feature, error_code=int(ErrorCode.NONE), error_message="NONE")
            for update in request.feature_updates
        ],
    )


def _refused(reason: str) -> UpdateFeaturesResponse:
    message = f"The update failed for all features since the following feature had an error: {reason}"
    return _failed(Refusal(code=ErrorCode.INVALID_UPDATE_VERSION, message=message))


def _failed(found: Refusal) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(
        throttle_time_ms=0, error_code=int(found.code), error_message=found.message, results=[]
    )
