"""Members that are alike may differ in which of them has which partitions; nothing else may differ."""

from __future__ import annotations

from typing import Any

import pytest

from compat.groups.assignments import (
    alike,
    held,
    other_members,
    shared_at_once,
    shared_by_others,
    slots_of,
    told,
)
from compat.groups.classic import assignment
from compat.kit.known import Difference, differences_of

T = "id of t"


def _given(**members: set[int]) -> dict[str, frozenset[tuple[str, int]]]:
    return {name: frozenset((T, number) for number in numbers) for name, numbers in members.items()}


THEIRS = _given(anna={0, 1}, bert={2})


@pytest.mark.parametrize("ours", [_given(anna={0, 2}, bert={1}), _given(anna={2}, bert={0, 1})])
def test_the_odd_partition_may_be_anothers(ours: Any) -> None:
    assert alike(THEIRS, ours)


@pytest.mark.parametrize(
    "ours",
    [
        _given(anna={0}, bert={1}),  # nobody has 2
        _given(anna={0, 1}, bert={1}),  # 1 has two, and 2 nobody
        _given(anna={0, 1}, bert={1, 2}),  # 1 has two
        _given(anna={0, 1, 2}, bert=set()),  # one has all
        _given(anna={0, 1}, bert={3}),  # there is no 3
        _given(anna={0, 1}, carl={2}),  # another member
        _given(anna={0, 1}, bert={2}, carl=set()),
        {},
    ],
)
def test_a_partition_given_to_nobody_or_to_two_is_refused(ours: Any) -> None:
    assert not alike(THEIRS, ours)


def test_partitions_that_are_shared_are_shared_by_as_many() -> None:
    theirs = _given(anna={0, 1}, bert={2, 0})
    assert not alike(theirs, _given(anna={0, 1}, bert={2, 1}))
    assert alike(theirs, _given(anna={0, 2}, bert={1, 0}))


def _description(**members: set[int]) -> dict[str, Any]:
    def topics(numbers: set[int]) -> Any:
        return {
            "TopicPartitions": [{"TopicId": T, "TopicName": "t", "Partitions": sorted(numbers)}]
            if numbers
            else []
        }

    listed = [
        {"MemberId": f"id-of-{name}", "Assignment": topics(set()), "TargetAssignment": topics(numbers)}
        for name, numbers in members.items()
    ]
    return {"ErrorCode": 0, "Groups": [{"GroupId": "g", "ErrorCode": 0, "Members": listed}]}


def _accepted(theirs: Any, ours: Any) -> bool:
    result = differences_of("described", theirs, ours)
    assert result
    return all(map(other_members, result))


def test_a_description_is_judged_as_a_whole() -> None:
    theirs = _description(anna={0, 1}, bert={2})
    assert told(theirs)["g TargetAssignment"]["id-of-anna"] == {(T, 0), (T, 1)}
    assert _accepted(theirs, _description(anna={2}, bert={0, 1}))
    assert not _accepted(theirs, _description(anna={2}, bert={1}))
    assert not _accepted(theirs, _description(anna={0, 1}, bert={1, 2}))


def _beats(*steps: tuple[str, set[int] | None]) -> dict[str, Any]:
    """Heartbeats of members one after the other, and what they are given."""
    answers: dict[str, Any] = {}
    for number, (name, numbers) in enumerate(steps):
        arguments = (
            None if numbers is None else {"TopicPartitions": [{"TopicId": T, "Partitions": sorted(numbers)}]}
        )
        answers[f"step {number}"] = {
            "ErrorCode": 0, "MemberId": f"id-of-{name}", "MemberEpoch": number + 1, "Assignment": arguments,
        }  # fmt: skip
    return answers


