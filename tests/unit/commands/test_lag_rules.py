"""Lags of groups as several brokers tell them, in tables and as metrics."""

from __future__ import annotations

import json
import os
import signal
import socket
from types import SimpleNamespace
from typing import Any

import prometheus_client.exposition as exposition
import pytest

from barnabas.client import ClientError, ResponseError
from barnabas.client.admin import CommittedOffset, GroupInfo, GroupMember, ListedGroup, OffsetAt
from barnabas.commands.lagging import GroupLag, PartitionLag, lags_of

from .conftest import StandIn

REFUSED = ResponseError(30, "asking", None)
OLD = ListedGroup("old", "classic", "consumer", "Empty", 1)
NEW = ListedGroup("new", "consumer", "consumer", "Stable", 2)
SHARE = ListedGroup("some", "share", "share", "Empty", 2)
READER = GroupMember("id-1", None, "app", "/10.0.0.1", 4, ("a",), (("a", 0), ("b", 0)))


def info(group: ListedGroup, *members: GroupMember) -> GroupInfo:
    return GroupInfo(group.group_id, group.kind, "Stable", "", 1, 2, members)


@pytest.fixture
def three(cluster: StandIn) -> StandIn:
    """Three groups, one of each way in which lags are told."""
    cluster.answers |= {
        "list_groups": ({"new": NEW, "old": OLD, "some": SHARE}, {}),
        "describe_groups": {"new": info(NEW, READER), "old": REFUSED, "some": info(SHARE)},
        "committed": {
            "new": {("a", 0): CommittedOffset(7), ("c", 1): CommittedOffset(12), ("d", 0): REFUSED},
            "old": {("a", 0): CommittedOffset(4)},
        },
        "share_offsets": {
            "some": {("a", 0): CommittedOffset(2, lag=0), ("c", 1): CommittedOffset(2, lag=3)},
        },
        "offsets": lambda times: {
            entry: at for entry, at in {
                ("a", 0): OffsetAt(9, -1, 0), ("b", 0): OffsetAt(0, -1, 0), ("c", 1): OffsetAt(10, -1, 0),
                ("d", 0): ClientError("away"),
            }.items() if entry in times
        },
    }  # fmt: skip
    return cluster


def places(lag: GroupLag) -> list[tuple[Any, ...]]:
    return [
        (
            partition.topic,
            partition.partition,
            partition.committed,
            partition.latest,
            partition.lag,
            partition.client_id,
        )
        for partition in lag.partitions
    ]


async def test_lag_is_the_brokers_or_the_distance_to_the_end(three: StandIn) -> None:
    admin: Any = three
    result = await lags_of(admin, {"new": NEW, "old": OLD, "some": SHARE})
    assert places(result["new"]) == [
        ("a", 0, 7, 9, 2, "app"), ("b", 0, None, 0, None, "app"), ("c", 1, 12, 10, 0, ""),
        ("d", 0, None, None, None, ""),
    ]  # fmt: skip
    assert places(result["old"]) == [("a", 0, 4, 9, 5, "")]
    assert places(result["some"]) == [("a", 0, 2, 9, 0, ""), ("c", 1, 2, 10, 3, "")]
    assert [group_lag.total for group_lag in result.values()] == [2, 5, 3]
    assert [partition.error for partition in result["new"].partitions] == [None, None, None, REFUSED]
    first = result["new"].partitions[0]
    assert (first.group, first.member_id, first.host) == ("new", "id-1", "/10.0.0.1")
    assert result["old"].info is REFUSED
    assert three.asked_for("describe_groups") == [[{"new": "consumer", "old": "classic", "some": "share"}]]
    assert three.asked_for("committed") == [[["new", "old"]]]
    assert three.asked_for("share_offsets") == [[["some"]]]


async def test_lags_in_one_topic_ask_of_that_topic_alone(three: StandIn) -> None:
    admin: Any = three
    result = await lags_of(admin, {"new": NEW, "old": OLD, "some": SHARE}, topic="c")
    assert [places(group_lag) for group_lag in result.values()] == [
        [("c", 1, 12, 10, 0, "")],
        [],
        [("c", 1, 2, 10, 3, "")],
    ]
    assert [group_lag.total for group_lag in result.values()] == [0, None, 3]
    assert three.asked_for("offsets") == [[{("c", 1): -1}]]


