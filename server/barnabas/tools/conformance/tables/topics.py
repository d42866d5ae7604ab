"""Rows about topics that are made, removed or get partitions: what is only asked, or refused."""

from __future__ import annotations

from typing import Any

from barnabas.tools.conformance.fixture import UNKNOWN_ID
from barnabas.tools.conformance.rows import LAST, Row, row

ONLY_ASKED = (1, LAST)
LONGEST = "n" * 249


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_create(), *_delete(), *_grow()]


def _topic(
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    assigned: list[tuple[int, list[int]]] | None = None,
    configs: list[tuple[str, str | None]] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assigned or []],
        "configs": [{"name": key, "value": value} for key, value in configs or []],
    }


def _asked(*topics: dict[str, Any]) -> dict[str, Any]:
    return {"topics": list(topics), "timeout_ms": 10_000, "validate_only": True}


_BY_CONTROLLERS_OF_4 = ("assigned to an unknown broker", "assigned to nobody")
"""Assignments that a controller on ZooKeeper does not look at when it only validates a request."""


def _create() -> list[Row]:
    new = "conform-never-made"
    names = "A name has 1 to 249 letters, digits, dots, dashes, underscores, and is not . or ..: INVALID_TOPIC_EXCEPTION."
    counts = "A topic has at least one partition: INVALID_PARTITIONS."
    factor = (
        "A topic has at least one replica, and no more than there are brokers: INVALID_REPLICATION_FACTOR."
    )
    assigned = (
        "An assignment names brokers that there are for each partition from 0 on: INVALID_REPLICA_ASSIGNMENT."
    )
    config = "A setting that topics do not have, or a value that it cannot have, is INVALID_CONFIG."
    request = "Counts and an assignment exclude each other, and a name is there once: INVALID_REQUEST."
    wrong: list[tuple[str, str, str, list[dict[str, Any]]]] = [
        ("no name", names, "INVALID_TOPIC_EXCEPTION", [_topic("")]),
        ("a dot", names, "INVALID_TOPIC_EXCEPTION", [_topic(".")]),
        ("two dots", names, "INVALID_TOPIC_EXCEPTION", [_topic("..")]),
        ("a name with a space", names, "INVALID_TOPIC_EXCEPTION", [_topic("a b")]),
        ("a name with a slash", names, "INVALID_TOPIC_EXCEPTION", [_topic("a/b")]),
        ("a name that is not ASCII", names, "INVALID_TOPIC_EXCEPTION", [_topic("ä")]),
        ("too long a name", names, "INVALID_TOPIC_EXCEPTION", [_topic(LONGEST + "n")]),
        ("no partitions", counts, "INVALID_PARTITIONS", [_topic(new, 0)]),
        ("-2 partitions", counts, "INVALID_PARTITIONS", [_topic(new, -2)]),
        ("no replicas", factor, "INVALID_REPLICATION_FACTOR", [_topic(new, 1, 0)]),
        ("-2 replicas", factor, "INVALID_REPLICATION_FACTOR", [_topic(new, 1, -2)]),
        ("32767 replicas", factor, "INVALID_REPLICATION_FACTOR", [_topic(new, 1, 32767)]),
        (
            "assigned to an unknown broker",
            assigned,
            "INVALID_REPLICA_ASSIGNMENT",
            [_topic(new, -1, -1, [(0, [30_000])])],
        ),
        ("assigned to nobody", assigned, "INVALID_REPLICA_ASSIGNMENT", [_topic(new, -1, -1, [(0, [])])]),
        ("assigned with counts", request, "INVALID_REQUEST", [_topic(new, 2, -1, [(0, [1]), (1, [1])])]),
        ("an unknown setting", config, "INVALID_CONFIG", [_topic(new, configs=[("no.such.setting", "1")])]),
        ("a wrong value", config, "INVALID_CONFIG", [_topic(new, configs=[("retention.ms", "soon")])]),
        ("a value out of bounds", config, "INVALID_CONFIG", [_topic(new, configs=[("retention.ms", "-2")])]),
        ("a name twice", request, "INVALID_REQUEST", [_topic(new), _topic(new, 2)]),
    ]
    rows = [
        row(
            "CreateTopics",
            label,
            rule,
            "KIP-4",
            _asked(*topics),
            {"topics.0.error_code": code},
            ONLY_ASKED,
            with_topic=False,
            releases="4" if label in _BY_CONTROLLERS_OF_4 else "",
        )
        for label, rule, code, topics in wrong
    ]
    rows += [
        row(
            "CreateTopics",
            "wrong and not only asked",
            names,
            "KIP-4",
            {**_asked(_topic("a b")), "validate_only": False},
            {"topics.0.error_code": "INVALID_TOPIC_EXCEPTION"},
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "only asked",
            "A topic that could be made is answered without an error, and not made.",
            "KIP-4",
            lambda t, _: _asked(_topic(t.fresh(), 2)),
            lambda _, v: (
                {"topics.len": 1, "topics.0.error_code": 0}
                | ({"topics.0.num_partitions": 2, "topics.0.replication_factor": 1} if v >= 5 else {})
            ),
            ONLY_ASKED,
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "default counts",
            "Counts of -1 are the broker's defaults since version 4.",
            "KIP-464",
            lambda t, _: _asked(_topic(t.fresh(), -1, -1)),
            {"topics.0.error_code": 0},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "settings in the answer",
            "The answer has the topic's settings since version 5.",
            "KIP-525",
            lambda t, _: _asked(_topic(t.fresh(), configs=[("retention.ms", "77")])),
            {
                "topics.0.configs": lambda configs: (
                    ("retention.ms", "77") in [(config.name, config.value) for config in configs]
                )
            },
            (5, LAST),
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "assigned",
            "A topic may be made with the replicas that the request names.",
            "KIP-4",
            lambda t, _: _asked(
                _topic(t.fresh(), -1, -1, [(0, [t.fixture.node_id]), (1, [t.fixture.node_id])])
            ),
            {"topics.0.error_code": 0},
            ONLY_ASKED,
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "exists",
            "A topic that exists is TOPIC_ALREADY_EXISTS.",
            "KIP-4",
            lambda t, _: _asked(_topic(t.topic)),
            {"topics.0.error_code": "TOPIC_ALREADY_EXISTS"},
            ONLY_ASKED,
        ),
        row(
            "CreateTopics",
            "nothing",
            "No topics are made where none are named.",
            "KIP-4",
            _asked(),
            {"topics.len": 0},
            ONLY_ASKED,
            with_topic=False,
        ),
        row(
            "CreateTopics",
            "good and bad",
            "Each topic has its own answer.",
            "KIP-4",
            lambda t, _: _asked(_topic(t.fresh()), _topic("a b"), _topic(t.topic)),
            {"topics": lambda topics: sorted(topic.error_code for topic in topics) == [0, 17, 36]},
            ONLY_ASKED,
        ),
    ]
    return rows


