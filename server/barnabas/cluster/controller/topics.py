"""Topics that were created, enlarged or deleted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.cluster.controller import partitions
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import Assignment
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, Steps, WriteAssignment

TopicFound = tuple[bytes | None, dict[int, Assignment]]
"""A topic's id, None if it has none yet, and its partitions."""


def changed(core: Core, names: Collection[str], topics_read: Mapping[str, TopicFound]) -> Steps[None]:
    """Record the topics: `names` are all of them, `topics_read` has the new ones."""
    for topic in [name for name in core.state.assignments if name not in names]:
        core.state.remove_topic(topic)
    for topic, (topic_id, assignments) in topics_read.items():
        core.state.add_topic(topic, topic_id, assignments)
    new = [partition for topic in topics_read for partition in core.state.partitions_of(topic)]
    # a state may exist: from a write of ours with a lost answer, or of a topic created by hand
    yield from partitions.elect_offline(core, new)
    yield from core.send()


def named(core: Core, topic: str, topic_id: bytes) -> Steps[None]:
    """Record a topic's new id, and send it to all brokers."""
    state = core.state
    state.name_topic(topic, topic_id)
    for number, partition in enumerate(state.partitions_of(topic)):
        if partition in state.states and not state.is_deleting(topic):
            core.batch.lead_or_follow(state, state.replicas(partition), partition)
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
    yield from core.send()


def known_to_nobody(core: Core, topics: Collection[str], broker_id: int | None = None) -> list[str]:
    """Return the topics among these without an id for which no live replica knows an id.

    `broker_id` got them without an id and has not written an id: so it knows none.
    """
    state, unknown_topics = core.state, []
    for topic in topics:
        asked = state.unnamed.get(topic)
        if asked is None:
            continue
        if broker_id is not None:
            asked.add(broker_id)
        replicas = {replica for parts in state.assignments[topic].values() for replica in parts.replicas}
        living = replicas & state.brokers.keys()
        if living and living <= asked:
            unknown_topics.append(topic)
    return unknown_topics


def partitions_changed(core: Core, topic: str, assignments: Mapping[int, Assignment]) -> Steps[None]:
    """Record a topic's new partitions; a topic that is being deleted gets none."""
    assignments_before = core.state.assignments.get(topic)
    if assignments_before is None:
        return
    new = {index: assignment for index, assignment in assignments.items() if index not in assignments_before}
    if not new:
        return
    if topic in core.state.deletions:
        yield WriteAssignment(topic, core.state.topic_ids.get(topic), dict(assignments_before))
        return
    assignments_before.update(new)
    yield from partitions.elect_offline(core, [(topic, index) for index in sorted(new)])
    yield from core.send()
