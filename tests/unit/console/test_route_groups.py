"""Routes over groups and transactions, of a cluster that answers as a test says."""

from __future__ import annotations

import time
from typing import Any

import pytest

from barnabas.client.admin import (
    CommittedOffset,
    GroupInfo,
    GroupMember,
    ListedGroup,
    ListedTransaction,
    OffsetAt,
    PartitionInfo,
    ProducerState,
    TopicInfo,
    TransactionInfo,
)
from barnabas.console.routes.transactions import OPEN
from tests.support.console_cluster import AWAY, REFUSED, REFUSED_TEXT, Cluster, refused, shown

# --- groups --------------------------------------------------------------------------------------------------------

OLD, NEW = (
    ListedGroup("old", "classic", "consumer", "Empty", 1),
    ListedGroup("new", "share", "share", "Stable", 2),
)
READER = GroupMember("id", "inst", "app", "/h", 4, ("a",), (("a", 0), ("b", 1), ("a", 2)))


def groups(**more: Any) -> Cluster:
    return Cluster(**{
        "list_groups": ({"new": NEW, "old": OLD}, {3: AWAY}),
        "describe_groups": {"old": GroupInfo("old", "classic", "Dead", "range", None, 1, (READER,)), "new": REFUSED},
        "committed": {"old": {("a", 0): CommittedOffset(3), ("b", 1): CommittedOffset(9)}},
        "share_offsets": {"new": {("a", 0): CommittedOffset(2, lag=0)}},
        "offsets": lambda times: {one: OffsetAt(0 if time == -2 else 10, -1, 0) for one, time in times.items()},
        **more,
    })  # fmt: skip


async def test_groups_are_listed_with_their_lags_and_those_that_are_not_told() -> None:
    cluster = groups()
    found = await shown(cluster, "/api/groups", kind="classic", state="Empty")
    assert cluster.asked[0] == ("list_groups", {"kinds": ["classic"], "states": ["Empty"]})
    new = {
        "name": "new",
        "kind": "share",
        "state": "Stable",
        "coordinator": 2,
        "lag": 0,
        "members": None,
        "topics": 1,
    }
    old = {
        "name": "old",
        "kind": "classic",
        "state": "Dead",
        "coordinator": 1,
        "lag": 8,
        "members": 1,
        "topics": 2,
    }
    assert found["rows"] == [{**new, "error": REFUSED_TEXT}, old]
    assert found["failures"] == {3: "broker 2 is away"}
    assert cluster.lags == {"new": 0, "old": 8}
    assert [one["name"] for one in (await shown(cluster, "/api/groups", filter="OL"))["rows"]] == ["old"]
    cluster = groups()
    await shown(cluster, "/api/groups")
    assert cluster.asked[0] == ("list_groups", {"kinds": (), "states": ()})
    assert (await refused(cluster, "GET", "/api/groups", kind="odd"))[0] == 400


async def test_a_group_is_shown_with_what_its_members_have() -> None:
    cluster = groups()
    found = await shown(cluster, "/api/groups/old", sort="lag", order="desc")
    assert {name: found[name] for name in ("name", "state", "assignor", "epoch", "lag", "members_total")} == {
        "name": "old", "state": "Dead", "assignor": "range", "epoch": None, "lag": 8, "members_total": 1,
    }  # fmt: skip
    assert found["members"] == [
        {"id": "id", "instance_id": "inst", "client_id": "app", "host": "/h", "epoch": 4, "subscription": ["a"],
         "assignment": {"a": [0, 2], "b": [1]}, "cut": False},
    ]  # fmt: skip
    names = ("topic", "partition", "committed", "next", "lag")
    assert [tuple(one[name] for name in names) for one in found["partitions"]["rows"]] == [
        ("a", 0, 3, 10, 7), ("b", 1, 9, 10, 1), ("a", 2, None, 10, None),
    ]  # fmt: skip
    assert found["history"] == [{"at": 5, "lag": 8}]
    assert (await refused(cluster, "GET", "/api/groups/new"))[0] == 403
    assert await refused(cluster, "GET", "/api/groups/none") == (502, "broker 2 is away"), "it may be there"
    cluster.answers["list_groups"] = {}, {}
    assert (await refused(cluster, "GET", "/api/groups/none"))[0] == 404


async def test_members_with_very_many_partitions_are_shown_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.routes.groups.NAMES_MAX", 2)
    (member,) = (await shown(groups(), "/api/groups/old"))["members"]
    assert (member["subscription"], member["assignment"], member["cut"]) == (["a"], {"a": [0]}, True)


