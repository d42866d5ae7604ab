"""Records of one outcome while they are collected: each decision sees the earlier records. Pure.

The rule: partitions are read here, not from the image, since an earlier record of the batch may have changed them.
Brokers are read from the image, except for a broker that the arguments name as added or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from barnabas.cluster.kraft.controller.conditions import (
    allows_unclean,
    default_dir,
    has_online_dir,
    is_active,
    min_isr,
)
from barnabas.cluster.kraft.controller.features import has_elr
from barnabas.cluster.kraft.controller.index import Key
from barnabas.cluster.kraft.controller.outcome import ControllerState, Steps
from barnabas.cluster.kraft.controller.partition_changes import Conditions, Election, Target, change
from barnabas.cluster.kraft.transitions import changed_partition
from barnabas.cluster.kraft.values import Partition, Topic


class Batch:
    """Records, and the partitions after them."""

    def __init__(self, state: ControllerState, *, offline_dirs: Collection[bytes] = ()) -> None:
        """`offline_dirs` have failed, and the image does not have that yet."""
        self._state = state
        self._offline_dirs = offline_dirs
        self._changed: dict[Key, Partition] = {}
        self._by_topic: dict[bytes, tuple[int, Election]] = {}
        self.records: list[Any] = []

    @property
    def state(self) -> ControllerState:
        """The state before the batch."""
        return self._state

    def partition(self, key: Key) -> Partition | None:
        """Return a partition after the records so far, None if it does not exist."""
        changed = self._changed.get(key)
        return self._state.image.partitions.get(key) if changed is None else changed

    def change(
        self, key: Key, target: Target, is_alive: Callable[[int], bool] | None = None
    ) -> Partition | None:
        """Change a partition, and return it; None if nothing changes.

        `is_alive` says which brokers can lead; None: those that are active in the image.
        """
        before = self.partition(key)
        assert before is not None
        record = change(key, before, target, self._conditions(key, before, is_alive))
        if record is None:
            return None
        self.records.append(record)
        self._changed[key] = after = changed_partition(before, record)
        return after

    def can_lead(self, key: Key, replica: int) -> bool:
        """Return whether a replica of a partition could lead, if it is in sync."""
        partition = self.partition(key)
        return partition is not None and self._conditions(key, partition, None).can_lead(replica)

    def election_of(self, topic_id: bytes) -> Election:
        """Return the kind of election for a topic's partitions: unclean if its settings allow that."""
        return self._of_topic(topic_id)[1]

    def update(
        self,
        keys: Iterable[Key],
        *,
        removed: int | None = None,
        added: int | None = None,
        unclean: int | None = None,
    ) -> Steps[None]:
        """Elect leaders where necessary, after a broker left (`removed`), arrived (`added`) or lost records (`unclean`).

        A step is one partition.
        """
        image = self._state.image

        def is_alive(broker_id: int) -> bool:
            return broker_id not in (removed, unclean) and (broker_id == added or is_active(image, broker_id))

        for key in keys:
            partition = self.partition(key)
            assert partition is not None
            isr = tuple(replica for replica in partition.isr if replica not in (removed, unclean))
            target = Target(isr=isr, election=self.election_of(key[0]), unclean_shutdown=unclean)
            self.change(key, target, is_alive)
            yield

    def _conditions(
        self, key: Key, partition: Partition, is_alive: Callable[[int], bool] | None
    ) -> Conditions:
        image = self._state.image

        def can_lead(replica: int) -> bool:
            if not (is_active(image, replica) if is_alive is None else is_alive(replica)):
                return False
            if replica not in partition.replicas:
                return False
            directory = partition.directories[partition.replicas.index(replica)]
            return directory not in self._offline_dirs and has_online_dir(
                image.brokers.get(replica), directory
            )

        return Conditions(
            can_lead,
            image.metadata_version,
            self._of_topic(key[0])[0],
            has_elr(image),
            lambda broker_id: default_dir(image, broker_id),
        )

    def _of_topic(self, topic_id: bytes) -> tuple[int, Election]:
        rules = self._by_topic.get(topic_id)
        if rules is None:
            topic: Topic = self._state.image.topics[topic_id]
            is_unclean = allows_unclean(self._state, topic.name)
            rules = min_isr(self._state, topic), Election.UNCLEAN if is_unclean else Election.ONLINE
            self._by_topic[topic_id] = rules
        return rules
