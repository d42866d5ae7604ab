"""Proposals of leaders for their ISRs: each refusal with its reason, and who is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.controller import brokers, in_sync, partitions
from barnabas.cluster.controller.state import Assignment, Deletion, PartitionState
from barnabas.cluster.controller.steps import (
    PIECE,
)
from barnabas.cluster.metadata.ports import AcceptedState, ProposedState
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.generated.stop_replica import StopReplicaRequest
from barnabas.wire.generated.update_metadata import UpdateMetadataRequest
from tests.support.controller_steps import ID, LED, Shell, T, cluster

# --- proposals of leaders -----------------------------------------------------------------------------------------


def proposal(*isr: int, index: int = 0, **fields: Any) -> ProposedState:
    given: dict[str, Any] = {
        "topic": "t", "topic_id": None, "index": index, "leader_epoch": 5, "partition_epoch": 9, "recovering": False,
    } | fields  # fmt: skip
    epochs = given.pop("epochs", {})
    return ProposedState(isr=tuple((one, epochs.get(one, 100 + one)) for one in isr), **given)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (proposal(1, 2, 3), 0),
        (proposal(1), 0),
        (proposal(1, 2, 3, epochs={3: -1}), 0),
        (proposal(1, 2, 3, topic=None, topic_id=ID), 0),
        (proposal(1, 2, 3, topic=None, topic_id=b"j" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(1, 2, 3, topic=None), ErrorCode.UNKNOWN_TOPIC_ID),
        (proposal(1, 2, 3, topic="u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, 2, 3, index=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(1, 2, 3, partition_epoch=10), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
        (proposal(1, 2, 3, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
        (proposal(1, 2, 3, partition_epoch=8), ErrorCode.INVALID_UPDATE_VERSION),
        (proposal(2, 3), ErrorCode.INVALID_REQUEST),
        (proposal(1, 1), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 4), ErrorCode.INVALID_REQUEST),
        (proposal(1, recovering=True), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, recovering=True), ErrorCode.INVALID_REQUEST),
        (proposal(1, 2, 3, epochs={3: 102}), ErrorCode.INELIGIBLE_REPLICA),
        (proposal(1, 2, 3, epochs={1: 100}), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_proposal_is_taken_or_refused_with_its_reason(asked: ProposedState, code: int) -> None:
    core = cluster()
    shell = Shell(core)
    [answer] = shell.run(in_sync.alter(core, 1, 101, [asked]))
    if code:
        assert isinstance(answer, RequestError)
        assert answer.code == code
        assert core.state.states[T] == LED
        assert list(shell.sent()) == []
    else:
        isr = tuple(one for one, _ in asked.isr)
        assert answer == AcceptedState(1, 5, 10, isr, False)
        assert core.state.states[T] == replace(LED, isr=isr, controller_epoch=7, version=10)
        assert shell.receivers(UpdateMetadataRequest) == [1, 2, 3, 4]
        assert shell.receivers(LeaderAndIsrRequest) == []


def test_who_does_not_lead_proposes_nothing() -> None:
    core = cluster()
    [answer] = Shell(core).run(in_sync.alter(core, 2, 102, [proposal(1, 2)]))
    assert isinstance(answer, RequestError)
    assert answer.code == ErrorCode.INVALID_REQUEST


def test_a_proposal_that_is_there_already_has_the_same_answer_and_is_not_written() -> None:
    core = cluster()
    shell = Shell(core)
    answers = shell.run(in_sync.alter(core, 1, 101, [proposal(2, 1), proposal(1, 2, partition_epoch=7)]))
    assert answers == [AcceptedState(1, 5, 9, (1, 2), False)] * 2
    assert shell.steps == []


@pytest.mark.parametrize(
    ("isr", "recovering", "is_taken"),
    [((1,), False, True), ((1,), True, True), ((1, 2), True, False), ((1, 2), False, True)],
)
def test_a_leader_that_recovers_is_alone_until_it_has(
    isr: tuple[int, ...], recovering: bool, is_taken: bool
) -> None:
    core = cluster(state=replace(LED, isr=(1,), recovering=True))
    [answer] = Shell(core).run(in_sync.alter(core, 1, 101, [proposal(*isr, recovering=recovering)]))
    assert isinstance(answer, AcceptedState) is is_taken
    assert core.state.states[T].recovering is (recovering or not is_taken)


@pytest.mark.parametrize(
    ("spoil", "is_taken"),
    [
        (lambda state: None, True),
        (lambda state: state.brokers.pop(3), False),
        (lambda state: state.shutting_down.add(3), False),
        (lambda state: state.offline_dirs.update({3: {T}}), False),
        (lambda state: state.offline_dirs.update({3: {("t", 1)}}), True),
        (lambda state: state.offline_dirs.update({2: {T}}), True),  # who is in already leaves by itself
        (lambda state: state.shutting_down.add(2), False),
    ],
    ids=["fine", "gone", "stops", "its log dir", "another log dir", "in already", "in already and stops"],
)
def test_only_who_lives_is_in_sync(spoil: Any, is_taken: bool) -> None:
    core = cluster()
    spoil(core.state)
    [answer] = Shell(core).run(in_sync.alter(core, 1, 101, [proposal(1, 2, 3)]))
    assert isinstance(answer, AcceptedState) is is_taken
    if not is_taken:
        assert answer.code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(("broker", "epoch"), [(1, 100), (1, 102), (9, 109)])
def test_another_registration_of_a_broker_proposes_nothing(broker: int, epoch: int) -> None:
    core = cluster()
    with pytest.raises(RequestError) as caught:
        Shell(core).run(in_sync.alter(core, broker, epoch, [proposal(1)]))
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_each_proposal_has_its_own_answer_in_its_place() -> None:
    core = cluster(3)
    asked = [
        proposal(1, index=2),
        proposal(1, 2, index=1),
        proposal(1, index=0),
        proposal(1, 2, 3, index=0),
        proposal(1, index=7),
    ]
    answers = Shell(core).run(in_sync.alter(core, 1, 101, asked))
    found = [one.code if isinstance(one, RequestError) else one.isr for one in answers]
    assert found == [(1,), (1, 2), (1,), ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize(
    ("now", "deleting", "told"), [(LED, False, [1]), (replace(LED, leader=2), False, []), (LED, True, [])]
)
def test_a_leader_whose_proposal_met_another_write_is_told_of_it(
    now: PartitionState, deleting: bool, told: list[int]
) -> None:
    core = cluster()
    newer = replace(now, version=12)
    if deleting:
        core.state.deletions["t"] = Deletion(begun=True)
    shell = Shell(core, found=newer)
    [answer] = shell.run(in_sync.alter(core, 1, 101, [proposal(1)]))
    assert isinstance(answer, RequestError)
    assert answer.code == ErrorCode.INVALID_UPDATE_VERSION
    assert core.state.states[T] == newer
    assert shell.receivers(LeaderAndIsrRequest) == told


def test_an_accepted_proposal_may_end_a_reassignment() -> None:
    core = cluster(2)
    for index in (0, 1):
        core.state.assignments["t"][index] = Assignment((3, 1, 2), adding=(3,), removing=(1,))
        core.state.reassigning["t", index] = None
    shell = Shell(core)
    asked = [proposal(1, 2, 3), proposal(1, index=1), proposal(1, 2, 4, index=1)]
    answers = shell.run(in_sync.alter(core, 1, 101, asked))
    shell.run(in_sync.after(core, answers, asked))
    assert core.state.assignments["t"][0] == Assignment((3, 2))
    assert core.state.assignments["t"][1].is_reassigned
    assert list(core.state.reassigning) == [("t", 1)]
    assert core.state.states[T].leader == 3
    stops = [(broker, request) for broker, request in shell.sent() if isinstance(request, StopReplicaRequest)]
    assert [broker for broker, _ in stops] == [1]


# --- giving way ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, 3 * PIECE, 3 * PIECE + 1])
def test_others_run_after_each_piece_of_many_partitions(count: int) -> None:
    core = cluster(count, state=None)
    shell = Shell(core)
    shell.run(partitions.begin(core, core.state.partitions_of("t")))
    assert shell.turns == 2 * (count // PIECE)
    core = cluster(count)
    shell = Shell(core)
    shell.run(in_sync.alter(core, 1, 101, [proposal(9, index=index) for index in range(count)]))
    assert shell.turns == count // PIECE
    shell = Shell(core)
    for partition in core.state.partitions_of("t"):
        core.batch.tell_replicas([2], partition)
    shell.run(core.send())
    assert shell.turns == count // PIECE + 1  # and after the request


@pytest.mark.parametrize("count", [PIECE - 1, PIECE, 2 * PIECE + 1])
def test_others_run_while_a_broker_is_told_of_many_partitions(count: int) -> None:
    core = cluster(count)
    shell = Shell(core)
    for _ in brokers._announce(core, {2}):
        pass
    assert len(list(brokers._announce(core, {2}))) == count // PIECE
    shell.run(core.send())
    told = [
        request
        for broker, request in shell.sent()
        if broker == 2 and isinstance(request, LeaderAndIsrRequest)
    ]
    assert sum(len(one.topic_states[0].partition_states) for one in told) == count
