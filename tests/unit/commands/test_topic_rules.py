"""`barnabas topics` and `configs` with what several brokers tell: names, offsets, cuts, changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import ResponseError
from barnabas.client.admin import (
    BrokerInfo,
    ClusterInfo,
    ListedGroup,
    NewTopic,
    OffsetAt,
    PartitionInfo,
    Resource,
    TopicInfo,
)

from .conftest import StandIn

REFUSED = ResponseError(29, "asking", None)
REFUSED_TEXT = "TOPIC_AUTHORIZATION_FAILED"
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3


def topic(name: str, *numbers: int, is_internal: bool = False) -> TopicInfo:
    partitions = tuple(
        PartitionInfo(number, number - 1, 5 + number, tuple(range(number + 1)), (number,), (8,))
        for number in numbers
    )
    return TopicInfo(name, f"id-{name}", is_internal, partitions)


def values(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(one.values()) for one in rows]


@pytest.fixture
def topics(cluster: StandIn) -> StandIn:
    every = {
        "_own": topic("_own", 0, is_internal=True),
        "a": topic("a", 0, 1, 2),
        "b": topic("b"),
        "c": REFUSED,
    }
    cluster.answers["topics"] = lambda names=None: (
        every if names is None else {name: every.get(name, REFUSED) for name in sorted(names)}
    )
    return cluster


# --- topics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([], ["a", "b", "c"]),
        (["--internal"], ["_own", "a", "b", "c"]),
        (["a", "_own"], ["_own", "a"]),
        (["-r", "[ab]", "_.*"], ["_own", "a", "b"]),
        (["-r", "x"], []),
        (["-r"], ["a", "b", "c"]),
    ],
)
def test_internal_topics_are_listed_only_by_name_or_on_request(
    topics: StandIn, arguments: list[str], shown: list[str]
) -> None:
    rows = topics.rows("topics", "topics", "list", *arguments, code=int("c" in shown))
    assert [one["name"] for one in rows] == shown


def test_partitions_are_described_beside_failing_topics(topics: StandIn) -> None:
    out = json.loads(topics("topics", "describe", "a", "c", "--json", code=1)[0])
    assert [one["name"] for one in out["topics"]] == ["a", "c"]
    assert values(out["partitions"]) == [
        ("a", 0, -1, 5, [0], [0], [8], None), ("a", 1, 0, 6, [0, 1], [1], [8], None),
        ("a", 2, 1, 7, [0, 1, 2], [2], [8], None),
    ]  # fmt: skip
    out = json.loads(topics("topics", "describe", "-r", "_.*", "b", "--json")[0])
    assert [one["name"] for one in out["topics"]] == ["_own", "b"]
    _, err = topics("topics", "describe", "-r", "x", "y.*", code=1)
    assert "no topic matches x, y.*;" in err


@pytest.mark.parametrize(
    ("options", "new"),
    [
        ([], (-1, -1, {})),
        (["-p", "3", "--replicas", "2", "-c", "x=1", "-c", "y=a=b"], (3, 2, {"x": "1", "y": "a=b"})),
        (["-p", "1"], (1, -1, {})),
        (["--replicas", "1"], (-1, 1, {})),
    ],
)
def test_what_is_not_said_of_a_new_topic_is_the_brokers_to_say(
    cluster: StandIn, options: list[str], new: tuple[int, int, dict[str, str]]
) -> None:
    cluster.answers["create_topics"] = {"a": None, "b": None}
    rows = cluster.rows("topics", "topics", "create", "a", "b", *options)
    assert values(rows) == [("a", "created", None), ("b", "created", None)]
    made = [NewTopic("a", *new), NewTopic("b", *new)]
    assert cluster.asked == [("create_topics", made, {"only_check": False})]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["a", "_own", "x"], ["a", "_own", "x"]), (["-r", ".*"], ["a", "b", "c"]), (["-r", "b", "_own"], ["b"])],
)
def test_a_pattern_changes_and_deletes_no_internal_topics(
    topics: StandIn, arguments: list[str], meant: list[str]
) -> None:
    topics.answers["create_partitions"] = lambda counts, **_: {
        one: REFUSED if one == "a" else None for one in counts
    }
    topics.answers["delete_topics"] = lambda names: {one: REFUSED if one == "a" else None for one in names}
    code = int("a" in meant)
    topics("topics", "alter", *arguments, "-p", "4", code=code)
    assert topics.asked_for("create_partitions") == [[dict.fromkeys(meant, 4), {"only_check": False}]]
    rows = topics.rows("topics", "topics", "delete", *arguments, "--yes", code=code)
    assert topics.asked_for("delete_topics") == [[meant]]
    assert [one["name"] for one in rows if one["outcome"] == "deleted"] == [
        name for name in meant if name != "a"
    ]


# --- offsets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(topics: StandIn) -> StandIn:
    """Partitions of `a` whose first offsets are 10, 11, 12 and whose ends are 20, 22, 24."""

    def offsets(times: dict[tuple[str, int], int], **_: object) -> dict[tuple[str, int], Any]:
        return {
            one: OffsetAt(
                {EARLIEST: 10 + one[1], LATEST: 20 + 2 * one[1], MAX_TIMESTAMP: 19}.get(
                    time, -1 if time > 5000 else one[1]
                ),
                time,
                0,
            )
            for one, time in times.items()
        }  # fmt: skip

    topics.answers["offsets"] = offsets
    return topics


@pytest.mark.parametrize("which", [EARLIEST, LATEST, 5000])
def test_partition_without_one_of_its_offsets_is_an_error(ends: StandIn, which: int) -> None:
    told = ends.answers["offsets"]
    ends.answers["offsets"] = lambda times, **_: {
        one: REFUSED if (one, times[one]) == (("a", 1), which) else at for one, at in told(times).items()
    }
    rows = ends.rows("offsets", "topics", "offsets", "a", "--at", "5000", code=1)
    assert [one["error"] for one in rows] == [None, REFUSED_TEXT, None]
    assert values(rows)[1] == ("a", 1, None, None, None, None, REFUSED_TEXT)


@pytest.mark.parametrize(
    ("arguments", "cuts"),
    [
        (["a", "--before", "0"], {0: 0, 1: 0, 2: 0}),
        (["a:1", "--before", "15"], {1: 15}),
        (["a:0", "a:2", "--before", "end"], {0: 20, 2: 24}),
        (["a", "--before", "@5000"], {0: 0, 1: 1, 2: 2}),
        (["a:1", "--before", "@5001"], {1: 22}),
    ],
)
def test_records_are_cut_off_before_an_offset_of_each_partition(
    ends: StandIn, arguments: list[str], cuts: dict[int, int]
) -> None:
    ends.answers["delete_records"] = lambda before: {
        one: REFUSED if one[1] == 2 else cut for one, cut in before.items()
    }
    rows = ends.rows("partitions", "topics", "trim", *arguments, "--yes", code=int(2 in cuts))
    assert values(rows) == [
        ("a", number, None, REFUSED_TEXT) if number == 2 else ("a", number, cut, None)
        for number, cut in cuts.items()
    ]
    assert ends.asked_for("delete_records") == [[{("a", number): cut for number, cut in cuts.items()}]]


def test_what_is_cut_off_is_told_and_named(
    ends: StandIn, at_terminal: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    at_terminal("n\n")
    _, err = ends("topics", "trim", "a:0", "a:2", "--before", "end", code=1)
    assert err.startswith("delete the records of a:0 before 20, of a:2 before 24?")
    _, err = ends("topics", "trim", "a:3", "a", "b:0", "--before", "1", "--yes", code=1)
    assert err == "barnabas topics trim: there is no partition a:3, b:0\n"
    _, err = ends("topics", "trim", "a", "--before", "-1", "--yes", code=2)
    assert "--before -1: an offset, `end` or @TIME is expected" in err
    assert REFUSED_TEXT in ends("topics", "trim", "a", "c", "--before", "1", "--yes", code=1)[1]
    monkeypatch.setattr(time, "time", lambda: 10.0)
    at_terminal("n\n")
    ends("topics", "trim", "a:0", "--before", "@-5s", code=1)
    assert ends.asked_for("offsets")[-1] == [{("a", 0): 5000}]
    told = ends.answers["offsets"]
    for which in (LATEST, 5000):
        ends.answers["offsets"] = lambda times, which=which: {
            one: REFUSED if times[one] == which else at for one, at in told(times).items()
        }
        assert REFUSED_TEXT in ends("topics", "trim", "a:0", "--before", "@5000", "--yes", code=1)[1]
    assert ends.asked_for("delete_records") == []


# --- configs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def resources(topics: StandIn) -> StandIn:
    brokers = (BrokerInfo(1, "one", 1, None, False), BrokerInfo(2, "two", 1, None, False))
    topics.answers |= {
        "describe_cluster": ClusterInfo("id", 2, brokers),
        "list_groups": ({"g": ListedGroup("g", "classic", "", "", 1)}, {7: REFUSED}),
        "config_resources": lambda kinds=(): [Resource(kinds[0] if kinds else "topic", "m")],
        "describe_configs": lambda wanted, **_: {one: [] for one in wanted},
        "alter_configs": lambda changes, **_: dict.fromkeys(changes),
    }
    return topics


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["broker", "default", "2", "default"], ["", "2"]),
        (["topic", "default", "x"], ["default", "x"]),
        (["topic", "-r", "[bc]"], ["b", "c"]),
        (["topic", "-r", "_own", "a"], ["a"]),
        (["broker", "-r", "."], ["1", "2"]),
    ],
)
def test_resources_appear_once_and_default_means_all_brokers(
    resources: StandIn, arguments: list[str], names: list[str]
) -> None:
    kind = arguments[0]
    rows = resources.rows("resources", "configs", "alter", *arguments, "--set", "x=1")
    assert [one["name"] for one in rows] == [name or "default" for name in names]
    ((changes, _),) = resources.asked_for("alter_configs")
    assert list(changes) == [Resource(kind, name) for name in names]


def test_pattern_without_match_is_an_error_but_empty_kind_is_not(
    resources: StandIn,
) -> None:
    _, err = resources("configs", "describe", "group", "-r", "x", "y", code=1)
    assert err == "barnabas configs describe: no group matches x, y\n"
    resources.answers["list_groups"] = {}, {}
    assert resources("configs", "describe", "group")[0] == "no configs\n"
