"""Routes of v3: consumer groups, their members, and how far behind they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from barnabas.client import ClientError, TopicPartition
from barnabas.client.admin import LATEST, GroupInfo, GroupMember, OffsetAt
from barnabas.rest.base import V3, Call, Route
from barnabas.rest.errors import RestError
from barnabas.rest.resources import at, cluster_of, collection, related, resource

GROUPS_PER_TURN = 50
CONSUMER_KINDS = ("classic", "consumer")
"""Kinds of groups with members that commit offsets of the partitions they were assigned."""


def _group_row(call: Call, cluster_id: str, group: GroupInfo) -> dict[str, Any]:
    segments = at(cluster_id, "consumer-groups", group.group_id)
    is_mixed = group.kind == "consumer" and any(member.epoch is None for member in group.members)
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "is_simple": group.kind == "classic" and not group.assignor and not group.members,
        "partition_assignor": group.assignor,
        "state": _snake(group.state) or "UNKNOWN",
        "type": group.kind.upper(),
        "is_mixed_consumer_group": is_mixed,
        "coordinator": related(call, *at(cluster_id, "brokers", group.coordinator)),
        "consumers": related(call, *segments, "consumers"),
        "lag_summary": related(call, *segments, "lag-summary"),
    }
    names = [("kafka", cluster_id), ("consumer-group", group.group_id)]
    return resource(call, "KafkaConsumerGroup", segments, names, fields)


def _snake(text: str) -> str:
    """Return the name of a state as constants are written: PreparingRebalance, PREPARING_REBALANCE."""
    return "".join(
        f"_{char}" if char.isupper() and number else char for number, char in enumerate(text)
    ).upper()


async def list_groups(call: Call) -> object:
    """Return all consumer groups."""
    cluster_id = await cluster_of(call)
    admin = call.backend.admin
    listed, failures = await admin.list_groups()
    if failures and not listed:
        raise next(iter(failures.values()))
    kinds = {
        group.group_id: group.kind
        for group in listed.values()
        if group.kind in CONSUMER_KINDS and group.protocol_type in ("", "consumer")
    }
    ids = [*kinds]
    data: list[dict[str, Any]] = []
    for begin in range(0, len(ids), GROUPS_PER_TURN):
        few = {group_id: kinds[group_id] for group_id in ids[begin : begin + GROUPS_PER_TURN]}
        groups = (
            await admin.describe_groups(few)
        ).values()  # some may have been deleted, or be hidden from this user
        data += [_group_row(call, cluster_id, group) for group in groups if isinstance(group, GroupInfo)]
    return collection(call, "KafkaConsumerGroup", at(cluster_id, "consumer-groups"), data)


async def group_of(call: Call) -> GroupInfo:
    """Return the group of the path. Raises RestError, ClientError."""
    group_id = call.path["consumer_group_id"]
    admin = call.backend.admin
    listed, failures = await admin.list_groups()
    group = listed.get(group_id)
    if group is None:
        if failures:
            raise next(iter(failures.values()))
        kind = "classic"
    else:
        kind = group.kind
    described = (await admin.describe_groups({group_id: kind}))[group_id]
    if isinstance(described, ClientError):
        raise described
    if group is None and described.state in ("", "Dead"):
        raise RestError(404, 404, f"there is no consumer group {group_id[:80]!r}")
    return described


async def show_group(call: Call) -> object:
    """Return a consumer group."""
    cluster_id = await cluster_of(call)
    return _group_row(call, cluster_id, await group_of(call))


# --- members ----------------------------------------------------------------------------------------------------


def _consumer_row(call: Call, cluster_id: str, group: GroupInfo, member: GroupMember) -> dict[str, Any]:
    segments = at(cluster_id, "consumer-groups", group.group_id, "consumers", member.member_id)
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "assignments": related(call, *segments, "assignments"),
    }
    names = [
        ("kafka", cluster_id), ("consumer-group", group.group_id), ("consumer", member.member_id),
    ]  # fmt: skip
    return resource(call, "KafkaConsumer", segments, names, fields)


async def list_consumers(call: Call) -> object:
    """Return the members of a group."""
    cluster_id = await cluster_of(call)
    group = await group_of(call)
    data = [_consumer_row(call, cluster_id, group, member) for member in group.members]
    return collection(
        call, "KafkaConsumer", at(cluster_id, "consumer-groups", group.group_id, "consumers"), data
    )


def _member_of(call: Call, group: GroupInfo) -> GroupMember:
    member_id = call.path["consumer_id"]
    for member in group.members:
        if member.member_id == member_id:
            return member
    raise RestError(404, 404, f"group {group.group_id!r} has no member {member_id[:80]!r}")


async def show_consumer(call: Call) -> object:
    """Return a member of a group."""
    cluster_id = await cluster_of(call)
    group = await group_of(call)
    return _consumer_row(call, cluster_id, group, _member_of(call, group))


def _assignment_row(
    call: Call, cluster_id: str, group: GroupInfo, member: GroupMember, place: TopicPartition
) -> dict[str, Any]:
    topic, number = place
    partition = at(cluster_id, "topics", topic, "partitions", number)
    above = at(cluster_id, "consumer-groups", group.group_id)
    segments = (*above, "consumers", member.member_id, "assignments", topic, "partitions", number)
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "consumer_id": member.member_id,
        "topic_name": topic,
        "partition_id": number,
        "partition": related(call, *partition),
        "lag": related(call, *above, "lags", topic, "partitions", number),
    }
    names = [
        ("kafka", cluster_id), ("consumer-group", group.group_id), ("consumer", member.member_id),
        ("assignment", topic), ("partition", number),
    ]  # fmt: skip
    return resource(call, "KafkaConsumerAssignment", segments, names, fields)


async def list_assignments(call: Call) -> object:
    """Return the partitions that a member has."""
    cluster_id = await cluster_of(call)
    group = await group_of(call)
    member = _member_of(call, group)
    data = [
        _assignment_row(call, cluster_id, group, member, TopicPartition(*place))
        for place in sorted(member.assignment)
    ]
    segments = at(cluster_id, "consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    return collection(call, "KafkaConsumerAssignment", segments, data)


async def show_assignment(call: Call) -> object:
    """Return a partition that a member has."""
    cluster_id = await cluster_of(call)
    place = TopicPartition(call.path["topic_name"], call.number("partition_id"))
    group = await group_of(call)
    member = _member_of(call, group)
    if tuple(place) not in member.assignment:
        raise RestError(404, 404, f"the member does not have {place.topic}-{place.partition}")
    return _assignment_row(call, cluster_id, group, member, place)


# --- lag --------------------------------------------------------------------------------------------------------


class Lag(NamedTuple):
    """Lag of a group in a partition; `member` is the member with the partition, None without one."""

    place: TopicPartition
    current: int
    end: int
    member: GroupMember | None

    @property
    def lag(self) -> int:
        """Records that are left to read."""
        return max(self.end - self.current, 0)


async def _lags(call: Call, group: GroupInfo) -> list[Lag]:
    """Return the lags of a group, in the order of partitions. Raises RestError, ClientError."""
    admin = call.backend.admin
    committed = (await admin.committed([group.group_id]))[group.group_id]
    if isinstance(committed, ClientError):
        raise committed
    offsets = {
        TopicPartition(*place): at_.offset for place, at_ in committed.items() if hasattr(at_, "offset")
    }
    if not offsets:
        raise RestError(404, 404, f"group {group.group_id!r} has committed no offsets")
    ends = await admin.offsets(dict.fromkeys(offsets, LATEST))
    members = {TopicPartition(*place): member for member in group.members for place in member.assignment}
    lags = []
    for place, offset in sorted(offsets.items()):
        end = ends.get(place)
        if isinstance(end, OffsetAt):
            lags.append(Lag(place, offset, end.offset, members.get(place)))
    return lags


def _lag_row(call: Call, cluster_id: str, group: GroupInfo, lag: Lag) -> dict[str, Any]:
    topic, number = lag.place
    segments = at(cluster_id, "consumer-groups", group.group_id, "lags", topic, "partitions", number)
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "topic_name": topic,
        "partition_id": number,
        "consumer_id": lag.member.member_id if lag.member else "",
        "instance_id": lag.member.instance_id if lag.member else None,
        "client_id": lag.member.client_id if lag.member else "",
        "current_offset": lag.current,
        "log_end_offset": lag.end,
        "lag": lag.lag,
    }
    names = [
        ("kafka", cluster_id), ("consumer-group", group.group_id), ("lag", topic), ("partition", number),
    ]  # fmt: skip
    return resource(call, "KafkaConsumerLag", segments, names, fields)


async def list_lags(call: Call) -> object:
    """Return how far a group is behind, by partition; the largest lag first."""
    cluster_id = await cluster_of(call)
    group = await group_of(call)
    lags = sorted(await _lags(call, group), key=lambda lag: -lag.lag)
    data = [_lag_row(call, cluster_id, group, lag) for lag in lags]
    return collection(
        call, "KafkaConsumerLag", at(cluster_id, "consumer-groups", group.group_id, "lags"), data
    )


async def show_lag(call: Call) -> object:
    """Return how far a group is behind in a partition."""
    cluster_id = await cluster_of(call)
    place = TopicPartition(call.path["topic_name"], call.number("partition_id"))
    group = await group_of(call)
    for lag in await _lags(call, group):
        if lag.place == place:
            return _lag_row(call, cluster_id, group, lag)
    raise RestError(404, 404, f"the group has committed no offset of {place.topic}-{place.partition}")


async def show_lag_summary(call: Call) -> object:
    """Return how far a group is behind in all, and where most."""
    cluster_id = await cluster_of(call)
    group = await group_of(call)
    lags = await _lags(call, group)
    if not lags:
        raise RestError(404, 404, f"group {group.group_id!r} has committed no offsets that can be read")
    largest = max(lags, key=lambda lag: lag.lag)
    above = at(cluster_id, "consumer-groups", group.group_id)
    topic, number = largest.place
    member = largest.member
    fields = {
        "cluster_id": cluster_id,
        "consumer_group_id": group.group_id,
        "max_lag_consumer_id": member.member_id if member else "",
        "max_lag_instance_id": member.instance_id if member else None,
        "max_lag_client_id": member.client_id if member else "",
        "max_lag_topic_name": topic,
        "max_lag_partition_id": number,
        "max_lag": largest.lag,
        "total_lag": sum(lag.lag for lag in lags),
        "max_lag_consumer": related(call, *above, "consumers", member.member_id if member else ""),
        "max_lag_partition": related(call, *at(cluster_id, "topics", topic, "partitions", number)),
    }
    names = [("kafka", cluster_id), ("consumer-group", group.group_id), ("lag-summary", None)]
    return resource(call, "KafkaConsumerGroupLagSummary", (*above, "lag-summary"), names, fields)


_GROUPS = "/v3/clusters/{cluster_id}/consumer-groups"
_GROUP = _GROUPS + "/{consumer_group_id}"
_CONSUMER = _GROUP + "/consumers/{consumer_id}"
_PARTITION = "{topic_name}/partitions/{partition_id}"
ROUTES = (
    Route("GET", _GROUPS, list_groups, "Consumer groups", V3),
    Route("GET", _GROUP, show_group, "A consumer group", V3),
    Route("GET", f"{_GROUP}/consumers", list_consumers, "Members of a group", V3),
    Route("GET", _CONSUMER, show_consumer, "A member of a group", V3),
    Route("GET", f"{_CONSUMER}/assignments", list_assignments, "Partitions that a member has", V3),
    Route(
        "GET", f"{_CONSUMER}/assignments/{_PARTITION}", show_assignment, "A partition that a member has", V3
    ),
    Route(
        "GET",
        f"{_GROUP}/lag-summary",
        show_lag_summary,
        "How far a group is behind in all, and where most",
        V3,
    ),
    Route("GET", f"{_GROUP}/lags", list_lags, "How far a group is behind, by partition", V3),
    Route("GET", f"{_GROUP}/lags/{_PARTITION}", show_lag, "How far a group is behind in a partition", V3),
)
