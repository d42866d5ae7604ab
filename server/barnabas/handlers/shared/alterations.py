"""Alterations of single settings, and a resource's own settings after them (KIP-339).

The rule: a list contains an item once, and items can be added to and removed from lists only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from barnabas.config import client_metrics, tables
from barnabas.config import group as group_settings
from barnabas.config import topic as topic_settings
from barnabas.config.setting import LIST, Setting
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs (KIP-339)."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """One setting's change: an operation and its value."""

    name: str
    operation: int
    value: str | None


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """Refuse contradictory alterations. Raises INVALID_REQUEST."""
    seen: set[str] = set()
    for alteration in alterations:
        if alteration.name in seen:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"setting {alteration.name!r} is named twice")
        seen.add(alteration.name)
        if alteration.operation not in (SET, DELETE, APPEND, SUBTRACT):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no operation {alteration.operation}")
        if alteration.operation != DELETE and alteration.value is None:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"setting {alteration.name!r} has no value")


def altered(
    resource_type: int, current: Mapping[str, str], alterations: Sequence[Alteration], config: BrokerConfig
) -> dict[str, str]:
    """Return a resource's own settings after these alterations. Raises INVALID_CONFIG."""
    settings = dict(current)
    for alteration in alterations:
        if alteration.operation == DELETE:
            settings.pop(alteration.name, None)
        elif alteration.operation == SET:
            settings[alteration.name] = alteration.value or ""
        else:
            settings[alteration.name] = _merged(resource_type, settings, alteration, config)
    return settings


def _find(resource_type: int, name: str) -> Setting[Any] | None:
    if resource_type == TOPIC:
        return topic_settings.SETTINGS.get(name)
    if resource_type == BROKER:
        return tables.find(name)
    if resource_type == GROUP:
        return group_settings.find(name)
    return client_metrics.SETTINGS.get(name)


def _merged(
    resource_type: int, settings: Mapping[str, str], alteration: Alteration, config: BrokerConfig
) -> str:
    """Return a list setting after items were added or removed."""
    row = _find(resource_type, alteration.name)
    if row is None or row.kind is not LIST or resource_type == CLIENT_METRICS:
        raise RequestError(ErrorCode.INVALID_CONFIG, f"{alteration.name} is no list")
    text = settings.get(alteration.name)
    if text is not None:
        items = list(LIST.parse(text))
    elif resource_type == TOPIC:
        items = list(config.topic_default(row)[0])
    elif resource_type == BROKER:
        items = list(config.value_of(alteration.name) or ())
    else:
        items = list(row.default)
    changed = LIST.parse(alteration.value or "")
    if alteration.operation == APPEND:
        present = set(items)
        items += [item for item in changed if item not in present]
    else:
        gone = set(changed)
        items = [item for item in items if item not in gone]
    return ",".join(items)
