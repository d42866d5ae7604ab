"""Answers of a transactional id in each state to each request with each epoch: a table, as Apache Kafka 4.3.1 has it.

The rule of its coordinator: while an end is prepared the transition to the next state is pending, and a request that
changes the state is CONCURRENT_TRANSACTIONS before its producer id and epoch are looked at. The producer may come already
with the id and epoch that count once the transition is over. Two requests look at these first: EndTxn before version 5,
which knows of no bumps, and the check of other brokers, which changes nothing.
"""

from __future__ import annotations

import pytest

from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.coordinators.transactions.shard import ProducerIdNeededError
from barnabas.coordinators.transactions.transaction import Producer, State
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

from .test_shard import ID, ONE, TIMEOUT_MS, TWO, Harness

PRODUCERS = {
    "older": Producer(7, 1),
    "previous": Producer(7, 2),
    "current": Producer(7, 3),
    "next": Producer(7, 4),
    "other": Producer(8, 3),
}
"""The id has producer 7 in epoch 3, which its producer got by a bump from epoch 2."""

ANSWERS = {
    "fenced": ErrorCode.PRODUCER_FENCED,
    "mapping": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "pending": ErrorCode.CONCURRENT_TRANSACTIONS,
    "aborts": ErrorCode.CONCURRENT_TRANSACTIONS,  # and decides
    "state": ErrorCode.INVALID_TXN_STATE,
}

TABLE = """
                | older   | previous | current | next    | other
Empty
  init          | fenced  | decides  | decides | fenced  | fenced
  add           | fenced  | fenced   | decides | fenced  | mapping
  verify        | fenced  | fenced   | same    | fenced  | mapping
  commit v4     | fenced  | fenced   | state   | fenced  | mapping
  abort v4      | fenced  | fenced   | state   | fenced  | mapping
  commit v5     | fenced  | fenced   | state   | fenced  | mapping
  abort v5      | fenced  | fenced   | decides | fenced  | mapping
Ongoing
  init          | aborts  | aborts   | aborts  | aborts  | fenced
  add           | fenced  | fenced   | decides | fenced  | mapping
  verify        | fenced  | fenced   | same    | fenced  | mapping
  commit v4     | fenced  | fenced   | decides | fenced  | mapping
  abort v4      | fenced  | fenced   | decides | fenced  | mapping
  commit v5     | fenced  | fenced   | decides | fenced  | mapping
  abort v5      | fenced  | fenced   | decides | fenced  | mapping
PrepareCommit, PrepareAbort
  init          | pending | pending  | pending | pending | pending
  add           | pending | pending  | pending | pending | pending
  verify        | fenced  | fenced   | pending | fenced  | mapping
  commit v4     | fenced  | fenced   | pending | fenced  | mapping
  abort v4      | fenced  | fenced   | pending | fenced  | mapping
  commit v5     | pending | pending  | pending | pending | pending
  abort v5      | pending | pending  | pending | pending | pending
CompleteCommit
  init          | fenced  | decides  | decides | fenced  | fenced
  add           | fenced  | fenced   | decides | fenced  | mapping
  verify        | fenced  | fenced   | same    | fenced  | mapping
  commit v4     | fenced  | fenced   | same    | fenced  | mapping
  abort v4      | fenced  | fenced   | state   | fenced  | mapping
  commit v5     | fenced  | same     | state   | fenced  | mapping
  abort v5      | fenced  | state    | decides | fenced  | mapping
CompleteAbort
  init          | fenced  | decides  | decides | fenced  | fenced
  add           | fenced  | fenced   | decides | fenced  | mapping
  verify        | fenced  | fenced   | same    | fenced  | mapping
  commit v4     | fenced  | fenced   | state   | fenced  | mapping
  abort v4      | fenced  | fenced   | same    | fenced  | mapping
  commit v5     | fenced  | state    | state   | fenced  | mapping
  abort v5      | fenced  | same     | decides | fenced  | mapping
"""
"""`decides`: changes the state and succeeds; `same`: succeeds and changes nothing; the others are codes."""

STATES = {state.title: state for state in State}


