"""Connections that have not authenticated: a crowd pushes out its own, and none stays for ever."""

from types import SimpleNamespace

from barnabas.serving.unauthenticated import UnauthenticatedConnections


class From:
    """A connection from a host."""

    def __init__(self, host: str) -> None:
        self.info = SimpleNamespace(peer_address=(host, 1))


def test_a_crowd_pushes_out_its_oldest():
    unauthenticated = UnauthenticatedConnections(4, 60)
    crowd = [From("crowd") for _ in range(3)]
    alone = From("alone")
    assert [unauthenticated.add(peer, 0) for peer in (*crowd, alone)] == [None] * 4
    assert unauthenticated.add(From("another"), 0) is crowd[0]
    assert unauthenticated.add(From("crowd"), 0) is crowd[1]
    assert len(unauthenticated) == 4


def test_who_has_authenticated_or_gone_counts_no_longer():
    unauthenticated = UnauthenticatedConnections(1, 60)
    first = From("a")
    unauthenticated.add(first, 0)
    unauthenticated.discard(first)
    unauthenticated.discard(first)
    assert len(unauthenticated) == 0
    assert unauthenticated.add(From("a"), 0) is None


def test_those_that_take_too_long_are_named():
    unauthenticated = UnauthenticatedConnections(10, 60)
    old, other_old, fresh = From("a"), From("b"), From("a")
    for peer, since_s in ((old, 0), (other_old, 1), (fresh, 50)):
        unauthenticated.add(peer, since_s)
    assert set(unauthenticated.overdue(61)) == {old, other_old}
    assert set(unauthenticated.overdue(59)) == set()
