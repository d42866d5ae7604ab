"""A set of descriptors tells which of them can be read, by epoll and by kqueue in the same way."""

import errno
import os
import select
import socket

import pytest

from barnabas.system.readiness import READABLE, new_readable_set


@pytest.fixture
def pairs():
    opened = [socket.socketpair() for _ in range(4)]
    yield opened
    for pair in opened:
        for sock in pair:
            sock.close()


@pytest.fixture
def watched(pairs):
    readable = new_readable_set()
    for ours, _ in pairs:
        readable.register(ours.fileno(), READABLE)
    return readable


def ready(watched, at_once=10):
    return [descriptor for descriptor, _ in watched.poll(0, at_once)]


def test_what_can_be_read_is_told_until_it_has_been_read(watched, pairs):
    assert ready(watched) == []
    pairs[1][1].send(b"xy")
    assert ready(watched) == ready(watched) == [pairs[1][0].fileno()]
    pairs[1][0].recv(1)
    assert ready(watched) == [pairs[1][0].fileno()]
    pairs[1][0].recv(1)
    assert ready(watched) == []


def test_a_peer_that_has_closed_is_told(watched, pairs):
    pairs[2][1].close()
    assert ready(watched) == [pairs[2][0].fileno()]


def test_so_many_are_told_at_once_and_all_after_another(watched, pairs):
    for _, theirs in pairs:
        theirs.send(b"x")
    assert len(ready(watched, 3)) == 3
    assert set(ready(watched, 3) + ready(watched, 3)) == {ours.fileno() for ours, _ in pairs}


def test_a_descriptor_that_is_closed_leaves(watched, pairs):
    pairs[0][1].send(b"x")
    number = pairs[0][0].fileno()
    pairs[0][0].close()
    assert ready(watched) == []
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        watched.unregister(number)


def test_a_descriptor_that_has_left_may_come_again(watched, pairs):
    number = pairs[0][0].fileno()
    watched.unregister(number)
    pairs[0][1].send(b"x")
    assert ready(watched) == []
    watched.register(number, READABLE)
    assert ready(watched) == [number]


def test_the_set_can_be_waited_for_in_another_one(watched, pairs):
    outer = select.poll()
    outer.register(watched.fileno(), select.POLLIN)
    assert outer.poll(0) == []
    pairs[3][1].send(b"x")
    assert [descriptor for descriptor, _ in outer.poll(1000)] == [watched.fileno()]
    pairs[3][0].recv(1)
    assert outer.poll(0) == []
