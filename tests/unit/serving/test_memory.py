"""Memory for requests and responses is bounded, no request waits for ever, and a client that holds it up is closed."""

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.serving.memory import (
    GIVE_BACK_BYTES,
    RECEIVE_STALLED_SECONDS,
    SEND_STALLED_SECONDS,
    SHED_INTERVAL_SECONDS,
    SMALL_BYTES_MAX,
    Held,
    IncomingMemory,
    Memory,
    MemoryPool,
    Reservation,
    UnsentMemory,
)


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
    memory = Memory(response_bytes_max=1 << 20)
    await Reservation(memory).add(1 << 20)
    small = Reservation(memory)
    await small.add(SMALL_BYTES_MAX)
    small.reduce(small.size)
    assert memory.small_responses.held == 0
    assert memory.large_responses.held == 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def someone(closed: list[str], name: str) -> Held:
    return Held(lambda reason: closed.append(name))


async def test_the_request_that_began_first_never_waits() -> None:
    memory = IncomingMemory(1000, Clock())
    first, second = someone([], "first"), someone([], "second")
    memory.begin(first, 600)
    memory.begin(second, 400)
    assert memory.is_short
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.grow, second, 100)
        await wait_all_tasks_blocked()
        assert memory.waiting == 1
        await memory.grow(first, 900)
        memory.arrived(first)
        await wait_all_tasks_blocked()
        assert memory.waiting == 0, "the second is now the one that began first"
    memory.end(first)
    memory.end(second)
    assert memory.held == 0


async def test_requests_resume_in_order_when_others_are_answered() -> None:
    memory = IncomingMemory(1000, Clock())
    memory.charge(1000)
    begun = [someone([], str(n)) for n in range(3)]
    for held in begun:
        memory.begin(held, 0)
    async with trio.open_nursery() as nursery:
        for held in begun[1:]:
            nursery.start_soon(memory.grow, held, 600)
            await wait_all_tasks_blocked()
        memory.discharge(1000)
        await wait_all_tasks_blocked()
        assert [held.size for held in begun] == [0, 600, 0]
        memory.end(begun[1])
    assert [held.size for held in begun] == [0, 0, 600]


async def test_a_request_that_stops_is_closed_only_when_others_wait() -> None:
    clock, closed = Clock(), []
    memory = IncomingMemory(1000, clock)
    stopped, waits = someone(closed, "stopped"), someone(closed, "waits")
    memory.begin(stopped, 1000)
    memory.begin(waits, 0)
    clock.now += RECEIVE_STALLED_SECONDS
    memory.shed()
    assert closed == []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.grow, waits, 10)
        await wait_all_tasks_blocked()
        stopped.moved_s = clock.now
        memory.shed()
        assert closed == []
        clock.now += RECEIVE_STALLED_SECONDS
        memory.shed()
        assert closed == ["stopped"]
        memory.end(stopped)
    assert (memory.held, waits.size) == (10, 10)


async def test_a_wait_that_is_cancelled_leaves_nothing_behind() -> None:
    memory = IncomingMemory(1000, Clock())
    first, second = someone([], "first"), someone([], "second")
    memory.begin(first, 1000)
    memory.begin(second, 0)
    with trio.move_on_after(0):
        await memory.grow(second, 10)
    memory.end(second)
    assert (memory.waiting, memory.held) == (0, 1000)


def test_the_slowest_readers_are_closed_when_too_much_is_unread() -> None:
    clock, closed = Clock(), []
    memory = UnsentMemory(1000, clock=clock)
    readers = {name: someone(closed, name) for name in "abcd"}
    for name in "ab":
        memory.begin(readers[name], 600)
        clock.now += 1
    assert closed == [], "a little too much is let be for a while"
    clock.now += SEND_STALLED_SECONDS - 1
    memory.moved(readers["a"])
    memory.shed()
    assert closed == ["b"]
    memory.begin(readers["c"], 600)
    memory.begin(readers["d"], 900)
    assert closed == ["b", "a"], "above twice the bound the slowest goes at once"
    assert memory.held == 1500
    for held in readers.values():
        memory.end(held)
    assert memory.held == 0


def test_stalled_readers_are_closed_when_others_need_memory() -> None:
    clock, closed = Clock(), []
    waiting = [False]
    memory = UnsentMemory(1000, lambda: waiting[0], clock)
    memory.begin(someone(closed, "a"), 0)
    clock.now += SEND_STALLED_SECONDS
    memory.shed()
    assert closed == []
    waiting[0] = True
    memory.shed()
    assert closed == ["a"]


async def hold_briefly(memory: Memory, which: str) -> None:
    """Hold as much as is worth giving back, in one way, and release it."""
    size = GIVE_BACK_BYTES
    if which == "a request":
        held = Held(lambda why: None)
        memory.large_requests.begin(held, 1)
        await memory.large_requests.grow(held, size - 1)
        memory.large_requests.end(held)
    elif which == "an unread response":
        held = Held(lambda why: None)
        memory.unsent.begin(held, size)
        memory.unsent.end(held)
    else:
        reservation = Reservation(memory)
        pool = memory.large_responses
        async with trio.open_nursery() as nursery:
            if which == "a response that waited":
                pool.charge(pool.bytes_max)
                nursery.start_soon(reservation.add, size)
                await wait_all_tasks_blocked()
                pool.held_most = 0
                pool.release(pool.bytes_max)
            elif which == "a response in parts":
                await reservation.add(1)
                await reservation.add(size - 1)
            else:
                await reservation.add(size)
        reservation.reduce(size)


