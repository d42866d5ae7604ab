"""Steps of the initialization and deletion of a share group's states at the share coordinator. Pure.

The rule: a record is written before the share coordinator is asked, and another one when it has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from barnabas.coordinators.groups.directory import GroupDirectory
from barnabas.coordinators.groups.share import membership, records
from barnabas.coordinators.groups.share.group import ShareGroup
from barnabas.coordinators.groups.share.topic_states import TopicStates, partitions_in
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision, Large, slices
from barnabas.wire.topic_partitions import TopicIdPartition, TopicIdPartitions

GROUPS_PER_EVENT = 50
"""Groups searched in one event."""


def check_alterable(shard: GroupDirectory, group_id: str) -> None:
    """Check that an id is free, or of a share group without members. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    if shard.exists(group_id):
        shard.share_group(group_id).check_empty()


def begin(
    shard: GroupDirectory, group_id: str, topic_partitions: Iterable[TopicIdPartition], context: EventContext
) -> int:
    """Begin to move the start offsets of a group without members; returns its state epoch.

    Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
    """
    group = shard.new_share_group(group_id) if not shard.exists(group_id) else shard.share_group(group_id)
    group.check_empty()
    epoch = group.epoch + 1
    context.out.records.append(records.epoch_record(group_id, epoch, group.topics_hash))
    context.out.records.append(records.target_epoch_record(group_id, epoch, 0))
    membership.begin(group, topic_partitions, context)
    return epoch


def begun(
    shard: GroupDirectory,
    group_id: str,
    done: Iterable[TopicIdPartition],
    failed: Iterable[TopicIdPartition],
    out: Decision,
) -> None:
    """Note states that the share coordinator has initialized, or failed to."""
    group = shard.find(group_id, ShareGroup)
    if group is not None:
        _write(group, group.topic_states.finished(done).failed(failed), out)


def being_deleted(
    shard: GroupDirectory, group_id: str, topic_ids: frozenset[bytes] | None, out: Decision
) -> TopicIdPartitions:
    """Begin to delete the states of these topics, or of all; returns the existing ones, none for other kinds of groups.

    Raises NON_EMPTY_GROUP; GROUP_ID_NOT_FOUND for topics of a group that is no share group.
    """
    group = shard.find(group_id, ShareGroup)
    if group is None:
        if topic_ids is not None:
            shard.share_group(group_id)
        return frozenset()
    group.check_empty()
    deleted = group.topic_states.topic_ids if topic_ids is None else topic_ids
    there = (
        group.topic_states.topic_partitions
        if topic_ids is not None
        else group.topic_states.topic_partitions | partitions_in(group.topic_states.initializing)
    )
    topic_partitions = frozenset(
        topic_partition for topic_partition in there if topic_partition[0] in deleted
    )
    if topic_partitions:
        _write(
            group,
            group.topic_states.being_deleted(
                frozenset(topic_partition[0] for topic_partition in topic_partitions)
            ),
            out,
        )
    return topic_partitions


def deleted(shard: GroupDirectory, group_id: str, topic_ids: frozenset[bytes], out: Decision) -> None:
    """Note that the share coordinator has deleted the states of these topics."""
    group = shard.find(group_id, ShareGroup)
    if group is not None:
        _write(group, group.topic_states.without(topic_ids), out)


def forgetting_topics(
    shard: GroupDirectory, topic_ids: frozenset[bytes]
) -> Iterator[Callable[[GroupDirectory, Decision], None] | Large]:
    """Yield events that remove deleted topics, from some groups at a time."""
    for group_ids in slices(tuple(shard.groups), GROUPS_PER_EVENT):
        event = partial(_forget_topics, group_ids, topic_ids)
        groups = [group for id_ in group_ids if (group := shard.find(id_, ShareGroup)) is not None]
        yield Large(event) if sum(group.topic_states.size for group in groups) > EVENT_SIZE_MAX else event


def _forget_topics(
    group_ids: Iterable[str], topic_ids: frozenset[bytes], shard: GroupDirectory, out: Decision
) -> None:
    for group_id in group_ids:
        group = shard.find(group_id, ShareGroup)
        if group is not None:
            _write(group, group.topic_states.without(topic_ids), out)


def _write(group: ShareGroup, topic_states: TopicStates, out: Decision) -> None:
    if topic_states != group.topic_states:
        out.records.append(records.topic_states_record(group.id, topic_states))
