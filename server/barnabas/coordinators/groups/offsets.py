"""Retention of committed offsets. Pure.

The rule (KIP-211): an offset expires when its group can no longer need it: the retention time after the group's last
member has left; for a group without members, that only stores offsets, after the commit; for a topic that a stable group
of consumers no longer subscribes to, after the commit too.
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
    """Return the partitions with expired offsets."""
    in_use, empty_since_ms = retention.topics_in_use, retention.empty_since_ms
    return [
        topic_partition
        for topic_partition, value in offsets.items()
        if topic_partition[0] not in in_use and now_ms >= _expiry_ms(value, empty_since_ms, retention_ms)
    ]


def _expiry_ms(value: OffsetCommitValue, empty_since_ms: int, retention_ms: int) -> int:
    """Return when an offset expires: by its commit (OffsetCommit v2-v4), or by the broker's retention."""
    if value.expire_timestamp >= 0:
        return value.expire_timestamp
    return max(value.commit_timestamp, empty_since_ms) + retention_ms
