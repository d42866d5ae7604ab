"""Of sockets that are not expected to be active, only a few wake up in one turn of the event loop."""

import socket
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from barnabas.network.sockets import PlainTransport
from barnabas.network.wait_set import TURN_SECONDS, WOKEN_PER_TURN, WaitSet, WaitSets

COUNT = 300


class Turns(trio.abc.Instrument):
    def __init__(self):
        self.number = 0

    def after_io_wait(self, timeout):
        self.number += 1


@pytest.fixture
def connections():
    """Transports that wait in the wait set, each with the other end."""
    wait_sets = WaitSets()
    wait_sets.inactive = WaitSet(
        clock=lambda: 0.0
    )  # turns that take no time: as many as may be wake up in each
    pairs = [socket.socketpair() for _ in range(COUNT)]
    for ours, _ in pairs:
        ours.setblocking(False)
    yield [(PlainTransport(ours, wait_sets=wait_sets), theirs) for ours, theirs in pairs]
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


async def test_a_crowd_wakes_up_some_at_a_time(connections):
    turns, woken = Turns(), []

    async def wait(transport):
        await transport.wait_readable(soon=False)
        woken.append(turns.number)

    async with trio.open_nursery() as nursery:
        for transport, _ in connections:
            nursery.start_soon(wait, transport)
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(turns)
        for _, theirs in connections:
            theirs.send(b"x")
    trio.lowlevel.remove_instrument(turns)
    assert len(woken) == COUNT
    assert max(Counter(woken).values()) <= WOKEN_PER_TURN


async def test_first_come_first_served_and_nobody_twice(connections):
    order = []

    async def serve(number, transport):
        for _ in range(3):
            await transport.wait_readable(soon=False)
            assert transport.receive_now(memoryview(bytearray(10))) == 1
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number, (transport, _) in enumerate(connections):
            nursery.start_soon(serve, number, transport)
        await wait_all_tasks_blocked()
        for _ in range(3):
            for _, theirs in connections:
                theirs.send(b"x")
            await wait_all_tasks_blocked()
    for served in (order[:COUNT], order[COUNT : 2 * COUNT], order[2 * COUNT :]):
        assert sorted(served) == list(range(COUNT))
        batches = [served[at : at + WOKEN_PER_TURN] for at in range(0, COUNT, WOKEN_PER_TURN)]
        assert all(max(before) < min(after) for before, after in pairwise(batches))


async def test_a_wait_that_was_cancelled_can_be_begun_again(connections):
    transport, theirs = connections[0]
    for soon in (False, True, False):
        with trio.move_on_after(0):
            await transport.wait_readable(soon=soon)
    theirs.send(b"x")
    for soon in (False, True, False):
        await transport.wait_readable(soon=soon)


async def test_fewer_wake_up_after_long_turns_and_more_after_short():
    now, turn_seconds = 0.0, 2 * TURN_SECONDS

    def clock():
        nonlocal now
        now += turn_seconds
        return now

    wait_set, turns, woken = WaitSet(clock), Turns(), Counter()
    pairs = [socket.socketpair() for _ in range(COUNT)]

    async def wait(descriptor):
        nonlocal turn_seconds
        await wait_set.wait_readable(descriptor)
        woken[turns.number] += 1
        if woken.total() > COUNT // 2:
            turn_seconds = TURN_SECONDS / 2

    async with trio.open_nursery() as nursery:
        for ours, _ in pairs:
            nursery.start_soon(wait, ours.fileno())
        await wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(turns)
        for _, theirs in pairs:
            theirs.send(b"x")
    trio.lowlevel.remove_instrument(turns)
    for ours, theirs in pairs:
        ours.close()
        theirs.close()
    counts = list(woken.values())
    assert sum(counts) == COUNT
    least = min(counts)
    assert counts[0] == WOKEN_PER_TURN
    assert least == 4
    assert max(counts[counts.index(least) :]) == WOKEN_PER_TURN


async def test_active_and_inactive_connections_of_a_crowd_wait_apart():
    wait_sets = WaitSets()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = PlainTransport(ours, wait_sets=wait_sets)
        for soon, is_crowded, waiting in (
            (True, False, (0, 0)),
            (True, True, (0, 1)),
            (False, False, (1, 0)),
            (False, True, (1, 0)),
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(transport.wait_readable, soon=soon, is_crowded=is_crowded))
                await wait_all_tasks_blocked()
                assert (len(wait_sets.inactive), len(wait_sets.active)) == waiting
                transport.wake()


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


async def test_a_task_sleeps_on_while_what_has_arrived_is_dealt_with(pair):
    ours, theirs = pair
    wait_set, seen = WaitSet(), []

    def arrived():
        seen.append(ours.recv(10))
        return seen[-1] == b"wake"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_set.wait_readable, ours.fileno(), arrived)
        for data in (b"1", b"2", b"wake"):
            await wait_all_tasks_blocked()
            assert len(wait_set) == 1
            theirs.send(data)
    assert seen == [b"1", b"2", b"wake"]
    assert len(wait_set) == 0


async def test_events_without_a_waiter_are_found_later(pair):
    ours, theirs = pair
    wait_set, turns = WaitSet(), Turns()
    other, its_peer = socket.socketpair()
    with other, its_peer:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_set.wait_readable, other.fileno())  # so that the wait set is watched
            for _ in range(2):
                with trio.move_on_after(0.01) as waited:
                    await wait_set.wait_readable(ours.fileno())
                assert waited.cancelled_caught
                theirs.send(b"x")
                trio.lowlevel.add_instrument(turns)
                await wait_all_tasks_blocked()
                trio.lowlevel.remove_instrument(turns)
                assert turns.number < 20, "it is asked for again and again"
                await wait_set.wait_readable(ours.fileno())
                assert ours.recv(10) == b"x"
            its_peer.send(b"x")


async def test_descriptor_may_be_reused_by_another_socket_after_close(pair):
    wait_sets, descriptors = WaitSets(), set()
    for _ in range(3):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        descriptors.add(ours.fileno())
        transport = PlainTransport(ours, wait_sets=wait_sets)
        for soon, is_crowded in ((True, True), (False, False)):
            with trio.move_on_after(0.01) as waited:
                await transport.wait_readable(soon=soon, is_crowded=is_crowded)
            assert waited.cancelled_caught
            theirs.send(b"x")
            await transport.wait_readable(soon=soon, is_crowded=is_crowded)
            assert transport.receive_now(memoryview(bytearray(10))) == 1
        transport.close()
        theirs.close()
    assert len(descriptors) == 1, "the system did not reuse it: this shows nothing"
