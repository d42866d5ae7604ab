"""Judging a cluster: what its partitions went through in ZooKeeper, what brokers told of them, and what is left of them.

The rule: what is judged is seen from outside of the brokers: znodes, answers to clients, and files.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.checker import violations
from tests.simulation.history import History, Partition, State

NOBODY = -1


def cluster_violations(history: History) -> list[str]:
    """Return what a cluster has broken, nothing if it kept its promises."""
    return [
        *violations(history),
        *_elections(history),
        *_leaders(history),
        *_descriptions(history),
        *(f"not in sync after all: {text}" for text in history.out_of_sync),
        *_replicas(history),
        *(f"the topic id was lost: {text}" for text in history.lost_topic_ids),
    ]


def _elections(history: History) -> Iterator[str]:
    """Leader epochs go up, each has one leader, and only a replica in sync becomes one."""
    last: dict[Partition, State] = {}
    for state in history.states:
        before = last.get(state.partition)
        last[state.partition] = state
        if before is None:
            continue
        what = f"{state.partition}: {before} was followed by {state}"
        if state.leader_epoch < before.leader_epoch:
            yield f"{what}: the leader epoch went back"
        elif state.leader != before.leader and state.leader_epoch == before.leader_epoch:
            yield f"{what}: two leaders in one epoch"
        elif state.leader != before.leader and state.leader not in (NOBODY, *before.isr):
            yield f"{what}: the leader was not in sync"


def _leaders(history: History) -> Iterator[str]:
    """Records that were acknowledged without a producer id are in an epoch of the broker that has acknowledged them."""
    leaders = {
        (state.partition, state.leader_epoch): state.leader
        for state in history.states
        if state.leader != NOBODY
    }
    epochs = {
        (partition, offset): batch.leader_epoch
        for partition, final in history.finals.items()
        for batch in final.batches
        for offset in batch.values
    }
    for write in history.writes:
        if not write.is_acknowledged or write.is_idempotent or write.offset is None:
            continue
        epoch = epochs.get((write.partition, write.offset))
        leader = leaders.get((write.partition, -1 if epoch is None else epoch))
        if leader is not None and leader != write.acknowledged_by:
            yield (
                f"{write.partition}: {write.value!r} at {write.offset} of epoch {epoch}, which broker {leader} led, "
                f"was acknowledged by broker {write.acknowledged_by}"
            )


def _descriptions(history: History) -> Iterator[str]:
    """A broker's descriptions of a partition never become older."""
    last: dict[tuple[str, Partition], int] = {}
    for told in history.described:
        key = told.broker, told.partition
        if told.leader_epoch < last.get(key, -1):
            yield f"{told.partition}: {told.broker} told of epoch {last[key]}, and then of epoch {told.leader_epoch}"
        last[key] = told.leader_epoch


def _replicas(history: History) -> Iterator[str]:
    """All replicas hold the same bytes in the end."""
    for partition, contents in sorted(history.replicas.items()):
        if len(set(contents.values())) > 1:
            sizes = {broker_id: len(content) for broker_id, content in sorted(contents.items())}
            yield f"{partition}: the replicas differ, sizes by broker: {sizes}"
