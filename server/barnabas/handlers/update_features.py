"""UpdateFeatures v0-v2. Finalizes features of a cluster at other levels; those of a broker without a cluster are fixed.

Either all changes of a request are applied or none. v1 adds upgrade types and validate_only; v0 and v1 have a result for
each feature, v2 only for the whole request. A requested level that is finalized already is no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config import features
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from barnabas.cluster.metadata.ports import FeatureLevels
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.serving.context import RequestContext
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.release import ReleaseProfile

RESULTS_UNTIL = 1

Result = UpdateFeaturesResponse.UpdatableFeatureResult


@dataclass(eq=False)
class UpdateFeatures:
    """Handler of UpdateFeatures."""

    metadata: MetadataStore
    feature_levels: FeatureLevels | None
    budget: LoopBudget
    release: ReleaseProfile

    async def handle(self, context: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        """Refuse the whole request for its first change that cannot be; a level needs the support of all brokers."""
        updates = {update.feature: update for update in request.feature_updates}
        finalized = features.finalized(self.release.features, self.metadata.image.features)
        support = await self.feature_levels.supported() if self.feature_levels is not None else {}
        for update in updates.values():
            await self.budget.checkpoint()
            reason = features.reason_against(
                finalized,
                update.feature,
                update.max_version_level,
                update.upgrade_type,
                is_fixed=self.feature_levels is None,
            ) or _lacking(support, update)
            if reason:
                raise RequestError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    "The update failed for all features since the following feature had an error: "
                    f"level {update.max_version_level} of {update.feature!r}: {reason}",
                )
        levels = {update.feature: update.max_version_level for update in updates.values()}
        if levels and self.feature_levels is not None and not request.validate_only:
            await self.feature_levels.finalize(levels)
        response = UpdateFeaturesResponse(error_message=None)
        if context.api_version <= RESULTS_UNTIL:
            response.results = [
                Result(feature=update.feature, error_message=ErrorCode.NONE.name)
                for update in request.feature_updates
            ]
        return response


def _lacking(
    support: Mapping[int, Mapping[str, tuple[int, int]]], update: UpdateFeaturesRequest.FeatureUpdateKey
) -> str:
    """Name a broker that does not support a feature at a level; empty if all do."""
    level = update.max_version_level
    for broker_id, supported in sorted(support.items()) if level else ():
        low, high = supported.get(update.feature, (0, 0))
        if not low <= level <= high:
            return f"broker {broker_id} does not support it"
    return ""
