"""One system call says whether a socket, and no other, has something to read."""

import socket

import pytest

from barnabas.network.ready_sockets import ReadySockets
from barnabas.network.sockets import PlainTransport


@pytest.fixture
def pairs():
    opened = [socket.socketpair() for _ in range(3)]
    for ours, _ in opened:
        ours.setblocking(False)
    yield opened
    for ours, theirs in opened:
        ours.close()
        theirs.close()


@pytest.fixture
def ends(pairs):
    """Transports of one network, each with the other end."""
    ready = ReadySockets()
    return [(PlainTransport(ours, ready=ready), theirs) for ours, theirs in pairs]


def test_the_only_one_that_has_something_to_read(ends):
    ends[0][1].send(b"x")
    assert ends[0][0].is_only_readable(0.0)
    assert not ends[1][0].is_only_readable(0.0)


def test_two_of_them_have_something_to_read(ends):
    for _, theirs in ends[:2]:
        theirs.send(b"x")
    assert not any(ours.is_only_readable(0.0) for ours, _ in ends)


def test_a_peer_that_has_closed_is_something_to_read(ends):
    ends[0][1].close()
    assert ends[0][0].is_only_readable(0.0)


def test_a_connection_that_was_closed_no_longer_counts(pairs):
    ready = ReadySockets()
    first, second = (PlainTransport(ours, ready=ready) for ours, _ in pairs[:2])
    for _, theirs in pairs[:2]:
        theirs.send(b"x")
    pairs[1][0].close()
    assert second is not first
    assert first.is_only_readable(0.0)


def test_two_ready_sockets_during_a_look_wait_as_any_other(pairs, monkeypatch):
    ready = ReadySockets()
    transport = PlainTransport(pairs[0][0], ready=ready)
    descriptors = [ours.fileno() for ours, _ in pairs[:2]]

    class LateSet:
        """A set in which nothing is ready when it is asked first."""

        def __init__(self):
            self.answers = [[], []]

        def poll(self, timeout, events_max):
            ready = self.answers.pop() if self.answers else [(descriptor, 1) for descriptor in descriptors]
            return ready[:events_max]

    monkeypatch.setattr(ready, "_set", LateSet())
    assert not transport.is_only_readable(10.0)
    del descriptors[1]
    monkeypatch.setattr(ready, "_set", LateSet())
    assert transport.is_only_readable(10.0)
