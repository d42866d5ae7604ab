"""A replica in its roles: who waits, who is woken with which error, and what moves the high watermark."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from barnabas.errors import RequestError
from barnabas.records.steps import run
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, batch
from tests.support.replicas import LED, fetched, leader

# --- waiting ------------------------------------------------------------------------------------------------------


async def outcome(wait: Callable[[], Awaitable[None]], *acts: Callable[[], Any]) -> list[int | None]:
    """After each act, what became of one who waits: None for who still does, 0, or an error code."""
    results: list[int | None] = []
    ended: list[int] = []

    async def waits() -> None:
        try:
            await wait()
            ended.append(0)
        except RequestError as error:
            ended.append(error.code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        for act in (lambda: None, *acts):
            done = act()
            if isinstance(done, Awaitable):
                await done
            await trio.testing.wait_all_tasks_blocked()
            results.append(ended[0] if ended else None)
        nursery.cancel_scope.cancel()
    return results


@pytest.mark.parametrize(("isr", "code"), [((1,), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), ((1, 2), 0)])
async def test_append_is_not_acknowledged_if_the_isr_shrinks(isr: tuple[int, ...], code: int) -> None:
    node = await leader(min_insync_replicas=2)
    end = node.produce(b"x")
    fetched(node, 2, end)
    await node.change(LED._replace(isr=isr, partition_epoch=8))
    assert await outcome(lambda: node.replica.wait_committed(end)) == [code]


async def test_valid_records_are_appended_in_the_leaders_epoch() -> None:
    node = await leader()
    replica = node.replica
    valid = run(replica.validation(memoryview(batch(b"x", b"y")), acks=1, api_version=9, now_ms=NOW_MS))
    result = replica.append(valid, acks=1, now_ms=NOW_MS)
    assert (result.base_offset, result.last_offset, replica.log.epochs.latest) == (0, 1, 5)
    own = replica.append_own(batch(b"z"), now_ms=NOW_MS)
    assert (own.base_offset, replica.log.log_end_offset) == (2, 3)
    assert replica.growth.appended_records == 3
    assert replica.growth.appended_bytes == result.size + own.size
    assert replica.growth.committed_bytes == 0
    fetched(node, 2, 2)
    assert replica.growth.committed_bytes == result.size
