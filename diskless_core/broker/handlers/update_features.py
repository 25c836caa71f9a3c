"""UpdateFeatures: every feature is at its highest level and stays there."""

from __future__ import annotations

from diskless_core.broker.dispatch import RequestContext
from diskless_core.broker.features import refuse_level
from diskless_core.protocol.errors import ErrorCode
from diskless_core.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse

_RESULT = UpdateFeaturesResponse.UpdatableFeatureResult


def update_features(_context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Handle UpdateFeatures: one update that cannot be made refuses all of them."""
    for update in request.feature_updates:
        reason = refuse_level(update.feature, update.max_version_level, update.upgrade_type)
        if reason is not None:
            message = f"The update failed for all features since the following feature had an error: {reason}"
            return UpdateFeaturesResponse(
                throttle_time_ms=0,
                error_code=int(ErrorCode.INVALID_UPDATE_VERSION),
                error_message=message,
                results=[],
            )
    return UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=int(ErrorCode.NONE),
        error_message=None,
        results=[
            _RESULT(feature=update.feature, error_code=int(ErrorCode.NONE), error_message="NONE")
            for update in request.feature_updates
        ],
    )
