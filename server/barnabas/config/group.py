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


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A row: the setting, and the broker's settings that give its default and its bounds."""

    setting: Setting[int]
    default: Setting[int]
    least: Setting[int]
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
        if name in own and not config.get(row.least) <= effective[name] <= config.get(row.largest):
            raise SettingError(
                f"{name}={own[name]}: a value from {config.get(row.least)} ({row.least.name}) "
                f"to {config.get(row.largest)} ({row.largest.name}) is expected"
            )
    session = effective[CONSUMER_SESSION_TIMEOUT_MS.name]
    if session <= effective[CONSUMER_HEARTBEAT_INTERVAL_MS.name]:
        raise SettingError("consumer.session.timeout.ms must be larger than consumer.heartbeat.interval.ms")
