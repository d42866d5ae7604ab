"""UpdateFeatures v0-v2. Finalizes features of a cluster at other levels; those of a broker that is alone are fixed.

All changes of a request happen or none. v1 adds upgrade types and validate_only; v0 and v1 answer each feature, v2 only
the whole request. A level that is asked for and finalized already is no change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas import features
from barnabas.cluster.image import Change, ClusterImage, FeaturesChanged
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from barnabas.cluster.store import MetadataStore
    from barnabas.loop_budget import LoopBudget
    from barnabas.release import ReleaseProfile
    from barnabas.requests.context import RequestContext

RESULTS_UNTIL = 1

Result = UpdateFeaturesResponse.UpdatableFeatureResult


async def handle(
    context: RequestContext,
    request: UpdateFeaturesRequest,
    *,
    metadata: MetadataStore,
    budget: LoopBudget,
    release: ReleaseProfile,
) -> UpdateFeaturesResponse:
    """Refuse the whole request for its first change that cannot be; a level needs the support of all brokers."""
    updates = {update.feature: update for update in request.feature_updates}
    for update in updates.values():
        await budget.checkpoint()
        reason = _reason_against(metadata.image, update, release)
        if reason:
            raise RequestError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"level {update.max_version_level} of {update.feature!r}: {reason}",
            )
    levels = {update.feature: update.max_version_level for update in updates.values()}
    if levels and metadata.image.features is not None and not request.validate_only:
        await metadata.change(lambda image: _changed(image, levels))
    response = UpdateFeaturesResponse(error_message=None)
    if context.api_version <= RESULTS_UNTIL:
        response.results = [Result(feature=name, error_message=ErrorCode.NONE.name) for name in updates]
    return response


def _reason_against(
    image: ClusterImage, update: UpdateFeaturesRequest.FeatureUpdateKey, release: ReleaseProfile
) -> str:
    """Return why a feature cannot be finalized at a level, for the operator."""
    name, level = update.feature, update.max_version_level
    reason = features.reason_against(
        features.finalized(release.features, image.features),
        name,
        level,
        update.upgrade_type,
        is_fixed=image.features is None,
    )
    if reason or image.features is None or not level:
        return reason
    for broker in image.brokers.values():
        low, high = broker.features.get(name, (0, 0))
        if not low <= level <= high:
            return f"broker {broker.id} does not support it"
    return ""


def _changed(image: ClusterImage, levels: Mapping[str, int]) -> list[Change]:
    """The change to these levels; those at 0 are finalized no longer."""
    new = {name: level for name, level in {**(image.features or {}), **levels}.items() if level}
    if new == image.features:
        return []
    return [FeaturesChanged(tuple(sorted(new.items())), image.features_epoch + 1)]
