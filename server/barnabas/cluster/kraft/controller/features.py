"""Features of a cluster: UpdateFeatures v0-v2, and the first records of a new cluster and a new leader (KIP-584, KIP-868).

The rule: either all changes of a request are applied or none; a level is finalized only if this controller, all registered
brokers and all controllers of the quorum support it, and its dependencies have their levels after the request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, Handlers, Outcome
from barnabas.cluster.kraft.controller.versions import (
    CONTROLLER_REGISTRATION_LEVEL,
    TRANSACTIONS_LEVEL,
)
from barnabas.cluster.kraft.feature_levels import ELR, LEVELS, SUPPORTED
from barnabas.cluster.kraft.image import BROKER, METADATA_VERSION, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.transitions import KRAFT_VERSION
from barnabas.cluster.kraft.values import LevelRange
from barnabas.config.broker import METADATA_MAX_IDLE_INTERVAL_MS
from barnabas.config.features import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from barnabas.config.loading import STATIC_BROKER_CONFIG, BrokerConfig
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.abort_transaction import AbortTransactionRecord
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.end_transaction import EndTransactionRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

UPDATE_FEATURES: Final = 57
RESULTS_UNTIL: Final = 1
"""Last version of UpdateFeatures with a result for each feature."""
MIN_IN_SYNC: Final = "min.insync.replicas"
LEADERSHIP: Final = "leadership"
"""In `ControllerState.parts`: a function that returns the Leadership by the log; without it there are no other voters."""
RAISING: Final = "raising of kraft.version"
"""In `ControllerState.parts`: a function that returns why kraft.version cannot go up to a level, empty if it can."""
NO_OP_DUE: Final = "no_op_due_ms"
_DISABLED: Final = LevelRange(0, 0)

_CHANGES: Final = (7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)
"""Levels of metadata.version that added records or fields of records: a downgrade must not cross them."""


# --- new clusters and new leaders -----------------------------------------------------------------------------------


def activation_records(
    image: QuorumImage, config: BrokerConfig, bootstrap: Sequence[Any], *, in_transaction: bool
) -> tuple[Any, ...]:
    """Return the first records of a new leader: `bootstrap`, the records of formatting, if the log has no metadata.version.

    They are one metadata transaction where the level has transactions, so they may span several batches; a transaction
    that the last leader left open is aborted. Raises ValueError for an open one at a level without transactions.
    """
    levels = {record.name: record.feature_level for record in _features(bootstrap)}
    level = image.metadata_version or levels.get(METADATA_VERSION, 0)
    if not level:
        raise ValueError("the records of formatting have no metadata.version")
    if in_transaction and level < TRANSACTIONS_LEVEL:
        raise ValueError(f"the log has half of a transaction, which metadata.version {level} does not have")
    aborted = (AbortTransactionRecord("Controller failover"),) if in_transaction else ()
    if image.metadata_version:
        return aborted
    records = list(bootstrap)
    if levels.get(ELR, 0) > 0:
        records.append(_min_in_sync_of_all(config))
    if level < TRANSACTIONS_LEVEL:
        return tuple(records)
    return *aborted, BeginTransactionRecord("Bootstrap records"), *records, EndTransactionRecord()


def _features(records: Iterable[Any]) -> list[FeatureLevelRecord]:
    return [record for record in records if isinstance(record, FeatureLevelRecord)]


def tick(state: ControllerState) -> tuple[Any, ...]:
    """Return a NoOp record every `metadata.max.idle.interval.ms`, which shows followers that the leader is active."""
    interval_ms = state.config.get(METADATA_MAX_IDLE_INTERVAL_MS)
    if not interval_ms:
        return ()
    due_ms = state.parts.setdefault(NO_OP_DUE, state.monotonic_ms + interval_ms)
    if state.monotonic_ms < due_ms:
        return ()
    state.parts[NO_OP_DUE] = state.monotonic_ms + interval_ms
    return (NoOpRecord(),)


# --- eligible leader replicas ---------------------------------------------------------------------------------------


def has_elr(image: QuorumImage) -> bool:
    """Return whether the cluster has eligible leader replicas (KIP-966)."""
    return image.features.get(ELR, 0) > 0


def _min_in_sync_of_all(config: BrokerConfig) -> ConfigRecord:
    """Return the record that sets this node's own min.insync.replicas for all brokers."""
    texts = [text for text, source in config.texts_of(MIN_IN_SYNC) if source == STATIC_BROKER_CONFIG]
    return ConfigRecord(BROKER, "", MIN_IN_SYNC, texts[0] if texts else str(config.default_of(MIN_IN_SYNC)))


def _elr_records(state: ControllerState) -> Iterable[ConfigRecord]:
    """Yield the records that ELR needs: one min.insync.replicas for the cluster, and none of single brokers."""
    settings = state.image.settings
    if MIN_IN_SYNC not in settings.get((BROKER, ""), {}):
        yield _min_in_sync_of_all(state.config)
    for (resource_type, name), own in settings.items():
        if resource_type == BROKER and name and MIN_IN_SYNC in own:
            yield ConfigRecord(BROKER, name, MIN_IN_SYNC, None)


# --- UpdateFeatures -------------------------------------------------------------------------------------------------


