"""Committed offsets: how long they are kept. Pure.

The rule (KIP-211): an offset goes when the group could not miss it any more. That is the retention after its last
member has gone; for a group that only keeps offsets, after the commit; and for a topic that a stable group of
consumers has dropped from its subscription, after the commit too.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordinators.groups.group import OffsetRetention
from barnabas.wire.generated.records.offset_commit import OffsetCommitValue
from barnabas.wire.topic_partitions import TopicPartition


def expired_offsets(
    retention: OffsetRetention,
    offsets: Mapping[TopicPartition, OffsetCommitValue],
    retention_ms: int,
    now_ms: int,
) -> list[TopicPartition]:
    """The partitions with offsets that are past their retention."""
    in_use, empty_since_ms = retention.topics_in_use, retention.empty_since_ms
    return [
        topic_partition
        for topic_partition, value in offsets.items()
        if topic_partition[0] not in in_use and now_ms >= _expiry_ms(value, empty_since_ms, retention_ms)
    ]


def _expiry_ms(value: OffsetCommitValue, empty_since_ms: int, retention_ms: int) -> int:
    """When it expires: as its committer has said (OffsetCommit v2-v4), or by the broker's retention."""
    if value.expire_timestamp >= 0:
        return value.expire_timestamp
    return max(value.commit_timestamp, empty_since_ms) + retention_ms
