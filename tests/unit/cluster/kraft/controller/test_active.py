"""The active controller while it leads: answers wait for their records, and leadership that is lost is NOT_CONTROLLER."""

import pytest
import trio

from barnabas.cluster.kraft.controller.active import ActiveController, Machine
from barnabas.cluster.kraft.controller.outcome import Caller, Outcome
from barnabas.cluster.kraft.controller.versions import version_of
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import real_environment
from barnabas.errors import RequestError
from barnabas.serving.loop_budget import LoopBudget
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata_records.abort_transaction import AbortTransactionRecord
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.end_transaction import EndTransactionRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.metadata_records.remove_topic import RemoveTopicRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from tests.support.only_voter import OnlyVoter

CREATE, COUNT, BREAK, FAIL, REFUSE, RAISE = range(6)


def create(state, request, _caller):
    return Outcome(state.next_offset, (TopicRecord(request, request.encode().ljust(16)),))


def count(state, _request, _caller):
    return Outcome(len(state.image.topics))


def break_log(_state, _request, _caller):
    return Outcome("", (RemoveTopicRecord(bytes(16)),))


def fail(_state, _request, _caller):
    raise ZeroDivisionError


def refuse(_state, _request, _caller):
    raise RequestError(ErrorCode.POLICY_VIOLATION)


def raise_level(_state, _request, _caller):
    return Outcome("", (NoOpRecord(),), 1)


HANDLERS = {CREATE: create, COUNT: count, BREAK: break_log, FAIL: fail, REFUSE: refuse, RAISE: raise_level}


def begin(_state, in_transaction):
    aborted = (AbortTransactionRecord(),) if in_transaction else ()
    return (*aborted, FeatureLevelRecord("metadata.version", 30))


def active(voter, ticks=(), bytes_max=1 << 20, activate=begin, budget=None):
    machine = Machine(HANDLERS, dict(enumerate(ticks)), activate, lambda *_: (), version_of)
    controller = ActiveController(
        BrokerConfig(), real_environment(), machine, lambda: voter.image, lambda: voter.in_transaction,
        cluster_id="cluster", batch_bytes_max=bytes_max, tick_seconds=0.001, budget=budget,
    )  # fmt: skip
    controller.attach(voter)
    return controller


def leading(**how):
    voter = OnlyVoter(**how)
    controller = active(voter)
    voter.lead(controller)
    return controller, voter


async def ask(controller, key, request="", **how):
    return await controller.handle(key, request, Caller(0), **how)


async def code_of(controller, key, request="", **how):
    with pytest.raises(RequestError) as caught:
        await ask(controller, key, request, **how)
    return caught.value.code


def test_new_leader_begins_with_the_records_of_its_machine():
    controller, voter = leading()
    assert voter.batches == [[FeatureLevelRecord("metadata.version", 30)]]
    assert controller.is_active


def test_open_transaction_is_aborted_by_the_new_leader():
    voter = OnlyVoter(commits_at_once=False)
    voter.in_transaction = True
    voter.lead(active(voter))
    assert voter.batches[0][0] == AbortTransactionRecord()


def test_leader_that_cannot_begin_resigns():
    def fail_to_begin(_state, _in_transaction):
        raise ValueError("no metadata.version")

    voter = OnlyVoter()
    controller = active(voter, activate=fail_to_begin)
    voter.lead(controller)
    assert not controller.is_active
    assert (voter.leader_id, voter.batches) == (-1, [])


@pytest.mark.parametrize(("has_transaction", "batches"), [(False, 0), (True, 2)])
def test_bootstrap_beyond_a_batch_needs_a_transaction(has_transaction, batches):
    level = FeatureLevelRecord("metadata.version", 30)
    bootstrap = (level, *(NoOpRecord(),) * 3)
    if has_transaction:
        bootstrap = (BeginTransactionRecord("bootstrap"), *bootstrap, EndTransactionRecord())
    voter = OnlyVoter()
    controller = active(voter, activate=lambda *_: bootstrap, bytes_max=100)
    voter.lead(controller)
    assert (len(voter.batches), controller.is_active) == (batches, has_transaction)


async def test_answer_has_the_offset_of_its_first_record():
    controller, _ = leading()
    assert await ask(controller, CREATE, "a") == 1
    assert await ask(controller, CREATE, "b") == 2


async def test_request_sees_records_that_are_not_committed_yet():
    controller, voter = leading(commits_at_once=False)
    answers = []

    async def asked(key, request):
        answers.append(await ask(controller, key, request))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(asked, CREATE, "a")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(asked, COUNT, "")
        await trio.testing.wait_all_tasks_blocked()
        assert answers == []
        voter.commit()
    assert sorted(answers) == [1, 1]


async def test_lost_leadership_answers_waiting_requests_not_controller():
    controller, voter = leading(commits_at_once=False)
    async with trio.open_nursery() as nursery:

        async def waiting():
            assert await code_of(controller, CREATE, "a") == ErrorCode.NOT_CONTROLLER

        nursery.start_soon(waiting)
        await trio.testing.wait_all_tasks_blocked()
        voter.lose()
    assert not controller.is_active
    assert await code_of(controller, COUNT) == ErrorCode.NOT_CONTROLLER


