"""Settings of groups, derived from the broker's settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import broker as settings
from barnabas.config import releases
from barnabas.coordinators.groups.settings import GroupSettings, MigrationPolicy

if TYPE_CHECKING:
    from barnabas.config.features import RecordVersions
    from barnabas.config.loading import BrokerConfig


def group_settings(config: BrokerConfig, record_versions: RecordVersions) -> GroupSettings:
    """Return the settings of groups; their records are written in these versions."""
    get = config.get
    return GroupSettings(
        record_versions=record_versions,
        session_timeout_ms_min=get(settings.GROUP_MIN_SESSION_TIMEOUT_MS),
        session_timeout_ms_max=get(settings.GROUP_MAX_SESSION_TIMEOUT_MS),
        initial_rebalance_delay_ms=get(settings.GROUP_INITIAL_REBALANCE_DELAY_MS),
        size_max=get(settings.GROUP_MAX_SIZE),
        offset_metadata_bytes_max=get(settings.OFFSET_METADATA_MAX_BYTES),
        offsets_retention_ms=get(settings.OFFSETS_RETENTION_MINUTES) * 60_000,
        offsets_commit_timeout_ms=get(settings.OFFSETS_COMMIT_TIMEOUT_MS),
        consumer_session_timeout_ms=get(settings.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
        consumer_heartbeat_interval_ms=get(settings.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
        consumer_assignment_interval_ms=get(settings.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),
        consumer_size_max=get(settings.GROUP_CONSUMER_MAX_SIZE),
        consumer_assignors=get(settings.GROUP_CONSUMER_ASSIGNORS),
        streams_session_timeout_ms=get(settings.GROUP_STREAMS_SESSION_TIMEOUT_MS),
        streams_heartbeat_interval_ms=get(settings.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS),
        streams_size_max=get(settings.GROUP_STREAMS_MAX_SIZE),
        streams_standby_replicas=get(settings.GROUP_STREAMS_NUM_STANDBY_REPLICAS),
        streams_initial_rebalance_delay_ms=get(settings.GROUP_STREAMS_INITIAL_REBALANCE_DELAY_MS),
        streams_assignment_interval_ms=get(settings.GROUP_STREAMS_ASSIGNMENT_INTERVAL_MS),
        streams_offsets_asked_since=releases.first_with_offset_interval(config.release),
        streams_task_offset_interval_ms=get(settings.GROUP_STREAMS_TASK_OFFSET_INTERVAL_MS),
        streams_acceptable_recovery_lag=get(settings.GROUP_STREAMS_ACCEPTABLE_RECOVERY_LAG),
        streams_assignment_tags=get(settings.GROUP_STREAMS_RACK_AWARE_ASSIGNMENT_TAGS),
        share_session_timeout_ms=get(settings.GROUP_SHARE_SESSION_TIMEOUT_MS),
        share_heartbeat_interval_ms=get(settings.GROUP_SHARE_HEARTBEAT_INTERVAL_MS),
        share_assignment_interval_ms=get(settings.GROUP_SHARE_ASSIGNMENT_INTERVAL_MS),
        share_size_max=get(settings.GROUP_SHARE_MAX_SIZE),
        migration_policy=MigrationPolicy(get(settings.GROUP_CONSUMER_MIGRATION_POLICY).lower()),
    )
