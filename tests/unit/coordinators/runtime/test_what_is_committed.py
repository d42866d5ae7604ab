"""Answers and results leave a coordinator once they are committed, timers once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.broker.adoption import _producer_ids
from barnabas.coordinators.runtime.entries import batch_of, read_entries
from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision, ManyReplies
from barnabas.coordinators.transactions.records import transaction_record, transaction_tombstone
from barnabas.coordinators.transactions.transaction import Producer, Transaction
from barnabas.errors import RequestError
from barnabas.records.validate import Origin
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, Broker, append, batch, marker

from .test_loading import SMALL, Counter, journal_of, running, write


class Asked:
    """A request that waits on a runtime, and the event that answers it: `ways` of a decision to do so."""

    def __init__(self, runtime: Runtime[Counter]) -> None:
        self.runtime = runtime
        self.numbers: list[int] = []
        self.outcomes: list[Any] = []

    async def wait(self) -> None:
        try:
            outcome = await resolved(
                self.runtime.write_for_reply(
                    "id", lambda _, out, number: self.numbers.append(number), raising
                )
            )
        except RequestError as error:
            outcome = error.code
        self.outcomes.append(outcome)

    def one(self, machine: Counter, out: Decision) -> str:
        write(machine, out)
        out.replies += [(number, "answer") for number in self.numbers]
        return "result"

    def many(self, machine: Counter, out: Decision) -> str:
        write(machine, out)
        out.many_replies.append(ManyReplies({"answer": self.numbers[0]}, lambda key: key))
        return "result"


@pytest.mark.parametrize("way", ["one", "many"])
@pytest.mark.parametrize("is_unloaded", [False, True])
async def test_answer_waits_for_the_commit_of_its_decision(autojump_clock, way, is_unloaded):
    journal = journal_of(SMALL)
    async with running(journal) as runtime, trio.open_nursery() as nursery:
        await runtime.read("id", lambda machine: machine)
        asked = Asked(runtime)
        nursery.start_soon(asked.wait)
        await trio.testing.wait_all_tasks_blocked()
        journal.commits = trio.Event()
        results: list[Any] = []

        async def perform() -> None:
            try:
                results.append(await runtime.write("id", getattr(asked, way)))
            except RequestError as error:
                results.append(error.code)

        nursery.start_soon(perform)
        await trio.sleep(0.5)
        assert journal.records[-1] == (b"written", b"")
        assert (asked.outcomes, results) == ([], [])
        if is_unloaded:
            journal.epoch = None
            runtime.leadership_changed()
            await trio.sleep(1)
            assert asked.outcomes == [ErrorCode.NOT_COORDINATOR]
            nursery.cancel_scope.cancel()
        else:
            journal.commits.set()
            await trio.sleep(1)
            assert (asked.outcomes, results) == (["answer"], ["result"])


async def test_timer_ended_by_hand_expires_once(autojump_clock):
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)  # with the timer that it sets when it is loaded
        expired: list[Hashable] = []
        machine.expire = lambda key, now_ms, out: expired.append(key)  # type: ignore[method-assign, assignment]

        def set_both(_: Counter, out: Decision) -> None:
            now_ms = int(trio.current_time() * 1000)
            out.timers.update({"a": now_ms + 5_000, "b": now_ms + 9_000})

        await runtime.write("id", set_both)
        assert not runtime.end_timer("c")
        assert runtime.end_timer("b")
        assert expired == ["b"]
        assert not runtime.end_timer("b")
        await trio.sleep(60)
        assert expired == ["b", "a"]


async def test_timers_of_a_kind_that_are_put_off_end_later(autojump_clock):
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)
        start, expired = trio.current_time(), []
        machine.expire = lambda key, now_ms, out: expired.append((key[0], round(trio.current_time() - start)))  # type: ignore[method-assign]

        def set_both(_: Counter, out: Decision) -> None:
            now_ms = int(trio.current_time() * 1000)
            out.timers.update({("session", "a"): now_ms + 5_000, ("join", "a"): now_ms + 5_000})

        await runtime.write("id", set_both)
        runtime.postpone({"session"}, 4_000)
        await trio.sleep(60)
        assert expired == [("join", 5), ("session", 9)]


# --- what is in the log -------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    broker = Broker(tmp_path)
    yield broker.log("__transaction_state")
    broker.crash()


def test_batches_are_read_again_as_they_were_decided(log):
    records = [(b"a", b"1"), (b"b", None)]
    append(log, batch_of(records, NOW_MS, None), origin=Origin.COORDINATOR)
    append(log, batch_of(records[:1], NOW_MS, (7, 3)), origin=Origin.COORDINATOR)
    append(log, marker(commit=True, producer_id=7, producer_epoch=3), origin=Origin.COORDINATOR)
    append(log, batch_of(records[1:], NOW_MS, (8, 0)), origin=Origin.COORDINATOR)
    append(log, marker(commit=False, producer_id=8), origin=Origin.COORDINATOR)
    entries = [(list(entry.records), entry.producer_id, entry.committed) for entry in read_entries(log)]
    assert entries == [
        (records, -1, None), (records[:1], 7, None), ([], 7, True), (records[1:], 8, None), ([], 8, False),
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["producer_id", "next_producer_id"])
def test_adopted_log_yields_its_transactional_producer_ids(log, field):
    """An id that is handed out a second time would belong to two producers; the one to come is as good as taken."""
    append(log, batch(b"1", key=b"k", producer_id=5, producer_epoch=0, base_sequence=0))
    log.truncate_fully_and_start_at(0)
    transaction = Transaction("t", **{"producer_id": 3, "next_producer_id": 4} | {field: 40})
    append(log, batch_of([transaction_record(transaction, 1), transaction_tombstone("gone")], NOW_MS, None),
           origin=Origin.COORDINATOR)  # fmt: skip
    assert max(_producer_ids(log)) == 40
    assert isinstance(transaction.producer, Producer)
