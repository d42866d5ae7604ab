"""Transactions of a producer: what each state allows, what each error means, and what is asked in each version."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from barnabas.client import (
    ClientSettings,
    ConnectionLostError,
    ProducerSettings,
    ResponseError,
    TimedOutError,
)
from barnabas.client.errors import (
    CommitFailedError,
    FencedInstanceError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from barnabas.client.producing.outbox import Batch, Outbox
from barnabas.client.producing.transactions import State, Transactions
from barnabas.client.values import GroupMetadata, OffsetAndMetadata, TopicPartition
from barnabas.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from barnabas.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.generated.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from tests.support.members import StandinCoordinator

FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
FATAL = {
    ErrorCode.PRODUCER_FENCED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_TXN_STATE, ErrorCode.UNSUPPORTED_VERSION,
}  # fmt: skip
NOT_A_MEMBER = {
    ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
}  # fmt: skip
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {T0: OffsetAndMetadata(5, 3, "note"), T1: OffsetAndMetadata(6)}


def added(*codes: int) -> AddPartitionsToTxnResponse:
    created = AddPartitionsToTxnResponse
    parts = [created.AddPartitionsToTxnPartitionResult(index, code) for index, code in enumerate(codes)]
    topics = [created.AddPartitionsToTxnTopicResult("t", parts)]
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)


def committed(*codes: int) -> TxnOffsetCommitResponse:
    created = TxnOffsetCommitResponse
    parts = [created.TxnOffsetCommitResponsePartition(index, code) for index, code in enumerate(codes)]
    return created(topics=[created.TxnOffsetCommitResponseTopic("t", partitions=parts)])


class Case:
    """A producer in a state, and its coordinator, which answers by kind of request."""

    def __init__(self, state: State = State.OPEN, *, v2: bool = False, **versions: int) -> None:
        self.answers: dict[type, Any] = {
            InitProducerIdRequest: InitProducerIdResponse(producer_id=8, producer_epoch=9),
            EndTxnRequest: EndTxnResponse(),
            AddOffsetsToTxnRequest: AddOffsetsToTxnResponse(),
            AddPartitionsToTxnRequest: added(0, 0),
            TxnOffsetCommitRequest: committed(0, 0),
        }
        self.client: Any = StandinCoordinator(self.answer, **versions)
        self.client.settings = ClientSettings(retry_backoff_ms=100, retry_backoff_max_ms=500)
        self.client.forget = lambda: self.client.forgotten.append("everything")
        self.woken = 0
        settings = ProducerSettings(transactional_id="x", transaction_timeout_ms=4_000, max_block_ms=3_000)
        self.it = Transactions(self.client, settings, self._wake)
        self.it.state, self.it.is_v2, self.it.producer = state, v2, (7, 2)

    def answer(self, request: Any) -> Any:
        answer = self.answers[type(request)]
        return (
            answer.pop(0)
            if isinstance(answer, list) and len(answer) > 1
            else answer[0]
            if isinstance(answer, list)
            else answer
        )

    def _wake(self) -> None:
        self.woken += 1

    @property
    def kinds(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.client.asked]


def outcome(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "ok"


# --- states -----------------------------------------------------------------------------------------------------------

ALLOWED = {
    "begin": {State.READY: "ok"},
    "check_open": {State.OPEN: "ok", State.FAILED: "TransactionFailedError"},
    "commit": {State.OPEN: "ok", State.COMMITTING: "ok", State.FAILED: "TransactionFailedError"},
    "abort": {State.OPEN: "ok", State.FAILED: "ok", State.ABORTING: "ok"},
    "check_sent": {**dict.fromkeys(State, "ok"), State.FAILED: "TransactionFailedError"},
}
AFTER = {"begin": State.OPEN, "commit": State.COMMITTING, "abort": State.ABORTING}


@pytest.mark.parametrize("what", list(ALLOWED))
def test_each_state_allows_what_it_does_and_nothing_else(what: str) -> None:
    for state in State:
        case = Case(state)
        calls = {
            "begin": case.it.begin,
            "check_open": case.it.check_open,
            "commit": lambda case=case: case.it.begin_end(commit=True),
            "abort": lambda case=case: case.it.begin_end(commit=False),
            "check_sent": case.it.check_sent,
        }
        expected = ALLOWED[what].get(state, "RuntimeError")
        assert outcome(calls[what]) == expected, state
        assert case.it.state is (AFTER.get(what, state) if expected == "ok" else state)
        assert case.it.is_aborting is (case.it.state in (State.FAILED, State.ABORTING))
        case.it.failure = ProducerFencedError("gone")
        assert outcome(calls[what]) == "ProducerFencedError", "nothing more can be done"


@pytest.mark.parametrize(
    ("state", "numbered", "v2", "is_known", "sends", "adds"),
    [
        (State.NEW, True, True, True, False, False),
        (State.READY, True, True, True, False, False),
        (State.OPEN, False, True, False, True, False),
        (State.OPEN, False, False, True, True, False),
        (State.OPEN, False, False, False, False, True),
        (State.OPEN, True, False, False, True, False),
        (State.COMMITTING, False, False, False, False, True),
        (State.FAILED, False, True, True, False, False),
        (State.FAILED, True, False, False, True, False),
        (State.ABORTING, False, True, True, False, False),
        (State.ABORTING, True, True, True, True, False),
    ],
)
def test_records_are_sent_to_partitions_of_the_transaction(
    state: State, numbered: bool, v2: bool, is_known: bool, sends: bool, adds: bool
) -> None:
    case = Case(state, v2=v2)
    outbox = Outbox("t", 0)
    batch = outbox.open_batch(1, 1, 0.0)
    batch.sequence = 0 if numbered else -1
    if is_known:
        case.it.added_outboxes.add(outbox)
    assert case.it.may_send(outbox) is sends
    assert (case.it.outboxes_to_add == {outbox}, case.it._needed.is_set()) == (adds, adds)
    case.it.failure = ProducerFencedError("gone")
    assert not case.it.may_send(outbox)


def test_each_failure_ends_the_transaction_or_the_producer() -> None:
    for state in (State.READY, State.OPEN, State.COMMITTING, State.ABORTING):
        for code in ErrorCode:
            case = Case(state)
            case.it.has_failed(ResponseError(code, "appending"))
            if code in FATAL:
                kind = ProducerFencedError if code in FENCED else ResponseError
                assert type(case.it.failure) is kind, code
                assert case.it.state is state
            else:
                assert case.it.failure is None, code
                assert case.it.state is (
                    State.FAILED if state in (State.OPEN, State.COMMITTING) else state
                ), code
            assert (case.it.needs_epoch, case.woken) == (True, 1)
    for error in (UnsupportedVersionError("old"), ProducerFencedError("gone")):
        case = Case()
        case.it.has_failed(error)
        case.it.has_failed(ResponseError(ErrorCode.INVALID_TXN_STATE, "later"))
        assert case.it.failure is error, "the first one counts"


# --- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("level", [None, 1, 2, 3])
async def test_a_producer_is_initialised_as_the_version_has_it(version: int, level: int | None) -> None:
    case = Case(State.NEW, InitProducerId=version)
    if level is not None:
        case.client.features["transaction.version"] = level
    await case.it.init()
    (sent,) = case.client.asked
    assert (sent.transactional_id, sent.transaction_timeout_ms) == ("x", 4_000)
    assert (sent.producer_id, sent.producer_epoch) == ((7, 2) if version >= 3 else (-1, -1))
    assert (case.it.state, case.it.producer, case.it.is_v2) == (State.READY, (8, 9), (level or 0) >= 2)


async def test_the_coordinator_is_asked_again_while_that_may_help(
    autojump_clock: trio.testing.MockClock,
) -> None:
    lost = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    for code in ErrorCode:
        if not (code.retriable or code is ErrorCode.CONCURRENT_TRANSACTIONS):
            continue
        case = Case(State.COMMITTING)
        case.it.has_begun = True
        case.answers[EndTxnRequest] = [EndTxnResponse(error_code=code)] * 3 + [EndTxnResponse()]
        begun = trio.current_time()
        await case.it.end()
        is_short = code is ErrorCode.CONCURRENT_TRANSACTIONS
        assert trio.current_time() - begun == pytest.approx(0.06 if is_short else 0.7), code
        assert case.client.forgotten == ["x"] * (3 * (code in lost)), code
    case.it.state, case.it.has_begun = State.COMMITTING, True
    case.answers[EndTxnRequest] = [ConnectionLostError("gone"), EndTxnResponse()]
    await case.it.end()
    assert case.client.forgotten[-1] == "everything"


async def test_missing_coordinator_is_awaited_for_max_block(autojump_clock: trio.testing.MockClock) -> None:
    case = Case(State.ABORTING)
    case.it.has_begun = True
    case.answers[EndTxnRequest] = EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    begun = trio.current_time()
    with pytest.raises(TimedOutError, match="aborting: not done in 3 s"):
        await case.it.end()
    assert trio.current_time() - begun == pytest.approx(3)
    assert case.it.state is State.ABORTING, "it can be ended again"


# --- partitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_once_and_then_sent_to(version: int) -> None:
    case = Case(AddPartitionsToTxn=version)
    boxes = [Outbox("t", 0), Outbox("t", 1)]
    for box in boxes:
        box.queue.append(Batch(box, (1,), 0.0))
        assert not case.it.may_send(box)
    with trio.move_on_after(0.01):
        await case.it.run()
    (sent,) = case.client.asked
    assert (sent.v3_and_below_transactional_id, sent.v3_and_below_producer_id) == ("x", 7)
    assert sent.v3_and_below_producer_epoch == 2
    assert [(topic.name, sorted(topic.partitions)) for topic in sent.v3_and_below_topics] == [("t", [0, 1])]
    assert [case.it.may_send(box) for box in boxes] == [True, True]
    assert (case.it.outboxes_to_add, case.it.has_begun, case.woken) == (set(), True, 1)


async def test_partitions_that_are_refused_fail_the_transaction() -> None:
    case = Case()
    box = Outbox("t", 0)
    box.queue.append(Batch(box, (1,), 0.0))
    case.it.may_send(box)
    case.answers[AddPartitionsToTxnRequest] = added(
        ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    with trio.move_on_after(0.01):
        await case.it.run()
    assert case.it.state is State.FAILED
    assert getattr(case.it.reason, "code", None) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, (
        "the one that says why"
    )
    assert case.it.added_outboxes == set()


# --- offsets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("v2", [False, True])
async def test_offsets_are_committed_as_the_version_has_it(version: int, v2: bool) -> None:
    case = Case(v2=v2, TxnOffsetCommit=version)
    group = GroupMetadata("g", 4, "m", "i")
    await case.it.send_offsets(OFFSETS, group)
    await case.it.send_offsets(OFFSETS, group)
    assert case.kinds == ["AddOffsetsToTxn"] * (not v2) + ["TxnOffsetCommit"] * 2, "the group is added once"
    if not v2:
        first = case.client.asked[0]
        assert (first.transactional_id, first.producer_id, first.producer_epoch, first.group_id) == (
            "x",
            7,
            2,
            "g",
        )
    sent = case.client.asked[-1]
    assert (sent.transactional_id, sent.group_id, sent.producer_id, sent.producer_epoch) == ("x", "g", 7, 2)
    member = (sent.generation_id_or_member_epoch, sent.member_id, sent.group_instance_id)
    assert member == ((4, "m", "i") if version >= 3 else (-1, "", None))
    (topic,) = sent.topics
    assert (topic.name, [
        (part.partition_index, part.committed_offset, part.committed_leader_epoch, part.committed_metadata)
        for part in topic.partitions
    ]) == ("t", [(0, 5, 3 if version >= 2 else -1, "note"), (1, 6, -1, "")])  # fmt: skip
    assert case.it.has_begun


async def test_each_error_of_a_commit_of_offsets_has_its_consequence() -> None:
    for code in ErrorCode:
        if (code.retriable and code not in NOT_A_MEMBER) or code is ErrorCode.CONCURRENT_TRANSACTIONS:
            continue
        case = Case(v2=True)
        case.answers[TxnOffsetCommitRequest] = committed(0, code)
        failure: Any = None
        try:
            await case.it.send_offsets(OFFSETS, GroupMetadata("g"))
        except Exception as error:
            failure = error
        expected: type = ResponseError
        if code in NOT_A_MEMBER:
            expected = CommitFailedError
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            expected = FencedInstanceError
        elif code in FENCED:
            expected = ProducerFencedError
        assert type(failure) is (expected if code else type(None)), code
        is_fatal = code in FENCED or code in FATAL
        assert (case.it.failure is not None) is is_fatal, code
        if not is_fatal:
            assert case.it.state is (State.FAILED if code else State.OPEN), code


async def test_late_offsets_leave_the_transaction_unchanged(autojump_clock: trio.testing.MockClock) -> None:
    case = Case(v2=True)
    case.answers[TxnOffsetCommitRequest] = committed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    with pytest.raises(TimedOutError, match="committing offsets of 'g'"):
        await case.it.send_offsets(OFFSETS, GroupMetadata("g"))
    assert case.it.state is State.OPEN


async def test_coordinators_belong_to_transactional_id_and_group() -> None:
    case = Case()
    asked: list[tuple[str, int]] = []

    async def coordinator(key: str, key_type: int = 0) -> int:
        asked.append((key, key_type))
        return 7

    case.client.coordinator = coordinator
    await case.it.send_offsets(OFFSETS, GroupMetadata("g"))
    await case.it._add_partitions({Outbox("t", 0)})
    case.it.state = State.COMMITTING
    case.it.needs_epoch = True
    await case.it.end()
    assert asked == [("x", 1), ("g", 0), ("x", 1), ("x", 1), ("x", 1)]
