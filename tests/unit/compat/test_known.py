"""Known differences: what they accept, what they refuse, and that none outlives what it is about."""

from __future__ import annotations

import time
from typing import Any

import pytest

from compat.kit import predicates
from compat.kit.forms import Forms
from compat.kit.known import Difference, KnownDifference, differences_between, differences_of, judge
from compat.kit.predicates import CLOSED, SILENT

A_CODE = Difference("create", "/Topics/t/ErrorCode", 0, 3)


def _known(
    label: Any = "create", path: Any = ".*/ErrorCode", accepts: Any = None, **more: str
) -> KnownDifference:
    return KnownDifference(label, path, "because", accepts or predicates.pair(0, 3), **more)


def test_what_is_not_known_fails_and_what_is_known_does_not() -> None:
    assert judge([A_CODE], [_known()]) == 0
    assert judge([A_CODE], []) == 1


def test_another_value_at_a_known_place_fails(capsys: pytest.CaptureFixture[str]) -> None:
    other = Difference("create", "/Topics/t/ErrorCode", 0, 7)
    assert judge([A_CODE, other], [_known()]) == 1
    assert "Kafka 0, Barnabas 7" in capsys.readouterr().out


def test_what_is_no_longer_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge([], [_known()]) == 2  # the label, and the path
    assert judge([A_CODE], [_known(label="delete")]) == 3
    assert "no longer there" in capsys.readouterr().out


def test_each_of_several_patterns_has_to_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge([A_CODE], [_known(label=("create", "delete"))]) == 1
    assert judge([A_CODE], [_known(path=(".*/ErrorCode", ".*/ErrorMessage"))]) == 1
    out = capsys.readouterr().out
    assert "no longer there: delete" in out
    assert "no longer there: .*/ErrorMessage" in out


def test_each_alternative_of_a_pattern_has_to_be_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        judge([A_CODE], [_known(label="(create|delete)", path="/(Topics|Groups)/t/(.*)?(ErrorCode|None)")])
        == 4
    )
    out = capsys.readouterr().out
    assert "no longer there: delete" in out
    assert "no longer there: create" not in out
    assert "no longer there: /Groups/t/(.*)?ErrorCode" in out
    assert (
        judge([A_CODE], [_known(label="(create)?(delete)*")]) == 0
    )  # what may be there or not is no alternative


def test_one_that_is_behind_another_is_no_longer_needed() -> None:
    assert judge([A_CODE], [_known(), _known(label="cr.*")]) == 2


def test_what_was_not_asked_cannot_be_missed() -> None:
    assert judge([], [_known()], complete=False) == 0


def test_what_is_there_by_chance_may_be_missed_with_its_reason() -> None:
    assert judge([], [_known(by_chance="its order is random")]) == 0


def test_a_pattern_is_that_of_the_whole_label() -> None:
    assert not _known(label="creat").covers(A_CODE)
    assert not _known(path="/Topics").covers(A_CODE)


def test_a_truth_is_not_a_number() -> None:
    assert list(differences_between("", {"a": True}, {"a": 1})) == [("/a", True, 1)]


def test_a_field_that_one_side_lacks_is_a_difference() -> None:
    assert list(differences_between("", {"a": 1}, {})) == [("/a", 1, "nothing")]
    assert list(differences_between("", {}, {"a": 1})) == [("/a", "nothing", 1)]
    assert list(differences_between("", [1], [1, 2])) == [("", [1], [1, 2])]
    assert list(differences_between("", [{"a": [1, 2]}], [{"a": [1, 3]}])) == [("/0/a/1", 2, 3)]


def _at(path: str, theirs: Any, ours: Any) -> Difference:
    return Difference("step", path, theirs, ours)


@pytest.mark.parametrize(
    ("accepts", "right", "wrong"),
    [
        (predicates.pair(-1, 42), [(-1, 42)], [(-1, 0), (42, -1), (-1, -1)]),
        (predicates.pairs((1, 2), (3, 4)), [(1, 2), (3, 4)], [(1, 4), (2, 1)]),
        (predicates.any_of(predicates.pair(1, 2), predicates.lower), [(1, 2), (5, 0)], [(2, 5)]),
        (predicates.both(predicates.is_id), [(0, 7)], [(-1, 7), (7, -1), (0, None), ("nothing", 0)]),
        (predicates.both(predicates.is_path), [("/a", "/b")], [("/a", ""), ("/a", "b"), ("/a", "/"), (None, "/a")]),
        (predicates.words_where_none, [(None, "words"), ("", "words")], [("words", None), ("words", ""), (None, "")]),
        (predicates.lower, [(4, 0), (1, 0)], [(0, 4), (4, 4), (4, -1), (4, "nothing"), (None, 0)]),
        (predicates.higher, [(0, 4), (0, 1)], [(4, 0), (4, 4), (-1, 4), ("nothing", 4), (0, None)]),
        (predicates.only_theirs, [({"a": 1}, "nothing")], [("nothing", {"a": 1}), (1, 2)]),
    ],
)  # fmt: skip
def test_what_a_predicate_accepts_and_refuses(accepts: Any, right: list[Any], wrong: list[Any]) -> None:
    assert all(accepts(_at("/a", *pair)) for pair in right)
    assert not any(accepts(_at("/a", *pair)) for pair in wrong)


