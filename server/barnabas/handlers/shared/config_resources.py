"""Types of resources, and what access to them requires: common part of DescribeConfigs and the calls that alter settings.

The rule: which of several settings gives a topic's or a broker's value is said here, as Kafka has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.cluster.metadata.image import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from barnabas.config import broker as broker_settings
from barnabas.config import releases, tables, topic
from barnabas.config.loading import DEFAULT_CONFIG, DYNAMIC_TOPIC_CONFIG, BrokerConfig
from barnabas.config.setting import INT, Setting
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

TYPES_SINCE = {BROKER_LOGGER: "2.4", CLIENT_METRICS: "3.7", GROUP: "4.0"}
"""The releases in which types of resources came: KIP-412, KIP-714, KIP-848."""

_FAMILIES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
)
"""Broker settings of which the first that is set counts."""


def value_of_topic_setting(
    config: BrokerConfig, row: Setting[Any], overrides: Mapping[str, str]
) -> tuple[Any, int]:
    """The value that a topic with these settings of its own obeys, and its source as Kafka tells it.

    A default that comes from a setting in another unit (log.retention.hours) counts as a default.
    """
    text = overrides.get(row.name)
    if text is not None:
        return topic.stored(row.name).parse(text), DYNAMIC_TOPIC_CONFIG
    synonyms = synonyms_of_broker_setting(config, row.broker_names[0]) if row.broker_names else []
    return config.topic_default(row)[0], synonyms[0][2] if synonyms else DEFAULT_CONFIG


def synonyms_of_broker_setting(config: BrokerConfig, name: str) -> list[tuple[str, str, int]]:
    """(name, text, source) of everything that the value could come from, what counts first; none if it is unset."""
    family = next((names for names in _FAMILIES if name in names), (name,))
    if name.startswith("listener.name."):
        family = (name, tables.setting(name).base)
    synonyms = [(other, text, source) for other in family for text, source in config.texts_of(other)]
    synonyms.sort(key=lambda synonym: synonym[2])
    for other in family:
        row = tables.setting(other)
        default = config.default_of(other)
        if default is not None:
            synonyms.append((other, row.format(default), DEFAULT_CONFIG))
    first = next((index for index, synonym in enumerate(synonyms) if synonym[0] == name), len(synonyms))
    return synonyms[first:]


def check_broker_name(name: str, *, broker_id: int) -> None:
    """Raise INVALID_REQUEST unless `name` is this broker's id, or empty for all brokers."""
    if not name:
        return
    try:
        asked = INT.parse(name)
    except ValueError:
        raise RequestError(
            ErrorCode.INVALID_REQUEST, f"the number of a broker is needed, not {name!r}"
        ) from None
    if asked != broker_id:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"broker {asked} was asked for; this is broker {broker_id}",
        )


_BY_TYPE = {TOPIC: ResourceType.TOPIC, GROUP: ResourceType.GROUP}
_OF_CLUSTER = (BROKER, BROKER_LOGGER, CLIENT_METRICS)


def check_type(resource_type: int, config: BrokerConfig) -> None:
    """Raise INVALID_REQUEST for a type of resources that the release which the broker is had no settings of yet.

    Types that no release knows are for others to refuse.
    """
    name = config.get(broker_settings.KAFKA_VERSION)
    since = TYPES_SINCE.get(resource_type)
    if name and since is not None and not releases.is_at_least(name, since):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"there are no resources of type {resource_type} in Kafka {name}; they came with {since}",
        )


def require_on_resource(context: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Raise unless the requester may do this with a resource's settings; those of brokers are the cluster's.

    A type that is not known is for others to refuse.
    """
    if resource_type in _BY_TYPE:
        context.require(operation, _BY_TYPE[resource_type], name)
    elif resource_type in _OF_CLUSTER:
        context.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)
