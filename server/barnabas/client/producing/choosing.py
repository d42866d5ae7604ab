"""Choice of a record's partition: by its key, as Kafka's clients do, or one partition per batch without keys (KIP-480,
794).

The rule: records with the same key go to the same partition while the number of partitions stays; a partition without a
leader is chosen only for records with keys.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from barnabas.client.topics import TopicInfo
from barnabas.records.partitioner import partition_of_key

Partitioner = Callable[[str, bytes | None, Sequence[int]], int]
"""Returns one of a topic's partitions, given the topic, the key, and the partitions in their order."""


class StickyChoice:
    """The partition that records without a key go to now, by topic."""

    def __init__(self, batch_bytes: int, entropy: random.Random | None = None) -> None:
        self._batch_bytes = batch_bytes
        self._entropy = entropy or random.Random()
        self._current: dict[str, int] = {}
        self._left: dict[str, int] = {}

    def choose(self, topic: str, info: TopicInfo, key: bytes | None, size: int) -> int:
        """Return the partition of a record of some size."""
        partitions = info.partitions
        if key is not None:
            return partition_of_key(key, len(partitions))
        current = self._current.get(topic)
        if current is None or self._left[topic] <= 0 or current not in partitions:
            led = [index for index, partition in partitions.items() if partition.leader >= 0] or list(
                partitions
            )
            others = [index for index in led if index != current] or led
            current = self._current[topic] = self._entropy.choice(others)
            self._left[topic] = self._batch_bytes
        self._left[topic] -= size
        return current