def _delete() -> list[Row]:
    unknown = "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION."

    def named(*names: str) -> Any:
        return lambda t, v: {
            "topic_names": [name or t.unknown for name in names],
            "topics": [{"name": name or t.unknown} for name in names] if v >= 6 else [],
            "timeout_ms": 10_000,
        }

    def by_id(*topics: tuple[Any, Any]) -> Any:
        return lambda t, _: {
            "topics": [
                {"name": name and t.unknown, "topic_id": topic_id or bytes(16)} for name, topic_id in topics
            ],
            "timeout_ms": 10_000,
        }

    return [
        row(
            "DeleteTopics",
            "an unknown topic",
            unknown,
            "KIP-4",
            named(""),
            lambda t, _: {
                "responses.len": 1,
                "responses.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION",
                "responses.0.name": t.unknown,
            },
            with_topic=False,
        ),
        row(
            "DeleteTopics",
            "nothing",
            "Nothing is removed where nothing is named.",
            "KIP-4",
            named(),
            {"responses.len": 0},
            with_topic=False,
        ),
        row(
            "DeleteTopics",
            "a name with a space",
            unknown,
            "KIP-4",
            named("a b"),
            {"responses.0.error_code": {"UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION"}},
            with_topic=False,
        ),
        row(
            "DeleteTopics",
            "an unknown id",
            "An id that no topic has is UNKNOWN_TOPIC_ID.",
            "KIP-516",
            by_id((None, UNKNOWN_ID)),
            {"responses.0.error_code": "UNKNOWN_TOPIC_ID", "responses.0.topic_id": UNKNOWN_ID},
            (6, LAST),
            with_topic=False,
        ),
        row(
            "DeleteTopics",
            "name and id",
            "A topic is named either by its name or by its id: INVALID_REQUEST.",
            "KIP-516",
            by_id((True, UNKNOWN_ID)),
            {"responses.0.error_code": "INVALID_REQUEST"},
            (6, LAST),
            with_topic=False,
        ),
        row(
            "DeleteTopics",
            "neither name nor id",
            "A topic is named either by its name or by its id: INVALID_REQUEST.",
            "KIP-516",
            by_id((None, None)),
            {"responses.0.error_code": "INVALID_REQUEST"},
            (6, LAST),
            with_topic=False,
            releases="4",
        ),
    ]


