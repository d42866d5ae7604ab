"""The settings of single groups, with Kafka's names; defaults and bounds are the broker's. Pure.

The rule: a group's settings can be set before the group exists, and stay after it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from barnabas.config import releases, tables
from barnabas.config.durations import duration_ms
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import STRING, Setting, SettingError

# Each row is one as in `config/tables`, and the broker settings with its default, its least and its largest value.
# fmt: off
_ROWS: tuple[tuple[tuple[Any, ...], str, str, str], ...] = (
    (("consumer.session.timeout.ms", "int", "45000", "1..", "medium", "cluster", "",
      "A member of the consumer group that is not heard of for so long is removed."),
     "group.consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms",
     "group.consumer.max.session.timeout.ms"),
    (("consumer.heartbeat.interval.ms", "int", "5000", "1..", "medium", "cluster", "",
      "How often members of the consumer group are to be heard of."),
     "group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms",
     "group.consumer.max.heartbeat.interval.ms"),
    (("consumer.assignment.interval.ms", "int", "1000", "0..", "medium", "cluster", "",
      "Shortest time between two assignments of the consumer group."),
     "group.consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms",
     "group.consumer.max.assignment.interval.ms"),
    (("consumer.assignor.offload.enable", "boolean", "true", "", "medium", "internal", "threads",
      "Whether assignments of the consumer group are computed beside requests."),
     "group.consumer.assignor.offload.enable", "", ""),
    (("share.session.timeout.ms", "int", "45000", "1..", "medium", "cluster", "",
      "A member of the share group that is not heard of for so long is removed."),
     "group.share.session.timeout.ms", "group.share.min.session.timeout.ms",
     "group.share.max.session.timeout.ms"),
    (("share.heartbeat.interval.ms", "int", "5000", "1..", "medium", "cluster", "",
      "How often members of the share group are to be heard of."),
     "group.share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms",
     "group.share.max.heartbeat.interval.ms"),
    (("share.assignment.interval.ms", "int", "1000", "0..", "medium", "cluster", "",
      "Shortest time between two assignments of the share group."),
     "group.share.assignment.interval.ms", "group.share.min.assignment.interval.ms",
     "group.share.max.assignment.interval.ms"),
    (("share.assignor.offload.enable", "boolean", "true", "", "medium", "internal", "threads",
      "Whether assignments of the share group are computed beside requests."),
     "group.share.assignor.offload.enable", "", ""),
    (("share.record.lock.duration.ms", "int", "30000", "1000..", "medium", "cluster", "",
      "How long a delivered record is locked for its consumer."),
     "group.share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms",
     "group.share.max.record.lock.duration.ms"),
    (("share.delivery.count.limit", "int", "5", "2..", "medium", "cluster", "",
      "How often a record is delivered before it is given up."),
     "group.share.delivery.count.limit", "group.share.min.delivery.count.limit",
     "group.share.max.delivery.count.limit"),
    (("share.partition.max.record.locks", "int", "2000", "100..", "medium", "cluster", "",
      "Records of a partition that may be locked at once."),
     "group.share.partition.max.record.locks", "group.share.min.partition.max.record.locks",
     "group.share.max.partition.max.record.locks"),
    (("share.auto.offset.reset", "string", "latest", "", "medium", "cluster", "",
      "Where the share group begins in a partition that is new to it: earliest, latest or by_duration:P1DT2H."),
     "", "", ""),
    (("share.isolation.level", "string", "read_uncommitted", "read_committed|read_uncommitted", "medium", "cluster",
      "", "Whether records of open and aborted transactions are delivered."),
     "", "", ""),
    (("share.renew.acknowledge.enable", "boolean", "true", "", "medium", "cluster", "",
      "Whether consumers may renew their locks."),
     "", "", ""),
    (("streams.session.timeout.ms", "int", "45000", "1..", "medium", "cluster", "",
      "A member of the streams group that is not heard of for so long is removed."),
     "group.streams.session.timeout.ms", "group.streams.min.session.timeout.ms",
     "group.streams.max.session.timeout.ms"),
    (("streams.heartbeat.interval.ms", "int", "5000", "1..", "medium", "cluster", "",
      "How often members of the streams group are to be heard of."),
     "group.streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms",
     "group.streams.max.heartbeat.interval.ms"),
    (("streams.assignment.interval.ms", "int", "1000", "0..", "medium", "cluster", "",
      "Shortest time between two assignments of the streams group."),
     "group.streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms",
     "group.streams.max.assignment.interval.ms"),
    (("streams.assignor.offload.enable", "boolean", "true", "", "medium", "internal", "threads",
      "Whether assignments of the streams group are computed beside requests."),
     "group.streams.assignor.offload.enable", "", ""),
    (("streams.initial.rebalance.delay.ms", "int", "3000", "0..", "medium", "cluster", "",
      "How long the streams group waits for more members when it is new."),
     "group.streams.initial.rebalance.delay.ms", "", ""),
    (("streams.num.standby.replicas", "int", "0", "0..", "medium", "cluster", "",
      "Standby copies of each task."),
     "group.streams.num.standby.replicas", "", "group.streams.max.standby.replicas"),
    (("streams.rack.aware.assignment.tags", "list", "", "", "low", "cluster", "",
      "Tags that clients of the streams group must have; those that lack one are told."),
     "group.streams.rack.aware.assignment.tags", "", ""),
    (("streams.task.offset.interval.ms", "int", "60000", "1..", "medium", "internal", "",
      "How often members of the streams group are to tell how far they have restored their tasks."),
     "group.streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""),
    (("streams.num.warmup.replicas", "int", "2", "0..", "medium", "internal", "warmup",
      "Warm-up tasks that the streams group may have at once."),
     "group.streams.num.warmup.replicas", "", "group.streams.max.warmup.replicas"),
    (("streams.acceptable.recovery.lag", "long", "10000", "0..", "medium", "internal", "",
      "Records that a copy of a task may be behind to become the active one."),
     "group.streams.acceptable.recovery.lag", "", ""),
    (("streams.assignor.name", "string", "sticky", "", "medium", "cluster", "fixed",
      "Assignor of the streams group, one of group.streams.assignors; the first of these if there is none."),
     "group.streams.assignors", "", ""),
    (("errors.deadletterqueue.topic.name", "string", "", "", "medium", "cluster", "",
      "Topic of the share group's dead letter queue; empty if there is none."),
     "", "", ""),
    (("errors.deadletterqueue.copy.record.enable", "boolean", "false", "", "medium", "cluster", "",
      "Whether records in the dead letter queue have key and value, or headers alone."),
     "", "", ""),
)
# fmt: on

ASSIGNOR_NAME = "streams.assignor.name"
ASSIGNMENT_TAGS = "streams.rack.aware.assignment.tags"
DLQ_TOPIC_NAME = "errors.deadletterqueue.topic.name"
INTERNAL_PREFIX = "__"
SHARE_AUTO_OFFSET_RESET = "share.auto.offset.reset"
BY_DURATION = "by_duration:"


@dataclass(frozen=True, slots=True)
class GroupSetting:
    """A setting, and the broker's settings that bound it; None where nothing but its type does."""

    setting: Setting[Any]
    least: Setting[int] | None
    largest: Setting[int] | None


