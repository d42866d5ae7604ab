"""Proposals of leaders for their ISRs: each refusal with its reason, and which brokers are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from barnabas.cluster.controller import brokers, in_sync, partitions
from barnabas.cluster.controller.steps import PIECE
from barnabas.cluster.metadata.ports import AcceptedState, ProposedState
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.leader_and_isr import LeaderAndIsrRequest
from tests.support.controller_steps import LED, Shell, T, cluster

# --- proposals of leaders -----------------------------------------------------------------------------------------


def proposal(*isr: int, index: int = 0, **fields: Any) -> ProposedState:
    values: dict[str, Any] = {
        "topic": "t", "topic_id": None, "index": index, "leader_epoch": 5, "partition_epoch": 9, "recovering": False,
    } | fields  # fmt: skip
    epochs = values.pop("epochs", {})
    return ProposedState(isr=tuple((id_, epochs.get(id_, 100 + id_)) for id_ in isr), **values)


def test_who_does_not_lead_proposes_nothing() -> None:
    core = cluster()
    [answer] = Shell(core).run(in_sync.alter(core, 2, 102, [proposal(1, 2)]))
    assert isinstance(answer, RequestError)
    assert answer.code == ErrorCode.INVALID_REQUEST


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
    outcomes = [answer.code if isinstance(answer, RequestError) else answer.isr for answer in answers]
    assert outcomes == [(1,), (1, 2), (1,), ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


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
    for _ in brokers.announce(core, {2}):
        pass
    assert len(list(brokers.announce(core, {2}))) == count // PIECE
    shell.run(core.send())
    told = [
        request
        for broker, request in shell.sent()
        if broker == 2 and isinstance(request, LeaderAndIsrRequest)
    ]
    assert sum(len(request.topic_states[0].partition_states) for request in told) == count