async def test_next_term_begins_with_the_committed_image():
    controller, voter = leading()
    voter.commits_at_once = False
    with trio.move_on_after(0.01):
        await ask(controller, CREATE, "a")
    voter.lose()
    voter.commits_at_once = True
    voter.lead(controller)
    assert await ask(controller, COUNT) == 0


async def test_records_not_committed_in_time_are_request_timed_out():
    controller, _ = leading(commits_at_once=False)
    assert await code_of(controller, CREATE, "a", timeout_ms=5) == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_request_without_any_time_is_not_done(timeout_ms):
    controller, _ = leading()
    assert await code_of(controller, CREATE, "a", timeout_ms=timeout_ms) == ErrorCode.REQUEST_TIMED_OUT
    assert await ask(controller, COUNT) == 0


async def test_kraft_version_goes_up_before_the_records():
    controller, voter = leading()
    before = len(voter.batches)
    await ask(controller, RAISE)
    assert voter.batches[before] == [("kraft.version", 1)]
    assert len(voter.batches) == before + 2
    assert controller.state().kraft_version == 1


async def test_record_that_does_not_replay_makes_the_leader_resign():
    controller, voter = leading()
    with pytest.raises(MetadataRecordError):
        await ask(controller, BREAK)
    assert not controller.is_active
    assert len(voter.batches) == 1


async def test_handler_that_fails_leaves_the_leader_active():
    controller, _ = leading()
    with pytest.raises(ZeroDivisionError):
        await ask(controller, FAIL)
    assert await code_of(controller, REFUSE) == ErrorCode.POLICY_VIOLATION
    assert await ask(controller, COUNT) == 0


@pytest.mark.parametrize(
    ("count", "bytes_max", "sizes"), [(5, 50, [2, 2, 1]), (10_100, 1 << 20, [10_000, 100])]
)
async def test_records_beyond_a_batch_are_several_batches(count, bytes_max, sizes):
    voter = OnlyVoter()
    controller = active(voter, bytes_max=bytes_max)
    voter.lead(controller)
    HANDLERS[9] = lambda *_: Outcome(None, (NoOpRecord(),) * count, is_atomic=False)
    await ask(controller, 9)
    assert [len(batch) for batch in voter.batches[1:]] == sizes
    assert voter.image.position.offset == count


@pytest.mark.parametrize(
    ("count", "bytes_max", "batches"), [(10_000, 1 << 20, 2), (10_001, 1 << 20, 1), (2, 50, 2), (3, 50, 1)]
)
async def test_atomic_records_are_one_batch_or_refused(count, bytes_max, batches):
    voter = OnlyVoter()
    controller = active(voter, bytes_max=bytes_max)
    voter.lead(controller)
    HANDLERS[9] = lambda *_: Outcome("done", (NoOpRecord(),) * count)
    if batches == 1:
        assert await code_of(controller, 9) == ErrorCode.POLICY_VIOLATION
    else:
        assert await ask(controller, 9) == "done"
    assert len(voter.batches) == batches
    assert await ask(controller, COUNT) == 0


class Clock:
    """Time that passes with each look at it, so that each turn is used up at once."""

    now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


async def test_work_in_steps_keeps_other_requests_of_it_waiting():
    voter, order = OnlyVoter(), []
    controller = active(voter, budget=LoopBudget(clock=Clock()))
    voter.lead(controller)

    def in_steps(state, _request, _caller):
        order.append("begun")
        for _ in range(20):
            yield
        order.append(len(state.image.topics))
        return Outcome("", (TopicRecord("a", b"a" * 16),) * 1 + (NoOpRecord(),) * 10_000, is_atomic=False)

    HANDLERS[9] = in_steps
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, controller, 9)
        while not order:
            await trio.lowlevel.checkpoint()
        order.append("others run")
        order.append(await ask(controller, COUNT))
    assert order == ["begun", "others run", 0, 1]
    assert [len(batch) for batch in voter.batches] == [1, 10_000, 1]


async def test_leader_that_changes_between_steps_appends_nothing_more():
    voter, begun = OnlyVoter(), trio.Event()
    controller = active(voter, budget=LoopBudget(clock=Clock()))
    voter.lead(controller)

    def in_steps(_state, _request, _caller):
        begun.set()
        for _ in range(20):
            yield
        return Outcome("", (NoOpRecord(),))

    HANDLERS[9] = in_steps
    async with trio.open_nursery() as nursery:

        async def refused():
            assert await code_of(controller, 9) == ErrorCode.NOT_CONTROLLER

        nursery.start_soon(refused)
        await begun.wait()
        voter.lose()
        voter.lead(controller)
    assert all(NoOpRecord() not in batch for batch in voter.batches)
    assert await ask(controller, COUNT) == 0


async def test_work_that_time_asks_for_is_appended_by_the_leader():
    due = [(NoOpRecord(),)]

    def failing(_state):
        raise ZeroDivisionError

    voter = OnlyVoter()
    controller = active(voter, [failing, lambda _: due.pop() if due else ()])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(controller.run)
        await trio.sleep(0.02)
        assert voter.batches == []
        voter.lead(controller)
        with trio.fail_after(5):
            while len(voter.batches) < 2:
                await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert voter.batches[1] == [NoOpRecord()]
