"""Routes over groups and transactions, of a cluster that answers as a test says."""

from __future__ import annotations

from typing import Any

from barnabas.client.admin import CommittedOffset, GroupInfo, GroupMember, ListedGroup, OffsetAt, Resource
from barnabas.client.administration.configs import ConfigEntry
from tests.support.console_cluster import AWAY, REFUSED, REFUSED_TEXT, Cluster, refused, shown

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
        "offsets": lambda times: {place: OffsetAt(0 if time == -2 else 10, -1, 0) for place, time in times.items()},
        **more,
    })  # fmt: skip


async def test_groups_are_listed_with_lags_and_undescribed_ones() -> None:
    cluster = groups()
    answer = await shown(cluster, "/api/groups", kind="classic", state="Empty")
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
    assert answer["rows"] == [{**new, "error": REFUSED_TEXT}, old]
    assert answer["failures"] == {3: "broker 2 is away"}
    assert cluster.lags == {"new": 0, "old": 8}
    assert [row["name"] for row in (await shown(cluster, "/api/groups", filter="OL"))["rows"]] == ["old"]
    cluster = groups()
    await shown(cluster, "/api/groups")
    assert cluster.asked[0] == ("list_groups", {"kinds": (), "states": ()})
    assert (await refused(cluster, "GET", "/api/groups", kind="odd"))[0] == 400


async def test_share_group_names_the_topic_of_its_dead_letters() -> None:
    name = "errors.deadletterqueue.topic.name"
    described = {"new": GroupInfo("new", "share", "Stable", "simple", 4, 1, ())}
    for answer, topic in (
        ([ConfigEntry(name, "dlq.new", "group", False, False, "", ())], "dlq.new"),
        ([ConfigEntry(name, "", "default", False, False, "", ())], None),
        ([], None),
        (REFUSED, None),
    ):
        cluster = groups(describe_groups=described, describe_configs={Resource("group", "new"): answer})
        assert (await shown(cluster, "/api/groups/new"))["dead_letter_topic"] == topic
        assert ("describe_configs", [Resource("group", "new")], {"names": [name]}) in cluster.asked
    described = {"old": GroupInfo("old", "classic", "Dead", "range", None, 1, (READER,))}
    assert (await shown(groups(describe_groups=described), "/api/groups/old"))["dead_letter_topic"] is None
