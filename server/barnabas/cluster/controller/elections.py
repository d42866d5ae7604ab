"""Choice of the next leader of a partition. Pure.

The rule: the first available in-sync replica in the order of the assignment becomes leader; one out of sync only if that
is allowed and none in sync is available. None means that no replica can be elected. Each election is a new leader epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from barnabas.cluster.controller.state import NO_LEADER, PartitionState

Online = Callable[[int], bool]


def first_state(online: Sequence[int], controller_epoch: int) -> PartitionState | None:
    """Return the first state of a new partition: all online replicas are in sync, the first of them leads."""
    if not online:
        return None
    return PartitionState(online[0], tuple(online), controller_epoch=controller_epoch)


def after_loss(
    replicas: Sequence[int], now: PartitionState, online: Online, *, unclean: bool, marks_recovery: bool
) -> PartitionState | None:
    """Elect a leader after the last one was lost; replicas that are not online leave the ISR.

    An unclean election puts the new leader alone in sync, recovering if brokers know of that (`marks_recovery`, KIP-704).
    """
    leader = next((replica for replica in replicas if online(replica) and replica in now.isr), None)
    if leader is not None:
        return now.next_epoch(leader, filter(online, now.isr))
    if not unclean:
        return None
    leader = next(filter(online, replicas), None)
    if leader is None:
        return None
    return now.next_epoch(leader, (leader,), recovering=True if marks_recovery else None)


def after_absence(
    replicas: Sequence[int], now: PartitionState, online: Online, stayed: Online
) -> PartitionState:
    """Remove replicas that were away from the ISR, as if their absence had been noticed.

    If all were away, the leader leads again if it can, in a new epoch, as it may have lost records.
    """
    able = stayed if any(map(stayed, now.isr)) else online
    order = (now.leader, *replicas)
    leader = next((replica for replica in order if replica in now.isr and able(replica)), None)
    return now if leader is None else now.next_epoch(leader, filter(able, now.isr))


def preferred(replicas: Sequence[int], now: PartitionState, online: Online) -> PartitionState | None:
    """Make the preferred replica the leader."""
    first = replicas[0] if replicas else NO_LEADER
    return now.next_epoch(first, now.isr) if first in now.isr and online(first) else None


def restricted(replicas: Sequence[int], now: PartitionState, online: Online) -> PartitionState | None:
    """Restrict ISR and leadership to these replicas; the leader stays if it is one of them.

    If one of them is in sync, but none is online, the partition has no leader until it returns. None if none is in sync.
    """
    isr = tuple(replica for replica in now.isr if replica in replicas)
    if not isr:
        return None
    able = [replica for replica in replicas if replica in isr and online(replica)]
    leader = now.leader if now.leader in able else next(iter(able), NO_LEADER)
    return now.next_epoch(leader, isr)


def controlled_shutdown(
    replicas: Sequence[int], now: PartitionState, online: Online, shutting_down: Container[int]
) -> PartitionState | None:
    """Elect a replica that is not shutting down; the others leave the ISR. `online` includes those that shut down."""
    for replica in replicas:
        if online(replica) and replica in now.isr and replica not in shutting_down:
            return now.next_epoch(replica, (other for other in now.isr if other not in shutting_down))
    return None


def without_replicas(now: PartitionState, online: Online) -> PartitionState:
    """Remove replicas that are not online from the ISR; the last one stays, since no other replica has all records.

    If no replica in sync is online the ISR stays, and any of them may lead when it has returned.
    """
    isr = tuple(filter(online, now.isr)) or now.isr
    leader = now.leader if now.leader != NO_LEADER and online(now.leader) else NO_LEADER
    return now if (leader, isr) == (now.leader, now.isr) else now.next_epoch(leader, isr)
