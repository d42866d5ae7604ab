"""What a broker does when the cluster's metadata change: logs, settings, coordinators.

The rule: what a new image needs is made before anybody sees it, and what only the old one needed is removed after; both
in slices, so that a change of ten thousand partitions holds up nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cluster.image import BROKER, CLIENT_METRICS, TOPIC
from barnabas.config import broker as settings
from barnabas.coordination.internal_topics import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC
from barnabas.log.config import LogConfig

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.cluster.image import Delta


class ImageFollower:
    """Implements `cluster.store.Subscriber` for a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def prepare(self, delta: Delta) -> None:
        """Make the logs of new partitions."""
        broker = self._broker

        default = LogConfig.of(broker.config.topic_values({})) if delta.topics else None

        def config_for(topic: str) -> LogConfig:
            own = delta.new.settings_of(TOPIC, topic)
            return default if default and not own else LogConfig.of(broker.config.topic_values(own))

        await broker.partitions.prepare(delta, config_for, broker.now_ms())

    def publish(self, delta: Delta) -> None:
        """Obey settings of the broker that have changed; lead what is new."""
        broker, new = self._broker, delta.new
        changed = {resource_type for resource_type, _ in delta.configs}
        if BROKER in changed:
            broker.config.set_dynamic(
                new.settings_of(BROKER, ""), new.settings_of(BROKER, str(broker.broker_id))
            )
            broker.logs.set_producer_expiration(broker.config.get(settings.PRODUCER_ID_EXPIRATION_MS))
        if CLIENT_METRICS in changed and broker.telemetry_if_any is not None:
            broker.telemetry_if_any.take_subscriptions(new.configs)
        broker.partitions.publish(delta)
        self._unload_coordinators(delta)

    async def clean_up(self, delta: Delta) -> None:
        """Hand new settings to the logs, and delete the logs of deleted topics."""
        broker, new = self._broker, delta.new
        await broker.partitions.clean_up(delta, broker.now_ms())
        self._unload_coordinators(delta)  # what was read again while the logs were still there
        if any(resource_type == BROKER for resource_type, _ in delta.configs):
            await broker.partitions.reconfigure(tuple(new.topics), broker.config_for_topic)
        else:
            changed = [name for resource_type, name in delta.configs if resource_type == TOPIC]
            await broker.partitions.reconfigure(changed, broker.config_for_topic)

    def _unload_coordinators(self, delta: Delta) -> None:
        """Forget what the coordinators have read from internal topics that were deleted."""
        for name in delta.topics:
            if not delta.replaced(name):
                continue
            if name == OFFSETS_TOPIC:
                self._broker.groups.unload()
            elif name == TRANSACTION_TOPIC:
                self._broker.transactions.unload()
            elif name == SHARE_TOPIC and self._broker.shares_if_any is not None:
                self._broker.shares_if_any.unload()
