"""Events wait in their order, each once; a question has one answer, and who asked a controller that ends is told so."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from barnabas.cluster.controller.events import Call, Event, EventQueue
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode


async def nothing() -> None:
    """Nothing is done."""


def event(name: str, key: str = "", *, call: Call | None = None, needs_controller: bool = True) -> Event:
    return Event(name, nothing, key, call, needs_controller)


async def taken(queue: EventQueue) -> list[str]:
    return [(await queue.next()).name for _ in range(len(queue))]


async def test_events_come_in_their_order_and_what_waits_is_not_added_again() -> None:
    queue = EventQueue()
    for one in (event("a", "k"), event("b"), event("c", "k"), event("b"), event("d", "l")):
        queue.put(one)
    assert len(queue) == 4
    assert (await queue.next()).name == "a"
    queue.put(event("e", "k"))  # it is about what may have changed since
    queue.put(event("f", "l"))
    assert await taken(queue) == ["b", "b", "d", "e"]
    queue.put(event("g", "l"))
    assert await taken(queue) == ["g"]


async def test_whoever_takes_events_waits_for_the_next_one() -> None:
    queue, found = EventQueue(), []

    async def take() -> None:
        while True:
            found.append((await queue.next()).name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        for names in (["a"], ["b", "c"]):
            await trio.testing.wait_all_tasks_blocked()
            for name in names:
                queue.put(event(name))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert found == ["a", "b", "c"]


async def test_what_is_about_an_ended_controller_is_dropped_and_who_asked_is_told() -> None:
    queue = EventQueue()
    asked, other = Call(), Call()
    other.settle("answered")
    queue.put(event("watch", "k"))
    queue.put(event("question", call=asked))
    queue.put(event("answered", call=other))
    queue.put(event("election", "election", needs_controller=False))
    queue.put(event("last"))
    queue.drop()
    assert len(queue) == 1
    queue.put(event("again", "election"))
    queue.put(event("watch again", "k"))
    assert await taken(queue) == ["election", "watch again"]
    assert isinstance(asked.error, RequestError)
    assert asked.error.code == ErrorCode.NOT_CONTROLLER
    assert (other.answer, other.error) == ("answered", None)


@pytest.mark.parametrize("first", ["answer", "error"])
def test_a_question_is_answered_once(first: str) -> None:
    call, error = Call(), RequestError(ErrorCode.NOT_CONTROLLER, "why")
    assert not call.done.is_set()
    if first == "answer":
        call.settle(7)
        call.settle(error=error)
        assert (call.answer, call.error) == (7, None)
    else:
        call.settle(error=error)
        call.settle(7)
        assert (call.answer, call.error) == (None, error)
    assert call.done.is_set()
