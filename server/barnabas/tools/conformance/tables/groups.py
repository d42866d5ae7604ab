"""Rows about coordinators, classic groups and committed offsets: what is asked of what is not there, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial

TIMEOUT_MS = 10_000


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [
        *_coordinators(),
        *_members(),
        *_described(),
        *_offsets(),
    ]


def _coordinators() -> list[Row]:
    def asked(key: str, key_type: int = 0) -> dict[str, Any]:
        return {"key": key, "coordinator_keys": [key], "key_type": key_type}

    def found(error: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda _, v: {("coordinators.0.error_code" if v >= 4 else "error_code"): error}

    return [
        row(
            "FindCoordinator",
            "an unknown type",
            "A type of coordinator that there is not is INVALID_REQUEST.",
            "KIP-98",
            asked("x", 99),
            lambda _, v: {("coordinators.0.error_code" if v >= 4 else "error_code"): "INVALID_REQUEST"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "FindCoordinator",
            "nothing",
            "No coordinator is looked for where nothing is named.",
            "KIP-699",
            {"key_type": 0, "coordinator_keys": []},
            {"coordinators.len": 0},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "FindCoordinator",
            "a share key that is none",
            "A key of type 2 is group:topicId:partition; anything else is INVALID_REQUEST.",
            "KIP-932",
            asked("no share key", 2),
            found("INVALID_REQUEST"),
            (6, LAST),
            with_topic=False,
            releases="4",
        ),
    ]


def joining(group: str, member_id: str = "", **changes: Any) -> dict[str, Any]:
    """Return a JoinGroup of a consumer."""
    return {
        "group_id": group,
        "session_timeout_ms": TIMEOUT_MS,
        "rebalance_timeout_ms": TIMEOUT_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"\0\0\0\0\0\0\0\0\0\0"}],
    } | changes


def syncing(group: str, member_id: str, generation: int, *assigned: str, **changes: Any) -> dict[str, Any]:
    """Return a SyncGroup; `assigned` are the members with an assignment."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [
            {"member_id": member_id, "assignment": b"for " + member_id.encode()} for member_id in assigned
        ],
    } | changes


