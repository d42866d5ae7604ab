"""Elections on request, ElectLeaders v0-v2, and periodic elections. Pure.

v1 adds unclean elections, and an error code of the whole response.

The rule: a preferred election moves the leader to the first replica, if that is in sync; an unclean election is only for a
partition without a leader. Periodically, leaders return to their first replicas (auto.leader.rebalance.enable), and
leaderless partitions get any replica, if their topic allows that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barnabas.cluster.kraft.controller.batch import Batch
from barnabas.cluster.kraft.controller.conditions import check_size
from barnabas.cluster.kraft.controller.index import Key, index_of
from barnabas.cluster.kraft.controller.outcome import (
    Caller,
    ControllerState,
    Handlers,
    Outcome,
    Records,
    Steps,
)
from barnabas.cluster.kraft.controller.partition_changes import Election, Target
from barnabas.cluster.kraft.values import NO_LEADER
from barnabas.config.broker import UNCLEAN_LEADER_ELECTION_INTERVAL_MS
from barnabas.errors import RequestError
from barnabas.security.authorizer import Operation
from barnabas.wire.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from barnabas.wire.generated.errors import ErrorCode

ELECTIONS_AT_ONCE_MAX: Final = 1_000
"""Kafka's MAX_ELECTIONS_PER_IMBALANCE."""
_TYPES = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_WHY = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
    ErrorCode.ELECTION_NOT_NEEDED: "the partition has such a leader",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first replica cannot lead now",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica can lead now",
}

_Result = ElectLeadersResponse.PartitionResult


def elect_leaders(state: ControllerState, request: ElectLeadersRequest, caller: Caller) -> Steps[Outcome]:
    """Elect leaders of partitions, or of all. Raises INVALID_REQUEST for an unknown type."""
    caller.require_on_cluster(Operation.ALTER)
    election = _TYPES.get(request.election_type)
    if election is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"there is no election of type {request.election_type}")
    batch = Batch(state)
    response = ElectLeadersResponse()
    is_for_all = request.topic_partitions is None
    for name, indexes in _asked(state, request):
        topic_id = state.image.topic_ids.get(name)
        results = []
        for index in indexes:
            results.append(_elected(batch, topic_id, index, election))
            yield
        if is_for_all:
            results = [result for result in results if result.error_code != ErrorCode.ELECTION_NOT_NEEDED]
        response.replica_election_results.append(ElectLeadersResponse.ReplicaElectionResult(name, results))
    check_size(batch.records)
    return Outcome(response, tuple(batch.records), is_atomic=False)


def _asked(state: ControllerState, request: ElectLeadersRequest) -> Iterable[tuple[str, Iterable[int]]]:
    """Iterate over the topics, and the numbers of their partitions."""
    if request.topic_partitions is not None:
        return ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    return (
        (topic.name, [index for index, _ in state.image.partitions_of(topic)])
        for topic in state.image.topics.values()
    )


def _elected(batch: Batch, topic_id: bytes | None, index: int, election: Election) -> _Result:
    code = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_id is None
        else _elect(batch, (topic_id, index), election)
    )
    return _Result(index, code, _WHY.get(code))


def _elect(batch: Batch, key: Key, election: Election) -> ErrorCode:
    """Elect a leader; returns NONE, or the reason why the leader stays."""
    partition = batch.partition(key)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if is_preferred else partition.leader != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED
    if batch.change(key, Target(election=election)) is not None:
        return ErrorCode.NONE
    if is_preferred:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


# --- periodic -------------------------------------------------------------------------------------------------------


def balance(state: ControllerState) -> Steps[Records]:
    """Move leaders to the first replicas, up to a limit for each call."""
    interval_ms = 1_000 * state.config.value_of("leader.imbalance.check.interval.seconds")
    if not state.config.value_of("auto.leader.rebalance.enable") or not _is_due(
        state, "balance", interval_ms
    ):
        return ()
    return (yield from _elect_by_time(state, "balance", index_of(state).imbalanced, Election.PREFERRED))


def elect_unclean(state: ControllerState) -> Steps[Records]:
    """Elect any replica for leaderless partitions, if their topics allow that, up to a limit for each call."""
    if not _is_due(state, "unclean", state.config.get(UNCLEAN_LEADER_ELECTION_INTERVAL_MS)):
        return ()
    batch = Batch(state)
    keys = [key for key in index_of(state).leaderless() if batch.election_of(key[0]) is Election.UNCLEAN]
    return (yield from _elect_by_time(state, "unclean", keys, Election.UNCLEAN))


def _elect_by_time(
    state: ControllerState, task: str, keys: Iterable[Key], election: Election
) -> Steps[Records]:
    batch = Batch(state)
    for key in keys:
        _elect(batch, key, election)
        yield
        if len(batch.records) == ELECTIONS_AT_ONCE_MAX:
            _due(state)[task] = state.monotonic_ms  # there may be more: the next call continues
            break
    return tuple(batch.records)


def _is_due(state: ControllerState, task: str, interval_ms: int) -> bool:
    """Return whether work is due, and if it is, set its next time."""
    due = _due(state)
    is_due = due.setdefault(task, state.monotonic_ms + interval_ms) <= state.monotonic_ms
    if is_due:
        due[task] = state.monotonic_ms + interval_ms
    return is_due


def _due(state: ControllerState) -> dict[str, int]:
    """Return the times at which periodic work is due."""
    due: dict[str, int] = state.parts.setdefault("elections", {})
    return due


HANDLERS: Handlers = {43: elect_leaders}
TICKS = (balance, elect_unclean)
