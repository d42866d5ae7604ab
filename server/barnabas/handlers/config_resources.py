"""What DescribeConfigs and the two calls that alter settings share: resources, their settings, and who may change them.

The rule: an alteration is decided on the whole of a resource's own settings, and either all of it happens or nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cluster import controller
from barnabas.cluster.image import BROKER, GROUP, TOPIC, Change, ClusterImage, ConfigChanged
from barnabas.config import broker as broker_settings
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.loading import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, BrokerConfig
from barnabas.config.setting import LIST, Setting, SettingError
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.context import RequestContext

BROKER_LOGGER = 8

_TABLES = {TOPIC: topic_settings.SETTINGS, GROUP: group_settings.SETTINGS}

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs (KIP-339)."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """One setting's change: an operation and its value."""

    name: str
    operation: int
    value: str | None


def value_of_topic_setting(
    config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]
) -> tuple[Any, int]:
    """The value that a topic with these settings of its own obeys, and its source."""
    text = overrides.get(row.name)
    if text is not None:
        return row.parse(text), DYNAMIC_TOPIC_CONFIG
    value, name = config.topic_default(row)
    return value, DEFAULT_CONFIG if name is None else config.sources[name]


def check_broker_name(context: RequestContext, name: str) -> None:
    """Raise INVALID_REQUEST unless `name` is this broker's id, or empty for all brokers."""
    if name and name != str(context.broker.broker_id):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"broker {name!r} was asked for; this is broker {context.broker.broker_id}",
        )


async def alter(
    context: RequestContext,
    resource_type: int,
    name: str,
    settled: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    validate_only: bool,
) -> None:
    """Replace a resource's own settings by what `settled` makes of them.

    Raises RequestError: UNKNOWN_TOPIC_OR_PARTITION, INVALID_CONFIG, INVALID_REQUEST.
    """
    if resource_type == BROKER_LOGGER:
        _alter_logger(context, name, settled, validate_only=validate_only)
        return

    def decide(image: ClusterImage) -> list[Change]:
        settings = settled(image.settings_of(resource_type, name))
        if resource_type == TOPIC:
            if name not in image.topics:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            controller.check_settings(settings, context.broker.config)
        elif resource_type == BROKER:
            check_broker_name(context, name)
            _check_broker_settings(settings)
        elif resource_type == GROUP:
            _check_group_settings(context, name, settings)
        else:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings here"
            )
        return [ConfigChanged(resource_type, name, tuple(sorted(settings.items())))]

    if validate_only:
        decide(context.broker.metadata.image)
    else:
        await context.broker.metadata.change(decide)


def _check_broker_settings(settings: Mapping[str, str]) -> None:
    for key, text in settings.items():
        row = broker_settings.SETTINGS.get(key)
        if row is None:
            raise RequestError(ErrorCode.INVALID_CONFIG, f"unknown broker setting {key!r}")
        if not row.dynamic:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{key} cannot be changed while the broker runs")
        try:
            row.parse(text)
        except SettingError as error:
            raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _check_group_settings(context: RequestContext, name: str, settings: Mapping[str, str]) -> None:
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    try:
        group_settings.check(settings, context.broker.config)
    except SettingError as error:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _alter_logger(
    context: RequestContext,
    name: str,
    settled: Callable[[Mapping[str, str]], Mapping[str, str]],
    *,
    validate_only: bool,
) -> None:
    check_broker_name(context, name)
    levels = settled({})
    for logger, level in levels.items():
        if level not in ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL", "CRITICAL"):
            raise RequestError(ErrorCode.INVALID_CONFIG, f"{level!r} is no log level")
        if not logger.startswith("barnabas"):
            raise RequestError(ErrorCode.INVALID_CONFIG, f"there is no logger {logger!r}")
    if not validate_only:
        for logger, level in levels.items():
            logging.getLogger(logger).setLevel("WARNING" if level == "WARN" else level)


def apply_alterations(
    resource_type: int, current: Mapping[str, str], alterations: Sequence[Alteration], config: BrokerConfig
) -> dict[str, str]:
    """A resource's own settings after these alterations. Raises INVALID_REQUEST or INVALID_CONFIG."""
    seen: set[str] = set()
    settings = dict(current)
    for alteration in alterations:
        if alteration.name in seen:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"setting {alteration.name!r} is named twice")
        seen.add(alteration.name)
        if alteration.operation == DELETE:
            settings.pop(alteration.name, None)
            continue
        if alteration.value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"setting {alteration.name!r} has no value")
        if alteration.operation == SET:
            settings[alteration.name] = alteration.value
        elif alteration.operation in (APPEND, SUBTRACT):
            settings[alteration.name] = _merged(resource_type, settings, alteration, config)
        else:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no operation {alteration.operation}")
    return settings


def _merged(
    resource_type: int, settings: Mapping[str, str], alteration: Alteration, config: BrokerConfig
) -> str:
    """A list setting with items added or taken away."""
    row = _TABLES.get(resource_type, broker_settings.SETTINGS).get(alteration.name)
    if row is None or row.kind is not LIST:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{alteration.name} is no list")
    text = settings.get(alteration.name)
    if text is not None:
        items = list(LIST.parse(text))
    elif resource_type == TOPIC:
        items = list(config.topic_default(row)[0])
    else:
        items = list(config.value_of(alteration.name))
    changed = LIST.parse(alteration.value or "")
    if alteration.operation == APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
