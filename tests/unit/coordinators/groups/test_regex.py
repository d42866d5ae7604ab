"""Subscriptions by expression, among many topics that come and go."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.consumer.regex import NAMES_PER_STEP, match_in_steps, matching
from barnabas.errors import RequestError
from tests.support.effort import drawing


def topics(names):
    return dict.fromkeys(names)


def test_the_whole_name_must_match():
    assert matching("a.", topics(["ab", "abc", "xab"])) == {"ab"}


def test_many_names_are_matched_in_steps_and_once():
    names = topics(f"n{number}" for number in range(NAMES_PER_STEP * 3))
    assert len(list(match_in_steps("n.*1", names))) == 3
    assert list(match_in_steps("n.*1", names)) == []
    assert matching("n.*1", names) == {name for name in names if name.endswith("1")}


def test_of_other_topics_only_the_difference_is_matched():
    names = topics(f"n{number}" for number in range(NAMES_PER_STEP * 3))
    matching("n.*2", names)
    changed = {**names, "n-2": None}
    del changed["n2"]
    assert list(match_in_steps("n.*2", changed)) == []
    assert matching("n.*2", changed) == {name for name in changed if name.endswith("2")}


def test_whatever_changes_the_answer_is_that_of_matching_all():
    random = drawing()
    names = topics([])
    for _ in range(200):
        names = {name: None for name in names if random.random() < 0.8}
        names.update(topics(f"t{random.randrange(100)}" for _ in range(random.randrange(10))))
        assert matching("t.*3", names) == {name for name in names if name.endswith("3")}


def test_a_wrong_expression_is_refused_each_time():
    for _ in range(2):
        with pytest.raises(RequestError):
            matching("(", topics(["t"]))
