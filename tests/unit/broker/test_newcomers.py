"""Connections that have not authenticated: a crowd pushes out its own, and nobody stays for ever."""

from types import SimpleNamespace

from barnabas.broker.newcomers import Newcomers


class From:
    """A connection from a host."""

    def __init__(self, host: str) -> None:
        self.info = SimpleNamespace(peer_address=(host, 1))


def test_a_crowd_pushes_out_its_oldest():
    newcomers = Newcomers(4, 60)
    crowd = [From("crowd") for _ in range(3)]
    alone = From("alone")
    assert [newcomers.add(one, 0) for one in (*crowd, alone)] == [None] * 4
    assert newcomers.add(From("another"), 0) is crowd[0]
    assert newcomers.add(From("crowd"), 0) is crowd[1]
    assert len(newcomers) == 4


def test_who_has_authenticated_or_gone_counts_no_longer():
    newcomers = Newcomers(1, 60)
    first = From("a")
    newcomers.add(first, 0)
    newcomers.discard(first)
    newcomers.discard(first)
    assert len(newcomers) == 0
    assert newcomers.add(From("a"), 0) is None


def test_those_that_take_too_long_are_named():
    newcomers = Newcomers(10, 60)
    old, other_old, fresh = From("a"), From("b"), From("a")
    for one, since_s in ((old, 0), (other_old, 1), (fresh, 50)):
        newcomers.add(one, since_s)
    assert set(newcomers.overdue(61)) == {old, other_old}
    assert set(newcomers.overdue(59)) == set()
