"""Requests that make, grow and delete topics and records, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat.kit.compare import Seen, Step
from compat.kit.records import record_batch
from compat.kit.wire import Values

LONGEST = "n" * 249
UNKNOWN_ID = bytes(range(16))


def topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> Values:
    """Return a topic of a CreateTopics request."""
    return {
        "Name": name,
        "NumPartitions": partitions,
        "ReplicationFactor": replicas,
        "Assignments": [{"PartitionIndex": index, "BrokerIds": ids} for index, ids in assigned or []],
        "Configs": [{"Name": key, "Value": value} for key, value in configs or []],
    }


def _create(version: int, *topics: Values, validate: bool = False) -> Values:
    return {"Topics": list(topics), "timeoutMs": 9000, "validateOnly": validate}


# Topics of one request each, by what is tried.
WISHES: dict[str, list[Values]] = {
    "defaults": [topic("defaults", -1, -1)],
    "many": [topic("many", 7, 1), topic("tuned", 2, 1, configs=[("retention.ms", "1000")])],
    "assigned": [topic("assigned", -1, -1, [(0, [1]), (1, [1])])],
    "assigned out of order": [topic("out-of-order", -1, -1, [(1, [1]), (0, [1])])],
    "exists": [topic("many", 7, 1)],
    "exists, and wrong": [topic("many", 0, 9, configs=[("no.such", "1")])],
    "no partitions": [topic("new", 0, 1)],
    "-2 partitions": [topic("new", -2, 1)],
    "default partitions": [topic("default-partitions", -1, 1)],
    "too many partitions": [topic("new", 10_001, 1)],
    "no replicas": [topic("new", 1, 0)],
    "-2 replicas": [topic("new", 1, -2)],
    "2 replicas": [topic("new", 1, 2)],
    "32767 replicas": [topic("new", 1, 32767)],
    "no partitions and no replicas": [topic("new", 0, 0)],
    "assigned and partitions": [topic("new", 2, -1, [(0, [1]), (1, [1])])],
    "assigned and replicas": [topic("new", -1, 1, [(0, [1])])],
    "assigned to nobody": [topic("new", -1, -1, [(0, [])])],
    "assigned to an unknown broker": [topic("new", -1, -1, [(0, [7])])],
    "assigned twice to one broker": [topic("new", -1, -1, [(0, [1, 1])])],
    "assigned to a negative broker": [topic("new", -1, -1, [(0, [-1])])],
    "assigned with a gap": [topic("new", -1, -1, [(0, [1]), (2, [1])])],
    "assigned from 1 on": [topic("new", -1, -1, [(1, [1])])],
    "assigned from -1 on": [topic("new", -1, -1, [(-1, [1]), (0, [1])])],
    "a partition assigned twice": [topic("new", -1, -1, [(0, [1]), (0, [1])])],
    "replicas of different number": [topic("new", -1, -1, [(0, [1]), (1, [])])],
    "no name": [topic("")],
    "a dot": [topic(".")],
    "two dots": [topic("..")],
    "three dots": [topic("...")],
    "longest name": [topic(LONGEST)],
    "too long a name": [topic(LONGEST + "n")],
    "a space": [topic("a b")],
    "an umlaut": [topic("ä")],
    "a slash": [topic("a/b")],
    "dots and underscores": [topic("a.b_c")],
    "dots for underscores": [topic("a_b.c")],
    "dots for underscores in one request": [topic("x.y"), topic("x_y")],
    "controllers' topic": [topic("__cluster_metadata")],
    "a name twice": [topic("twice"), topic("twice", 2), topic("once")],
    "a name three times": [topic("thrice"), topic("thrice"), topic("thrice")],
    "a bad name twice": [topic("a b"), topic("a b")],
    "a name that exists twice": [topic("many"), topic("many")],
    "unknown setting": [topic("new", configs=[("no.such", "1")])],
    "bad setting": [topic("new", configs=[("retention.ms", "x")])],
    "setting out of bounds": [topic("new", configs=[("retention.ms", "-2")])],
    "setting without a value": [topic("new", configs=[("retention.ms", None)])],
    "setting twice": [topic("setting-twice", configs=[("retention.ms", "1"), ("retention.ms", "2")])],
    "settings that contradict": [
        topic("new", configs=[("min.compaction.lag.ms", "2"), ("max.compaction.lag.ms", "1")])
    ],
    "old setting": [topic("new", configs=[("message.format.version", "3.0")])],
    "tiered": [topic("new", configs=[("remote.storage.enable", "true")])],
    "small segments": [topic("new", configs=[("segment.bytes", "1000")])],
    "good and bad": [topic("good"), topic("bad", 0), topic("worse", 1, 9)],
    "nothing": [],
    "bad name and bad counts": [topic("a b", 0, 0)],
    "bad counts and bad setting": [topic("new", 0, 1, configs=[("no.such", "1")])],
    "bad replicas and bad setting": [topic("new", 1, 9, configs=[("no.such", "1")])],
    "bad assignment and bad setting": [topic("new", -1, -1, [(0, [7])], configs=[("no.such", "1")])],
}


# Kafka does not see within one request that two names are alike; what it makes would be in the way later.
ONLY_ASKED = ("dots for underscores in one request",)


def _creating() -> Iterator[Step]:
    for label, topics in WISHES.items():
        for version in (2, 3, 4, 5, 6, 7):
            # What can be made is only asked about in old versions, and made in the newest.
            is_created = version == 7 and label not in ONLY_ASKED
            asked = _create(version, *topics, validate=True)
            yield Step(f"create v{version} only asked: {label}", "CreateTopics", version, asked)
            if is_created:
                yield Step(f"create v{version}: {label}", "CreateTopics", version, _create(version, *topics))
    for version in (2, 3, 4, 5, 6):
        name = f"made-{version}"
        entry = topic(name, 2, 1, configs=[("retention.ms", "77")])
        yield Step(f"create v{version}", "CreateTopics", version, _create(version, entry))


def _grow(*topics: tuple[str, int, list[list[int]] | None], validate: bool = False) -> Values:
    return {
        "Topics": [
            {
                "Name": name,
                "Count": count,
                "Assignments": None if assigned is None else [{"BrokerIds": ids} for ids in assigned],
            }
            for name, count, assigned in topics
        ],
        "TimeoutMs": 9000,
        "ValidateOnly": validate,
    }


GROWTH: dict[str, list[tuple[str, int, list[list[int]] | None]]] = {
    "more": [("many", 9, None)],
    "as many": [("many", 9, None)],
    "fewer": [("many", 3, None)],
    "none": [("many", 0, None)],
    "negative": [("many", -1, None)],
    "unknown": [("nowhere", 3, None)],
    "no name": [("", 3, None)],
    "bad name": [("a b", 3, None)],
    "assigned": [("many", 11, [[1], [1]])],
    "assigned too few": [("many", 13, [[1]])],
    "assigned too many": [("many", 12, [[1], [1]])],
    "assigned none": [("many", 12, [])],
    "assigned to nobody": [("many", 12, [[]])],
    "assigned to an unknown broker": [("many", 12, [[5]])],
    "assigned twice to one broker": [("many", 12, [[1, 1]])],
    "assigned to two brokers": [("many", 12, [[1, 2]])],
    "fewer, assigned": [("many", 2, [[1]])],
    "twice": [("many", 12, None), ("many", 13, None), ("tuned", 3, None)],
    "good and bad": [("tuned", 4, None), ("nowhere", 4, None)],
    "nothing": [],
}


def _growing() -> Iterator[Step]:
    for label, entries in GROWTH.items():
        for version in range(4):
            asked = _grow(*entries, validate=True)
            yield Step(f"grow v{version} only asked: {label}", "CreatePartitions", version, asked)
        yield Step(f"grow: {label}", "CreatePartitions", 3, _grow(*entries))


def _records() -> Iterator[Step]:
    yield Step(
        "records: topics", "CreateTopics", 7,
        _create(7, topic("filled", 2), topic("compacted", configs=[("cleanup.policy", "compact")]),
                topic("both", configs=[("cleanup.policy", "compact,delete")])),
    )  # fmt: skip
    for name in ("filled", "compacted", "both"):
        data = [{"Index": 0, "Records": record_batch([b"v"] * 10)}]
        topics = [{"Name": name, "PartitionData": data}]
        yield Step(
            f"records: fill {name}", "Produce", 8, {"Acks": -1, "TimeoutMs": 9000, "TopicData": topics}
        )
    tries: list[tuple[str, int, int]] = [
        ("filled", 0, 3), ("filled", 0, 3), ("filled", 0, 2), ("filled", 0, 0), ("filled", 0, 11), ("filled", 0, 10),
        ("filled", 0, -1), ("filled", 0, -2), ("filled", 1, -1), ("filled", 1, 0), ("filled", 1, 1), ("filled", 2, 0),
        ("filled", -1, 0), ("nowhere", 0, 0), ("", 0, 0), ("a b", 0, 0), ("compacted", 0, 1), ("compacted", 0, -1),
        ("both", 0, 2), ("both", 0, -1), ("compacted", 3, -1),
    ]  # fmt: skip
    for number, (name, index, offset) in enumerate(tries):
        for version in range(3) if number < 4 else (2,):
            partitions = [{"PartitionIndex": index, "Offset": offset}]
            asked = {"Topics": [{"Name": name, "Partitions": partitions}], "TimeoutMs": 9000}
            label = f"delete records v{version}: {name!r} {index} before {offset}, try {number}"
            yield Step(label, "DeleteRecords", version, asked)
    several: list[Values] = [
        {
            "Name": "filled",
            "Partitions": [{"PartitionIndex": 0, "Offset": -1}, {"PartitionIndex": 9, "Offset": 1}],
        },
        {"Name": "nowhere", "Partitions": [{"PartitionIndex": 0, "Offset": 1}]},
    ]
    yield Step("delete records: several", "DeleteRecords", 2, {"Topics": several, "TimeoutMs": 9000})
    yield Step("delete records: nothing", "DeleteRecords", 2, {"Topics": [], "TimeoutMs": 9000})


def _id_of(name: str) -> Any:
    def found(seen: Seen) -> bytes:
        for listed_topic in seen["ids"]["Topics"]:
            if listed_topic["Name"] == name:
                found_id: bytes = listed_topic["TopicId"]
                return found_id
        raise KeyError(name)

    return found


def _deleting() -> Iterator[Step]:
    names = [f"d{number}" for number in range(12)]
    yield Step("delete: topics", "CreateTopics", 7, _create(7, *(topic(name) for name in names)))
    asked = [{"Name": name} for name in names]
    yield Step("ids", "Metadata", 12, {"Topics": asked, "AllowAutoTopicCreation": False})

    def by_name(*topics: str) -> Values:
        return {"TopicNames": list(topics), "TimeoutMs": 9000}

    for version in range(1, 6):
        for label, deleted in {
            "unknown": ["nowhere"], "no name": [""], "bad name": ["a b"], "nothing": [], "one": [f"d{version}"],
            "again": [f"d{version}"], "unknown twice": ["nowhere", "nowhere"],
        }.items():  # fmt: skip
            yield Step(f"delete v{version}: {label}", "DeleteTopics", version, by_name(*deleted))
    yield Step("delete v5: one twice", "DeleteTopics", 5, by_name("d6", "d6", "d7"))

    def by_id(*deleted: tuple[str | None, Any]) -> Any:
        def values(seen: Seen) -> Values:
            topics = []
            for name, topic_id in deleted:
                topics.append({"Name": name})
                if topic_id is not None:
                    topics[-1]["TopicId"] = topic_id(seen) if callable(topic_id) else topic_id
            return {"Topics": topics, "TimeoutMs": 9000}

        return values

    entries: dict[str, Any] = {
        "by name": by_id(("d8", None)),
        "by id": by_id((None, _id_of("d9"))),
        "by id again": by_id((None, _id_of("d9"))),
        "unknown id": by_id((None, UNKNOWN_ID)),
        "unknown id twice": by_id((None, UNKNOWN_ID), (None, UNKNOWN_ID)),
        "unknown name": by_id(("nowhere", None)),
        "neither": by_id((None, None)),
        "both": by_id(("d10", _id_of("d10"))),
        "name and id of one": by_id(("d10", None), (None, _id_of("d10"))),
        "name of one, id of another": by_id(("d10", _id_of("d11"))),
        "id twice": by_id((None, _id_of("d10")), (None, _id_of("d10"))),
        "several": by_id(("d10", None), (None, UNKNOWN_ID), ("nowhere", None), (None, _id_of("d11"))),
        "nothing": by_id(),
    }
    for label, values in entries.items():
        yield Step(f"delete v6: {label}", "DeleteTopics", 6, values)


def _careful() -> Iterator[Step]:
    """Yield steps for a topic with min.insync.replicas above its replica count: all of its replicas suffice."""
    careful = topic("careful", configs=[("min.insync.replicas", "2")])
    yield Step("create careful", "CreateTopics", 6, _create(6, careful))
    partitions = [{"Index": 0, "Records": record_batch([b"one", b"two"])}]
    for acks in (1, -1):
        topics = [{"Name": "careful", "PartitionData": partitions}]
        yield Step(
            f"careful: produce with acks={acks}",
            "Produce",
            8,
            {"Acks": acks, "TimeoutMs": 9000, "TopicData": topics},
        )


def steps() -> list[Step]:
    """Return all steps, in an order in which later ones depend on earlier ones."""
    return [*_creating(), *_growing(), *_records(), *_careful(), *_deleting()]
