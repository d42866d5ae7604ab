"""Elections on request, and periodic ones that restore preferred leaders. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.cluster.controller import partitions
from barnabas.cluster.controller.core import Core
from barnabas.cluster.controller.state import NO_LEADER
from barnabas.cluster.controller.steps import GIVE_WAY, PIECE, Steps
from barnabas.cluster.metadata.ports import ElectionType, Results
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

_NOT_NEEDED = RequestError(ErrorCode.ELECTION_NOT_NEEDED, "the partition has the leader that it should have")
_DELETED = RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
_UNKNOWN = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")


def elect(core: Core, election_type: ElectionType, asked: Iterable[TopicPartition] | None) -> Steps[Results]:
    """Hold elections for these partitions, or for all."""
    state, results = core.state, Results()
    wanting: list[TopicPartition] = []
    if asked is None:
        asked = [partition for partition, _ in state.partitions()]
    for number, partition in enumerate(asked):
        results[partition] = _refusal(core, election_type, partition)
        if results[partition] is None:
            wanting.append(partition)
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
    if election_type is ElectionType.PREFERRED:
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        outcome = yield from partitions.elect_preferred(core, wanting)
    else:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        yield from partitions.begin(
            core, [partition for partition in wanting if partition not in state.states]
        )
        outcome = yield from partitions.elect_after_loss(
            core, [partition for partition in wanting if state.is_offline(partition)], unclean=True
        )
    for partition, why in outcome.items():
        results[partition] = RequestError(code, why) if why else None
    yield from core.send()
    return results


def _refusal(core: Core, election_type: ElectionType, partition: TopicPartition) -> RequestError | None:
    state = core.state
    assignment, now = state.assignment(partition), state.states.get(partition)
    if assignment is None:
        return _UNKNOWN
    if state.is_deleting(partition[0]):
        return _DELETED
    if election_type is ElectionType.UNCLEAN:
        return None if state.is_offline(partition) else _NOT_NEEDED
    leader = now.leader if now is not None else NO_LEADER
    return _NOT_NEEDED if leader == assignment.replicas[0] else None


def rebalance(core: Core) -> Steps[int]:
    """Put leaders back to preferred replicas, for brokers with too many partitions that are led by others.

    Counts as Kafka does: `leader.imbalance.per.broker.percentage` of the partitions that prefer the broker. Returns how
    many leaders have moved.
    """
    state, prefer, elsewhere = core.state, dict[int, int](), dict[int, list[TopicPartition]]()
    for number, (partition, assignment) in enumerate(state.partitions()):
        if number % PIECE == PIECE - 1:
            yield GIVE_WAY
        if state.is_deleting(partition[0]):
            continue
        first = assignment.replicas[0]
        prefer[first] = prefer.get(first, 0) + 1
        now = state.states.get(partition)
        if now is not None and now.leader != first:
            elsewhere.setdefault(first, []).append(partition)
    moved = 0
    for broker, wanting in elsewhere.items():
        if len(wanting) * 100 > prefer[broker] * core.settings.leader_imbalance_per_broker_percentage:
            able = [
                candidate
                for candidate in wanting
                if broker in state.states[candidate].isr and state.is_online(broker, candidate)
            ]
            outcome = yield from partitions.elect_preferred(core, able)
            moved += sum(not why for why in outcome.values())
    yield from core.send()
    return moved


def unclean_enabled(core: Core, topic: str | None) -> Steps[None]:
    """Elect leaders where unclean elections are now allowed: in a topic, or in all (None)."""
    affected = None if topic is None else core.state.partitions_of(topic)
    yield from partitions.elect_offline(core, affected)
    yield from core.send()