def test_the_table_has_all_groups_or_those_that_are_named(three: StandIn) -> None:
    out = json.loads(three("lag", "--json", code=1)[0])
    assert [tuple(row.values()) for row in out["groups"]] == [
        ("new", "consumer", "Stable", 1, 2, None),
        ("old", "classic", None, None, 5, "GROUP_AUTHORIZATION_FAILED"),
        ("some", "share", "Stable", 0, 3, None),
    ]
    assert [row["group"] for row in out["offsets"]] == ["new"] * 4 + ["old"] + ["some"] * 2
    out = json.loads(three("lag", "-r", "so.*", "--json")[0])
    assert [row["group"] for row in out["groups"]] == ["some"]
    assert [row["group"] for row in out["offsets"]] == ["some"] * 2
    assert "COMMITTED" not in three("lag", "some")[0]
    assert "COMMITTED" in three("lag", "some", "--partitions")[0]


def test_missing_group_and_silent_broker_are_errors(three: StandIn) -> None:
    _, err = three("lag", "none", "old", "nor", code=1)
    assert err == "barnabas lag: there is no group none, nor; `barnabas groups list` shows what there is\n"
    three.answers["list_groups"] = {"old": OLD}, {2: ClientError("broker 2 is away")}
    assert three("lag", "old", code=1)[1] == "barnabas lag: broker 2 is away\n"


def test_metrics_leave_out_what_is_not_known(three: StandIn) -> None:
    text, err = three("lag", "--metrics", "--json")
    assert err == ""
    result = [line for line in text.splitlines() if not line.startswith("#")]
    assert result == [
        'kafka_consumergroup_current_offset{consumergroup="new",partition="0",topic="a"} 7.0',
        'kafka_consumergroup_current_offset{consumergroup="new",partition="1",topic="c"} 12.0',
        'kafka_consumergroup_current_offset{consumergroup="old",partition="0",topic="a"} 4.0',
        'kafka_consumergroup_current_offset{consumergroup="some",partition="0",topic="a"} 2.0',
        'kafka_consumergroup_current_offset{consumergroup="some",partition="1",topic="c"} 2.0',
        'kafka_consumergroup_lag{consumergroup="new",partition="0",topic="a"} 2.0',
        'kafka_consumergroup_lag{consumergroup="new",partition="1",topic="c"} 0.0',
        'kafka_consumergroup_lag{consumergroup="old",partition="0",topic="a"} 5.0',
        'kafka_consumergroup_lag{consumergroup="some",partition="0",topic="a"} 0.0',
        'kafka_consumergroup_lag{consumergroup="some",partition="1",topic="c"} 3.0',
        'kafka_topic_partition_current_offset{partition="0",topic="a"} 9.0',
        'kafka_topic_partition_current_offset{partition="0",topic="b"} 0.0',
        'kafka_topic_partition_current_offset{partition="1",topic="c"} 10.0',
        'kafka_consumergroup_members{consumergroup="new"} 1.0',
        'kafka_consumergroup_members{consumergroup="some"} 0.0',
    ]


def test_an_address_that_is_taken_is_named(three: StandIn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        _, err = three("lag", "--metrics", "--listen", address, code=1)
    assert err.startswith(f"barnabas lag: cannot listen on {address}: ")


def test_signal_after_ready_line_is_a_clean_end(three: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    ended: list[str] = []
    told: list[str] = []

    def start(port: int, host: str, **_: object) -> Any:
        asked.append((port, host))
        server = SimpleNamespace(
            server_port=9308,
            shutdown=lambda: ended.append("shutdown"),
            server_close=lambda: ended.append("close"),
        )
        return server, SimpleNamespace(join=lambda: ended.append("join"))

    def tell(line: str, **_: object) -> None:
        told.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(exposition, "start_http_server", start)
    monkeypatch.setattr("builtins.print", tell)
    three("lag", "--metrics", "--json", "--listen", "[::1]:0")
    assert told == ["barnabas lag is ready: http://[::1]:9308/metrics"]
    assert asked == [(0, "::1")]
    assert ended == ["shutdown", "close", "join"]


def test_a_total_is_of_what_is_known() -> None:
    def lag(*lags: int | None) -> GroupLag:
        rows = [
            PartitionLag("old", "a", number, 0, 0, entry, "", "", "") for number, entry in enumerate(lags)
        ]
        return GroupLag(OLD, info(OLD), rows)

    assert [lag().total, lag(None).total, lag(0, None).total, lag(3, None, 4).total] == [None, None, 0, 7]