def _answers(theirs: tuple[int, Any], ours: tuple[int, Any]) -> list[Difference]:
    """Return where two answers differ if their only topic, of an odd name, has these codes and words."""
    whole = [
        {"Topics": {"a/b": {"ErrorCode": code, "ErrorMessage": words}}} for code, words in (theirs, ours)
    ]
    return differences_of("step", *whole)


def test_stumbling_is_one_code_for_another() -> None:
    accepts = predicates.stumbles(42)
    assert list(map(accepts, _answers((-1, None), (42, "words")))) == [True, True]
    assert list(map(accepts, _answers((-1, "words"), (42, "words")))) == [True]
    assert list(map(accepts, _answers((-1, None), (0, "words")))) == [False, False]
    assert list(map(accepts, _answers((3, None), (42, "words")))) == [False, False]
    assert list(map(accepts, _answers((-1, "words"), (42, None)))) == [True, False]
    assert list(map(accepts, _answers((42, None), (42, "words")))) == [False]
    assert not accepts(_at("/Port", -1, 42))


def test_words_are_known_beside_an_error_alone() -> None:
    expected = _known("step", ".*", predicates.words_of_an_error)
    assert all(map(expected.covers, _answers((3, None), (3, "words"))))
    assert all(map(expected.covers, _answers((3, ""), (3, "words"))))
    assert not any(map(expected.covers, _answers((0, None), (0, "words"))))
    assert not any(map(expected.covers, _answers((3, "words"), (3, None))))
    assert not expected.covers(_at("/ErrorMessage", None, "words"))  # the answers were not kept


def test_a_field_is_held_by_the_struct_around_it() -> None:
    inner = {"ErrorCode": 3}
    for whole in ({"Topics": {"a/b": inner}}, {"Topics": {"a": {"b": inner}}}, {"Topics": [inner]}):
        path = "/Topics/0/ErrorCode" if isinstance(whole["Topics"], list) else "/Topics/a/b/ErrorCode"
        assert Difference("step", path, 3, 3, whole=(whole, whole)).holders() == (inner, inner)
    assert differences_of("step", {"ErrorCode": 0}, inner)[0].holders() == ({"ErrorCode": 0}, inner)
    for path in ("", "/Topics/a/ErrorCode", "/ErrorCode/a/b"):
        with pytest.raises(KeyError):
            Difference("step", path, 0, 3, whole=({}, {})).holders()


def test_whole_answers_are_judged_by_all_their_codes() -> None:
    accepts = predicates.answers(predicates.closed, predicates.codes(54))
    refused = {"Resources": [], "ErrorCode": 54}
    assert all(map(accepts, differences_of("describe", CLOSED, refused)))
    for planted in ({"Resources": [], "ErrorCode": 0}, refused | {"Resources": [{"ErrorCode": 3}]}, {}):
        assert not any(map(accepts, differences_of("describe", CLOSED, planted)))
    assert not any(map(accepts, differences_of("describe", SILENT, refused)))
    assert all(
        map(predicates.answers(predicates.silent, predicates.codes(54)), differences_of("a", SILENT, refused))
    )


# --- forms --------------------------------------------------------------------------------------------------------

AN_ID, ANOTHER_ID = b"\xaa" * 16, b"\xbb" * 16


def _forms() -> Forms:
    forms = Forms({9092: "its port"})
    forms.learn({"Topics": [{"Name": "t", "TopicId": AN_ID, "ErrorCode": 0}]})
    return forms


def test_a_topic_is_named_by_its_id() -> None:
    assert _forms().of("TopicId", AN_ID) == "id of t"
    assert _forms().of("TopicId", ANOTHER_ID) == "id of another"
    assert _forms().of("TopicId", bytes(16)) == "no id"
    assert _forms().of("TopicId", bytes(range(16))) == "an id that nothing has"
    assert _forms().of("Salt", AN_ID) == AN_ID


def test_an_id_that_is_told_with_an_error_is_no_topics() -> None:
    forms = Forms({})
    forms.learn({"Name": "t", "TopicId": AN_ID, "ErrorCode": 3})
    assert forms.of("TopicId", AN_ID) == "id of another"


def test_only_its_own_port_is_a_sides_port() -> None:
    assert _forms().of("Port", 9092) == "its port"
    assert _forms().of("Port", 9093) == 9093
    assert _forms().of("Port", -1) == -1


def test_only_a_time_of_now_is_the_time_of_a_run() -> None:
    now_ms = time.time_ns() // 1_000_000
    for name in ("TransactionStartTimeMs", "LastTimestamp", "LogAppendTimeMs"):
        assert _forms().of(name, now_ms) == "a time"
        assert _forms().of(name, now_ms - 3_600_000) == now_ms - 3_600_000
        assert _forms().of(name, -1) == -1
    assert _forms().of("ThrottleTimeMs", now_ms) == now_ms


def test_a_throttle_time_is_compared() -> None:
    assert _forms().of("ThrottleTimeMs", 5) == 5


def test_words_are_there_or_not() -> None:
    assert [_forms().of("ErrorMessage", text) for text in (None, "", "NONE", "oh")] == [
        None,
        "",
        "NONE",
        "words",
    ]


def test_a_cluster_has_an_id_of_its_form() -> None:
    assert _forms().of("ClusterId", "MkU3OEVBNTcwNTJENDM2Qk") == "a cluster's id"
    assert _forms().of("ClusterId", None) is None
    assert _forms().of("ClusterId", "short") == "short"
