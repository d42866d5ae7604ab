"""Events of a classic group change it ahead of their records, and say so; signs of life do not."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.statemachine.decision import Decision

from .test_classic import Harness
from .test_classic_times import protocols, stable

OTHER = protocols("range", metadata=b"other")


class Watched(Harness):
    """Notes of each event whether it says that it changes the group ahead of its records."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead: list[bool] = []

    def settle(self, out: Decision) -> None:
        self.ahead.append(out.is_ahead)
        super().settle(out)


@pytest.mark.parametrize(
    "event",
    [
        lambda h: h.join("c"),
        lambda h: h.join("", "b"),
        lambda h: h.join("", "b", protocols=OTHER),
        lambda h: h.sync("b", 2),
        lambda h: h.leave("b"),
        lambda h: h.leave("given"),
        lambda h: h.expire("session", "g", "b", now=20_000),
        lambda h: h.expire("session", "g", "given", now=20_000),
        lambda h: h.expire("join", "g", now=40_000),
        lambda h: h.expire("sync", "g", now=40_000),
    ],
)
def test_event_that_changes_a_group_is_marked_ahead(event):
    """If it fails halfway only the log says what is true."""
    h = Watched()
    h.stable_pair()
    h.join("given", id_required=True)
    h.ahead.clear()
    event(h)
    assert h.ahead == [True]


def test_sign_of_life_is_not_marked_ahead():
    h = stable("a", "b")
    out = Decision()
    h.group.heartbeat("a", None, h.group.generation, 0, out)
    h.shard.check_commit("g", Committer("a", h.group.generation), 0, out)
    assert not out.is_ahead
    for change in (h.group.begin_rebalance, h.group.members_left):
        out = Decision()
        change(0, out)
        assert out.is_ahead
