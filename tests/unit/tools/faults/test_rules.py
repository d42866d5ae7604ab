"""Rules: how they are written, what is wrong with them, what they apply to and when they strike."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from barnabas.tools import control
from barnabas.tools.faults import actions, file, short
from barnabas.tools.faults.engine import Faults
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.matching import Subject
from barnabas.tools.faults.sets import SETS

PRODUCE, FETCH, OFFSET_COMMIT = 0, 1, 8


def asked(
    api_key: int = PRODUCE,
    version: int = 9,
    *,
    topics: tuple[tuple[str, int | None], ...] = (),
    groups: tuple[str, ...] = (),
    **others: Any,
) -> Subject:
    others = {"now_ms": 0.0, **others}
    return Subject(
        "request",
        api_key=api_key,
        api_version=version,
        topics=lambda: topics,
        groups=lambda: groups,
        **others,
    )


def strikes(faults: Faults, subject: Subject) -> bool:
    return bool(faults.judge(subject).rules)


def test_a_rule_applies_to_what_it_names() -> None:
    faults = Faults()
    faults.add(
        {
            "on": {
                "api": "OffsetCommit",
                "version": "2-8",
                "client_id": "app-*",
                "group": "g",
                "principal": "User:a",
            },
            "do": {"error": "REBALANCE_IN_PROGRESS"},
        }
    )
    fits = {"groups": ("g",), "client_id": "app-1", "principal": "User:a"}
    assert strikes(faults, asked(OFFSET_COMMIT, 2, **fits))
    assert strikes(faults, asked(OFFSET_COMMIT, 8, **fits))
    assert not strikes(faults, asked(OFFSET_COMMIT, 9, **fits))
    assert not strikes(faults, asked(PRODUCE, 8, **fits))
    assert not strikes(faults, asked(OFFSET_COMMIT, 8, **{**fits, "groups": ("other",)}))
    assert not strikes(faults, asked(OFFSET_COMMIT, 8, **{**fits, "client_id": None}))
    assert not strikes(faults, asked(OFFSET_COMMIT, 8, **{**fits, "principal": "User:b"}))


def test_topics_and_partitions_are_looked_at_together() -> None:
    faults = Faults()
    faults.add("Produce topic=orders,bills partition=1 -> drop=answer")
    assert strikes(faults, asked(topics=(("orders", 0), ("bills", 1))))
    assert not strikes(faults, asked(topics=(("orders", 0), ("others", 1))))


@pytest.mark.parametrize(
    ("when", "hit"),
    [
        ("nth=3", [3]),
        ("nth=2,5", [2, 5]),
        ("every=3", [3, 6, 9]),
        ("after=7", [8, 9, 10]),
        ("times=2", [1, 2]),
        ("after=2 every=2 times=2", [4, 6]),
    ],
)
def test_matches_are_counted(when: str, hit: list[int]) -> None:
    faults = Faults()
    rule = faults.add(f"Produce {when} -> drop=request")
    assert [number for number in range(1, 11) if strikes(faults, asked())] == hit
    assert (rule.seen, rule.hits) == (10, len(hit))


def test_a_rule_has_its_time() -> None:
    now = [0.0]
    faults = Faults(clock_ms=lambda: now[0])
    now[0] = 1000.0
    faults.add("Produce from_ms=100 until_ms=200 -> drop=request")
    moments = (1000, 1099, 1100, 1199, 1200)
    assert [now_ms for now_ms in moments if strikes(faults, asked(now_ms=float(now_ms)))] == [1100, 1199]


def test_chance_follows_from_the_seed() -> None:
    def run(seed: int, *others: str) -> list[int]:
        faults = Faults(seed)
        for other in others:
            faults.add(other)
        faults.add("Produce probability=0.3 name=this -> drop=request")
        return [number for number in range(200) if "this" in faults.judge(asked()).names]

    first = run(7)
    assert first == run(7) == run(7, "Produce probability=0.5 -> drop=request")
    assert first != run(8)
    assert 30 < len(first) < 90

    faults = Faults(7)
    faults.add("Produce probability=0.3 name=this -> drop=request")
    for _ in range(50):
        faults.judge(asked())
    faults.reset()
    assert [number for number in range(200) if strikes(faults, asked())] == first


def test_delays_are_drawn_and_add_up() -> None:
    faults = Faults()
    faults.add("Produce -> delay_ms=100..200")
    faults.add("Produce -> delay_ms=1000")
    assert 1100 <= faults.judge(asked()).total("delay_ms") <= 1200


def test_a_rule_that_is_off_counts_nothing() -> None:
    faults = Faults()
    rule = faults.add("Produce name=one -> drop=request")
    faults.enable("one", is_enabled=False)
    assert not faults.concerns("request")
    assert not strikes(faults, asked())
    faults.enable("one")
    assert strikes(faults, asked())
    assert rule.seen == 1
    faults.remove("one")
    assert not strikes(faults, asked())


def test_topics_of_a_fetch_may_come_from_the_response() -> None:
    faults = Faults()
    rule = faults.add("Fetch topic=t -> delay_ms=1")
    verdict = faults.judge(asked(FETCH))
    assert verdict
    assert not verdict.rules
    faults.judge_answer(verdict, [("other", 0)])
    assert rule.seen == 0
    verdict = faults.judge(asked(FETCH))
    faults.judge_answer(verdict, [("t", 0)])
    assert verdict.names == [rule.name]


@pytest.mark.parametrize("on", ["Fetch", "Fetch topic=t"])
def test_response_without_records_is_no_hit_of_damage(on: str) -> None:
    faults = Faults()
    rule = faults.add(f"{on} times=1 -> corrupt=crc")
    verdict = faults.judge(asked(FETCH))
    faults.judge_answer(verdict, [("t", 0)], filled=[])
    assert not verdict.names
    assert rule.seen == rule.hits == 0
    verdict = faults.judge(asked(FETCH))
    faults.judge_answer(verdict, [("t", 0)], filled=[("t", 0)])
    assert verdict.names == [rule.name]
    assert rule.hits == 1


@pytest.mark.parametrize(
    ("rule", "place", "text"),
    [
        ({"on": {"api": "Produze"}, "do": {"drop": "answer"}}, "on.api", "'Produze' is not the name of an API"),
        ({"on": {"api": "offset"}, "do": {"drop": "answer"}}, "on.api", "did you mean ListOffsets or OffsetCommit"),
        ({"on": {"apis": "Produce"}, "do": {"drop": "answer"}}, "on.apis", "there is no such condition"),
        ({"on": {"version": "8-2"}, "do": {"drop": "answer"}}, "on.version", "'8-2' is not a version"),
        ({"when": {"nth": 0}, "do": {"drop": "answer"}}, "when.nth", "0 is not a whole number from 1"),
        ({"when": {"probability": 2}, "do": {"drop": "answer"}}, "when.probability", "2 is not a number from 0 to 1"),
        ({"do": {}}, "do", "an action is expected"),
        ({"do": {"explode": True}}, "do.explode", "there is no such action"),
        ({"do": {"error": "NOT_LEADER"}}, "do.error", "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({"do": {"delay_ms": "200..100"}}, "do.delay_ms", "'200..100' is not a number of ms"),
        ({"do": {"refuse": True}}, "do.refuse", "is not for request"),
        ({"on": {"event": "connect", "topic": "t"}, "do": {"refuse": True}}, "on.topic", "is not known of connect"),
        ({"on": {"event": "disk.write"}, "do": {"errno": "EFULL"}}, "do.errno", "'EFULL' is not the name"),
        ({"on": {"api": "Produce"}, "do": {"error": 6, "at": "topics[*].error"}}, "do.at",
         "ProduceResponse has no field topics; it has responses"),
        ({"on": {"api": "Produce"}, "do": {"set": {"throttleTimeMs": "long"}}}, "do.set", "'long' is not a value for"),
        ({"do": {"set": {"throttle_time_ms": 1}}}, "on.api", "Name them"),
        ({"do": {"at": "error_code", "drop": "answer"}}, "do.at", "there is none"),
        ({"do": {"drop": "answer"}, "name": "a/b"}, "name", "without /"),
        ({"do": {"drop": "answer"}, "extra": 1}, "extra", "there is no such part"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(rule: dict[str, Any], place: str, text: str) -> None:
    faults = Faults()
    with pytest.raises(FaultError) as caught:
        faults.add(rule)
    assert caught.value.place == place
    assert text in str(caught.value)
    assert not faults.rules


def test_two_rules_have_two_names() -> None:
    faults = Faults()
    faults.add({"name": "fault-1", "do": {"drop": "answer"}})
    assert faults.add({"do": {"drop": "answer"}}).name == "fault-2"
    with pytest.raises(FaultError, match="there is a rule fault-1 already"):
        faults.add({"name": "fault-1", "do": {"drop": "answer"}})


def test_the_short_form_is_the_same_rule() -> None:
    assert short.parse(
        "OffsetCommit v2-8 group='my group' nth=3 name=x -> error=REBALANCE_IN_PROGRESS delay_ms=5"
    ) == {
        "name": "x",
        "on": {"api": "OffsetCommit", "version": "2-8", "group": "my group"},
        "when": {"nth": "3"},
        "do": {"error": "REBALANCE_IN_PROGRESS", "delay_ms": "5"},
    }
    assert short.parse("connect -> refuse") == {"on": {"event": "connect"}, "do": {"refuse": True}}
    assert short.parse("* -> reset=after")["on"] == {}


@pytest.mark.parametrize(
    "line", ["Produce drop=answer", "Produce -> drop -> drop", "Produce Fetch -> drop=answer", "'"]
)
def test_a_line_that_is_no_rule_is_explained(line: str) -> None:
    with pytest.raises(FaultError):
        short.parse(line)


FILE = """\
seed: 3
faults:
  - name: late
    on: {api: [Produce, Fetch], topic: orders}
    when: {every: 2}
    do: {delay_ms: 5..10}
  - "connect -> refuse"
  - set: moved-coordinator
    parameters: {group: g, times: 1}
