"""`barnabas topics` and `configs` with what several brokers tell: names, offsets, cuts, changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.admin import (
    BrokerInfo,
    ClusterInfo,
    ConfigEntry,
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
    return [tuple(row.values()) for row in rows]


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
    assert [row["name"] for row in rows] == shown


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
    created = [NewTopic("a", *new), NewTopic("b", *new)]
    assert cluster.asked == [("create_topics", created, {"only_check": False})]


def test_a_topic_that_exists_is_forgiven_alone(cluster: StandIn) -> None:
    exists = ResponseError(36, "creating", "it does")
    cluster.answers["create_topics"] = {"a": exists, "b": REFUSED, "c": None}
    create = ("topics", "create", "a", "b", "c", "--dry-run")
    assert values(cluster.rows("topics", *create, code=1)) == [
        ("a", "failed", "TOPIC_ALREADY_EXISTS: it does"), ("b", "failed", REFUSED_TEXT),
        ("c", "would be created", None),
    ]  # fmt: skip
    assert values(cluster.rows("topics", *create, "--if-not-exists", code=1)) == [
        ("a", "exists", None), ("b", "failed", REFUSED_TEXT), ("c", "would be created", None),
    ]  # fmt: skip
    assert [call[1] for call in cluster.asked_for("create_topics")] == [{"only_check": True}] * 2
    for name in ("-p", "--replicas"):
        assert "0 is not in the range x>=1" in cluster("topics", "create", "a", name, "0", code=2)[1]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["a", "_own", "x"], ["a", "_own", "x"]), (["-r", ".*"], ["a", "b", "c"]), (["-r", "b", "_own"], ["b"])],
)
def test_a_pattern_changes_and_deletes_no_internal_topics(
    topics: StandIn, arguments: list[str], meant: list[str]
) -> None:
    topics.answers["create_partitions"] = lambda counts, **_: {
        entry: REFUSED if entry == "a" else None for entry in counts
    }
    topics.answers["delete_topics"] = lambda names: {
        entry: REFUSED if entry == "a" else None for entry in names
    }
    code = int("a" in meant)
    topics("topics", "alter", *arguments, "-p", "4", code=code)
    assert topics.asked_for("create_partitions") == [[dict.fromkeys(meant, 4), {"only_check": False}]]
    rows = topics.rows("topics", "topics", "delete", *arguments, "--yes", code=code)
    assert topics.asked_for("delete_topics") == [[meant]]
    assert [entry["name"] for entry in rows if entry["outcome"] == "deleted"] == [
        name for name in meant if name != "a"
    ]


def test_what_is_deleted_is_told_to_who_has_to_agree(
    topics: StandIn, at_terminal: Callable[[str], None]
) -> None:
    at_terminal("n\n")
    _, err = topics("topics", "delete", "-r", "[ab]", code=1)
    assert err.startswith("delete a, b with all records?")
    at_terminal("n\n")
    assert topics("topics", "delete", "x", "y", code=1)[1].startswith("delete x, y with all records?")
    assert topics.asked_for("delete_topics") == []


# --- offsets -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ends(topics: StandIn) -> StandIn:
    """Partitions of `a` with first offsets 10, 11, 12 and ends 20, 22, 24."""

    def offsets(times: dict[tuple[str, int], int], **_: object) -> dict[tuple[str, int], Any]:
        return {
            entry: OffsetAt(
                {EARLIEST: 10 + entry[1], LATEST: 20 + 2 * entry[1], MAX_TIMESTAMP: 19}.get(
                    time, -1 if time > 5000 else entry[1]
                ),
                time,
                0,
            )
            for entry, time in times.items()
        }  # fmt: skip

    topics.answers["offsets"] = offsets
    return topics


@pytest.mark.parametrize("which", [EARLIEST, LATEST, 5000])
def test_partition_without_one_of_its_offsets_is_an_error(ends: StandIn, which: int) -> None:
    told = ends.answers["offsets"]
    ends.answers["offsets"] = lambda times, **_: {
        row: REFUSED if (row, times[row]) == (("a", 1), which) else at for row, at in told(times).items()
    }
    rows = ends.rows("offsets", "topics", "offsets", "a", "--at", "5000", code=1)
    assert [row["error"] for row in rows] == [None, REFUSED_TEXT, None]
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
        entry: REFUSED if entry[1] == 2 else cut for entry, cut in before.items()
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
            entry: REFUSED if times[entry] == which else at for entry, at in told(times).items()
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
        "describe_configs": lambda asked, **_: {resource: [] for resource in asked},
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
    assert [row["name"] for row in rows] == [name or "default" for name in names]
    ((changes, _),) = resources.asked_for("alter_configs")
    assert list(changes) == [Resource(kind, name) for name in names]


ENTRIES = [
    ConfigEntry(
        "p", "1", "topic", False, False, "what p does",
        (("p", "1", "topic"), ("q", "2", "broker"), ("q", "3", "default")),
    ),
    ConfigEntry("r", "0", "default", False, True, "", ()),
    ConfigEntry("s", None, "broker", True, False, "", (("s", None, "broker"),)),
]  # fmt: skip


def test_a_setting_is_shown_with_what_would_count_without_it(resources: StandIn) -> None:
    resources.answers["describe_configs"] = {Resource("topic", "a"): ENTRIES}
    first, second, third = resources.rows("configs", "configs", "describe", "topic", "a", "--all", "--docs")
    assert first == {
        "kind": "topic", "name": "a", "key": "p", "value": "1", "source": "topic", "is_sensitive": False,
        "is_read_only": False, "documentation": "what p does", "error": None,
        "synonyms": [
            {"key": "q", "value": "2", "source": "broker"}, {"key": "q", "value": "3", "source": "default"},
        ],
    }  # fmt: skip
    assert (second["is_read_only"], second["synonyms"], second["documentation"]) == (True, [], None)
    assert (third["is_sensitive"], third["value"], third["synonyms"]) == (True, None, [])
    ((_, named),) = resources.asked_for("describe_configs")
    assert named == {"names": None, "documentation": True}
    assert "DOCUMENTATION" in resources("configs", "describe", "topic", "a", "--docs")[0]
    assert "DOCUMENTATION" not in resources("configs", "describe", "topic", "a")[0]
    assert "SYNONYMS" not in resources("configs", "describe", "topic", "a", "--all")[0]


def test_topics_that_do_not_tell_are_resources_as_well(resources: StandIn) -> None:
    resources.answers["topics"] = {"a": ClientError("away"), "_own": topic("_own", is_internal=True)}
    assert values(resources.rows("resources", "configs", "list", "topic")) == [("topic", "a")]
