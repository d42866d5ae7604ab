"""Types of resources, and the access that each requires: common part of DescribeConfigs and the APIs that alter settings.

The rule: access to the settings of brokers is access to the cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.cluster.metadata.image import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from barnabas.config import broker as broker_settings
from barnabas.config import releases
from barnabas.config.broker import REMOTE_LOG_STORAGE_SYSTEM_ENABLE
from barnabas.config.loading import BrokerConfig
from barnabas.config.setting import INT, SettingError
from barnabas.errors import RequestError
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.serving.context import RequestContext

THREAD_POOLS = frozenset((
    "background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.replica.fetchers", "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
))  # fmt: skip
"""They can grow to twice their size at once, or shrink to half of it."""
TYPES_SINCE = {BROKER_LOGGER: "2.4", CLIENT_METRICS: "3.7", GROUP: "4.0"}
"""The releases in which types of resources came: KIP-412, KIP-714, KIP-848."""


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
    if since is not None and not releases.is_at_least(name, since):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"there are no resources of type {resource_type} in Kafka {name}; they came with {since}",
        )


def require_on_resource(context: RequestContext, operation: Operation, resource_type: int, name: str) -> None:
    """Raise unless the requester may do this with a resource's settings; those of brokers are the cluster's.

    An unknown type is accepted here; `check_type` refuses it.
    """
    if resource_type in _BY_TYPE:
        context.require(operation, _BY_TYPE[resource_type], name)
    elif resource_type in _OF_CLUSTER:
        context.require(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_local_retention(config: BrokerConfig, broker: str, settings: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST if topics of tiered storage would have a longer local retention than their whole retention.

    `settings` are those of one broker, or of all if `broker` is empty; they count for topics without settings of their own.
    """
    if not config.get(REMOTE_LOG_STORAGE_SYSTEM_ENABLE):
        return
    from barnabas.config.tiered import check_retention  # not needed by a broker without tiered storage

    own = ({}, settings) if broker else (settings, {})
    try:
        check_retention(config.with_dynamic(*own).topic_values({}))
    except SettingError as error:
        raise RequestError(ErrorCode.INVALID_REQUEST, str(error)) from error