def cells() -> list[tuple[State, str, str, str]]:
    """State, request, producer and answer of each cell."""
    rows = TABLE.strip("\n").splitlines()
    producers = [cell.strip() for cell in rows[0].split("|")][1:]
    cells, states = [], [State.EMPTY]
    for row in rows[1:]:
        request, *answers = (cell.strip() for cell in row.split("|"))
        if not answers:
            states = [STATES[title] for title in request.split(", ")]
            continue
        outcomes = list(zip(producers, answers, strict=True))
        cells += [(state, request, producer, answer) for state in states for producer, answer in outcomes]
    return cells


def in_state(state: State) -> Harness:
    harness = Harness()
    open_states = (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    partitions = ONE if state in open_states else frozenset()
    harness.put(state=state, partitions=partitions, last_epoch=2, client_version=2)
    return harness


def ask(harness: Harness, request: str, producer: Producer, new_id: int | None, out: Decision) -> object:
    """Let the shard decide on a request; what it decides is in `out`."""
    shard = harness.shard
    if request == "init":
        return shard.init_producer(ID, TIMEOUT_MS, producer, new_id, harness.now, out)
    if request == "add":
        return shard.add_partitions(ID, producer, TWO, 2, harness.now, out)
    if request == "verify":
        return shard.verify_partitions(ID, producer)
    result, version = request.split()
    return shard.end(
        ID, producer, commit=result == "commit", client_version=2 if version == "v5" else 0,
        new_producer_id=new_id, now_ms=harness.now, out=out,
    )  # fmt: skip


def outcome(harness: Harness, request: str, producer: Producer) -> tuple[int, bool]:
    """Return the error code of a request, and whether it changes the state."""
    out = Decision()
    try:
        answer = ask(harness, request, producer, None, out)
    except RequestError as error:
        assert not out.records, "what is refused writes nothing"
        return error.code, False
    code = answer.error.code if isinstance(answer, Refused) else 0
    return code, bool(out.records)


def test_the_table_has_every_state_request_and_epoch():
    every = {(state, request) for state, request, _, _ in cells()}
    live = set(State) - {State.DEAD, State.PREPARE_EPOCH_FENCE}
    assert {state for state, _ in every} == live
    assert len(every) == len(live) * 7
    assert len(cells()) == len(every) * len(PRODUCERS)


@pytest.mark.parametrize(
    ("state", "request_name", "producer", "answer"),
    cells(),
    ids=[f"{state.title}-{request}-{producer}".replace(" ", "-") for state, request, producer, _ in cells()],
)
def test_each_request_is_answered_as_the_table_says(state, request_name, producer, answer):
    harness = in_state(state)
    code, decides = outcome(harness, request_name, PRODUCERS[producer])
    assert code == ANSWERS.get(answer, 0)
    assert decides is (answer in ("decides", "aborts"))


@pytest.mark.parametrize("state", [STATES[title] for title in ("Empty", "CompleteCommit", "CompleteAbort")])
def test_new_instance_gets_the_next_epoch_where_nothing_is_open(state):
    assert in_state(state).init() == (7, 4)


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
@pytest.mark.parametrize("request_name", ["commit v5", "abort v5", "add"])
def test_a_pending_rotation_keeps_no_producer_out(state, request_name):
    """The producer comes with the new id, which counts once the end is complete."""
    harness = in_state(state)
    harness.put(state=state, partitions=ONE, epoch=32_767, next_producer_id=9, client_version=2)
    code, decides = outcome(harness, request_name, Producer(9, 0))
    assert (code, decides) == (ErrorCode.CONCURRENT_TRANSACTIONS, False)


def test_no_new_producer_id_is_asked_for_while_an_end_is_pending():
    harness = in_state(State.PREPARE_ABORT)
    harness.put(state=State.PREPARE_ABORT, epoch=32_766, client_version=2)
    for request in ("init", "commit v5", "abort v5"):
        try:
            code, _ = outcome(harness, request, Producer(7, 32_766))
        except ProducerIdNeededError:
            pytest.fail(f"{request} takes a producer id that nobody uses")
        assert code == ErrorCode.CONCURRENT_TRANSACTIONS
