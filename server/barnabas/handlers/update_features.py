"""UpdateFeatures v0-v2. Checks changes of finalized feature levels as Kafka does; the levels themselves are fixed here.

All changes of a request happen or none. v1 adds upgrade types and validate_only; v0 and v1 answer each feature, v2 only
the whole request. A level that is asked for and finalized already is no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas import features
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from barnabas.loop_budget import LoopBudget
    from barnabas.release import ReleaseProfile
    from barnabas.requests.context import RequestContext

RESULTS_UNTIL = 1

Result = UpdateFeaturesResponse.UpdatableFeatureResult


async def handle(
    context: RequestContext, request: UpdateFeaturesRequest, *, budget: LoopBudget, release: ReleaseProfile
) -> UpdateFeaturesResponse:
    """Refuse the whole request for its first change that cannot be; nothing is left to do for the others."""
    updates = {update.feature: update for update in request.feature_updates}
    for update in updates.values():
        await budget.checkpoint()
        reason = features.reason_against(
            release.features, update.feature, update.max_version_level, update.upgrade_type
        )
        if reason:
            raise RequestError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"level {update.max_version_level} of {update.feature!r}: {reason}",
            )
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= RESULTS_UNTIL:
        response.results = [Result(feature=name, error_message=ErrorCode.NONE.name) for name in updates]
    return response