def _grow() -> list[Row]:
    def grow(count: int, assigned: list[list[int]] | None = None, name: str = "") -> Any:
        return lambda t, _: {
            "topics": [
                {
                    "name": name or t.topic,
                    "count": count,
                    "assignments": None
                    if assigned is None
                    else [{"broker_ids": ids or [t.fixture.node_id]} for ids in assigned],
                }
            ],
            "timeout_ms": 10_000,
            "validate_only": True,
        }

    more = "A topic can only get more partitions than it has: INVALID_PARTITIONS."
    assigned = "An assignment names as many brokers for each new partition: INVALID_REPLICA_ASSIGNMENT."
    return [
        row(
            "CreatePartitions",
            "more",
            "A topic that could grow is answered without an error, and does not.",
            "KIP-195",
            grow(5),
            lambda t, _: {"results.len": 1, "results.0.error_code": 0, "results.0.name": t.topic},
        ),
        row(
            "CreatePartitions",
            "assigned",
            "New partitions may be assigned.",
            "KIP-195",
            grow(5, [[], []]),
            {"results.0.error_code": 0},
        ),
        row(
            "CreatePartitions",
            "as many",
            more,
            "KIP-195",
            grow(3),
            {"results.0.error_code": "INVALID_PARTITIONS"},
        ),
        row(
            "CreatePartitions",
            "fewer",
            more,
            "KIP-195",
            grow(1),
            {"results.0.error_code": "INVALID_PARTITIONS"},
        ),
        row(
            "CreatePartitions",
            "none",
            more,
            "KIP-195",
            grow(0),
            {"results.0.error_code": "INVALID_PARTITIONS"},
        ),
        row(
            "CreatePartitions",
            "negative",
            more,
            "KIP-195",
            grow(-1),
            {"results.0.error_code": "INVALID_PARTITIONS"},
        ),
        row(
            "CreatePartitions",
            "too few assigned",
            assigned,
            "KIP-195",
            grow(5, [[]]),
            {"results.0.error_code": "INVALID_REPLICA_ASSIGNMENT"},
        ),
        row(
            "CreatePartitions",
            "assigned to an unknown broker",
            assigned,
            "KIP-195",
            grow(4, [[30_000]]),
            {"results.0.error_code": "INVALID_REPLICA_ASSIGNMENT"},
        ),
        row(
            "CreatePartitions",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-195",
            grow(5, None, "conform-no-such-topic"),
            {"results.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "CreatePartitions",
            "nothing",
            "Nothing grows where nothing is named.",
            "KIP-195",
            {"topics": [], "timeout_ms": 10_000, "validate_only": True},
            {"results.len": 0},
            with_topic=False,
        ),
    ]
