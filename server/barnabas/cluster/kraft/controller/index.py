"""Index of the partitions: by broker in the ISR, without a leader, in a reassignment. Pure.

The rule: an index belongs to one image. `follow` updates it by the changes that lead to the next image; without an index
of the preceding image `index_of` reads the whole image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.cluster.kraft.controller.conditions import is_reserved
from barnabas.cluster.kraft.controller.outcome import ControllerState, Steps
from barnabas.cluster.kraft.image import Change, QuorumImage
from barnabas.cluster.kraft.values import NO_LEADER, Partition, Topic

PART = "index"

Key = tuple[bytes, int]
"""Id of a topic, and number of a partition."""
Keys = dict[Key, None]
"""A set that keeps the order of insertion."""


class Index:
    """Partitions by property; callers must not change the sets."""

    def __init__(self, image: QuorumImage) -> None:
        self._image = image
        self._in_isr: dict[int, Keys] = {}
        self._in_elr: dict[int, Keys] = {}
        self._led_by: dict[int, Keys] = {}
        self._in_dir: dict[bytes, Keys] = {}
        self._similar: dict[str, dict[str, None]] = {}
        self.reassigning: Keys = {}
        self.imbalanced: Keys = {}
        """Partitions that are not led by their first replica."""
        for topic in image.topics.values():
            self._name(topic.name, is_added=True)
        for key, partition in image.partitions.items():
            self.put(key, None, partition)

    def is_of(self, image: QuorumImage) -> bool:
        """Return whether this is the index of an image."""
        return self._image.partitions is image.partitions and self._image.topics is image.topics

    def follow(self, changes: Iterable[Change], image: QuorumImage) -> Steps[None]:
        """Become the index of an image that differs by these changes; a step is one change."""
        for change in changes:
            if change.kind == "partition":
                self.put(change.key, change.before, change.after)
            elif change.kind == "topic":
                topic: Topic = change.after or change.before
                self._name(topic.name, is_added=change.after is not None)
            yield
        self._image = image

    # --- questions ------------------------------------------------------------------------------------------------

    def in_isr(self, broker_id: int) -> tuple[Key, ...]:
        """Return the partitions with a broker in the ISR."""
        return tuple(self._in_isr.get(broker_id, ()))

    def in_elr(self, broker_id: int) -> tuple[Key, ...]:
        """Return the partitions with a broker in the ELR."""
        return tuple(self._in_elr.get(broker_id, ()))

    def in_dir(self, directory: bytes) -> tuple[Key, ...]:
        """Return the partitions with a replica in a log dir."""
        return tuple(self._in_dir.get(directory, ()))

    def leaderless(self) -> tuple[Key, ...]:
        """Return the partitions without a leader."""
        return tuple(self._led_by.get(NO_LEADER, ()))

    def leads(self, broker_id: int) -> bool:
        """Return whether a broker leads any partition."""
        return broker_id in self._led_by

    def similar_topic(self, name: str) -> str | None:
        """Return a topic with a name that differs only in dots and underscores; None without one."""
        return next(iter(self._similar.get(unified(name), ())), None)

    # --- updates --------------------------------------------------------------------------------------------------

    def _name(self, name: str, *, is_added: bool) -> None:
        if "." in name or "_" in name:
            _note(self._similar, unified(name), name, is_added=is_added)

    def put(self, key: Key, before: Partition | None, after: Partition | None) -> None:
        """Note a partition that was added, changed or removed."""
        self._move(self._in_isr, key, before.isr if before else (), after.isr if after else ())
        self._move(self._in_elr, key, before.elr if before else (), after.elr if after else ())
        self._move(
            self._in_dir, key, before.directories if before else (), after.directories if after else ()
        )
        self._move(self._led_by, key, (before.leader,) if before else (), (after.leader,) if after else ())
        self.reassigning.pop(key, None)
        self.imbalanced.pop(key, None)
        if after is not None and (after.adding or after.removing):
            self.reassigning[key] = None
        if after is not None and after.leader != after.replicas[0]:
            self.imbalanced[key] = None

    def _move(self, sets: dict[Any, Keys], key: Key, before: Sequence[Any], after: Sequence[Any]) -> None:
        """Remove a partition from the sets of `before`, and add it to those of `after`."""
        if before == after:
            return
        for member in before:
            if member not in after:
                _note(sets, member, key, is_added=False)
        for member in after:
            if sets is not self._in_dir or not is_reserved(member):
                _note(sets, member, key, is_added=True)


def unified(name: str) -> str:
    """Return a topic's name as metrics show it: with underscores in place of dots."""
    return name.replace(".", "_")


def _note(sets: dict[Any, dict[Any, None]], of: Any, member: Any, *, is_added: bool) -> None:
    if is_added:
        sets.setdefault(of, {})[member] = None
    elif of in sets:
        sets[of].pop(member, None)
        if not sets[of]:
            del sets[of]


def index_of(state: ControllerState) -> Index:
    """Return the index of the image, built anew if the last one belongs to another image."""
    index: Index | None = state.parts.get(PART)
    if index is None or not index.is_of(state.image):
        index = state.parts[PART] = Index(state.image)
    return index


def follow(state: ControllerState, before: QuorumImage, changes: Iterable[Change]) -> Steps[None]:
    """Update the index after the image has changed from `before` to that of the state."""
    index: Index | None = state.parts.get(PART)
    if index is not None and index.is_of(before):
        yield from index.follow(changes, state.image)
