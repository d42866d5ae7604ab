"""The states of share partitions with the share coordinator (KIP-932), as short as they can be said.

Written from Kafka's rules, and without any code of the broker's. What is known of a partition is a state and a number of
deliveries for each offset. One promise goes beyond Kafka's: neither a start offset nor the count of what is complete falls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.models.transactions import refuse_unless

NOT_SAID = -1
"""An epoch that is not checked, a start offset that stays, a number that is not known."""


class Batch(NamedTuple):
    """Offsets `first` to `last` are in `state` after so many deliveries."""

    first: int
    last: int
    state: int
    deliveries: int


@dataclass
class Known:
    """The saved state of one share partition."""

    state_epoch: int
    start: int
    complete: int
    leader_epoch: int = 0
    records: dict[int, tuple[int, int]] = field(default_factory=dict)

    def seen(self) -> tuple[int, int, int, int, dict[int, tuple[int, int]]]:
        return self.state_epoch, self.leader_epoch, self.start, self.complete, dict(self.records)


@dataclass
class ShareStates:
    """All states, by group, topic and partition; `there` are the keys of partitions that exist."""

    there: Collection[object]
    states: dict[object, Known] = field(default_factory=dict)

    def initialize(self, key: object, partition: int, state_epoch: int, start: int) -> None:
        """Begin a state, or begin it again; leaders of before stay fenced."""
        refuse_unless(partition >= 0, "INVALID_REQUEST")
        state = self.states.get(key)
        if state is not None:
            refuse_unless(
                state_epoch in (NOT_SAID, max(state_epoch, state.state_epoch)), "FENCED_STATE_EPOCH"
            )
        refuse_unless(key in self.there, "UNKNOWN_TOPIC_OR_PARTITION")
        begun = Known(state_epoch, start, NOT_SAID if start == NOT_SAID else 0)
        if state is not None:
            begun.state_epoch = max(state_epoch, state.state_epoch)
            begun.leader_epoch = state.leader_epoch
        self.states[key] = begun

    def read(self, key: object, partition: int, leader_epoch: int) -> Known:
        """Return the state for a leader; those with an older epoch are fenced from now on."""
        state = self.of_leader(key, partition, leader_epoch)
        refuse_unless(key in self.there, "UNKNOWN_TOPIC_OR_PARTITION")
        state.leader_epoch = max(leader_epoch, state.leader_epoch)
        return state

    def write(
        self, key: object, partition: int, state_epoch: int, leader_epoch: int, start: int, complete: int,
        batches: Iterable[Batch],
    ) -> None:  # fmt: skip
        """Put new states over the old ones: for each offset those after more deliveries count, then the later ones."""
        state = self.of_leader(key, partition, leader_epoch)
        refuse_unless(state_epoch == NOT_SAID or state_epoch >= state.state_epoch, "FENCED_STATE_EPOCH")
        refuse_unless(key in self.there, "UNKNOWN_TOPIC_OR_PARTITION")
        if start == state.start:
            state.complete = max(complete, state.complete)
        elif start > state.start:
            state.start, state.complete = start, complete
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                before = state.records.get(offset, (0, -1))
                new = batch.state, batch.deliveries
                state.records[offset] = max(before, new, key=lambda entry: (entry[1], entry[0]))
        state.records = {offset: record for offset, record in state.records.items() if offset >= state.start}

    def summary(self, key: object, partition: int) -> Known | None:
        refuse_unless(partition >= 0, "INVALID_REQUEST")
        refuse_unless(key in self.there, "UNKNOWN_TOPIC_OR_PARTITION")
        return self.states.get(key)

    def delete(self, key: object, partition: int) -> None:
        self.summary(key, partition)
        self.states.pop(key, None)

    def of_leader(self, key: object, partition: int, leader_epoch: int) -> Known:
        refuse_unless(partition >= 0 and key in self.states, "INVALID_REQUEST")
        state = self.states[key]
        refuse_unless(leader_epoch == NOT_SAID or leader_epoch >= state.leader_epoch, "FENCED_LEADER_EPOCH")
        return state
