"""Limits of groups, each from the setting of its name."""

from __future__ import annotations

from typing import Any

from barnabas.broker.group_settings import group_settings
from barnabas.config.loading import BrokerConfig

NAMES = {
    "session_timeout_ms_min": "group.min.session.timeout.ms",
    "session_timeout_ms_max": "group.max.session.timeout.ms",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
    "size_max": "group.max.size",
    "offset_metadata_bytes_max": "offset.metadata.max.bytes",
    "offsets_commit_timeout_ms": "offsets.commit.timeout.ms",
    "streams_standby_replicas": "group.streams.num.standby.replicas",
    "streams_initial_rebalance_delay_ms": "group.streams.initial.rebalance.delay.ms",
    **{
        f"{kind}_{own}": f"group.{kind}.{name}"
        for kind in ("consumer", "streams", "share")
        for own, name in (
            ("session_timeout_ms", "session.timeout.ms"),
            ("heartbeat_interval_ms", "heartbeat.interval.ms"),
            ("assignment_interval_ms", "assignment.interval.ms"),
            ("size_max", "max.size"),
        )
    },
}


def test_each_limit_of_groups_is_that_of_its_setting() -> None:
    values = {own: 10 + number for number, own in enumerate(NAMES)} | {"streams_standby_replicas": 2}
    config = BrokerConfig(
        {NAMES[own]: str(value) for own, value in values.items()} | {"offsets.retention.minutes": "7"}
    )
    versions: Any = None
    settings = group_settings(config, versions)
    assert {own: getattr(settings, own) for own in NAMES} == values
    assert settings.offsets_retention_ms == 7 * 60_000
    assert settings.migration_policy.value == "bidirectional"
