"""Items for the same broker, sent together in batches.

The rule: one request at a time to each broker; items that arrive meanwhile go with the next one. So many items need few
requests, and the first item does not wait for others.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError

log = logging.getLogger(__name__)

ITEMS_MAX = 1_000
"""Largest number of items in one request."""

I = TypeVar("I")  # noqa: E741 (an item)
A = TypeVar("A")
Send = Callable[[int, Sequence[I]], Awaitable[Sequence[A]]]
"""Sends items to a broker, and returns an answer for each. Raises PeerUnavailableError."""


@dataclass(slots=True, eq=False)
class _Pending(Generic[I, A]):
    """An item that waits for its answer."""

    item: I
    answer: A | None = None
    failure: PeerUnavailableError | None = None
    done: trio.Event = field(default_factory=trio.Event)


class BrokerBatches(Generic[I, A]):
    """Lifecycle: `run` in a task, until cancelled; without it nothing is sent."""

    def __init__(self, send: Send[I, A], key_of: Callable[[I], Hashable]) -> None:
        """If several items have the same key, a request contains only one of them."""
        self._send = send
        self._key_of = key_of
        self._waiting: dict[int, deque[_Pending[I, A]]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Send items, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def ask(self, broker_id: int, item: I) -> A:
        """Return a broker's answer to an item. Raises PeerUnavailableError; the item may have taken effect nevertheless."""
        if self._nursery is None:
            raise PeerUnavailableError("this broker sends nothing now")
        pending: _Pending[I, A] = _Pending(item)
        waiting = self._waiting.get(broker_id)
        if waiting is None:
            self._waiting[broker_id] = deque([pending])
            self._nursery.start_soon(self._send_all, broker_id)
        else:
            waiting.append(pending)
        await pending.done.wait()
        if pending.failure is not None:
            raise pending.failure
        return pending.answer  # type: ignore[return-value]

    async def _send_all(self, broker_id: int) -> None:
        """Send to a broker until no items are left."""
        waiting = self._waiting[broker_id]
        await trio.lowlevel.checkpoint()  # items that other tasks add in the same turn go with it
        while waiting:
            batch = self._next_batch(waiting)
            try:
                answers = await self._send(broker_id, [pending.item for pending in batch])
                for pending, answer in zip(batch, answers, strict=True):
                    pending.answer = answer
            except PeerUnavailableError as error:
                _fail(batch, error)
            except Exception as error:
                log.exception("a request to broker %d failed", broker_id)
                _fail(batch, PeerUnavailableError(f"broker {broker_id}: {error}"))
            for pending in batch:
                pending.done.set()
        del self._waiting[broker_id]

    def _next_batch(self, waiting: deque[_Pending[I, A]]) -> list[_Pending[I, A]]:
        """Take the first items with different keys; the others stay, in their order."""
        batch: dict[Hashable, _Pending[I, A]] = {}
        postponed: list[_Pending[I, A]] = []
        while waiting and len(batch) < ITEMS_MAX:
            pending = waiting.popleft()
            key = self._key_of(pending.item)
            if key in batch:
                postponed.append(pending)
            else:
                batch[key] = pending
        waiting.extendleft(reversed(postponed))
        return list(batch.values())


def _fail(batch: Sequence[_Pending[I, A]], error: PeerUnavailableError) -> None:
    for pending in batch:
        pending.failure = error
