"""Answers that take long to read are kept, and read again beside who looks at them."""

import trio
import trio.testing

from barnabas.client import ClientError
from barnabas.console.kept import FRESH_SECONDS, MOMENT_SECONDS, REST_FACTOR, STALE_SECONDS, Kept


async def test_value_that_is_quick_to_read_is_shown_anew(autojump_clock: object) -> None:
    took_s, reads = [0.0], [0]

    async def read() -> int:
        await trio.sleep(took_s[0])
        reads[0] += 1
        if reads[0] == 3:
            raise ClientError("the broker is away")
        return reads[0]

    async with trio.open_nursery() as nursery:
        value = Kept(read, nursery)
        assert [await value.get(), await value.get()] == [1, 1]
        await trio.sleep(FRESH_SECONDS + 0.1)
        assert [await value.get(), await value.get()] == [2, 2]
        await trio.sleep(FRESH_SECONDS + 0.1)
        assert (await value.get(), reads[0]) == (4, 4), "after a failure it is read again before it is shown"
        took_s[0] = 1.0
        await trio.sleep(STALE_SECONDS + 2 * FRESH_SECONDS + 0.1)
        assert await value.get() == 5, "too old to be shown"
        await trio.sleep(REST_FACTOR - 1.5)
        assert await value.get() == 5
        await trio.testing.wait_all_tasks_blocked()
        assert reads[0] == 5, "what takes a second to read is kept for longer"
        value.forget()
        assert await value.get() == 6


async def test_older_value_is_shown_while_it_is_read_for_long(autojump_clock: object) -> None:
    reads, may_end = [0], trio.Event()

    async def read() -> int:
        reads[0] += 1
        if reads[0] == 2:
            await may_end.wait()
        return reads[0]

    async with trio.open_nursery() as nursery:
        value = Kept(read, nursery)
        await value.get()
        await trio.sleep(FRESH_SECONDS + 0.1)
        began = trio.current_time()
        assert [await value.get() for _ in range(3)] == [1, 1, 1]
        assert trio.current_time() - began <= 3.1 * MOMENT_SECONDS
        may_end.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await value.get(), reads[0]) == (2, 2), "read once, however many look at it"
        await trio.sleep(REST_FACTOR * 4 * MOMENT_SECONDS)
        assert (await value.get(), reads[0]) == (3, 3)
