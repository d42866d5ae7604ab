"""Names of partitions: by the topic's name, and by its id. Pure.

A topic that is deleted and made again has another id: what is known of a partition by id never applies to the new one.
"""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""Topic name and partition."""
TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""
TopicIdPartitions = frozenset[TopicIdPartition]

NO_PARTITIONS: TopicIdPartitions = frozenset()
