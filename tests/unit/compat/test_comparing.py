"""Answers side by side: what is compared by its form, and what of a scenario is compared as it is."""

from __future__ import annotations

from typing import Any

import pytest

from compat.kit import compare
from compat.kit.compare import Step, compared
from compat.kit.forms import Forms
from compat.kit.scenarios import Scenario, ScenarioRun, _act, _compare
from compat.kit.sides import Side
from compat.kit.wire import WireError

THEIRS, OURS = Side("Kafka", 9092, 9093), Side("Barnabas", 9192, 9193)


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    result = compared("step", (theirs, ours), (Forms(THEIRS.ports), Forms(OURS.ports)))
    return [(difference.path, difference.theirs, difference.ours) for difference in result]


def test_brokers_and_topics_are_compared_by_whose_they_are() -> None:
    def metadata(side: Side, topic_id: bytes) -> dict[str, Any]:
        topic = {"Name": "t", "TopicId": topic_id, "ErrorCode": 0}
        return {"Brokers": [{"Port": side.port}], "Topics": [topic], "ClusterId": "A" * 22}

    assert _differences(metadata(THEIRS, b"a" * 16), metadata(OURS, b"b" * 16)) == []
    assert _differences(metadata(THEIRS, b"a" * 16), metadata(OURS, bytes(16))) == [
        ("/Topics/t/TopicId", "id of t", "no id")
    ]
    assert _differences(metadata(THEIRS, b"a" * 16), metadata(THEIRS, b"b" * 16)) == [
        ("/Brokers/0/Port", "its port", 9092)
    ]
    assert _differences({"Port": 9092}, {"Port": 9193}) == [("/Port", "its port", "its port of logins")]


def test_who_alone_is_throttled_is_seen() -> None:
    assert _differences({"ThrottleTimeMs": 0}, {"ThrottleTimeMs": 5}) == [("/ThrottleTimeMs", 0, 5)]


def test_an_entry_that_one_side_has_twice_is_seen() -> None:
    entry = {"GroupId": "g", "ErrorCode": 0}
    assert len(_differences({"Groups": [entry, entry]}, {"Groups": [entry]})) == 1


@pytest.mark.parametrize(("settles", "asked"), [(True, 3), (False, 1)])
def test_what_settles_is_asked_until_both_answer_alike(
    monkeypatch: pytest.MonkeyPatch, settles: bool, asked: int
) -> None:
    answers = [{"ErrorCode": code} for code in (14, 0, 14, 0, 0, 0)]
    arguments = iter(answers)
    monkeypatch.setattr(compare, "_ask", lambda *_: next(arguments))
    monkeypatch.setattr(compare, "SETTLE_S", 0.3)
    result = compare.run([Step("begun", "InitProducerId", 4, {}, settles=settles)], THEIRS, OURS, ())
    assert len(list(arguments)) == len(answers) - 2 * asked
    assert len(result) == (0 if settles else 1)


def _run(side: Side, **answers: Any) -> ScenarioRun:
    run = ScenarioRun(side, "a scenario", 0, {}, _topics={bytes([side.port % 256]) * 16: "t"})
    for label, answer in answers.items():
        run.note(label.replace("_", " "), answer)
    return run


def _seen(theirs: dict[str, Any], ours: dict[str, Any]) -> list[tuple[str, str, Any, Any]]:
    result = _compare("scenario", _run(THEIRS, **theirs), _run(OURS, **ours))
    return [(difference.label, difference.path, difference.theirs, difference.ours) for difference in result]


def test_random_ids_are_compared_by_first_appearance() -> None:
    first, second = "A" * 22, "B" * 22
    theirs = {"asked": {"MemberId": first}, "again": {"MemberId": second}}
    assert _seen(theirs, {"asked": {"MemberId": second}, "again": {"MemberId": first}}) == []
    assert _seen(theirs, {"asked": {"MemberId": first}, "again": {"MemberId": first}}) == [
        ("scenario: again", "/MemberId", "<id 2>", "<id 1>")
    ]


def test_an_answer_of_a_scenario_is_compared_in_all_its_fields() -> None:
    right = {
        "ErrorCode": 0, "ErrorMessage": None, "ThrottleTimeMs": 0, "MemberEpoch": 1,
        "Assignment": {"TopicPartitions": [{"TopicId": b"\x84" * 16, "Partitions": [1, 0]}]},
    }  # fmt: skip
    ours = right | {"Assignment": {"TopicPartitions": [{"TopicId": b"\xe8" * 16, "Partitions": [0, 1]}]}}
    assert _seen({"asked": right}, {"asked": ours}) == []
    for planted in ({"ErrorMessage": "oh"}, {"ThrottleTimeMs": 5}, {"MemberEpoch": 2}, {"ErrorCode": 3}):
        assert len(_seen({"asked": right}, {"asked": ours | planted})) == 1
    assert len(_seen({"asked": right}, {})) == 1


def test_a_difference_of_a_scenario_knows_its_answers() -> None:
    theirs, ours = _run(THEIRS, first={"a": 1}, asked={"a": 1}), _run(OURS, first={"a": 1}, asked={"a": 2})
    (result,) = _compare("scenario", theirs, ours)
    assert (result.step, result.whole) == ("asked", ({"a": 1}, {"a": 2}))
    assert list(result.answers[1]) == ["first", "asked"]


def test_scenario_without_timely_response_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: Any, **__: Any) -> dict[str, Any]:
        raise WireError("no answer in 15 s")

    monkeypatch.setattr(ScenarioRun, "look", look)
    run = _run(THEIRS)
    _act(Scenario("a scenario", lambda run: run.topic("t") and None), run)
    assert run.answers == {"the scenario breaks off": "WireError: no answer in 15 s"}