@pytest.mark.parametrize(
    "which",
    ["a request", "an unread response", "a response", "a response in parts", "a response that waited"],
)
async def test_memory_that_was_held_between_two_looks_is_given_back(
    autojump_clock: trio.testing.MockClock, which: str
) -> None:
    given_back: list[int] = []

    async def give_back() -> None:
        given_back.append(memory.held)

    memory = Memory(give_back=give_back)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.run)
        await trio.sleep(SHED_INTERVAL_SECONDS / 2)
        await hold_briefly(memory, which)
        await trio.sleep(5 * SHED_INTERVAL_SECONDS)
        nursery.cancel_scope.cancel()
    assert given_back == [0]


# --- sizes --------------------------------------------------------------------------------------------------------


def test_each_pool_has_its_size_and_small_ones_a_quarter() -> None:
    large = 100 * SMALL_BYTES_MAX
    memory = Memory(large, 2 * large)
    assert (memory.large_requests.bytes_max, memory.small_requests.bytes_max) == (large, large // 4)
    assert (memory.large_responses.bytes_max, memory.small_responses.bytes_max) == (2 * large, large // 2)
    assert memory.unsent.bytes_max == large
    least = Memory(SMALL_BYTES_MAX, 2 * SMALL_BYTES_MAX)
    assert least.small_requests.bytes_max == least.small_responses.bytes_max == 2 * SMALL_BYTES_MAX


def test_small_requests_have_a_pool_up_to_its_largest_size() -> None:
    memory = Memory()
    for size, is_small in ((1, True), (SMALL_BYTES_MAX, True), (SMALL_BYTES_MAX + 1, False)):
        assert (memory.for_request(size) is memory.small_requests) is is_small
        assert (memory.for_request(size) is memory.large_requests) is not is_small
        assert (memory.for_response(size) is memory.small_responses) is is_small


async def test_requests_lack_memory_when_a_pool_is_full() -> None:
    memory = Memory(clock=lambda: 0.0)
    for pool in (memory.small_requests, memory.large_requests):
        pool.charge(pool.bytes_max - 1)
        assert not memory.requests_are_short
        pool.charge(1)
        assert memory.requests_are_short
        pool.discharge(pool.bytes_max)
    assert memory.held == 0


async def test_peak_of_requests_in_parts_is_recorded() -> None:
    now = 5.0
    memory = IncomingMemory(1_000, lambda: now)
    first, other = Held(lambda why: None), Held(lambda why: None)
    memory.begin(first, 100)
    memory.begin(other, 50)
    assert (memory.held_most, first.moved_s) == (0, 5.0)
    now = 6.0
    await memory.grow(first, 600)
    assert (memory.held_most, memory.held, first.size, first.moved_s) == (750, 750, 700, 6.0)
    memory.shrink(first, 200)
    await memory.grow(other, 10)
    assert (memory.held_most, memory.held) == (750, 560)
    memory.end(first)
    memory.end(other)
    assert (memory.held, first.size, other.size) == (0, 0, 0)
    memory.end(first)
    assert memory.held == 0


async def test_a_reservation_is_in_one_pool_and_given_back_to_it() -> None:
    memory = Memory()
    reservation = Reservation(memory)
    await reservation.add(SMALL_BYTES_MAX)
    await reservation.add(SMALL_BYTES_MAX)
    await reservation.add(5)
    assert (memory.small_responses.held, memory.large_responses.held) == (2 * SMALL_BYTES_MAX + 5, 0)
    reservation.reduce_to(3 * SMALL_BYTES_MAX)
    assert reservation.size == 2 * SMALL_BYTES_MAX + 5
    reservation.reduce_to(7)
    assert (reservation.size, memory.small_responses.held) == (7, 7)
    reservation.reduce(100)
    assert (reservation.size, memory.small_responses.held) == (0, 0)
    await reservation.add(SMALL_BYTES_MAX + 1)
    assert (memory.small_responses.held, memory.large_responses.held) == (0, SMALL_BYTES_MAX + 1)


async def test_reservation_without_waiting_is_refused_for_a_full_pool() -> None:
    memory = Memory(response_bytes_max=1 << 20)
    reservation, other = Reservation(memory), Reservation(memory)
    assert reservation.add_nowait(1 << 19)
    assert reservation.add_nowait(1 << 19)
    assert not other.add_nowait(1 << 19)
    assert (reservation.size, other.size, memory.large_responses.held) == (1 << 20, 0, 1 << 20)
    reservation.reduce_to(0)
    assert other.add_nowait(1 << 19)


async def test_memory_may_be_used_up_to_its_last_byte() -> None:
    pool, incoming = MemoryPool(100), IncomingMemory(100, lambda: 0.0)
    assert pool.try_acquire(60)
    assert pool.try_acquire(40)
    assert not pool.try_acquire(1)
    first, other = Held(lambda why: None), Held(lambda why: None)
    incoming.begin(first, 10)
    incoming.begin(other, 10)
    await incoming.grow(other, 80)
    assert (incoming.held, incoming.is_short) == (100, True)
    with trio.move_on_after(0) as scope:
        await incoming.grow(other, 1)
    assert scope.cancelled_caught
