"""Routes over topics, the cluster and subjects, with what is measured and told of them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.client import ClientError
from barnabas.client.admin import (
    BrokerInfo,
    ClusterInfo,
    Feature,
    GroupInfo,
    ListedGroup,
    LogDir,
    PartitionInfo,
    ProducerState,
    TopicInfo,
)
from barnabas.commands.lagging import GroupLag, PartitionLag
from barnabas.console.measuring import COLUMNS, Measures, Sums, led_by
from barnabas.console.routes import cluster as cluster_routes
from barnabas.console.routes import topics as topic_routes
from barnabas.console.routes.topics import MEASURED_MAX, measure
from barnabas.console.topic_index import TopicRow, row_of
from barnabas.registry.errors import RegistryError
from tests.support.console_cluster import AWAY, REFUSED, REFUSED_TEXT, Cluster, refused, shown


def row(name: str, *leaders: int, under: int = 0, internal: bool = False) -> TopicRow:
    offline = sum(leader < 0 for leader in leaders)
    return TopicRow(name, len(leaders), 2, under, offline, internal, leaders)


ROWS = [row("_own", 1, internal=True), row("a", 1, 2), row("b", -1), row("c", 2, 2, 1, under=1), row("empty")]


class Topics(Cluster):
    """A cluster with an index of topics, and measures of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        super().__init__(**answers)
        self.rates: list[tuple[str, int]] = []
        self.summed: list[list[str]] = []
        self.known: dict[str, dict[str, float]] = {}
        self.measured = SimpleNamespace(get=self._column)

        async def sums_of(_: Any, rows: Any, most: int) -> Sums:
            assert most == MEASURED_MAX
            self.summed.append([one.name for one in rows])
            names = [one.name for one in rows if one.name != "b"]
            return Sums(dict.fromkeys(names, 5), dict.fromkeys(names[:1], 50), dict.fromkeys(names, 9))

        monkeypatch.setattr(topic_routes, "sums_of", sums_of)

    @property
    def topics(self) -> Any:
        async def rows() -> list[TopicRow]:
            return ROWS

        async def of(names: Any) -> Any:
            self.asked.append(("topics", names))
            return self.answers["topics"]

        of.rows = rows  # type: ignore[attr-defined]
        return of

    async def _column(self, column: str) -> dict[str, float]:
        return self.known[column]

    def rate(self, topic: str, end: int) -> float | None:
        self.rates.append((topic, end))
        return 1.5


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["a", "b", "c", "empty"]),
        ({"internal": "true"}, ["_own", "a", "b", "c", "empty"]),
        ({"unhealthy": "true"}, ["b", "c"]),
        ({"sort": "partitions", "order": "desc"}, ["c", "a", "b", "empty"]),
        ({"sort": "under_replicated", "order": "desc"}, ["c", "b", "empty", "a"]),
        ({"filter": "A"}, ["a"]),
    ],
)
async def test_topics_are_listed_in_the_order_and_of_the_kind_that_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, query: dict[str, str], names: list[str]
) -> None:
    cluster = Topics(monkeypatch)
    found = await shown(cluster, "/api/topics", **query)
    assert [one["name"] for one in found["rows"]] == names
    assert cluster.summed == [[name for name in names if name != "empty"]], (
        "nothing is asked of one without partitions"
    )


async def test_a_topic_is_listed_with_what_is_known_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Topics(monkeypatch)
    rows = (await shown(cluster, "/api/topics"))["rows"]
    nothing = dict.fromkeys(COLUMNS)
    assert rows == [
        {"name": "a", "partitions": 2, "replication": 2, "under_replicated": 0, "offline": 0, "internal": False,
         "records": 5, "bytes": 50, "rate": 1.5},
        {"name": "b", "partitions": 1, "replication": 2, "under_replicated": 0, "offline": 1, "internal": False, **nothing},
        {"name": "c", "partitions": 3, "replication": 2, "under_replicated": 1, "offline": 0, "internal": False,
         "records": 5, "bytes": None, "rate": 1.5},
        {"name": "empty", "partitions": 0, "replication": 2, "under_replicated": 0, "offline": 0, "internal": False,
         **nothing},
    ]  # fmt: skip
    assert cluster.rates == [("a", 9), ("c", 9)]