def update_features(state: ControllerState, request: UpdateFeaturesRequest, caller: Caller) -> Outcome:
    """Finalize levels of features. v0 and v1 answer each feature, v2 only the whole request."""
    caller.require_on_cluster(Operation.ALTER)
    updates = {update.feature: update for update in request.feature_updates}
    levels = {
        **state.image.features,
        **{name: update.max_version_level for name, update in updates.items()},
    }
    records: list[Any] = []
    kraft_version = None
    for name, update in updates.items():
        reason = _reason_against(state, name, update.max_version_level, update.upgrade_type, levels)
        if reason:
            return Outcome(
                UpdateFeaturesResponse(
                    error_code=ErrorCode.INVALID_UPDATE_VERSION,
                    error_message="The update failed for all features since the following feature had an error: "
                    f"level {update.max_version_level} of {name!r}: {reason}",
                )
            )
        if name != KRAFT_VERSION:
            records.append(FeatureLevelRecord(name, update.max_version_level))
        elif update.upgrade_type == UPGRADE:
            records.append(NoOpRecord())
            if update.max_version_level > _leadership(state).kraft_version:
                kraft_version = update.max_version_level
    if levels.get(ELR, 0) > 0 and ELR in updates:
        records[:0] = _elr_records(state)
    response = UpdateFeaturesResponse(error_message=None)
    if caller.version <= RESULTS_UNTIL:
        response.results = [
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=update.feature, error_message=ErrorCode.NONE.name
            )
            for update in request.feature_updates
        ]
    if request.validate_only:
        return Outcome(response)
    return Outcome(response, tuple(records), kraft_version)


def _reason_against(
    state: ControllerState, name: str, level: int, upgrade_type: int, levels: Mapping[str, int]
) -> str:
    """Return why a feature cannot be finalized at a level, empty if it can; `levels` are those after the request."""
    if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return f"there is no upgrade type {upgrade_type}"
    if level < 0:
        return "a level cannot be less than 0"
    if name not in SUPPORTED:
        return "this controller does not support it"
    leadership = _leadership(state)
    reason = _lacking(state, leadership, name, level)
    if reason:
        return reason
    current = leadership.kraft_version if name == KRAFT_VERSION else state.image.features.get(name, 0)
    if level < current and upgrade_type == UPGRADE:
        return "a lower level needs the upgrade type of a safe or unsafe downgrade"
    if level > current and upgrade_type != UPGRADE:
        return "a higher level needs the upgrade type of an upgrade"
    if name == METADATA_VERSION:
        return _reason_against_downgrade(current, level, upgrade_type)
    if name == KRAFT_VERSION:
        return _reason_against_kraft_version(state, current, level)
    needs = LEVELS[name][level].needs
    missing = [f"{other} {needed}" for other, needed in needs if levels[other] < needed]
    return f"it depends on {missing[0]}" if missing else ""


def _reason_against_kraft_version(state: ControllerState, current: int, level: int) -> str:
    """Return why kraft.version cannot be changed: it only rises, and all voters must have reported support."""
    if level < current:
        return f"kraft.version stays {current}, as it never goes down"
    if level == current:
        return ""
    reason_against: Callable[[int], str] = state.parts.get(RAISING, lambda _: "there is no quorum")
    return reason_against(level)


def _reason_against_downgrade(current: int, level: int, upgrade_type: int) -> str:
    """Return why metadata.version cannot be lowered: the log may have records that the lower level lacks."""
    crossed = [change for change in _CHANGES if level < change <= current]
    if not crossed:
        return ""
    if upgrade_type == UNSAFE_DOWNGRADE:
        return "an unsafe downgrade of metadata.version is not supported"
    return f"the downgrade might lose metadata, since level {crossed[-1]} has other records"


def _lacking(state: ControllerState, leadership: Leadership, name: str, level: int) -> str:
    """Return the name of a node that does not support a feature at a level; empty if all do."""
    controllers = state.image.controllers
    knows_controllers = state.image.metadata_version >= CONTROLLER_REGISTRATION_LEVEL
    registered = [(f"broker {broker.id}", broker.features) for broker in state.image.brokers.values()]
    if knows_controllers:
        registered += [
            (f"controller {controller.id}", controller.features)
            for controller in controllers.values()
            if controller.id != state.node_id
        ]
    nodes = [(node, dict(ranges).get(name, _DISABLED)) for node, ranges in registered]
    nodes.insert(0, ("this controller", SUPPORTED.get(name, _DISABLED)))
    for node, levels in nodes:
        if not levels.lowest <= level <= levels.highest:
            return (
                f"{node} supports levels {levels.lowest} to {levels.highest}"
                if levels.highest
                else f"{node} does not support it"
            )
    if knows_controllers:
        for voter in leadership.voters:
            if voter.id != state.node_id and voter.id not in controllers:
                return f"controller {voter.id} has not registered, and may not support it"
    return ""


def voter_ids(state: ControllerState) -> frozenset[int]:
    """Return the ids of the controllers of the quorum, including this one."""
    return frozenset({state.node_id, *(voter.id for voter in _leadership(state).voters)})


def _leadership(state: ControllerState) -> Leadership:
    leadership: Callable[[], Leadership] = state.parts.get(LEADERSHIP, Leadership)
    return leadership()


HANDLERS: Handlers = {UPDATE_FEATURES: update_features}
