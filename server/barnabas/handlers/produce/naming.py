"""Partitions of a produce request: each once, with its last records in the request."""

from __future__ import annotations

from typing import Final

from barnabas.records.steps import Steps
from barnabas.wire.generated.produce import ProduceRequest

LOOKS_PER_CHECKPOINT: Final = 500
"""Batches inspected for transactions between two checkpoints."""


def last_of_each(
    topics: list[ProduceRequest.TopicProduceData], *, by_id: bool
) -> Steps[list[ProduceRequest.TopicProduceData]]:
    """Return topics with each partition once, with its last records in the request, as in Kafka; in steps.

    Topics without a partition are excluded.
    """
    last: dict[str | bytes, dict[int, ProduceRequest.PartitionProduceData]] = {}
    count = entries = 0
    for topic in topics:
        count += len(topic.partition_data)
        entries += 1
        if not entries % LOOKS_PER_CHECKPOINT:
            yield None
        if topic.partition_data:
            of_topic = last.setdefault(topic.topic_id if by_id else topic.name, {})
            for data in topic.partition_data:
                of_topic[data.index] = data
                entries += 1
                if not entries % LOOKS_PER_CHECKPOINT:
                    yield None
    if len(last) == len(topics) and sum(map(len, last.values())) == count:
        return topics
    once: list[ProduceRequest.TopicProduceData] = []
    for key, of_topic in last.items():
        topic = ProduceRequest.TopicProduceData(partition_data=[*of_topic.values()])
        if isinstance(key, bytes):
            topic.topic_id = key
        else:
            topic.name = key
        once.append(topic)
        if not len(once) % LOOKS_PER_CHECKPOINT:
            yield None
    return once
