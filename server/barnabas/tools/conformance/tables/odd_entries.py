"""Rows about requests that name something twice, or nothing, or have a number that nothing was defined for."""

from __future__ import annotations

from typing import Any

from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.fixture import UNKNOWN_ID
from barnabas.tools.conformance.rows import LAST, Row, Values, row
from barnabas.tools.conformance.tables.records import fetching
from barnabas.tools.conformance.trial import Trial

TWICE = "What is named twice is answered once."
NO_PARTITIONS = "Nothing is answered about a topic of which no partition is named."
ISOLATION = "There are two isolation levels."
SOURCE = "Kafka 4.3"
PRODUCE_BY_ID = 13
FETCH_TOP_LEVEL = 7
"""The first version of Fetch that has an error for the whole request."""


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_produce(), *_fetch(), *_list_offsets(), *_others()]


def _topics(trial: Trial, *partitions: list[Values]) -> list[Values]:
    return [{"name": trial.topic, "partitions": partition} for partition in partitions]


def _produce() -> list[Row]:
    path = "responses.0.partition_responses.0."

    def unnamed(_: Trial, __: int) -> Values:
        data = {"index": 0, "records": batch()}
        return {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [{"name": "", "topic_id": UNKNOWN_ID, "partition_data": [data]}],
        }

    def of_nothing(trial: Trial, _: int) -> Values:
        topic = {"name": trial.topic, "topic_id": trial.topic_id, "partition_data": []}
        return {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}

    def refused(records: bytes) -> Any:
        return lambda t, _: {
            "acks": -1,
            "timeout_ms": 10_000,
            "topic_data": [
                {
                    "name": t.topic,
                    "topic_id": t.topic_id,
                    "partition_data": [{"index": 0, "records": records}],
                }
            ],
        }

    return [
        row(
            "Produce",
            "an empty name",
            "A topic without a name is one that there is not.",
            SOURCE,
            unnamed,
            lambda _, v: {
                f"{path}error_code": "UNKNOWN_TOPIC_ID"
                if v >= PRODUCE_BY_ID
                else "UNKNOWN_TOPIC_OR_PARTITION"
            },
            (3, LAST),
            with_topic=False,
        ),
        row("Produce", "no partitions", NO_PARTITIONS, SOURCE, of_nothing, {"responses.len": 0}, (3, LAST)),
        row(
            "Produce",
            "refused by the leader",
            "A refusal by the leader of a partition says where its log begins.",
            SOURCE,
            refused(batch(control=True)),
            {f"{path}error_code": "INVALID_RECORD", f"{path}log_start_offset": 0, f"{path}base_offset": -1},
            (5, LAST),
        ),
        row(
            "Produce",
            "refused before the leader",
            "The log is not looked at for records that are not a single batch.",
            SOURCE,
            refused(batch() + batch()),
            {f"{path}error_code": "INVALID_RECORD", f"{path}log_start_offset": -1},
            (5, LAST),
        ),
    ]


def _fetch() -> list[Row]:
    path = "responses.0.partitions.0."

    def twice(trial: Trial, _: int) -> Values:
        asked = fetching(trial)
        asked["topics"][0]["partitions"] *= 2
        return asked

    def isolation(_: Trial, version: int) -> Values:
        if version >= FETCH_TOP_LEVEL:
            return {"error_code": "UNKNOWN_SERVER_ERROR"}
        return {f"{path}error_code": "UNKNOWN_SERVER_ERROR", f"{path}high_watermark": -1}

    too_few = {f"{path}error_code": "UNKNOWN_SERVER_ERROR", f"{path}high_watermark": -1}
    return [
        row(
            "Fetch", "a partition twice", TWICE, SOURCE, twice,
            {"responses.len": 1, "responses.0.partitions.len": 1}, (4, LAST),
        ),
        row("Fetch", "isolation level 7", ISOLATION, SOURCE,
            lambda t, _: fetching(t, isolation_level=7), isolation, (4, LAST)),
        row("Fetch", "a partition's limit below 0", "So few bytes cannot be read.", SOURCE,
            lambda t, _: fetching(t, partition_max_bytes=-1), too_few, (4, LAST)),
        row("Fetch", "a limit below 0", "So few bytes cannot be read.", SOURCE,
            lambda t, _: fetching(t, max_bytes=-1), too_few, (4, LAST)),
        row(
            "Fetch", "after the end, nothing aborted", "Beside an error of the log aborted transactions are null.",
            SOURCE, lambda t, _: fetching(t, 1_000_000), {f"{path}aborted_transactions": None}, (4, LAST),
        ),
        row(
            "Fetch", "a session of nothing", "A session of no partitions is kept: some may come.", "KIP-227",
            lambda t, _: fetching(t, session_epoch=0) | {"topics": []},
            {"error_code": 0, "session_id": _positive}, (FETCH_TOP_LEVEL, LAST),
        ),
    ]  # fmt: skip


