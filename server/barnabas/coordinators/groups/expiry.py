"""Removal of offsets that have expired (KIP-211) or belong to deleted topics, and of groups without any state.

The rule: a limited number of entries is searched in one event, so that other events may run in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Final

from barnabas.coordinators.groups.classic import ClassicGroup
from barnabas.coordinators.groups.group import OffsetRetention
from barnabas.coordinators.groups.offsets import expired_offsets
from barnabas.coordinators.groups.shard import OFFSETS_PER_EVENT, GroupShard
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision, Large, nothing, slices
from barnabas.wire.topic_partitions import TopicPartition

OFFSETS_PER_STEP: Final = 2_000
"""Offsets searched before other tasks may run."""
GROUPS_PER_STEP: Final = 50
"""Groups searched before other tasks may run."""

Event = Callable[[GroupShard, Decision], None]
"""Decides on a shard."""
_KEEPS_OFFSETS_ONLY = OffsetRetention()


def forgetting_topics(shard: GroupShard, names: frozenset[str], deleted_ms: int) -> Iterator[Event]:
    """Yield events that remove the offsets in deleted topics, also those of open transactions.

    Commits later than `deleted_ms` belong to a new topic of that name.
    """
    for number, group_id in enumerate(tuple(shard.offsets.keys() | shard.pending.groups())):
        places = dict.fromkeys(chain(shard.offsets.get(group_id, ()), shard.pending.each(group_id)))
        for some in slices(tuple(places), OFFSETS_PER_STEP):
            gone = [topic_partition for topic_partition in some if topic_partition[0] in names]
            for topic_partitions in slices(gone, OFFSETS_PER_EVENT):
                yield partial(_forget_offsets, group_id, topic_partitions, deleted_ms)
            if len(some) == OFFSETS_PER_STEP:
                yield nothing
        if number % GROUPS_PER_STEP == 0:
            yield nothing


def expiring(shard: GroupShard, now_ms: int) -> Iterator[Event | Large]:
    """Yield events that remove expired offsets, and end groups without state."""
    for number, group_id in enumerate(tuple(shard.groups.keys() | shard.offsets.keys())):
        for some in slices(tuple(shard.offsets.get(group_id, ())), OFFSETS_PER_STEP):
            if shard.subscription_size(group_id) > EVENT_SIZE_MAX:
                yield Large(partial(_expire, group_id, some[:1], now_ms))  # the others find the cached result
            for gone in slices(_expired(shard, group_id, some, now_ms), OFFSETS_PER_EVENT):
                yield partial(_expire, group_id, gone, now_ms)
            if len(some) == OFFSETS_PER_STEP:
                yield nothing
        if _is_over(shard, group_id):
            yield partial(_end_unused, group_id)
        elif number % GROUPS_PER_STEP == 0:
            yield nothing


def _expired(
    shard: GroupShard, group_id: str, some: Iterable[TopicPartition], now_ms: int
) -> list[TopicPartition]:
    """Return the expired partitions among some offsets of a group."""
    group = shard.groups.get(group_id)
    committed = shard.offsets.get(group_id, {})
    offsets = {
        topic_partition: committed[topic_partition]
        for topic_partition in some
        if topic_partition in committed
    }
    if not offsets:
        return []
    retention = group.offset_retention() if group is not None else _KEEPS_OFFSETS_ONLY
    if retention is None:
        return []
    pending = shard.pending.topic_partitions(group_id)
    expired = expired_offsets(retention, offsets, shard.settings.offsets_retention_ms, now_ms)
    return [topic_partition for topic_partition in expired if topic_partition not in pending]


def _is_over(shard: GroupShard, group_id: str) -> bool:
    """Return whether a group exists, but has neither members nor offsets."""
    group = shard.groups.get(group_id)
    if group is None or not group.is_unused:
        return False
    return not (shard.offsets.get(group_id) or shard.pending.has(group_id))


def _forget_offsets(
    group_id: str,
    topic_partitions: Sequence[TopicPartition],
    deleted_ms: int,
    shard: GroupShard,
    out: Decision,
) -> None:
    committed = shard.offsets.get(group_id, {})

    def last_ms(topic_partition: TopicPartition) -> int:
        values = shard.pending.of(group_id, topic_partition)
        if topic_partition in committed:
            values.append(committed[topic_partition])
        return max((value.commit_timestamp for value in values), default=deleted_ms)

    old = [topic_partition for topic_partition in topic_partitions if last_ms(topic_partition) <= deleted_ms]
    shard.delete_offsets(group_id, old, out)


def _expire(
    group_id: str, topic_partitions: Sequence[TopicPartition], now_ms: int, shard: GroupShard, out: Decision
) -> None:
    """Remove expired offsets, unless they were committed again since."""
    shard.delete_offsets(group_id, _expired(shard, group_id, topic_partitions, now_ms), out)


def _end_unused(group_id: str, shard: GroupShard, out: Decision) -> None:
    """End a group without members and offsets."""
    group = shard.groups.get(group_id)
    if group is None or not _is_over(shard, group_id):
        return
    if group.is_written:
        group.end(out)
    else:
        shard.end(group_id, ClassicGroup)