"""


def test_a_file_has_rules_lines_and_sets() -> None:
    faults = Faults()
    file.read(FILE, faults)
    assert faults.seed == 3
    assert list(faults.rules) == ["late", "fault-1", "moved-coordinator.moved", "moved-coordinator.elected"]


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("every: 2", "evry: 2", 5, "when.evry: there is no such condition"),
        ("orders}", "orders", 5, "expected"),
        ("connect -> refuse", "connect refuse", 7, "is not of the form"),
        ("moved-coordinator", "moved", 8, "there is no set moved"),
        ("times: 1", "times: -1", 8, "-1 is not a whole number"),
        ("seed: 3", "seed: x", 1, "a whole number is expected"),
        ("seed: 3", "sed: 3", 1, "there is no 'sed' here"),
        ("    when:", "    on:", 5, "stands here twice"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(old: str, new: str, line: int, text: str) -> None:
    assert old in FILE
    faults = Faults()
    with pytest.raises(FaultError) as caught:
        file.read(FILE.replace(old, new), faults)
    assert caught.value.line == line
    assert text in str(caught.value)
    assert not faults.rules


@pytest.mark.parametrize("name", SETS)
def test_each_set_makes_rules(name: str) -> None:
    faults = Faults()
    rules = faults.use(name)
    assert rules
    assert all(rule.name.startswith(f"{name}.") for rule in rules)
    with pytest.raises(FaultError, match="has no parameter nonsense"):
        faults.use(name, {"nonsense": 1})


def test_every_action_is_carried_out_somewhere() -> None:
    modules = [path for path in Path(control.__path__[0]).rglob("*.py") if "routes" not in path.parts]
    named = {
        node.value
        for path in modules
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {action.name for action in actions.ACTIONS} - named == set()