@cache
def rows() -> dict[str, GroupSetting]:
    """All settings of groups by name."""

    def row(columns: tuple[Any, ...], default: str, least: str, largest: str) -> GroupSetting:
        return GroupSetting(
            Setting.of_row(columns, (default,) if default else ()),
            tables.setting(least) if least else None,
            tables.setting(largest) if largest else None,
        )

    return {columns[0]: row(columns, *names) for columns, *names in _ROWS}


def find(name: str) -> Setting[Any] | None:
    """Return the group setting with this name, None if it does not exist."""
    row = rows().get(name)
    return None if row is None else row.setting


def values(own: Mapping[str, str], config: BrokerConfig) -> dict[str, Any]:
    """Return all settings of a group with these own settings. Raises SettingError for an invalid text."""
    return {
        name: row.setting.parse(own[name]) if name in own else _default(row.setting, config)
        for name, row in rows().items()
    }


def _default(setting: Setting[Any], config: BrokerConfig) -> Any:
    value = config.topic_default(setting)[0]
    return value[0] if isinstance(value, tuple) and setting.kind is STRING else value


def check(own: Mapping[str, str], config: BrokerConfig) -> None:
    """Raise SettingError unless a group may have these settings."""
    for name in own:
        if name not in rows() or not releases.has_setting(config.release, name):
            raise SettingError(f"unknown group setting {name!r}")
    effective = values(own, config)
    for name in own:
        row = rows()[name]
        if row.least is not None and effective[name] < config.get(row.least):
            raise SettingError(
                f"{name}={own[name]}: at least {config.get(row.least)} ({row.least.name}) expected"
            )
        if row.largest is not None and effective[name] > config.get(row.largest):
            raise SettingError(
                f"{name}={own[name]}: at most {config.get(row.largest)} ({row.largest.name}) expected"
            )
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if effective[session] <= effective[heartbeat]:
            raise SettingError(f"{session} must be larger than {heartbeat}")
    assignors = config.get(tables.setting("group.streams.assignors"))
    if ASSIGNOR_NAME in own and own[ASSIGNOR_NAME] not in assignors:
        raise SettingError(f"{ASSIGNOR_NAME}={own[ASSIGNOR_NAME]}: one of {', '.join(assignors)} expected")
    if own.get(DLQ_TOPIC_NAME, "").startswith(INTERNAL_PREFIX):
        raise SettingError(
            f"{DLQ_TOPIC_NAME}={own[DLQ_TOPIC_NAME]}: a name without {INTERNAL_PREFIX} before it expected"
        )
    rows()[ASSIGNMENT_TAGS].setting.check_items_differ(own.get(ASSIGNMENT_TAGS, ""))
    reset = own.get(SHARE_AUTO_OFFSET_RESET, "latest")
    if reset not in ("earliest", "latest"):
        try:
            if not reset.startswith(BY_DURATION):
                raise ValueError(reset)
            duration_ms(reset.removeprefix(BY_DURATION))
        except ValueError:
            raise SettingError(
                f"{SHARE_AUTO_OFFSET_RESET}={reset}: earliest, latest or {BY_DURATION} and a duration such as P1DT2H "
                "expected"
            ) from None