def _members() -> list[Row]:
    no_group = "A group's id is not empty: INVALID_GROUP_ID."
    unknown = "An id that no member of the group has is UNKNOWN_MEMBER_ID."
    session = "A session timeout is between the broker's least and its greatest: INVALID_SESSION_TIMEOUT."

    def join(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: joining(t.fresh("group"), **changes)

    return [
        row(
            "JoinGroup",
            "no group",
            no_group,
            "Apache Kafka 0.9",
            joining(""),
            {"error_code": "INVALID_GROUP_ID"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "a session too short",
            session,
            "Apache Kafka 0.9",
            join(session_timeout_ms=1),
            {"error_code": "INVALID_SESSION_TIMEOUT"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "a session too long",
            session,
            "Apache Kafka 0.9",
            join(session_timeout_ms=2**31 - 1),
            {"error_code": "INVALID_SESSION_TIMEOUT"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "an unknown member",
            unknown,
            "Apache Kafka 0.9",
            join(member_id="nobody"),
            {"error_code": "UNKNOWN_MEMBER_ID"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "no protocols",
            "A member names a protocol: INCONSISTENT_GROUP_PROTOCOL.",
            "Apache Kafka 0.9",
            join(protocols=[]),
            {"error_code": "INCONSISTENT_GROUP_PROTOCOL"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "no type of protocol",
            "A member names the type of its protocols: INCONSISTENT_GROUP_PROTOCOL.",
            "Apache Kafka 0.9",
            join(protocol_type=""),
            {"error_code": "INCONSISTENT_GROUP_PROTOCOL"},
            with_topic=False,
        ),
        row(
            "JoinGroup",
            "a member without an id",
            "Since version 4 a new member is first given an id: MEMBER_ID_REQUIRED.",
            "KIP-394",
            lambda t, _: joining(t.fresh("group")),
            {"error_code": "MEMBER_ID_REQUIRED", "member_id": lambda member_id: len(member_id) > 0},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "SyncGroup",
            "no group",
            no_group,
            "Apache Kafka 0.9",
            syncing("", "nobody", 1),
            {"error_code": "INVALID_GROUP_ID"},
            with_topic=False,
        ),
        row(
            "SyncGroup",
            "an unknown member",
            unknown,
            "Apache Kafka 0.9",
            lambda t, _: syncing(t.unknown, "nobody", 1),
            {"error_code": "UNKNOWN_MEMBER_ID"},
            with_topic=False,
        ),
        row(
            "SyncGroup",
            "no protocol",
            "Since version 5 a member repeats its protocol: INCONSISTENT_GROUP_PROTOCOL.",
            "KIP-559",
            lambda t, _: syncing(t.unknown, "nobody", 1, protocol_type=None, protocol_name=None),
            {"error_code": "INCONSISTENT_GROUP_PROTOCOL"},
            (5, LAST),
            with_topic=False,
        ),
        row(
            "Heartbeat",
            "no group",
            no_group,
            "Apache Kafka 0.9",
            {"group_id": "", "generation_id": 1, "member_id": "nobody"},
            {"error_code": "INVALID_GROUP_ID"},
            with_topic=False,
        ),
        row(
            "Heartbeat",
            "an unknown member",
            unknown,
            "Apache Kafka 0.9",
            lambda t, _: {"group_id": t.unknown, "generation_id": 1, "member_id": "nobody"},
            {"error_code": "UNKNOWN_MEMBER_ID"},
            with_topic=False,
        ),
        row(
            "LeaveGroup",
            "an unknown member",
            unknown,
            "KIP-345",
            lambda t, _: {"group_id": t.unknown, "member_id": "nobody", "members": [{"member_id": "nobody"}]},
            lambda _, v: (
                {"members.0.error_code": "UNKNOWN_MEMBER_ID", "error_code": 0}
                if v >= 3
                else {"error_code": "UNKNOWN_MEMBER_ID"}
            ),
            with_topic=False,
        ),
        row(
            "LeaveGroup",
            "no group",
            no_group,
            "Apache Kafka 0.9",
            {"group_id": "", "member_id": "nobody", "members": [{"member_id": "nobody"}]},
            {"error_code": "INVALID_GROUP_ID"},
            with_topic=False,
        ),
    ]


def _described() -> list[Row]:
    return [
        row(
            "DescribeGroups",
            "an unknown group",
            "A group that does not exist is dead, and GROUP_ID_NOT_FOUND since version 6.",
            "KIP-1043",
            lambda t, _: {"groups": [t.unknown]},
            lambda t, v: {
                "groups.len": 1,
                "groups.0.group_id": t.unknown,
                "groups.0.group_state": "Dead",
                "groups.0.members.len": 0,
                "groups.0.error_code": "GROUP_ID_NOT_FOUND" if v >= 6 else 0,
            },
            with_topic=False,
        ),
        row(
            "DescribeGroups",
            "nothing",
            "No groups are described where none are named.",
            "protocol guide",
            {"groups": []},
            {"groups.len": 0},
            with_topic=False,
        ),
        row(
            "DescribeGroups",
            "no group",
            "The empty id, with which old consumers commit, may be described, where it is coordinated.",
            "KIP-289",
            {"groups": [""]},
            lambda t, _: {
                "groups.0.error_code": {0, "GROUP_ID_NOT_FOUND"}
                | ({"NOT_COORDINATOR"} if t.fixture.brokers > 1 else set()),
                "groups.0.group_id": "",
            },
            with_topic=False,
        ),
        row(
            "ListGroups",
            "listed",
            "Groups are listed without an error.",
            "protocol guide",
            {},
            {"error_code": 0},
            with_topic=False,
        ),
        row(
            "ListGroups",
            "no such state",
            "No group is in a state that there is not.",
            "KIP-518",
            {"states_filter": ["NoSuchState"]},
            {"error_code": 0, "groups.len": 0},
            (4, LAST),
            with_topic=False,
        ),
        row(
            "ListGroups",
            "no such type",
            "No group is of a type that there is not.",
            "KIP-848",
            {"types_filter": ["no-such-type"]},
            {"error_code": 0, "groups.len": 0},
            (5, LAST),
            with_topic=False,
        ),
        row(
            "DeleteGroups",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-229",
            lambda t, _: {"groups_names": [t.unknown]},
            {"results.0.error_code": "GROUP_ID_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "DeleteGroups",
            "nothing",
            "Nothing is removed where nothing is named.",
            "KIP-229",
            {"groups_names": []},
            {"results.len": 0},
            with_topic=False,
        ),
    ]


def committing(
    trial: Trial, group: str, offset: int = 5, *, index: int = 0, name: str = "", **more: Any
) -> dict[str, Any]:
    """Return an OffsetCommit of a client that is no member; `more` are fields of the request or of the partition."""
    of_partition = {
        key: more.pop(key) for key in ("committed_metadata", "committed_leader_epoch") if key in more
    }
    place = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_metadata": "by hand",
    } | of_partition
    topic = {
        "name": name or trial.topic,
        "topic_id": bytes(range(1, 17)) if name else trial.topic_id,
        "partitions": [place],
    }
    return {"group_id": group, "generation_id_or_member_epoch": -1, "topics": [topic]} | more


def _offsets() -> list[Row]:
    code = "topics.0.partitions.0.error_code"

    def unknown_topic(_: Trial, version: int) -> dict[str, Any]:
        return {code: "UNKNOWN_TOPIC_ID" if version >= 10 else "UNKNOWN_TOPIC_OR_PARTITION"}

    def fetching(trial: Trial, version: int) -> dict[str, Any]:
        topics = None if version >= 2 else [{"name": trial.topic, "partition_indexes": [0]}]
        return {
            "group_id": trial.unknown,
            "topics": topics,
            "groups": [{"group_id": trial.unknown, "topics": None}],
        }

    def one(trial: Trial, version: int) -> dict[str, Any]:
        topic: dict[str, Any] = {"partition_indexes": [0]}
        old = [topic | {"name": trial.topic}]
        new = [topic | ({"topic_id": trial.topic_id} if version >= 10 else {"name": trial.topic})]
        return {
            "group_id": trial.unknown,
            "topics": old,
            "groups": [{"group_id": trial.unknown, "topics": new}],
        }

    def nothing_committed(_: Trial, version: int) -> dict[str, Any]:
        path = f"{'groups.0.' if version >= 8 else ''}topics.0.partitions.0."
        return {f"{path}committed_offset": -1, f"{path}error_code": 0, f"{path}metadata": {"", None}}

    return [
        row(
            "OffsetCommit",
            "a generation of no group",
            "A commit with a generation needs a group that has it.",
            "protocol guide",
            lambda t, _: committing(t, t.fresh("group"), generation_id_or_member_epoch=1, member_id="nobody"),
            {code: {"ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID"}},
            (1, 8),
        ),
        row(
            "OffsetCommit",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, a topic id UNKNOWN_TOPIC_ID.",
            "KIP-848",
            lambda t, _: committing(t, t.fresh("group"), name="conform-no-such-topic"),
            unknown_topic,
            (1, LAST),
            with_topic=False,
        ),
        row(
            "OffsetCommit",
            "too much metadata",
            "Metadata has at most offset.metadata.max.bytes characters: OFFSET_METADATA_TOO_LARGE.",
            "protocol guide",
            lambda t, _: committing(t, t.fresh("group"), committed_metadata="m" * 30_000),
            {code: "OFFSET_METADATA_TOO_LARGE"},
            (1, LAST),
        ),
        row(
            "OffsetCommit",
            "nothing",
            "Nothing is committed where nothing is named.",
            "protocol guide",
            lambda t, _: committing(t, t.fresh("group")) | {"topics": []},
            {"topics.len": 0},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "OffsetFetch",
            "everything of nobody",
            "A group that does not exist has committed nothing.",
            "protocol guide",
            fetching,
            lambda _, v: (
                {"groups.0.error_code": 0, "groups.0.topics.len": 0}
                if v >= 8
                else {"error_code": 0, "topics.len": 0}
            ),
            (2, LAST),
        ),
        row(
            "OffsetFetch",
            "one of nobody",
            "A partition without a committed offset has offset -1, and no error.",
            "protocol guide",
            one,
            nothing_committed,
            (1, LAST),
        ),
        row(
            "OffsetFetch",
            "nothing",
            "Nothing is fetched where nothing is named.",
            "protocol guide",
            lambda t, _: {"group_id": t.unknown, "topics": [], "groups": []},
            lambda _, v: {"groups.len": 0} if v >= 8 else {"topics.len": 0},
            with_topic=False,
            releases="4",
        ),
        row(
            "OffsetDelete",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-496",
            lambda t, _: {
                "group_id": t.unknown,
                "topics": [{"name": t.topic, "partitions": [{"partition_index": 0}]}],
            },
            {"error_code": "GROUP_ID_NOT_FOUND"},
        ),
        row(
            "OffsetDelete",
            "no group",
            "A group's id is not empty.",
            "KIP-496",
            lambda t, _: {
                "group_id": "",
                "topics": [{"name": t.topic, "partitions": [{"partition_index": 0}]}],
            },
            {"error_code": {"INVALID_GROUP_ID", "GROUP_ID_NOT_FOUND"}},
        ),
    ]
