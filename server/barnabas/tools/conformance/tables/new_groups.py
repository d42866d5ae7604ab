"""Rows about groups of KIP-848, share groups and streams groups: what is asked of what is not there, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.tools.conformance.rows import LAST, Row, row
from barnabas.tools.conformance.trial import Trial

TIMEOUT_MS = 10_000


def rows() -> list[Row]:
    """Return the rows of this module."""
    return [*_heartbeats(), *_shares(), *_streams()]


def entering(trial: Trial, group: str, member_id: str, **changes: Any) -> dict[str, Any]:
    """Return the heartbeat with which a consumer joins a group of KIP-848."""
    return {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": 0,
        "rebalance_timeout_ms": TIMEOUT_MS,
        "subscribed_topic_names": [trial.topic],
        "topic_partitions": [],
    } | changes


def _heartbeats() -> list[Row]:
    request = "A heartbeat that begins says its group, topics and rebalance timeout: INVALID_REQUEST."

    def beat(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: entering(t, t.fresh("group"), "nobody") | changes

    return [
        row(
            "ConsumerGroupHeartbeat",
            "no group",
            request,
            "KIP-848",
            beat(group_id=""),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "no topics",
            request,
            "KIP-848",
            beat(subscribed_topic_names=None),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "no rebalance timeout",
            request,
            "KIP-848",
            beat(rebalance_timeout_ms=-1),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "owns before it joins",
            request,
            "KIP-848",
            lambda t, _: entering(
                t, t.fresh("group"), "nobody", topic_partitions=[{"topic_id": t.topic_id, "partitions": [0]}]
            ),
            {"error_code": "INVALID_REQUEST"},
        ),
        row(
            "ConsumerGroupHeartbeat",
            "no member id",
            "Since version 1 the member brings its id: INVALID_REQUEST.",
            "KIP-1082",
            beat(member_id=""),
            {"error_code": "INVALID_REQUEST"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "an unknown assignor",
            "An assignor that the broker does not have is UNSUPPORTED_ASSIGNOR.",
            "KIP-848",
            beat(server_assignor="no-such-assignor"),
            {"error_code": "UNSUPPORTED_ASSIGNOR"},
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "a wrong expression",
            "A regular expression that is none is INVALID_REGULAR_EXPRESSION.",
            "KIP-848",
            beat(subscribed_topic_names=None, subscribed_topic_regex="["),
            {"error_code": "INVALID_REGULAR_EXPRESSION"},
            (1, LAST),
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "an epoch of no group",
            "A member of a group that does not exist is UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND.",
            "KIP-848",
            beat(member_epoch=5),
            {"error_code": {"UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"}},
            with_topic=False,
        ),
        row(
            "ConsumerGroupHeartbeat",
            "leaves no group",
            "A member that leaves a group that does not exist is UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND.",
            "KIP-848",
            beat(member_epoch=-1),
            {"error_code": {"UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"}},
            with_topic=False,
        ),
        row(
            "ConsumerGroupDescribe",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-848",
            lambda t, _: {"group_ids": [t.unknown]},
            lambda t, _: {"groups.0.error_code": "GROUP_ID_NOT_FOUND", "groups.0.group_id": t.unknown},
            with_topic=False,
        ),
        row(
            "ConsumerGroupDescribe",
            "no group",
            "A group's id is not empty: INVALID_GROUP_ID.",
            "KIP-848",
            {"group_ids": [""]},
            {"groups.0.error_code": "INVALID_GROUP_ID"},
            with_topic=False,
        ),
        row(
            "ConsumerGroupDescribe",
            "nothing",
            "No groups are described where none are named.",
            "KIP-848",
            {"group_ids": []},
            {"groups.len": 0},
            with_topic=False,
        ),
    ]


def _shares() -> list[Row]:
    def beat(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: (
            {
                "group_id": t.fresh("group"),
                "member_id": "nobody",
                "member_epoch": 0,
                "subscribed_topic_names": [t.topic],
            }
            | changes
        )

    def fetch(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: (
            {
                "group_id": t.unknown,
                "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "share_session_epoch": 5,
                "max_wait_ms": 0,
                "min_bytes": 0,
                "max_bytes": 1000,
                "max_records": 10,
                "batch_size": 10,
                "topics": [],
            }
            | changes
        )

    none = "A share session that the broker does not have is SHARE_SESSION_NOT_FOUND."
    return [
        row(
            "ShareGroupHeartbeat",
            "no group",
            "A heartbeat says its group: INVALID_REQUEST.",
            "KIP-932",
            beat(group_id=""),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ShareGroupHeartbeat",
            "no member id",
            "The member brings its id: INVALID_REQUEST.",
            "KIP-932",
            beat(member_id=""),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ShareGroupHeartbeat",
            "no topics",
            "A member that joins names its topics: INVALID_REQUEST.",
            "KIP-932",
            beat(subscribed_topic_names=None),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "ShareGroupHeartbeat",
            "an epoch of no group",
            "A member of a group that does not exist is UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND.",
            "KIP-932",
            beat(member_epoch=5),
            {"error_code": {"UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"}},
            with_topic=False,
        ),
        row(
            "ShareGroupDescribe",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-932",
            lambda t, _: {"group_ids": [t.unknown]},
            {"groups.0.error_code": "GROUP_ID_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "ShareFetch",
            "an unknown session",
            none,
            "KIP-932",
            fetch(),
            {"error_code": "SHARE_SESSION_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "ShareAcknowledge",
            "an unknown session",
            none,
            "KIP-932",
            lambda t, _: {
                "group_id": t.unknown,
                "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "share_session_epoch": 5,
                "topics": [],
            },
            {"error_code": "SHARE_SESSION_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "ShareAcknowledge",
            "a session that begins",
            "A session begins with ShareFetch: INVALID_SHARE_SESSION_EPOCH.",
            "KIP-932",
            lambda t, _: {
                "group_id": t.unknown,
                "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "share_session_epoch": 0,
                "topics": [],
            },
            {"error_code": "INVALID_SHARE_SESSION_EPOCH"},
            with_topic=False,
        ),
        row(
            "DescribeShareGroupOffsets",
            "an unknown group",
            "A group that does not exist has no offsets.",
            "KIP-932",
            lambda t, _: {"groups": [{"group_id": t.unknown, "topics": None}]},
            {"groups.0.error_code": 0, "groups.0.topics.len": 0},
            with_topic=False,
        ),
        row(
            "AlterShareGroupOffsets",
            "an unknown topic",
            "A topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION.",
            "KIP-932",
            lambda t, _: {
                "group_id": t.fresh("group"),
                "topics": [
                    {
                        "topic_name": "conform-no-such-topic",
                        "partitions": [{"partition_index": 0, "start_offset": 0}],
                    }
                ],
            },
            {"responses.0.partitions.0.error_code": "UNKNOWN_TOPIC_OR_PARTITION"},
            with_topic=False,
        ),
        row(
            "DeleteShareGroupOffsets",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-932",
            lambda t, _: {"group_id": t.unknown, "topics": [{"topic_name": t.topic}]},
            {"error_code": "GROUP_ID_NOT_FOUND"},
        ),
        *(
            row(
                api,
                "nothing",
                "Nothing is answered where nothing is named.",
                "KIP-932",
                lambda t, _: {"group_id": t.unknown, "topics": []},
                {"results.len": 0},
                with_topic=False,
            )
            for api in (
                "InitializeShareGroupState",
                "ReadShareGroupState",
                "WriteShareGroupState",
                "DeleteShareGroupState",
                "ReadShareGroupStateSummary",
            )
        ),
    ]


def _streams() -> list[Row]:
    def beat(**changes: Any) -> Callable[[Trial, int], dict[str, Any]]:
        return lambda t, _: (
            {
                "group_id": t.fresh("group"),
                "member_id": "nobody",
                "member_epoch": 5,
                "active_tasks": [],
                "standby_tasks": [],
                "warmup_tasks": [],
            }
            | changes
        )

    return [
        row(
            "StreamsGroupHeartbeat",
            "no group",
            "A heartbeat says its group: INVALID_REQUEST.",
            "KIP-1071",
            beat(group_id=""),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "StreamsGroupHeartbeat",
            "joins without a topology",
            "A member that joins names its topology: INVALID_REQUEST.",
            "KIP-1071",
            beat(member_epoch=0, rebalance_timeout_ms=1000, process_id="p"),
            {"error_code": "INVALID_REQUEST"},
            with_topic=False,
        ),
        row(
            "StreamsGroupHeartbeat",
            "an epoch of no group",
            "A member of a group that does not exist is UNKNOWN_MEMBER_ID or GROUP_ID_NOT_FOUND.",
            "KIP-1071",
            beat(),
            {"error_code": {"UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"}},
            with_topic=False,
        ),
        row(
            "StreamsGroupDescribe",
            "an unknown group",
            "A group that does not exist is GROUP_ID_NOT_FOUND.",
            "KIP-1071",
            lambda t, _: {"group_ids": [t.unknown]},
            {"groups.0.error_code": "GROUP_ID_NOT_FOUND"},
            with_topic=False,
        ),
        row(
            "StreamsGroupTopologyDescriptionUpdate",
            "no group",
            "An update says its group.",
            "KIP-1331",
            {"group_id": "", "member_id": "nobody"},
            {"error_code": lambda code: code != 0},
            with_topic=False,
        ),
    ]
