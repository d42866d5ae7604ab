"""Replies of a decision to waiting requests: sent once it is committed, many of them over several turns of the loop."""

from __future__ import annotations

from itertools import chain, islice
from typing import Any, Generic

import trio

from barnabas.coordinators.runtime.shard import Checkpoint, M, Shard
from barnabas.coordinators.runtime.shard_log import ShardLog
from barnabas.coordinators.runtime.shards import ANSWERS_PER_TURN, Shards
from barnabas.coordinators.statemachine.decision import Decision, ManyReplies
from barnabas.errors import RequestError


class Answers(Generic[M]):
    """Releases the waiting requests of shards."""

    def __init__(self, shards: Shards[M], log: ShardLog[M], checkpoint: Checkpoint) -> None:
        self._shards = shards
        self._log = log
        self._checkpoint = checkpoint

    def send(self, shard: Shard[M], out: Decision) -> None:
        """Release the requests that a decision answers, once it is committed."""
        nursery = self._shards.nursery
        if nursery is None or self._log.is_committed(shard, shard.end_offset):
            # committed already, or before the runtime runs, when there are no requests
            self._send_now(shard, out)
        else:
            # in a separate task: the request that caused this may be cancelled, and the others must still be answered
            nursery.start_soon(self._send_when_committed, shard, shard.end_offset, out)

    async def _send_when_committed(self, shard: Shard[M], end_offset: int, out: Decision) -> None:
        code = 0
        try:
            await self._log.wait_committed(shard, end_offset)
        except RequestError as error:
            code = error.code
        if not code:
            self._send_now(shard, out)
            return
        numbers = chain(
            (number for number, _ in out.replies), *(many.to.values() for many in out.many_replies)
        )
        await self._shards.fail_in_turns(shard.fail(code, numbers))

    def _send_now(self, shard: Shard[M], out: Decision) -> None:
        for number, response in out.replies:
            _release(shard, number, response)
        nursery = self._shards.nursery
        for many in out.many_replies:
            if nursery is not None:
                nursery.start_soon(self._send_many, shard, many)
            else:
                for key, number in many.to.items():
                    _release(shard, number, many.reply(key))

    async def _send_many(self, shard: Shard[M], many: ManyReplies) -> None:
        """Release some requests in each turn of the event loop, as each response is then encoded and sent."""
        to = iter(many.to.items())
        while some := tuple(islice(to, ANSWERS_PER_TURN)):
            for key, number in some:
                _release(shard, number, many.reply(key))
            await trio.lowlevel.checkpoint()
            await self._checkpoint()


def _release(shard: Shard[Any], number: int, response: Any) -> None:
    waiter = shard.waiting.get(number)
    if waiter is not None:
        waiter.answer(response)
