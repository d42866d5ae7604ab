"""High watermarks of partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.errors import RequestError, detached

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.wire.topic_partitions import TopicPartition


class LocalHighWatermarks:
    """Implements `ports.HighWatermarks` for a broker that leads all partitions."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def of(
        self, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int | RequestError]:
        """Return the high watermark of each partition, or the error."""
        return {topic_partition: self._of(topic_partition) for topic_partition in topic_partitions}

    def _of(self, topic_partition: TopicPartition) -> int | RequestError:
        try:
            return self._replicas.leader(*topic_partition).log.high_watermark
        except RequestError as error:
            return detached(error)
