"""Requests that describe topics and the cluster: every version, pages, and entities that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat.admin.changing import UNKNOWN_ID, topic
from compat.kit.compare import Seen, Step
from compat.kit.wire import Values


def metadata_flags(version: int) -> Values:
    """Return the flags of a Metadata request that creates no topics, and asks for the authorized operations."""
    flags: Values = {}
    if version >= 4:
        flags["AllowAutoTopicCreation"] = False
    if 8 <= version <= 10:
        flags["IncludeClusterAuthorizedOperations"] = True
    if version >= 8:
        flags["IncludeTopicAuthorizedOperations"] = True
    return flags


def _metadata() -> Iterator[Step]:
    for version in range(14):
        flags = metadata_flags(version)
        everything: Any = [] if version == 0 else None
        yield Step(f"metadata v{version}: all", "Metadata", version, {"Topics": everything, **flags})
        if version:
            yield Step(f"metadata v{version}: none", "Metadata", version, {"Topics": [], **flags})
        tries = {
            "some": ["many", "filled"], "twice": ["many", "many"], "bad name": ["a b"], "no name": [""],
            "too long": ["n" * 250],
        }  # fmt: skip
        if version >= 4:  # in earlier versions, the request creates the topic
            tries["unknown"] = ["nowhere", "many"]
        for label, names in tries.items():
            asked = [{"Name": name} for name in names]
            yield Step(f"metadata v{version}: {label}", "Metadata", version, {"Topics": asked, **flags})
        if version >= 10:
            for label, entry in {
                "unknown id": {"Name": None, "TopicId": UNKNOWN_ID},
                "neither name nor id": {"Name": None},
                "name and unknown id": {"Name": "many", "TopicId": UNKNOWN_ID},
                "id": {"Name": None, "TopicId": "many"},
            }.items():
                yield Step(f"metadata v{version}: {label}", "Metadata", version, _with_id(entry, flags))
    yield Step(
        "metadata: make", "Metadata", 12, {"Topics": [{"Name": "made"}], "AllowAutoTopicCreation": True}
    )
    yield Step(
        "metadata: made", "Metadata", 12, {"Topics": [{"Name": "made"}], "AllowAutoTopicCreation": False}
    )
    bad = {"Topics": [{"Name": "a b"}], "AllowAutoTopicCreation": True}
    yield Step("metadata: make a bad name", "Metadata", 12, bad)


def _with_id(entry: Values, flags: Values) -> Any:
    def values(seen: Seen) -> Values:
        ids = {topic["Name"]: topic["TopicId"] for topic in seen["metadata v10: all"]["Topics"].copy()}
        filled = {**entry, "TopicId": ids.get(entry.get("TopicId"), entry.get("TopicId", bytes(16)))}
        return {"Topics": [filled], **flags}

    return values


def _pages() -> Iterator[Step]:
    wide = [topic("page-a", 3), topic("page-b", 5), topic("page-c", 1)]
    yield Step("pages: topics", "CreateTopics", 7, {"Topics": wide, "timeoutMs": 9000})
    yield Step("pages: seen", "Metadata", 12, {"Topics": [{"Name": entry["Name"]} for entry in wide]})
    names = ["page-c", "page-a", "page-b"]
    tries: list[tuple[str, list[str], int, tuple[str, int] | None]] = [
        ("all three", names, 2000, None),
        ("limit 1", names, 1, None),
        ("limit 3", names, 3, None),
        ("limit 4", names, 4, None),
        ("limit 8", names, 8, None),
        ("limit 9", names, 9, None),
        ("limit 0", names, 0, None),
        ("limit -1", names, -1, None),
        ("beyond the limit", names, 100_000, None),
        ("from the middle", names, 2, ("page-b", 1)),
        ("from the middle to the end", names, 100, ("page-b", 1)),
        ("from the last partition", names, 2, ("page-b", 4)),
        ("from past the last partition", names, 2, ("page-b", 5)),
        ("from far past the last partition", names, 2, ("page-b", 50)),
        ("from a negative partition", names, 2, ("page-b", -1)),
        ("from a topic between", names, 2, ("page-aa", 0)),
        ("from a topic between and a partition", names, 4, ("page-aa", 2)),
        ("from after the last topic", names, 2, ("page-z", 0)),
        ("from before the first topic", names, 2, ("page-", 0)),
        ("from an empty name", names, 2, ("", 0)),
        ("from a bad name", names, 2, ("a b", 0)),
        ("everything", [], 5, None),
        ("everything from the middle", [], 5, ("page-b", 2)),
        ("everything from the end", [], 5, ("zzz", 0)),
        ("unknown", ["nowhere"], 5, None),
        ("unknown and known", ["page-a", "nowhere", "page-b"], 5, None),
        ("unknown as the cursor", ["page-a", "nowhere", "page-b"], 5, ("nowhere", 1)),
        ("bad names", ["a b", ""], 5, None),
        ("twice", ["page-a", "page-a"], 5, None),
    ]
    for label, topics, limit, cursor in tries:
        values: Values = {"Topics": [{"Name": name} for name in topics], "ResponsePartitionLimit": limit}
        values["Cursor"] = None if cursor is None else {"TopicName": cursor[0], "PartitionIndex": cursor[1]}
        yield Step(f"pages: {label}", "DescribeTopicPartitions", 0, values)


def _others() -> Iterator[Step]:
    for version in range(3):
        for operations in (False, True):
            values: Values = {"IncludeClusterAuthorizedOperations": operations}
            yield Step(f"cluster v{version} {operations}", "DescribeCluster", version, values)
    yield Step("cluster: controllers", "DescribeCluster", 1, {"EndpointType": 2})
    yield Step("cluster: nonsense", "DescribeCluster", 1, {"EndpointType": 9})
    yield Step("cluster: fenced", "DescribeCluster", 2, {"IncludeFencedBrokers": True})
    for label, name, index in [
        ("known", "filled", 0), ("unknown partition", "filled", 9), ("unknown", "nowhere", 0), ("bad", "a b", 0),
        ("negative", "filled", -1),
    ]:  # fmt: skip
        asked = {"Topics": [{"Name": name, "PartitionIndexes": [index]}]}
        yield Step(f"producers: {label}", "DescribeProducers", 0, asked)
    for version in range(1, 5):
        asked = {
            "Topics": [{"Topic": "filled", "Partitions": [0, 1, 7]}, {"Topic": "nowhere", "Partitions": [0]}]
        }
        yield Step(f"log dirs v{version}", "DescribeLogDirs", version, asked)
        yield Step(f"log dirs v{version}: none", "DescribeLogDirs", version, {"Topics": []})
    for version in range(2, 5):
        for label, name, index, current, expected in [
            ("now", "filled", 0, 0, 0), ("unknown", "nowhere", 0, 0, 0), ("unknown partition", "filled", 9, 0, 0),
            ("newer", "filled", 0, 5, 0), ("later epoch", "filled", 0, 0, 9), ("none", "filled", 0, -1, -1),
            ("empty", "filled", 1, -1, 0),
        ]:  # fmt: skip
            partition = {"Partition": index, "CurrentLeaderEpoch": current, "LeaderEpoch": expected}
            asked = {"Topics": [{"Topic": name, "Partitions": [partition]}]}
            if version >= 3:
                asked["ReplicaId"] = -1  # type: ignore[assignment]
            yield Step(f"epochs v{version}: {label}", "OffsetForLeaderEpoch", version, asked)


def _moving() -> Iterator[Step]:
    for version, factor_may_change in [(0, True), (1, True), (1, False)]:
        for label, name, index, replicas in [
            ("as it is", "filled", 0, [1]), ("cancelled", "filled", 0, None), ("nobody", "filled", 0, []),
            ("unknown broker", "filled", 0, [7]), ("more", "filled", 0, [1, 7]), ("twice", "filled", 0, [1, 1]),
            ("negative", "filled", 0, [-1]), ("unknown partition", "filled", 9, [1]), ("unknown", "nowhere", 0, [1]),
            ("negative partition", "filled", -1, [1]), ("bad", "a b", 0, None),
        ]:  # fmt: skip
            partition = {"PartitionIndex": index, "Replicas": replicas}
            values: Values = {"TimeoutMs": 10_000, "Topics": [{"Name": name, "Partitions": [partition]}]}
            if version:
                values["AllowReplicationFactorChange"] = factor_may_change
            label = f"move v{version} {factor_may_change}: {label}"
            yield Step(label, "AlterPartitionReassignments", version, values)
    for label, topics in [
        ("all", None), ("none", []), ("known", [{"Name": "filled", "PartitionIndexes": [0, 1]}]),
        ("unknown", [{"Name": "nowhere", "PartitionIndexes": [0]}]),
    ]:  # fmt: skip
        yield Step(
            f"moves: {label}", "ListPartitionReassignments", 0, {"TimeoutMs": 10_000, "Topics": topics}
        )


def steps() -> list[Step]:
    """Return all steps; the topics are those that `changing` has created."""
    return [*_metadata(), *_pages(), *_others(), *_moving()]
