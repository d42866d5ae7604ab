"""The settings that single groups can have, with Kafka's names; the defaults and bounds are the broker's. Pure.

A group's settings can be set before there is such a group, and stay when it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.config import broker
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import INT, Setting, SettingError

CONSUMER_SESSION_TIMEOUT_MS = Setting(
    "consumer.session.timeout.ms", INT, 45_000,
    "A member of the consumer group that is not heard of for so long is removed.", low=1, dynamic=True,
)  # fmt: skip
CONSUMER_HEARTBEAT_INTERVAL_MS = Setting(
    "consumer.heartbeat.interval.ms", INT, 5000,
    "How often members of the consumer group are to be heard of.", low=1, dynamic=True,
)  # fmt: skip
STREAMS_SESSION_TIMEOUT_MS = Setting(
    "streams.session.timeout.ms", INT, 45_000,
    "A member of the streams group that is not heard of for so long is removed.", low=1, dynamic=True,
)  # fmt: skip
STREAMS_HEARTBEAT_INTERVAL_MS = Setting(
    "streams.heartbeat.interval.ms", INT, 5000,
    "How often members of the streams group are to be heard of.", low=1, dynamic=True,
)  # fmt: skip
STREAMS_NUM_STANDBY_REPLICAS = Setting(
    "streams.num.standby.replicas", INT, 0,
    "In how many other processes each task's state is kept ready.", low=0, dynamic=True,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A row: the setting, and the broker's settings that give its default and its bounds."""

    setting: Setting[int]
    default: Setting[int]
    least: Setting[int] | None
    largest: Setting[int]


ROWS: tuple[GroupSetting, ...] = (
    GroupSetting(
        CONSUMER_SESSION_TIMEOUT_MS,
        broker.GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        broker.GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        broker.GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    GroupSetting(
        CONSUMER_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    GroupSetting(
        STREAMS_SESSION_TIMEOUT_MS,
        broker.GROUP_STREAMS_SESSION_TIMEOUT_MS,
        broker.GROUP_STREAMS_MIN_SESSION_TIMEOUT_MS,
        broker.GROUP_STREAMS_MAX_SESSION_TIMEOUT_MS,
    ),
    GroupSetting(
        STREAMS_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_STREAMS_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_STREAMS_MIN_HEARTBEAT_INTERVAL_MS,
        broker.GROUP_STREAMS_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    GroupSetting(
        STREAMS_NUM_STANDBY_REPLICAS,
        broker.GROUP_STREAMS_NUM_STANDBY_REPLICAS,
        None,
        broker.GROUP_STREAMS_MAX_STANDBY_REPLICAS,
    ),
)
SETTINGS: dict[str, Setting[Any]] = {row.setting.name: row.setting for row in ROWS}


def values(own: Mapping[str, str], config: BrokerConfig) -> dict[str, int]:
    """All settings of a group that has these of its own. Raises SettingError for a text that is no value."""
    return {
        row.setting.name: row.setting.parse(own[row.setting.name])
        if row.setting.name in own
        else config.get(row.default)
        for row in ROWS
    }


def check(own: Mapping[str, str], config: BrokerConfig) -> None:
    """Whether a group may have these settings. Raises SettingError."""
    for name in own:
        if name not in SETTINGS:
            raise SettingError(f"unknown group setting {name!r}")
    effective = values(own, config)
    for row in ROWS:
        name = row.setting.name
        if name in own:
            low = 0 if row.least is None else config.get(row.least)
            high = config.get(row.largest)
            if not low <= effective[name] <= high:
                raise SettingError(
                    f"{name}={own[name]}: a value from {low} to {high} ({row.largest.name}) is expected"
                )
    for session, interval in (
        (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS),
        (STREAMS_SESSION_TIMEOUT_MS, STREAMS_HEARTBEAT_INTERVAL_MS),
    ):
        if effective[session.name] <= effective[interval.name]:
            raise SettingError(f"{session.name} must be larger than {interval.name}")
