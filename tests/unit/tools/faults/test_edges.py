"""Rules at the edges: each condition by itself, the last values that are possible, and random numbers that never change."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from barnabas.tools.faults import actions, matching, short
from barnabas.tools.faults.chance import Chance
from barnabas.tools.faults.engine import RULES_MAX, Faults
from barnabas.tools.faults.errors import FaultError
from barnabas.tools.faults.matching import Subject

FITS: dict[str, Any] = {
    "api_key": 8,
    "api_version": 5,
    "client_id": "app-1",
    "principal": "User:alice",
    "listener": "INSIDE",
    "connection_id": 7,
}
DAY_MS = 24 * 3600 * 1000


def subject(
    *topics: tuple[str, int | None], groups: tuple[str, ...] = (), event: str = "request", **more: Any
) -> Subject:
    return Subject(event, **{"now_ms": 0.0, **FITS, **more}, topics=lambda: topics, groups=lambda: groups)


# --- what a rule applies to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "value", "other"),
    [
        ({"api": "OffsetCommit"}, {}, {"api_key": 9}),
        ({"api": 8}, {}, {"api_key": 9}),
        ({"api": "8"}, {}, {"api_key": 9}),
        ({"api": ["fetch", "OFFSETCOMMIT"]}, {"api_key": 1}, {"api_key": 0}),
        ({"api": "Fetch, OffsetCommit"}, {"api_key": 8}, {"api_key": 0}),
        ({"version": 5}, {}, {"api_version": 6}),
        ({"version": "3-5"}, {}, {"api_version": 2}),
        ({"version": "5-"}, {"api_version": 99}, {"api_version": 4}),
        ({"version": "-5"}, {"api_version": 0}, {"api_version": 6}),
        ({"version": [1, "4-5"]}, {"api_version": 1}, {"api_version": 3}),
        ({"client_id": "app-1"}, {}, {"client_id": "app-10"}),
        ({"client_id": "app-?"}, {}, {"client_id": "app-"}),
        ({"client_id": "app-?"}, {}, {"client_id": "app-12"}),
        ({"client_id": "*-1"}, {}, {"client_id": "app-2"}),
        ({"client_id": "a.p*"}, {"client_id": "a.p"}, {}),
        ({"client_id": ["x", "app-*"]}, {"client_id": "x"}, {"client_id": "y"}),
        ({"client_id": "*"}, {"client_id": None}, None),
        ({"client_id": "a*"}, {"client_id": "a\nb"}, {"client_id": None}),
        ({"principal": "User:a*"}, {}, {"principal": "User:bob"}),
        ({"listener": "INSIDE"}, {}, {"listener": "OUTSIDE"}),
        ({"connection": 7}, {}, {"connection_id": 8}),
        ({"connection": "6,7"}, {}, {"connection_id": 8}),
        ({"connection": 0}, {"connection_id": 0}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_each_condition_decides_by_itself(condition, value, other):
    match = matching.parse(condition)
    assert match.fits(subject(**value))
    assert other is None or not match.fits(subject(**other))
    assert not match.fits(subject(event="connect", **value))


@pytest.mark.parametrize(
    ("condition", "topics", "fits"),
    [
        ({"topic": "t"}, [("t", 0)], True),
        ({"topic": "t"}, [("t", None)], True),
        ({"topic": "t"}, [("u", 0), ("t", 1)], True),
        ({"topic": "t"}, [("u", 0)], False),
        ({"topic": "t"}, [], False),
        ({"partition": 0}, [("u", 1), ("t", 0)], True),
        ({"partition": 0}, [("t", 1)], False),
        ({"partition": 1}, [("t", None)], True),
        ({"topic": "t", "partition": "1,2"}, [("t", 0), ("u", 1)], False),
        ({"topic": "t", "partition": "1,2"}, [("u", 0), ("t", 2)], True),
        ({}, [], True),
    ],
    ids=str,
)
def test_topics_and_partitions_of_one_place_decide(condition, topics, fits):
    match = matching.parse(condition)
    assert match.fits(subject(*topics)) is fits
    assert match.fits(subject(), with_topics=False)


@pytest.mark.parametrize(
    ("groups", "fits"), [(("g",), True), (("h", "g"), True), (("h",), False), ((), False)]
)
def test_one_of_the_groups_is_enough(groups, fits):
    assert matching.parse({"group": "g"}).fits(subject(groups=groups)) is fits


@pytest.mark.parametrize("event", ["connect", "disk.write", "disk.read", "disk.sync"])
@pytest.mark.parametrize("condition", matching.NAMES[1:])
def test_conditions_are_known_of_the_events_that_have_them(event, condition):
    known = {"connect": {"listener"}}.get(event, {"topic", "partition"})
    value = {"event": event, condition: 1}
    if condition in known:
        assert matching.parse(value).event == event
    else:
        with pytest.raises(FaultError, match=f"on.{condition}: is not known of {event}"):
            matching.parse(value)


@pytest.mark.parametrize(
    "condition",
    [
        {"version": "5-3"}, {"version": "x"}, {"version": True}, {"version": ""}, {"connection": -1},
        {"connection": 2**31 + 1}, {"partition": "one"}, {"api": 9999}, {"api": ""}, {"api": "9999"}, [],
        {"event": "sleep"}, "Fetch",
    ],
    ids=str,
)  # fmt: skip
def test_what_no_condition_can_be_is_refused(condition):
    with pytest.raises(FaultError):
        matching.parse(condition)


# --- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "hit"),
    [
        ("nth=1", [1]),
        ("every=1", [1, 2, 3, 4, 5, 6]),
        ("every=2", [2, 4, 6]),
        ("after=0", [1, 2, 3, 4, 5, 6]),
        ("after=1 times=1", [2]),
        ("times=0", []),
        ("nth=2,4 after=2", [4]),
        ("probability=0", []),
        ("probability=1", [1, 2, 3, 4, 5, 6]),
        ("from_ms=2", [3, 4, 5, 6]),
        ("until_ms=2", [1, 2]),
        ("from_ms=1 until_ms=3", [2, 3]),
    ],
)
def test_matches_are_hit_when_it_is_time(when, hit):
    now = [1000.0]
    faults = Faults(clock_ms=lambda: now[0])
    rule = faults.add(f"* {when} name=r -> twice")
    for _ in range(2):
        found = []
        for number in range(1, 7):
            if faults.judge(subject(now_ms=now[0])).rules:
                found.append(number)
            now[0] += 1
        assert found == hit
        assert (rule.seen, rule.hits) == (6, len(hit))
        faults.reset()
        assert (rule.seen, rule.hits) == (0, 0)


@pytest.mark.parametrize("nth", [[2, 4], ["2", 4], "2,4"])
def test_the_numbers_of_matches_are_a_list_or_a_text(nth):
    faults = Faults()
    faults.add({"on": {}, "when": {"nth": nth}, "do": {"twice": True}})
    assert [number for number in range(1, 7) if faults.judge(subject()).rules] == [2, 4]


@pytest.mark.parametrize(
    "when",
    [
        {"nth": 0}, {"nth": "1,0"}, {"nth": [1, "x"]}, {"every": 0}, {"after": -1}, {"times": -1}, {"times": 1.5},
        {"probability": 1.01}, {"probability": -0.1}, {"probability": True}, {"probability": "x"}, {"from_ms": -1},
        {"until_ms": None}, {"until_ms": 2.0**54}, [],
    ],
    ids=str,
)  # fmt: skip
def test_what_no_time_can_be_is_refused(when):
    with pytest.raises(FaultError, match="when"):
        Faults().add({"when": when, "do": {"twice": True}})


# --- chance ---------------------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_splitmix64_and_never_change():
    """The first numbers of seed 0 and of 1234567 are those that the reference implementation gives."""
    chance = Chance(0)
    assert [chance.next() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    chance = Chance(1234567)
    assert [chance.next() for _ in range(2)] == [6457827717110365317, 3203168211198807973]
    assert Chance(0).bytes(11) == 0xE220A8397B1DCDAF.to_bytes(8, "little") + b"\xf4\x65\xb9"
    assert Chance(0).below(256) == 0xE2
    assert Chance(0).fraction() == (0xE220A8397B1DCDAF >> 11) / 2**53
    assert Chance(0).between(10, 20) == 10 + 10 * Chance(0).fraction()
    assert Chance(2**64).next() == Chance(0).next(), "seeds are numbers of 64 bits"
    assert len({Chance(0, name).next() for name in ("", "a", "b", "ab", "ba")}) == 5


# --- what is done ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("do", "event", "expected"),
    [
        ({"delay_ms": 0}, "request", {"delay_ms": (0, 0)}),
        ({"delay_ms": DAY_MS}, "connect", {"delay_ms": (DAY_MS, DAY_MS)}),
        ({"delay_ms": "1..2.5"}, "disk.sync", {"delay_ms": (1, 2.5)}),
        ({"delay_ms": "3"}, "request", {"delay_ms": (3, 3)}),
        ({"throttle_ms": DAY_MS}, "request", {"throttle_ms": DAY_MS}),
        ({"throttle_ms": "0"}, "request", {"throttle_ms": 0}),
        ({"cut": "close", "bytes": 2**31}, "request", {"cut": "close", "bytes": 2**31}),
        ({"close": True}, "request", {"close": "before"}),
        ({"reset": "after"}, "request", {"reset": "after"}),
        ({"twice": "true"}, "request", {"twice": True}),
        ({"refuse": True}, "connect", {"refuse": True}),
        ({"errno": "enospc"}, "disk.write", {"errno": errno.ENOSPC}),
        ({"error": "not_leader_or_follower"}, "request", {"error": 6}),
        ({"error": -1}, "request", {"error": -1}),
        ({"error": " 6 "}, "request", {"error": 6}),
        (
            {"error": 2**15 - 1, "error_after": -(2**15)},
            "request",
            {"error": 2**15 - 1, "error_after": -(2**15)},
        ),
    ],
    ids=str,
)
def test_actions_are_read(do, event, expected):
    assert actions.parse(do, event) == expected


@pytest.mark.parametrize(
    ("do", "event"),
    [
        ({"delay_ms": DAY_MS + 1}, "request"),
        ({"delay_ms": -1}, "request"),
        ({"delay_ms": "1..2..3"}, "request"),
        ({"delay_ms": "2..1"}, "request"),
        ({"delay_ms": True}, "request"),
        ({"delay_ms": None}, "request"),
        ({"throttle_ms": DAY_MS + 1}, "request"),
        ({"throttle_ms": 1.5}, "request"),
        ({"bytes": 5}, "request"),
        ({"cut": "close", "bytes": 2**31 + 1}, "request"),
        ({"drop": True}, "request"),
        ({"twice": False}, "request"),
        ({"twice": 1.5}, "request"),
        ({"refuse": True}, "request"),
        ({"hang": True}, "disk.read"),
        ({"errno": "EIO"}, "connect"),
        ({"errno": "errorcode"}, "disk.read"),
        ({"error": 2**15}, "request"),
        ({"error": -(2**15) - 1}, "request"),
        ({"error": True}, "request"),
        ({"at": 5, "error": 6}, "request"),
        ({"set": {}}, "request"),
        ({"set": "throttle_time_ms"}, "request"),
        ([], "request"),
        ({}, "request"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_refused(do, event):
    with pytest.raises(FaultError):
        actions.parse(do, event)


def test_of_two_rules_the_first_value_counts_and_delays_add_up():
    faults = Faults()
    faults.add("* name=a -> delay_ms=5 error=6")
    faults.add("* name=b -> delay_ms=7 error=7 twice")
    faults.add("* name=c -> twice")
    verdict = faults.judge(subject())
    assert (verdict.names, verdict.first("error"), verdict.first("twice")) == (["a", "b", "c"], 6, True)
    assert verdict.first("drop") is None
    assert verdict.total("delay_ms") == 12
    assert [rule.name for rule in verdict.having("twice")] == ["b", "c"]


# --- all rules ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "fits"), [("n" * 100, True), ("n" * 101, False), ("", False), (5, False)])
def test_names_have_up_to_100_characters(name, fits):
    faults = Faults()
    if fits:
        assert faults.add({"name": name, "do": {"twice": True}}).name == name
    else:
        with pytest.raises(FaultError, match="a name of 1 to 100 characters"):
            faults.add({"name": name, "do": {"twice": True}})


def test_each_change_is_a_new_version_and_names_that_are_free_are_given():
    faults = Faults(seed=9)
    seen = [faults.version]
    for change in (
        lambda: faults.add("* -> twice"),
        lambda: faults.enable("fault-1", is_enabled=False),
        lambda: faults.enable("fault-1"),
        lambda: faults.add("connect -> hang"),
        lambda: faults.remove("fault-1"),
        faults.clear,
    ):
        change()
        seen.append(faults.version)
    assert seen == sorted(set(seen)), "it grows each time"
    assert faults.described() == {"seed": 9, "faults": []}
    assert faults.add("* -> twice").name == "fault-1", "after all are gone names begin again"
    assert (faults.concerns("request"), faults.concerns("connect")) == (True, False)
    described = faults.described()["faults"]
    assert described == [
        {
            "name": "fault-1",
            "on": {},
            "when": {},
            "do": {"twice": True},
            "enabled": True,
            "seen": 0,
            "hits": 0,
        }
    ]


def test_there_are_no_more_rules_than_can_be_looked_at(monkeypatch):
    monkeypatch.setattr("barnabas.tools.faults.engine.RULES_MAX", 2)
    assert RULES_MAX == 10_000
    faults = Faults()
    for _ in range(2):
        faults.add("* -> twice")
    with pytest.raises(FaultError, match="there are 2 rules already"):
        faults.add("* -> twice")


def test_a_set_that_does_not_fit_adds_nothing():
    faults = Faults()
    faults.add({"name": "moved-leader.Fetch", "do": {"twice": True}})
    with pytest.raises(FaultError, match="already"):
        faults.use("moved-leader")
    assert [*faults.rules] == ["moved-leader.Fetch"]


@pytest.mark.parametrize(
    ("name", "parameters", "asked", "hits"),
    [
        ("moved-leader", {"topic": "t", "partition": 1}, subject(("t", 1), api_key=0), ["moved-leader.Produce"]),
        ("moved-leader", {"topic": "t", "partition": 1}, subject(("t", 0), api_key=0), []),
        ("moved-leader", {}, subject(api_key=2), ["moved-leader.ListOffsets"]),
        ("moved-coordinator", {"group": "g"}, subject(groups=("g",)), ["moved-coordinator.moved"]),
        ("moved-coordinator", {"group": "g"}, subject(groups=("g",), api_key=10), ["moved-coordinator.elected"]),
        ("moved-coordinator", {"group": "g"}, subject(groups=("h",)), []),
        ("expired-session", {}, subject(api_key=12), ["expired-session.expired"]),
        ("fenced-producer", {"topic": "t"}, subject(("t", 0), api_key=0), ["fenced-producer.produce"]),
        ("fenced-producer", {"topic": "t"}, subject(api_key=26), ["fenced-producer.transaction"]),
        ("full-disk", {"topic": "t"}, subject(("t", 0), event="disk.write"), ["full-disk.write"]),
        ("full-disk", {"topic": "t"}, subject(("u", 0), event="disk.write"), []),
        ("slow-disk", {}, subject(("t", 0), event="disk.sync"), ["slow-disk.sync"]),
        ("no-api-versions", {}, subject(api_key=18), ["no-api-versions.closed"]),
        ("stale-metadata", {}, subject(api_key=3), ["stale-metadata.metadata"]),
    ],
)  # fmt: skip
def test_the_rules_of_a_set_strike_what_the_set_is_about(name, parameters, asked, hits):
    faults = Faults()
    faults.use(name, parameters)
    assert faults.judge(asked).names == hits


@pytest.mark.parametrize(
    ("name", "parameters", "hits"),
    [
        (
            "protocol-errors",
            {"every": 10},
            {"correlation-id": [10, 20], "twice": [13, 23], "garbage": [15, 25]},
        ),
        ("lost-acknowledgements", {"every": 7}, {"produce": [7, 14, 21]}),
        ("moved-leader", {"times": 2}, {"Produce": [1, 2]}),
        ("flaky-network", {"probability": 0}, {}),
    ],
)
def test_the_rules_of_a_set_strike_at_their_times(name, parameters, hits):
    faults = Faults()
    faults.use(name, parameters)
    found: dict[str, list[int]] = {}
    for number in range(1, 26):
        for struck in faults.judge(subject(("t", 0), api_key=0)).names:
            found.setdefault(struck.removeprefix(f"{name}."), []).append(number)
    assert found == hits


@pytest.mark.parametrize(
    ("line", "on"),
    [
        ("v3 -> twice", {"version": "3"}),
        ("Fetch * -> twice", {}),
        ("vote -> twice", {"api": "vote"}),
        ("disk.sync topic=t -> errno=EIO", {"event": "disk.sync", "topic": "t"}),
    ],
)
def test_bare_words_are_events_versions_or_apis(line, on):
    assert short.parse(line)["on"] == on


@pytest.mark.parametrize(
    "line", ["connect Fetch -> hang", "Fetch color=red -> twice", "-> twice -> twice", ""]
)
def test_lines_that_say_too_much_are_refused(line):
    with pytest.raises(FaultError):
        short.parse(line)
