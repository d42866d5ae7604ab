"""Topics that are made, grow, or are gone. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from barnabas.controller import partitions
from barnabas.controller.core import Core
from barnabas.controller.state import Assignment
from barnabas.controller.steps import Steps, WriteAssignment

TopicFound = tuple[bytes | None, dict[int, Assignment]]
"""A topic's id, None if it has none yet, and its partitions."""


def changed(core: Core, names: Collection[str], found: Mapping[str, TopicFound]) -> Steps[None]:
    """Take over which topics there are: `names` are all, `found` has those that are not known yet."""
    for topic in [one for one in core.state.assignments if one not in names]:
        core.state.remove_topic(topic)
    for topic, (topic_id, assignments) in found.items():
        core.state.add_topic(topic, topic_id, assignments)
    new = [partition for topic in found for partition in core.state.partitions_of(topic)]
    # A state may be there: of a write of ours whose answer was lost, or of a topic made by hand.
    yield from partitions.elect_offline(core, new)
    yield from core.send()


def partitions_changed(core: Core, topic: str, assignments: Mapping[int, Assignment]) -> Steps[None]:
    """Take over partitions that a topic has got; while it is being deleted it gets none."""
    known = core.state.assignments.get(topic)
    if known is None:
        return
    new = {index: assignment for index, assignment in assignments.items() if index not in known}
    if not new:
        return
    if topic in core.state.deletions:
        yield WriteAssignment(topic, core.state.topic_ids.get(topic), dict(known))
        return
    known.update(new)
    yield from partitions.elect_offline(core, [(topic, index) for index in sorted(new)])
    yield from core.send()
