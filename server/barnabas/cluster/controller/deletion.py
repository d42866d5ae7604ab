"""Deletion of topics. Pure.

The rule: the znodes of a topic are removed after every replica is deleted. Before, all brokers are informed that it has
no leaders. A replica that cannot be deleted waits until its broker, or log dir, has returned; nothing is deleted while one
of the topic's partitions is being reassigned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Deletion
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, DeleteTopic, RemoveDeletions, Steps
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition


def wanted(core: Core, topics: Collection[str]) -> Steps[None]:
    """Begin to delete the known topics among these, unless their deletion has begun.

    If deletion is disabled, or a topic does not exist, the request is removed.
    """
    state = core.state
    refused = [
        topic for topic in topics if topic not in state.assignments or not core.settings.delete_topic_enable
    ]
    if refused:
        yield RemoveDeletions(refused)
    if core.settings.delete_topic_enable:
        for topic in topics:
            if topic in state.assignments:
                state.deletions.setdefault(topic, Deletion())
        yield from proceed(core)


def proceed(core: Core, topics: Iterable[str] | None = None) -> Steps[None]:
    """Continue deletions: ask available brokers, remove topics without replicas."""
    state = core.state
    for topic in list(state.deletions) if topics is None else list(topics):
        deletion = state.deletions.get(topic)
        if deletion is None or state.is_reassigned(topic):
            continue
        if not deletion.begun:
            deletion.begun = True
            core.batch.update_metadata(state.brokers, state.partitions_of(topic))
        yield from _ask(core, topic, deletion)
    yield from core.send()
    for topic in list(state.deletions):
        deletion = state.deletions[topic]
        if deletion.deleted >= _replicas(core, topic):
            yield DeleteTopic(topic)
            state.remove_topic(topic)


def _replicas(core: Core, topic: str) -> set[tuple[int, int]]:
    return {
        (index, replica)
        for index, assignment in core.state.assignments[topic].items()
        for replica in assignment.replicas
    }


def _ask(core: Core, topic: str, deletion: Deletion) -> Steps[None]:
    state, done = core.state, deletion.asked | deletion.deleted | deletion.failed
    for number, (index, replica) in enumerate(sorted(_replicas(core, topic) - done)):
        partition = (topic, index)
        if state.is_online(replica, partition, also_shutting_down=True):
            deletion.asked.add((index, replica))
            core.batch.stop_replica(state, replica, partition, delete=True)
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY


def answered(core: Core, broker_id: int, errors: dict[TopicPartition, int]) -> Steps[None]:
    """Note a broker's answer about the replicas that it was to delete."""
    topics = {topic for topic, _ in errors}
    for (topic, index), code in errors.items():
        deletion = core.state.deletions.get(topic)
        if deletion is None or (index, broker_id) not in deletion.asked:
            continue
        deletion.asked.discard((index, broker_id))
        (deletion.failed if code != ErrorCode.NONE else deletion.deleted).add((index, broker_id))
    if any(topic in core.state.deletions for topic in topics):
        yield from proceed(core, topics)


def brokers_changed(core: Core, broker_ids: Collection[int]) -> None:
    """Reset the deletions at brokers that have left or returned."""
    for deletion in core.state.deletions.values():
        for replicas in (deletion.asked, deletion.failed):
            replicas.difference_update([replica for replica in replicas if replica[1] in broker_ids])


def replicas_lost(core: Core, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
    """Note that a broker cannot delete replicas in a log dir that is offline."""
    for topic, index in partitions:
        deletion = core.state.deletions.get(topic)
        if deletion is not None and (index, broker_id) in deletion.asked:
            deletion.asked.discard((index, broker_id))
            deletion.failed.add((index, broker_id))