def _last_accepted(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    last = list(theirs)[-1]
    pair = theirs[last], ours[last]
    (path, *values), *_ = [
        (entry.path, entry.theirs, entry.ours)
        for entry in differences_of("beat", *pair)
        if "Assignment" in entry.path
    ]
    return other_members(Difference("beat", path, *values, whole=pair, answers=(theirs, ours), step=last))


def test_heartbeats_are_judged_by_assignments_of_all_members() -> None:
    theirs = _beats(("anna", {0, 1, 2}), ("anna", {0, 1}), ("bert", {2}))
    assert held(theirs, "step 2") == {"anna": {(T, 0), (T, 1)}, "bert": {(T, 2)}}
    assert _last_accepted(theirs, _beats(("anna", {0, 1, 2}), ("anna", {1, 2}), ("bert", {0})))
    assert not _last_accepted(theirs, _beats(("anna", {0, 1, 2}), ("anna", {0, 1}), ("bert", {1})))
    assert not _last_accepted(theirs, _beats(("anna", {0, 1, 2}), ("anna", {0, 1}), ("bert", set())))


def test_early_share_assignment_equals_the_final_one() -> None:
    def is_accepted(first: set[int], last: set[int]) -> bool:
        theirs, ours = _beats(("anna", set()), ("anna", {0, 1, 2})), _beats(("anna", first), ("anna", last))
        pair = theirs["step 0"], ours["step 0"]
        ours_first = pair[1]["Assignment"]["TopicPartitions"]
        path = "/Assignment/TopicPartitions"
        pair[0]["Assignment"]["TopicPartitions"] = []
        return shared_at_once(Difference("", path, [], ours_first, pair, (theirs, ours), "step 0"))

    assert is_accepted({0, 1, 2}, {0, 1, 2})
    assert is_accepted({0, 1}, {0, 1, 2})
    assert not is_accepted({0, 1, 2, 3}, {0, 1, 2})  # there is no 3
    assert not is_accepted({0, 1, 2}, {0, 1})  # 2 is taken away again
    assert not is_accepted(set(), {0, 1, 2})


def test_members_of_a_share_group_share_the_same_partitions() -> None:
    def is_accepted(**members: set[int]) -> bool:
        theirs, ours = _description(anna={0, 2}, bert={1}), _description(**members)
        result = differences_of("described", theirs, ours)
        return all(map(shared_by_others, result))

    assert is_accepted(anna={2}, bert={0, 1})
    assert not is_accepted(anna={2}, bert={1})
    assert not is_accepted(anna={0, 1, 2}, bert=set())


def test_who_has_no_name_is_known_by_the_id_that_was_given() -> None:
    answers = _beats(("anna", {0}))
    answers["asked"] = answers["step 0"] | {"MemberId": "<id 3>"}
    answers["and again"] = answers["asked"] | {"Assignment": None}
    assert held(answers, "and again") == {"anna": {(T, 0)}, "<id 3>": {(T, 0)}}


def test_a_heartbeat_without_an_assignment_says_nothing_new() -> None:
    assert held(_beats(("anna", {0}), ("anna", None)), "step 1") == {"anna": {(T, 0)}}


def test_who_leaves_has_nothing() -> None:
    answers = _beats(("anna", {0}), ("bert", {1}))
    answers["gone"] = {"ErrorCode": 0, "MemberId": "id-of-anna", "MemberEpoch": -1, "Assignment": None}
    assert held(answers, "gone") == {"bert": {(T, 1)}}


def test_assignments_of_each_protocol_are_read() -> None:
    assert slots_of(assignment("t", 2, 0).decode("latin-1")) == {(T, 2), (T, 0)}
    assert slots_of("") == slots_of(None) == frozenset()
    tasks = {
        "ActiveTasks": [{"SubtopologyId": "0", "Partitions": [1]}],
        "StandbyTasks": [],
        "WarmupTasks": None,
    }
    assert slots_of(tasks) == {("ActiveTasks 0", 1)}


def test_freed_partitions_go_to_members_below_their_share() -> None:
    theirs = _beats(("anna", {0}), ("bert", {1}), ("carl", {2}), ("anna", None), ("bert", None))
    theirs["step 3"] = {"ErrorCode": 25, "MemberId": None, "MemberEpoch": 0, "Assignment": None}
    gone = {"anna after that": theirs.pop("step 3")}

    def scenario(last: set[int] | None) -> dict[str, Any]:
        beats = _beats(("anna", {0}), ("bert", {1}), ("carl", {2}), ("bert", last))
        return {**dict(list(beats.items())[:3]), **gone, "step 3": beats["step 3"]}

    assert _last_accepted(scenario(None), scenario({0, 1}))
    assert not _last_accepted(scenario(None), scenario({0, 1, 2}))  # two have 2
    assert not _last_accepted(scenario(None), scenario({0}))  # nobody has 1


def test_description_with_targets_is_judged_by_targets() -> None:
    def described(**shall: set[int]) -> dict[str, Any]:
        answer = _description(**shall)
        for member in answer["Groups"][0]["Members"]:
            slots = member["TargetAssignment"]["TopicPartitions"]
            member["Assignment"] = {
                "TopicPartitions": [slots[0] | {"Partitions": slots[0]["Partitions"][:1]}]
            }
        return answer

    assert _accepted(described(anna={0, 1}, bert={2}), described(anna={2}, bert={0, 1}))
    planted = described(anna={2}, bert={0, 1})
    for numbers in ([2], []):  # two have it; it is behind what has come at Kafka
        planted["Groups"][0]["Members"][1]["Assignment"]["TopicPartitions"][0]["Partitions"] = numbers
        assert not _accepted(described(anna={0, 1}, bert={2}), planted)
