"""Rows about offsets of logs: by time, by leader epoch, and of producers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.fixture import FIRST_TIMESTAMP_MS, RECORDS
from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.tables.records import NEWER_EPOCH
from barnabas.tools.conformance.trial import Trial


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_list_offsets(), *_epochs(), *_producers()]


def looking(trial: Trial, timestamp: int, *, index: int = 0, name: str = "", **more: Any) -> dict[str, Any]:
    """Return a ListOffsets of one partition."""
    partition = {"partition_index": index, "timestamp": timestamp, "max_num_offsets": 1} | more
    return {"replica_id": -1, "topics": [{"name": name or trial.topic, "partitions": [partition]}]}


def _list_offsets() -> list[Row]:
    path = "topics.0.partitions.0."
    code, offset, timestamp = f"{path}error_code", f"{path}offset", f"{path}timestamp"
    special = "Times below 0 name special offsets: -1 the log end, -2 the log start."
    middle = FIRST_TIMESTAMP_MS + 3000
    exists = "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION."

    def found(number: int) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda _, v: (
            {code: 0, f"{path}old_style_offsets": [number]}
            if v == 0
            else {code: 0, offset: number, timestamp: -1}
        )

    return [
        row("ListOffsets", "the end", special, "protocol guide", lambda t, _: looking(t, -1), found(RECORDS)),
        row("ListOffsets", "the start", special, "protocol guide", lambda t, _: looking(t, -2), found(0)),
        row(
            "ListOffsets",
            "the end, committed",
            special,
            "KIP-98",
            lambda t, _: looking(t, -1) | {"isolation_level": 1},
            found(RECORDS),
            (2, LAST),
        ),
        row(
            "ListOffsets",
            "by time",
            "A time is answered with the first record that is not before it.",
            "KIP-79",
            lambda t, _: looking(t, middle - 1),
            {code: 0, offset: 3, timestamp: middle},
            (1, LAST),
        ),
        row(
            "ListOffsets",
            "by the first time",
            "A time before all records is answered with the first one.",
            "KIP-79",
            lambda t, _: looking(t, 0),
            {code: 0, offset: 0, timestamp: FIRST_TIMESTAMP_MS},
            (1, LAST),
        ),
        row(
            "ListOffsets",
            "by a time to come",
            "A time after all records is answered with -1.",
            "KIP-79",
            lambda t, _: looking(t, FIRST_TIMESTAMP_MS + 10**9),
            {code: 0, offset: -1, timestamp: -1},
            (1, LAST),
        ),
        row(
            "ListOffsets",
            "the greatest time",
            "-3 is the record with the greatest timestamp, since version 7.",
            "KIP-734",
            lambda t, _: looking(t, -3),
            {code: 0, offset: RECORDS - 1, timestamp: FIRST_TIMESTAMP_MS + 9000},
            (7, LAST),
        ),
        row(
            "ListOffsets",
            "the local start",
            "-4 is the start of the local log, since version 8.",
            "KIP-405",
            lambda t, _: looking(t, -4),
            {code: 0, offset: 0},
            (8, LAST),
        ),
        row(
            "ListOffsets",
            "the last tiered",
            "-5 is the last tiered offset, -1 where nothing is tiered, since version 9.",
            "KIP-1005",
            lambda t, _: looking(t, -5),
            {code: 0, offset: -1},
            (9, LAST),
        ),
        row(
            "ListOffsets",
            "the greatest time, too early",
            "-3 is not known before version 7: UNSUPPORTED_VERSION.",
            "KIP-734",
            lambda t, _: looking(t, -3),
            {code: "UNSUPPORTED_VERSION"},
            (1, 6),
            releases="4",
        ),
        row(
            "ListOffsets",
            "an empty partition",
            "A partition without records begins and ends at 0.",
            "protocol guide",
            lambda t, _: looking(t, -1, index=1),
            found(0),
        ),
        row(
            "ListOffsets",
            "leader epoch in the answer",
            "The answer has the leader epoch of the offset, since version 4.",
            "KIP-320",
            lambda t, _: looking(t, -1),
            {f"{path}leader_epoch": lambda value: value >= 0},
            (4, LAST),
        ),
        row(
            "ListOffsets",
            "an unknown partition",
            exists,
            "protocol guide",
            lambda t, _: looking(t, -1, index=9),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "ListOffsets",
            "an unknown topic",
            exists,
            "protocol guide",
            lambda t, _: looking(t, -1, name="conform-no-such-topic"),
            {code: "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "ListOffsets",
            "a leader epoch to come",
            "A leader epoch after the leader's own is UNKNOWN_LEADER_EPOCH.",
            "KIP-320",
            lambda t, _: looking(t, -1, current_leader_epoch=NEWER_EPOCH),
            {code: "UNKNOWN_LEADER_EPOCH"},
            (4, LAST),
        ),
        row(
            "ListOffsets",
            "nothing",
            "Nothing is looked for where nothing is named.",
            "protocol guide",
            {"replica_id": -1, "topics": []},
            {"topics.len": 0},
            with_topic=False,
        ),
    ]


# --- leader epochs and producers --------------------------------------------------------------------------------


def _epochs() -> list[Row]:
    path = "topics.0.partitions.0."

    def asked(
        epoch: int, *, index: int = 0, current: int = -1, name: str = ""
    ) -> Callable[[Trial, int], dict[str, Any]]:
        partition = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
        return lambda t, _: {
            "replica_id": -1,
            "topics": [{"topic": name or t.topic, "partitions": [partition]}],
        }

    return [
        row(
            "OffsetForLeaderEpoch",
            "the first epoch",
            "The end of the newest leader epoch is the log end.",
            "KIP-320",
            asked(0),
            {f"{path}error_code": 0, f"{path}end_offset": RECORDS},
        ),
        row(
            "OffsetForLeaderEpoch",
            "an epoch to come",
            "An epoch after the leader's own has no end: -1.",
            "KIP-320",
            asked(NEWER_EPOCH),
            {f"{path}error_code": 0, f"{path}end_offset": -1},
        ),
        row(
            "OffsetForLeaderEpoch",
            "a current epoch to come",
            "A current leader epoch after the leader's own is UNKNOWN_LEADER_EPOCH.",
            "KIP-320",
            asked(0, current=NEWER_EPOCH),
            {f"{path}error_code": "UNKNOWN_LEADER_EPOCH"},
            (2, LAST),
        ),
        row(
            "OffsetForLeaderEpoch",
            "an unknown partition",
            "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-320",
            asked(0, index=9),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "OffsetForLeaderEpoch",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-320",
            asked(0, name="conform-no-such-topic"),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
    ]


def _producers() -> list[Row]:
    path = "topics.0.partitions.0."

    def asked(index: int = 0, name: str = "") -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: {"topics": [{"name": name or t.topic, "partition_indexes": [index]}]}

    return [
        row(
            "DescribeProducers",
            "nobody",
            "A partition without idempotent producers has none.",
            "KIP-664",
            asked(),
            {f"{path}error_code": 0, f"{path}active_producers.len": 0},
        ),
        row(
            "DescribeProducers",
            "an unknown partition",
            "A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-664",
            asked(9),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
        ),
        row(
            "DescribeProducers",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-664",
            asked(0, "conform-no-such-topic"),
            {f"{path}error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DescribeProducers",
            "a name with a space",
            "A name that no topic can have is INVALID_TOPIC_EXCEPTION.",
            "KIP-664",
            asked(0, "a b"),
            {f"{path}error_code": "INVALID_TOPIC_EXCEPTION"},
            with_topic=False,
        ),
    ]
