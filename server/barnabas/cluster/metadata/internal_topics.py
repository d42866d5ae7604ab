"""The internal topics of the broker, with their partitions, replicas and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.config.keeper import is_clustered

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.config.setting import Setting

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
REMOTE_METADATA_TOPIC = "__remote_log_metadata"
"""Made by brokers with tiered storage; an ordinary topic to clients, as in Kafka."""

ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may produce to internal topics, as in Kafka: that of Kafka's former tools."""


class Shape(NamedTuple):
    """Shape of an internal topic: the broker's settings for its creation, and its own settings."""

    partitions: Setting[int]
    replication_factor: Setting[int]
    segment_bytes: Setting[int]
    overrides: dict[str, str]
    min_isr: Setting[int] | None = None
    """The setting for its `min.insync.replicas`, if there is one; a broker that is alone needs none."""

    def settings(self, config: BrokerConfig) -> dict[str, str]:
        """The topic's own settings."""
        texts = {**self.overrides, "segment.bytes": str(config.get(self.segment_bytes))}
        if self.min_isr is not None and is_clustered(config):
            texts["min.insync.replicas"] = str(config.get(self.min_isr))
        return texts


SHAPES = {
    OFFSETS_TOPIC: Shape(
        settings.OFFSETS_TOPIC_NUM_PARTITIONS,
        settings.OFFSETS_TOPIC_REPLICATION_FACTOR,
        settings.OFFSETS_TOPIC_SEGMENT_BYTES,
        {"cleanup.policy": "compact", "compression.type": "producer"},
    ),
    TRANSACTION_TOPIC: Shape(
        settings.TRANSACTION_STATE_LOG_NUM_PARTITIONS,
        settings.TRANSACTION_STATE_LOG_REPLICATION_FACTOR,
        settings.TRANSACTION_STATE_LOG_SEGMENT_BYTES,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
        settings.TRANSACTION_STATE_LOG_MIN_ISR,
    ),
    SHARE_TOPIC: Shape(
        settings.SHARE_COORDINATOR_STATE_TOPIC_NUM_PARTITIONS,
        settings.SHARE_COORDINATOR_STATE_TOPIC_REPLICATION_FACTOR,
        settings.SHARE_COORDINATOR_STATE_TOPIC_SEGMENT_BYTES,
        # not compacted, as updates are increments; the coordinator deletes records that a snapshot makes redundant
        {"cleanup.policy": "delete", "compression.type": "producer", "retention.ms": "-1"},
        settings.SHARE_COORDINATOR_STATE_TOPIC_MIN_ISR,
    ),
}
"""The internal topics that are made when they are first used."""
