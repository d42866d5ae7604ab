"""Memory for responses is shared in the order of asking, and nobody waits for ever."""

import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.broker.memory import SMALL_BYTES_MAX, Memory, MemoryPool, Reservation


async def test_whoever_asks_for_more_than_is_free_waits_in_line() -> None:
    pool = MemoryPool(100)
    order: list[str] = []

    async def ask(name: str, size: int) -> None:
        await pool.acquire(size)
        order.append(name)

    await pool.acquire(60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, "large", 90)
        await wait_all_tasks_blocked()
        nursery.start_soon(ask, "fits, but came later", 20)
        await wait_all_tasks_blocked()
        assert (order, pool.waiting, pool.held) == ([], 2, 60)
        assert not pool.try_acquire(1)
        pool.release(60)
        await wait_all_tasks_blocked()
        assert (order, pool.waiting, pool.held) == (["large"], 1, 90)
        pool.release(90)
    assert order == ["large", "fits, but came later"]
    assert pool.held == 20


async def test_what_is_larger_than_the_pool_is_let_in_alone() -> None:
    pool = MemoryPool(100)
    await pool.acquire(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pool.acquire, 500)
        await wait_all_tasks_blocked()
        assert pool.held == 1
        pool.release(1)
    assert pool.held == 500


async def test_giving_up_lets_the_next_in() -> None:
    pool = MemoryPool(100)
    await pool.acquire(60)
    scope = trio.CancelScope()

    async def give_up() -> None:
        with scope:
            await pool.acquire(90)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked()
        nursery.start_soon(pool.acquire, 30)
        await wait_all_tasks_blocked()
        assert pool.held == 60
        scope.cancel()
    assert (pool.held, pool.waiting) == (90, 0)


async def test_giving_up_after_being_let_in_gives_the_memory_back() -> None:
    pool = MemoryPool(100)
    await pool.acquire(100)
    scope = trio.CancelScope()

    async def give_up() -> None:
        with scope:
            await pool.acquire(10)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_up)
        await wait_all_tasks_blocked()
        scope.cancel()
        pool.release(100)
    assert (pool.held, pool.waiting) == (0, 0)


async def test_small_responses_do_not_wait_for_large_ones() -> None:
    memory = Memory(1 << 20)
    await Reservation(memory).add(1 << 20)
    small = Reservation(memory)
    await small.add(SMALL_BYTES_MAX)
    small.reduce(small.size)
    assert memory.small_responses.held == 0
    assert memory.large_responses.held == 1 << 20


async def test_further_parts_of_a_response_never_wait() -> None:
    memory = Memory(1 << 20)
    one = Reservation(memory)
    await one.add(900_000)
    assert not one.try_add(200_000)
    assert one.try_add(100_000)
    await one.add(500_000)
    assert memory.large_responses.held == one.size == 1_500_000
    one.reduce(2_000_000)
    assert memory.large_responses.held == one.size == 0
