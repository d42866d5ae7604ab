"""Changes to a broker's logs, settings and quotas when the cluster's metadata changes.

The rule: resources of a new image are created before it is published, and those of the old one are removed afterwards; both
in slices, so that a change of ten thousand partitions delays no request.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.storage_parts import LogConfigs
from barnabas.cluster.metadata.image import BROKER, CLIENT_METRICS, TOPIC
from barnabas.config import broker as settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.metadata.image import ClusterImage, Delta
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.environment.lazy import Lazy
    from barnabas.log.config import LogConfig
    from barnabas.log.manager import LogManager
    from barnabas.metrics.client_telemetry import Telemetry
    from barnabas.serving.connection_limits import ConnectionLimits
    from barnabas.serving.request_quotas import BrokerQuotas


log = logging.getLogger(__name__)


def obey_settings(config: BrokerConfig, image: ClusterImage, broker_id: int) -> None:
    """Apply the settings of brokers in an image; invalid values are logged and have no effect."""
    of_all, of_this = image.settings_of(BROKER, ""), image.settings_of(BROKER, str(broker_id))
    for error in config.set_dynamic(of_all, of_this):
        log.error("a setting of brokers that was changed while they run has no effect: %s", error)


class ImageFollower:
    """Implements `cluster.metadata.store.Subscriber` for a broker."""

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        logs: LogManager,
        replicas: Replicas,
        *,
        telemetry: Lazy[Telemetry],
        quotas: BrokerQuotas,
        limits: ConnectionLimits,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._log_configs = LogConfigs(config)
        self._broker_id = broker_id
        self._logs = logs
        self._replicas = replicas
        self._telemetry = telemetry
        self._quotas = quotas
        self._limits = limits
        self._now_ms = now_ms

    async def prepare(self, delta: Delta) -> None:
        """Make the logs of new partitions."""
        await self._replicas.prepare(delta, partial(self._log_config, delta), self._now_ms())

    def publish(self, delta: Delta) -> None:
        """Apply changed settings of the broker, and lead new partitions."""
        self._obey(delta)
        self._replicas.publish(delta)
        if delta.quotas:
            self._quotas.follow(delta.new.quotas, delta.quotas)
            self._limits.quotas_changed(delta.new.quotas, delta.quotas)

    def _obey(self, delta: Delta) -> None:
        new, config = delta.new, self._config
        changed = {resource_type for resource_type, _ in delta.configs}
        if BROKER in changed:
            obey_settings(config, new, self._broker_id)
            self._logs.set_producer_expiration(config.get(settings.PRODUCER_ID_EXPIRATION_MS))
            self._limits.settings_changed()
        if CLIENT_METRICS in changed and (telemetry := self._telemetry.if_made) is not None:
            telemetry.take_subscriptions(new.configs)

    async def clean_up(self, delta: Delta) -> None:
        """Hand new settings to the logs, and delete the logs of deleted topics."""
        await self._replicas.clean_up(delta, self._now_ms())
        if any(resource_type == BROKER for resource_type, _ in delta.configs):
            changed = list(delta.new.topics)
        else:
            changed = [name for resource_type, name in delta.configs if resource_type == TOPIC]
        await self._replicas.reconfigure(changed, partial(self._log_config, delta))

    def _log_config(self, delta: Delta, topic: str) -> LogConfig:
        return self._log_configs.of(delta.new.settings_of(TOPIC, topic))
