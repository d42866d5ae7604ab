"""Names of partitions: by the topic's name, and by its id. Pure.

A topic that is deleted and created again has another id, so state that is keyed by id never applies to the new topic.
"""

from __future__ import annotations

TopicPartition = tuple[str, int]
"""Topic name and partition."""
TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""
TopicIdPartitions = frozenset[TopicIdPartition]

NO_PARTITIONS: TopicIdPartitions = frozenset()
