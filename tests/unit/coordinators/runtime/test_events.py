"""An event is accepted or refused as a whole: one that raises leaves no trace, whatever it had decided before."""

from __future__ import annotations

import pytest
import trio

from barnabas.coordinators.runtime.waiting import raising
from barnabas.coordinators.statemachine.decision import Decision, Refused
from barnabas.errors import RequestError
from barnabas.serving.deferred import resolved
from barnabas.wire.generated.errors import ErrorCode

from .test_loading import SMALL, Counter, journal_of, running, write

REFUSAL = RequestError(ErrorCode.INVALID_REQUEST, "refused")


class BrokenError(Exception):
    """A defect of a machine."""


def decide(out: Decision, waiter: int | None = None) -> None:
    out.records.append((b"of the event", b""))
    out.timers["of the event"] = 0
    out.effects.append("of the event")
    if waiter is not None:
        out.replies.append((waiter, "of the event"))


@pytest.mark.parametrize("failure", [REFUSAL, BrokenError()])
async def test_an_event_that_raises_leaves_no_trace(
    failure: Exception, autojump_clock: trio.testing.MockClock
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        await trio.sleep(1)
        expired = machine.expired

        def event(_: Counter, out: Decision) -> None:
            decide(out)
            raise failure

        def waiting_event(_: Counter, out: Decision, number: int) -> None:
            decide(out, number)
            raise failure

        with pytest.raises(type(failure)):
            await runtime.write("id", event)
        with pytest.raises(type(failure)):
            await resolved(runtime.write_for_reply("id", waiting_event, raising))
        await trio.sleep(1)
        assert len(journal.records) == SMALL
        assert machine.expired == expired
        assert await runtime.read("id", lambda machine: machine) is machine, "the shard stays"


async def test_a_defect_fails_its_own_request_alone(autojump_clock: trio.testing.MockClock) -> None:
    async with running(journal_of(SMALL)) as runtime:
        waiters: list[int] = []
        answers: list[object] = []

        async def wait() -> None:
            answers.append(
                await resolved(
                    runtime.write_for_reply(
                        "id", lambda machine, out, number: waiters.append(number), raising
                    )
                )
            )

        def broken(_: Counter, out: Decision) -> None:
            raise BrokenError

        def answer(_: Counter, out: Decision) -> None:
            out.replies += [(number, "answered") for number in waiters]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BrokenError):
                await runtime.write("id", broken)
            assert not answers
            await runtime.write("id", answer)
        assert answers == ["answered"]


async def test_a_refusal_that_says_so_keeps_its_decision(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:

        def event(_: Counter, out: Decision) -> Refused:
            out.records.append((b"kept", b""))
            return Refused(REFUSAL)

        with pytest.raises(RequestError) as caught:
            await runtime.write("id", event)
        assert caught.value is REFUSAL
        assert journal.records[-1] == (b"kept", b"")
        assert (await runtime.read("id", lambda machine: machine)).keys[-1] == b"kept"


async def test_what_is_ahead_of_its_log_is_read_again_after_a_defect(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Only the log has how much of such an event has happened."""
    async with running(journal_of(SMALL)) as runtime:
        machine = await runtime.read("id", lambda machine: machine)
        codes: list[int] = []

        async def wait() -> None:
            with pytest.raises(RequestError) as caught:
                await resolved(runtime.write_for_reply("id", lambda machine, out, number: None, raising))
            codes.append(caught.value.code)

        def event(machine: Counter, out: Decision) -> None:
            out.is_ahead = True
            machine.keys.append(b"halfway")
            raise BrokenError

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(BrokenError):
                await runtime.write("id", event)
        assert codes == [ErrorCode.NOT_COORDINATOR]
        again = await runtime.read("id", lambda machine: machine)
        assert again is not machine
        assert len(again.keys) == SMALL


async def test_a_defect_in_a_timer_does_not_end_the_coordinator(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)

        def expire(timer: object, now_ms: int, out: Decision) -> None:
            decide(out)
            raise BrokenError

        machine.expire = expire  # type: ignore[method-assign,assignment]
        await trio.sleep(1)
        assert "BrokenError" in caplog.text
        assert len(journal.records) == SMALL
        await runtime.write("id", write)
        assert len(journal.records) == SMALL + 1


async def test_a_defect_in_what_concerns_everything_is_logged(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Counter, out: Decision) -> None:
        decide(out)
        raise BrokenError

    journal = journal_of(SMALL)
    async with running(journal) as runtime:
        await runtime.write_all(lambda _: (broken, write))
        assert "BrokenError" in caplog.text
        assert len(journal.records) == SMALL


async def test_a_record_that_cannot_be_replayed_is_read_again(autojump_clock: trio.testing.MockClock) -> None:
    journal = journal_of(0)
    async with running(journal) as runtime:
        machine = await runtime.read("id", lambda machine: machine)

        def replay(key: bytes, value: bytes | None, *, loading: bool) -> None:
            raise BrokenError

        machine.replay = replay  # type: ignore[method-assign]
        with pytest.raises(BrokenError):
            await runtime.write("id", write)
        assert (await runtime.read("id", lambda machine: machine)).keys == [b"written"]
