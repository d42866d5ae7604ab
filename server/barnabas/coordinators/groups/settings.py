"""The settings of groups. Pure."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from barnabas.cluster.metadata.image import BROKER, GROUP, ClusterImage
from barnabas.config.features import RecordVersions

_TAGS = "streams.rack.aware.assignment.tags"
TOGETHER_MS = 3
"""Least time that a first generation waits for one more member, if group.initial.rebalance.delay.ms is less."""


class MigrationPolicy(Enum):
    """Directions in which a group may change its protocol while it has members, with the names of Kafka's setting."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ConsumerSettings(NamedTuple):
    """Settings of one consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class StreamsSettings(NamedTuple):
    """Settings of one streams group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    standby_replicas: int
    initial_rebalance_delay_ms: int
    assignment_interval_ms: int
    task_offset_interval_ms: int
    acceptable_recovery_lag: int
    assignment_tags: tuple[str, ...]

    @property
    def used(self) -> dict[str, str]:
        """Settings of an assignment, with the names that Kafka writes into the record of the group's epoch."""
        used = {"num.standby.replicas": str(self.standby_replicas)}
        if self.assignment_tags:
            used["rack.aware.assignment.tags"] = ",".join(self.assignment_tags)
        return used


class ShareMemberSettings(NamedTuple):
    """Settings for the members of one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


class GroupSettings(NamedTuple):
    """Kafka's names with underscores, Kafka's defaults."""

    session_timeout_ms_min: int = 6_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    size_max: int = 2**31 - 1
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 86_400_000
    offsets_commit_timeout_ms: int = 5_000
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    streams_session_timeout_ms: int = 45_000
    streams_heartbeat_interval_ms: int = 5_000
    streams_size_max: int = 2**31 - 1
    streams_standby_replicas: int = 0
    streams_initial_rebalance_delay_ms: int = 3_000
    streams_assignment_interval_ms: int = 1_000
    streams_task_offset_interval_ms: int = 60_000
    streams_offsets_asked_since: int = 1
    """First version of StreamsGroupHeartbeat that has that interval in the response."""
    streams_acceptable_recovery_lag: int = 10_000
    streams_assignment_tags: tuple[str, ...] = ()
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_assignment_interval_ms: int = 1_000
    share_size_max: int = 200
    record_versions: RecordVersions = RecordVersions()
    """Versions in which groups and offsets are written."""

    @property
    def first_generation_delay_ms(self) -> int:
        """Time for which the first generation of a classic group waits for one more member."""
        return max(self.initial_rebalance_delay_ms, TOGETHER_MS)

    def of_group(self, image: ClusterImage, group_id: str) -> ConsumerSettings:
        """Return the settings of a consumer group: its own, and the broker's for the rest."""
        own = image.settings_of(GROUP, group_id)
        interval_ms = image.settings_of(BROKER, "").get(
            "group.consumer.assignment.interval.ms", self.consumer_assignment_interval_ms
        )
        return ConsumerSettings(
            session_timeout_ms=int(own.get("consumer.session.timeout.ms", self.consumer_session_timeout_ms)),
            heartbeat_interval_ms=int(
                own.get("consumer.heartbeat.interval.ms", self.consumer_heartbeat_interval_ms)
            ),
            assignment_interval_ms=int(own.get("consumer.assignment.interval.ms", interval_ms)),
        )

    def of_share_group(self, image: ClusterImage, group_id: str) -> ShareMemberSettings:
        """Return the settings for a share group's members: the group's own, and the broker's for the rest."""
        own = image.settings_of(GROUP, group_id)
        interval_ms = image.settings_of(BROKER, "").get(
            "group.share.assignment.interval.ms", self.share_assignment_interval_ms
        )
        return ShareMemberSettings(
            session_timeout_ms=int(own.get("share.session.timeout.ms", self.share_session_timeout_ms)),
            heartbeat_interval_ms=int(
                own.get("share.heartbeat.interval.ms", self.share_heartbeat_interval_ms)
            ),
            assignment_interval_ms=int(own.get("share.assignment.interval.ms", interval_ms)),
        )

    def of_streams_group(self, image: ClusterImage, group_id: str) -> StreamsSettings:
        """Return the settings of a streams group: its own, and the broker's for the rest."""
        own = image.settings_of(GROUP, group_id)
        interval_ms = image.settings_of(BROKER, "").get(
            "group.streams.assignment.interval.ms", self.streams_assignment_interval_ms
        )
        return StreamsSettings(
            session_timeout_ms=int(own.get("streams.session.timeout.ms", self.streams_session_timeout_ms)),
            heartbeat_interval_ms=int(
                own.get("streams.heartbeat.interval.ms", self.streams_heartbeat_interval_ms)
            ),
            standby_replicas=int(own.get("streams.num.standby.replicas", self.streams_standby_replicas)),
            initial_rebalance_delay_ms=int(
                own.get("streams.initial.rebalance.delay.ms", self.streams_initial_rebalance_delay_ms)
            ),
            assignment_interval_ms=int(own.get("streams.assignment.interval.ms", interval_ms)),
            task_offset_interval_ms=int(
                own.get("streams.task.offset.interval.ms", self.streams_task_offset_interval_ms)
            ),
            acceptable_recovery_lag=int(
                own.get("streams.acceptable.recovery.lag", self.streams_acceptable_recovery_lag)
            ),
            assignment_tags=_items(own[_TAGS]) if _TAGS in own else self.streams_assignment_tags,
        )


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
