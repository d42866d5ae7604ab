"""Changes that were read back, reduced to those that can be applied. Pure.

The rule: a lost change must not make later ones unreadable, and each change that cannot be applied is named.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.metadata.changes import (
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import Change


class Replay:
    """The changes that can be applied one after the other to an empty image.

    `deleted` are the ids of topics that were deleted: their remaining logs must be removed.
    `left_out` describes the changes that cannot be applied.
    """

    __slots__ = ("changes", "deleted", "left_out")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.deleted: set[bytes] = set()
        self.left_out: list[str] = []


def replay(changes: Iterable[Change]) -> Replay:
    """Sort out which of these changes can be applied."""
    result = Replay()
    topics: dict[str, tuple[bytes, int]] = {}  # id and number of partitions by name
    for change in changes:
        match change:
            case TopicCreated(topic):
                if topic.name in topics:  # the deletion of the former topic is lost
                    result.left_out.append(f"the end of topic {topic.name}")
                    result.changes.append(TopicDeleted(topic.name))
                    result.deleted.add(topics[topic.name][0])
                topics[topic.name] = topic.id, len(topic.partitions)
            case PartitionsAdded(name, partitions):
                if name not in topics:
                    result.left_out.append(f"the growth of topic {name}")
                    continue
                topic_id, count = topics[name]
                topics[name] = topic_id, count + len(partitions)
            case PartitionChanged(name, index, _):
                if name not in topics or not 0 <= index < topics[name][1]:
                    result.left_out.append(f"a change of {name}-{index}")
                    continue
            case TopicDeleted(name):
                if name not in topics:
                    result.left_out.append(f"the end of topic {name}")
                    continue
                result.deleted.add(topics.pop(name)[0])
            case _:
                pass
        result.changes.append(change)
    result.deleted -= {topic_id for topic_id, _ in topics.values()}
    return result