@pytest.mark.parametrize("column", COLUMNS)
async def test_topics_sorted_by_a_measure_show_the_one_by_which_they_are(
    monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    cluster = Topics(monkeypatch)
    cluster.known = {column: {"c": 0.5, "a": 7.25}}
    rows = (await shown(cluster, "/api/topics", sort=column))["rows"]
    assert [(one["name"], one[column]) for one in rows] == [
        ("b", None), ("empty", None), ("c", 0.5), ("a", 7.25),
    ]  # fmt: skip
    rows = (await shown(cluster, "/api/topics", sort=column, order="desc"))["rows"]
    assert [one["name"] for one in rows] == ["a", "c", "empty", "b"]


async def test_measures_of_rows_are_those_that_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = Topics(monkeypatch)
    assert await measure(backend, ROWS[1:3]) == {
        "a": {"records": 5, "bytes": 50, "rate": 1.5}, "b": {"records": None, "bytes": None, "rate": None},
    }  # fmt: skip


def topic(count: int) -> TopicInfo:
    partitions = [PartitionInfo(number, number % 2, 4, (1, 2), (1,), (2,)) for number in range(count)]
    partitions[-1] = PartitionInfo(count - 1, -1, 4, (1, 2), (), (1, 2))
    return TopicInfo("t", "id-of-t", False, tuple(partitions))


@pytest.mark.parametrize(("count", "is_whole"), [(4, True), (MEASURED_MAX, True), (MEASURED_MAX + 1, False)])
async def test_a_topic_is_measured_as_a_whole_unless_it_has_very_many_partitions(
    monkeypatch: pytest.MonkeyPatch, count: int, is_whole: bool
) -> None:
    cluster = Topics(monkeypatch, topics={"t": topic(count)})
    asked: list[Any] = []

    async def bounds_and_sizes(_: Any, led: Any) -> Measures:
        asked.append(led)
        places = [("t", number) for numbers in led.values() for number in numbers["t"]]
        sizes = dict(zip(places, (70, 7), strict=False))
        return Measures(dict.fromkeys(places[:-1], 3), dict.fromkeys(places, 10), sizes)

    monkeypatch.setattr(topic_routes, "bounds_and_sizes", bounds_and_sizes)
    found = await shown(cluster, "/api/topics/t", size="2")
    assert (found["name"], found["id"], found["internal"], found["partitions"]["total"]) == (
        "t",
        "id-of-t",
        False,
        count,
    )
    (led,) = asked
    measured = sorted(number for numbers in led.values() for number in numbers["t"])
    assert measured == (list(range(count - 1)) if is_whole else [0, 1]), "not of the one without a leader"
    assert all(number % 2 == broker for broker, numbers in led.items() for number in numbers["t"])
    if is_whole:
        assert (found["records"], found["bytes"], found["rate"]) == (7 * (count - 2), 77, 1.5)
        assert cluster.rates == [("t", 10 * (count - 1))]
    else:
        assert (found["records"], found["bytes"], found["rate"]) == (None, None, None)
    first = found["partitions"]["rows"][0]
    assert first == {
        "partition": 0, "leader": 0, "epoch": 4, "replicas": [1, 2], "in_sync": [1], "offline": [2], "first": 3,
        "next": 10, "records": 7, "bytes": 70,
    }  # fmt: skip
    last = (await shown(cluster, "/api/topics/t", size="1", order="desc"))["partitions"]["rows"][0]
    assert (last["partition"], last["first"], last["records"], last["bytes"]) == (count - 1, None, None, None)


async def test_producers_of_a_topic_are_shown_with_open_transactions_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = {
        ("t", 0): [ProducerState(8, 1, 41, 100, 6, -1), ProducerState(9, 2, 42, 300, 6, 0)],
        ("t", 1): [ProducerState(7, 1, 40, 200, -1, -1), ProducerState(6, 1, 40, 400, 6, 5)],
        ("t", 2): REFUSED,
    }
    cluster = Topics(monkeypatch, topics={"t": topic(4)}, producers=states)
    found = await shown(cluster, "/api/topics/t/producers")
    text = str(found)
    assert [one["producer_id"] for one in found["producers"]] == [6, 9, 7, 8]
    assert [one["transaction_offset"] for one in found["producers"]] == [5, 0, None, None]
    assert REFUSED_TEXT in text
    assert ("producers", [("t", 0), ("t", 1), ("t", 2)]) in cluster.asked
    cluster.answers["topics"] = {"t": REFUSED}
    assert (await cluster.ask("GET", "/api/topics/t/producers"))[0] == 403


async def test_groups_of_a_topic_are_shown_by_how_far_they_are_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = {name: ListedGroup(name, "classic", "", "Empty", 1) for name in ("near", "far", "odd", "none")}
    lag_info = GroupInfo("x", "classic", "Stable", "", None, 1, ())
    rows = {
        "near": (lag_info, [("m", 1, None), ("m", None, None), ("", 2, None)]), "far": (REFUSED, [("", 9, REFUSED)]),
        "odd": (lag_info, [("n", None, AWAY), ("o", None, REFUSED)]), "none": (lag_info, []),
    }  # fmt: skip

    async def lags_of(_: Any, groups: Any, name: str) -> dict[str, GroupLag]:
        assert (list(groups), name) == (list(listed), "t")
        return {
            group: GroupLag(listed[group], info, [
                PartitionLag(group, "t", number, 0, 0, lag, member, "", "", error)
                for number, (member, lag, error) in enumerate(found)
            ])
            for group, (info, found) in rows.items()
        }  # fmt: skip

    monkeypatch.setattr(topic_routes, "lags_of", lags_of)
    found = await shown(Topics(monkeypatch, list_groups=(listed, {})), "/api/topics/t/groups")
    assert [tuple(one.values()) for one in found["groups"]] == [
        ("far", "classic", "Empty", 1, 0, 9, REFUSED_TEXT), ("near", "classic", "Stable", 3, 1, 3, None),
        ("odd", "classic", "Stable", 2, 2, None, "broker 2 is away"),
    ]  # fmt: skip
    assert (found["looked_at"], found["total"]) == (4, 4)


def test_a_row_counts_what_its_partitions_lack() -> None:
    parts = (
        PartitionInfo(0, 1, 0, (1, 2, 3), (1, 2), ()), PartitionInfo(1, -1, 0, (1,), (), ()),
        PartitionInfo(2, 2, 0, (2,), (2,), ()),
    )  # fmt: skip
    assert row_of(TopicInfo("t", "", True, parts)) == TopicRow("t", 3, 3, 2, 1, True, (1, -1, 2))
    assert row_of(TopicInfo("t", "", False, ())) == TopicRow("t", 0, 0, 0, 0, False, ())
    assert led_by([row("a", 1, -1, 2, 1), row("b", 2)]) == {1: {"a": [0, 3]}, 2: {"a": [2], "b": [0]}}


# --- the cluster ---------------------------------------------------------------------------------------------------

INFO = ClusterInfo("id", 2, (BrokerInfo(1, "one", 9092, "r", False), BrokerInfo(2, "two", 9093, None, True)))


async def test_the_overview_counts_and_says_what_it_was_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = {
        name: ListedGroup(name, "classic", "", state, 1)
        for name, state in (("a", "Stable"), ("b", ""), ("c", "Stable"))
    }
    cluster = Topics(monkeypatch, describe_cluster=INFO, list_groups=(groups, {3: AWAY}))

    async def any_connection() -> Any:
        return SimpleNamespace(versions={18: (0, 3)})

    cluster.client = SimpleNamespace(any_connection=any_connection)  # type: ignore[attr-defined]
    monkeypatch.setattr(cluster_routes, "guess", lambda versions: f"like {versions}")
    found = await shown(cluster, "/api/overview")
    assert found == {
        "cluster": {"id": "id", "controller": 2, "brokers": 2, "release": "like {18: (0, 3)}"},
        "groups": {"count": 3, "states": {"Stable": 2, "Unknown": 1}, "failures": 1},
        "topics": {"count": 5, "internal": 1, "partitions": 7, "under_replicated": 1, "offline": 1},
        "note": None,
    }
    cluster.answers["list_groups"] = REFUSED
    found = await shown(cluster, "/api/overview")
    assert ("groups" in found, found["note"]) == (False, REFUSED_TEXT)
    cluster.answers["describe_cluster"] = ClientError("gone")
    status, text = await refused(cluster, "GET", "/api/overview")
    assert (status, text) in ((502, "gone"), (403, REFUSED_TEXT))


async def test_brokers_are_shown_with_their_log_dirs_or_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    async def log_dirs_of(_: Any, broker: int) -> list[LogDir]:
        if broker == 2:
            raise REFUSED
        return [LogDir(1, "/a", 10, -1, AWAY, ()), LogDir(1, "/b", -1, 0, None, ())]

    monkeypatch.setattr(cluster_routes, "log_dirs_of", log_dirs_of)
    cluster = Cluster(describe_cluster=INFO, features=[Feature("f", 1, 3, None)])
    found = await shown(cluster, "/api/brokers")
    assert (found["cluster_id"], found["controller"]) == ("id", 2)
    assert found["brokers"] == [
        {"id": 1, "host": "one", "port": 9092, "rack": "r", "fenced": False, "controller": False, "error": None,
         "log_dirs": [
            {"path": "/a", "total_bytes": 10, "usable_bytes": None, "error": "broker 2 is away"},
            {"path": "/b", "total_bytes": None, "usable_bytes": 0, "error": None},
        ]},
        {"id": 2, "host": "two", "port": 9093, "rack": None, "fenced": True, "controller": True, "error": REFUSED_TEXT,
         "log_dirs": []},
    ]  # fmt: skip
    assert found["features"] == [{"name": "f", "min": 1, "max": 3, "finalized": None}]


# --- subjects ------------------------------------------------------------------------------------------------------


class Registry:
    """A registry that answers by path, and keeps what it was asked."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.asked: list[tuple[Any, ...]] = []

    async def ask_unread(self, path: str) -> bytes:
        return json.dumps(await self.ask("GET", path)).encode()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append((method, path, *([] if body is None else [body])))
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_subject_is_shown_with_its_last_version_or_that_which_was_named() -> None:
    registry = Registry()
    at = "/subjects/a%2Fb/versions"
    registry.answers = {
        "/subjects": ["b", "a/b"], at: [1, 3], f"{at}/3": {"id": 7}, f"{at}/1": {"id": 5},
        "/config/a%2Fb?defaultToGlobal=true": {"compatibilityLevel": "FULL"},
    }  # fmt: skip
    cluster = Cluster()
    assert await refused(cluster, "GET", "/api/subjects") == (
        404, "there is no schema registry: set it with --registry URL",
    )  # fmt: skip
    cluster.registry = registry
    subjects = json.loads(await shown(cluster, "/api/subjects"))
    assert [one["name"] for one in subjects["rows"]] == ["a/b", "b"]
    assert cluster.sandbox.called == [("subjects_page", "ann")], "a list is read beside the event loop"
    assert await refused(cluster, "GET", "/api/subjects", sort="size") == (400, "sort: one of name expected")
    registry.answers["/subjects"] = {"no": "list"}
    assert (await refused(cluster, "GET", "/api/subjects"))[0] == 502
    assert await shown(cluster, "/api/subjects/a%2Fb") == {
        "versions": [1, 3],
        "schema": {"id": 7},
        "compatibility": "FULL",
    }
    assert (await shown(cluster, "/api/subjects/a%2Fb", version="1"))["schema"] == {"id": 5}
    registry.answers["/subjects"] = RegistryError(401, 1, "who?")
    assert await refused(cluster, "GET", "/api/subjects") == (502, "who?")


async def test_a_schema_is_registered_or_only_checked_and_a_subject_deleted_by_who_has_named_it() -> None:
    registry = Registry()
    check = "/compatibility/subjects/s/versions/latest?verbose=true"
    registry.answers = {
        "/subjects/s/versions": {"id": 7},
        check: {"is_compatible": True},
        "/subjects/s": [1, 2],
    }
    cluster = Cluster()
    cluster.registry = registry
    assert await cluster.ask("POST", "/api/subjects/s", {"schema": "x"}) == (200, {"id": 7})
    body = {"schema": "x", "type": "JSON", "check": True}
    assert await cluster.ask("POST", "/api/subjects/s", body) == (200, {"is_compatible": True})
    assert (await cluster.ask("DELETE", "/api/subjects/s", {}))[0] == 409
    assert await cluster.ask("DELETE", "/api/subjects/s", {"confirm": "s"}) == (200, {"versions": [1, 2]})
    assert registry.asked == [
        ("POST", "/subjects/s/versions", {"schema": "x", "schemaType": "AVRO"}),
        ("POST", check, {"schema": "x", "schemaType": "JSON"}), ("DELETE", "/subjects/s"),
    ]  # fmt: skip
