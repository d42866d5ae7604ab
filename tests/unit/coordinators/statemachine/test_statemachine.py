"""The vocabulary of state machines: decisions, and which partition keeps an id."""

from __future__ import annotations

import pytest

from barnabas.cluster.metadata.partitioning import (
    REMEMBERED_LENGTH_MAX,
    _remembered,
    java_hash,
    partition_for,
)
from barnabas.coordinators.statemachine.decision import Decision, Entry, ManyReplies, nothing, slices

RUNS_SOURCES = True
"""Stand-ins here are for classes that may be compiled, where nothing else is taken for them."""


@pytest.mark.parametrize(("more", "is_remembered"), [(-1, True), (0, True), (1, False)])
def test_long_ids_take_no_memory(more: int, is_remembered: bool) -> None:
    before, text = _remembered.cache_info(), f"{more}".rjust(REMEMBERED_LENGTH_MAX + more, "i")
    assert partition_for(text, 50) == partition_for(text, 50) == abs(java_hash(text)) % 50
    after = _remembered.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (is_remembered, is_remembered)


def test_a_decision_that_is_cleared_is_as_a_new_one() -> None:
    decision, new = Decision(), Decision()
    decision.write((b"k", b"v"), "said")
    decision.records.append((b"l", None))
    decision.write((b"m", b"w"), "said, too")
    assert decision.decoded == {0: "said", 2: "said, too"}
    assert [key for key, _ in decision.records] == [b"k", b"l", b"m"]
    decision.replies.append((1, "answer"))
    decision.many_replies.append(ManyReplies({}, str))
    decision.timers["t"] = 5
    decision.many_timers.append([("t", None)])
    decision.effects.append("effect")
    decision.producer = (7, 3)
    decision.is_ahead = True
    assert all(getattr(decision, name) for name in Decision.__slots__)
    decision.clear()
    assert {name: getattr(decision, name) for name in Decision.__slots__} == {
        name: getattr(new, name) for name in Decision.__slots__
    }


@pytest.mark.parametrize(("count", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])])
def test_slices_are_full_but_for_the_last_one_and_have_each_item_once(count: int, sizes: list[int]) -> None:
    items = list(range(count))
    found = list(slices(items, 3))
    assert [len(one) for one in found] == sizes
    assert [item for one in found for item in one] == items


def test_an_event_that_decides_nothing_decides_nothing() -> None:
    decision = Decision()
    nothing(object(), decision)
    assert not any(getattr(decision, name) for name in Decision.__slots__)
    assert Entry([]).producer_id == -1
