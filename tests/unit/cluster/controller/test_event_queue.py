"""Events wait in their order, each once; a question has one answer, and callers of a controller that ends are told so."""

from __future__ import annotations

from barnabas.cluster.controller.events import Call, Event, EventQueue


async def nothing() -> None:
    """Nothing is done."""


def event(name: str, key: str = "", *, call: Call | None = None, needs_controller: bool = True) -> Event:
    return Event(name, nothing, key, call, needs_controller)


async def taken(queue: EventQueue) -> list[str]:
    return [(await queue.next()).name for _ in range(len(queue))]


async def test_queued_events_keep_their_order_and_are_not_doubled() -> None:
    queue = EventQueue()
    for queued in (event("a", "k"), event("b"), event("c", "k"), event("b"), event("d", "l")):
        queue.put(queued)
    assert len(queue) == 4
    assert (await queue.next()).name == "a"
    queue.put(event("e", "k"))  # it is about what may have changed since
    queue.put(event("f", "l"))
    assert await taken(queue) == ["b", "b", "d", "e"]
    queue.put(event("g", "l"))
    assert await taken(queue) == ["g"]