def _positive(value: int) -> bool:
    """a number above 0"""
    return value > 0


def _list_offsets() -> list[Row]:
    path = "topics.0.partitions.0."

    def of(*queries: Values, isolation_level: int = 0) -> Any:
        return lambda t, _: {
            "replica_id": -1,
            "isolation_level": isolation_level,
            "topics": _topics(t, [{"partition_index": 0, "timestamp": -1, **query} for query in queries]),
        }

    return [
        row(
            "ListOffsets", "a partition twice", "What is named twice is refused, once.", SOURCE, of({}, {}),
            {"topics.0.partitions.len": 1, f"{path}error_code": "INVALID_REQUEST"}, (1, LAST), releases="4",
        ),
        row("ListOffsets", "isolation level 7", ISOLATION, SOURCE, of({}, isolation_level=7),
            {f"{path}error_code": "UNKNOWN_SERVER_ERROR", f"{path}offset": -1}, (2, LAST)),
        row("ListOffsets", "leader epoch -2", "A leader epoch before the leader's own is FENCED_LEADER_EPOCH.", "KIP-320",
            of({"current_leader_epoch": -2}), {f"{path}error_code": "FENCED_LEADER_EPOCH"}, (4, LAST)),
    ]  # fmt: skip


def _others() -> list[Row]:
    def deleting(trial: Trial, _: int) -> Values:
        partition = {"partition_index": 0, "offset": 0}
        return {"topics": _topics(trial, [partition, partition], [partition], []), "timeout_ms": 10_000}

    def committing(trial: Trial, _: int) -> Values:
        return {
            "group_id": "conform-odd",
            "generation_id_or_member_epoch": -1,
            "topics": _topics(trial, []),
        }

    def moving(trial: Trial, _: int) -> Values:
        topic = {"name": trial.topic, "partitions": [0, 0]}
        return {"dirs": [{"path": "/no/such/dir", "topics": [topic, topic]}]}

    def names_topic(answers: Any) -> bool:
        """the topics, without partitions that need no election"""
        return bool(answers) and all(not answer.partition_result for answer in answers)

    return [
        row("DeleteRecords", "a partition twice", TWICE, SOURCE, deleting,
            {"topics.len": 1, "topics.0.partitions.len": 1, "topics.0.partitions.0.error_code": 0}),
        row("OffsetCommit", "no partitions", NO_PARTITIONS, SOURCE, committing, {"topics.len": 0}, (2, 9)),
        row("AlterReplicaLogDirs", "a partition twice", TWICE, SOURCE, moving,
            {"results.len": 1, "results.0.partitions.len": 1,
             "results.0.partitions.0.error_code": "LOG_DIR_NOT_FOUND"}),
        row("ElectLeaders", "everything", "Asked for all, a controller names each topic, with what needed an election.",
            SOURCE, {"election_type": 0, "topic_partitions": None, "timeout_ms": 10_000},
            {"error_code": 0, "replica_election_results": names_topic}, (1, LAST), releases="4"),
    ]  # fmt: skip