@pytest.mark.parametrize(
    ("group", "setter", "committed"), [("old", "commit_offsets", 3), ("new", "set_share_offsets", 2)]
)
async def test_offsets_are_told_and_then_set_by_who_has_named_the_group(
    group: str, setter: str, committed: int
) -> None:
    cluster = groups(list_groups=({"old": OLD, "new": ListedGroup("new", "share", "share", "Empty", 2)}, {}))
    cluster.answers[setter] = lambda _, new: {one: REFUSED if one == ("b", 1) else None for one in new}
    path = f"/api/groups/{group}/offsets"
    status, found = await cluster.ask("POST", path, {"to": "shift", "value": 1, "topics": []})
    assert (status, found["executed"], found["active"]) == (200, False, None)
    assert found["rows"][0]["committed"] == committed
    assert not any(row["is_done"] for row in found["rows"])
    body = {"to": "shift", "value": 1, "execute": True}
    assert (await cluster.ask("POST", path, body))[0] == 409
    assert [call for call in cluster.asked if call[0] == setter] == []
    _, found = await cluster.ask("POST", path, {**body, "confirm": group})
    assert [(row["new"], row["is_done"], row["error"]) for row in found["rows"]] == [
        (committed + 1, True, None), (10, False, REFUSED_TEXT),
    ][: len(found["rows"])]  # fmt: skip
    assert found["executed"] is True


async def test_offsets_of_a_group_with_members_are_told_and_not_set() -> None:
    cluster = groups(list_groups=({"old": ListedGroup("old", "classic", "", "Stable", 1)}, {}))
    body = {"to": "earliest", "topics": ["a:0"]}
    cluster.answers["topics"] = {"a": TopicInfo("a", "", False, (PartitionInfo(0, 1, 0, (1,), (1,), ()),))}
    _, found = await cluster.ask("POST", "/api/groups/old/offsets", body)
    assert found["active"] == "Stable"
    status, text = await refused(
        cluster, "POST", "/api/groups/old/offsets", {**body, "execute": True, "confirm": "old"}
    )
    assert (status, text) == (409, "group old is Stable: stop its members first")
    cluster.answers["list_groups"] = {}, {}
    status, text = await refused(cluster, "POST", "/api/groups/new/offsets", {"to": "latest"})
    assert (status, text) == (
        409,
        "the group has committed nothing: give --topic; `barnabas groups list` shows what there is",
    )


# --- transactions --------------------------------------------------------------------------------------------------


async def test_transactions_are_listed_with_the_age_of_those_that_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 10_000 * 1_000_000)
    listed = [
        ListedTransaction(name, 8, state, 2)
        for name, state in (("a", "Ongoing"), ("b", "Empty"), ("c", "Ongoing"), ("d", "PrepareAbort"))
    ]
    infos: dict[str, Any] = {
        name: TransactionInfo(name, 8, 3, state, 60, started, 2, (("t", 0),))
        for name, state, started in (
            ("a", "Ongoing", 9_000),
            ("b", "Empty", -1),
            ("d", "PrepareAbort", 1_000),
        )
    }
    cluster = Cluster(list_transactions=(listed, {3: AWAY}), describe_transactions={**infos, "c": REFUSED})
    found = await shown(cluster, "/api/transactions", sort="age")
    assert [(row["id"], row["age_ms"], row["epoch"]) for row in found["rows"]] == [
        ("d", 9_000, 3), ("a", 1_000, 3), ("c", None, None), ("b", None, 3),
    ]  # fmt: skip
    assert found["rows"][0]["partitions"] == ["t-0"]
    assert found["failures"] == {3: "broker 2 is away"}
    assert (await shown(cluster, "/api/transactions", filter="B"))["total"] == 1
    found = await shown(cluster, "/api/transactions", open="true")
    assert [row["id"] for row in found["rows"]] == ["a", "c", "d"]
    assert [one[1] for one in cluster.asked if one[0] == "describe_transactions"][2] == ["a", "c", "d"]
    assert "Empty" not in OPEN


async def test_a_transaction_is_aborted_by_who_has_named_its_partition() -> None:
    state, settled_ = ProducerState(8, 1, 0, 0, 0, 0), ProducerState(9, 1, 0, 0, 0, -1)
    cluster = Cluster(producers={("t", 1): [settled_, state]}, abort_transaction=None)
    path, body = "/api/transactions/abort", {"topic": "t", "partition": 1, "producer_id": 8}
    assert (await cluster.ask("POST", path, body))[0] == 409
    assert await cluster.ask("POST", path, {**body, "confirm": "t-1"}) == (204, None)
    assert cluster.asked[-1] == ("abort_transaction", ("t", 1), state)
    for producer in (9, 7):
        status, text = await refused(
            cluster, "POST", path, {**body, "producer_id": producer, "confirm": "t-1"}
        )
        assert (status, text) == (409, f"producer {producer} has no open transaction in t-1")
    cluster.answers["producers"] = {("t", 1): REFUSED}
    assert (await cluster.ask("POST", path, body))[0] == 403
