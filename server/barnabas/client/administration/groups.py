"""Groups of every kind: lists, members and their removal, deletion."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from barnabas.client.administration.base import Base, Outcome, outcome
from barnabas.client.administration.words import CLASSIC, CONSUMER, SHARE, STREAMS
from barnabas.client.errors import ClientError, ResponseError, check
from barnabas.wire.codec import decode_prefix
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

_LIST_GROUPS = 16
_STATES_SINCE, _TYPES_SINCE = 4, 5


class ListedGroup(NamedTuple):
    """A group in a list; `state` is empty if the broker is too old to report it."""

    group_id: str
    kind: str
    protocol_type: str
    state: str
    coordinator: int


class GroupMember(NamedTuple):
    """A member of a group, and the partitions that it has; `epoch` is None in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None
    subscription: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]


class GroupInfo(NamedTuple):
    """A group with its members; `epoch` is None in a classic group."""

    group_id: str
    kind: str
    state: str
    assignor: str
    epoch: int | None
    coordinator: int
    members: tuple[GroupMember, ...]


class Groups(Base):
    """Calls that concern groups."""

    async def list_groups(
        self, *, states: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> tuple[dict[str, ListedGroup], dict[int, ClientError]]:
        """Return groups by id, in their order, and the errors of brokers that could not list theirs."""
        from barnabas.wire.generated.list_groups import ListGroupsRequest as Request

        async def ask(broker: int) -> list[ListedGroup]:
            connection = await self.client.broker(broker)
            version = connection.version_of(_LIST_GROUPS)
            request = Request()
            if version >= _STATES_SINCE:
                request.states_filter = list(states)
            if version >= _TYPES_SINCE:
                request.types_filter = list(kinds)
            response = await self.client.ask_broker(broker, request, version=version)
            check(response.error_code, f"listing the groups of broker {broker}")
            return [
                ListedGroup(
                    group.group_id,
                    group.group_type.lower() or CLASSIC,
                    group.protocol_type,
                    group.group_state,
                    broker,
                )
                for group in response.groups
            ]

        groups: dict[str, ListedGroup] = {}
        failures = {}
        for broker, answer in (await self.client.each(await self._brokers(), ask)).items():
            if isinstance(answer, ClientError):
                failures[broker] = answer
            else:
                groups |= {group.group_id: group for group in answer if _is_wanted(group, states, kinds)}
        return dict(sorted(groups.items())), failures

    async def describe_groups(self, kinds: dict[str, str]) -> dict[str, GroupInfo | ClientError]:
        """Describe groups, by group id and kind."""
        by_kind: dict[str, list[str]] = {}
        for group_id, kind in kinds.items():
            by_kind.setdefault(kind, []).append(group_id)
        infos: dict[str, GroupInfo | ClientError] = {}
        for kind, group_ids in by_kind.items():
            infos |= await self._of_coordinators(
                group_ids, partial(self._describe_of, kind), partial(self._describe, kind)
            )
        return {group_id: infos[group_id] for group_id in kinds}

    async def _describe_of(
        self, kind: str, coordinator: int, group_ids: list[str]
    ) -> dict[str, GroupInfo | ClientError]:
        """Describe groups of one coordinator and kind."""
        connection = await self.client.broker(coordinator)
        infos: dict[str, GroupInfo | ClientError] = {}
        for group in (await connection.ask(_describing(kind, group_ids))).groups:
            try:
                infos[group.group_id] = _info(kind, group, coordinator)
            except ClientError as error:
                infos[group.group_id] = error
        return infos

    async def _describe(self, kind: str, group_id: str) -> GroupInfo:
        response = await self.client.ask_coordinator(
            group_id, _describing(kind, [group_id]), error_of=lambda response: response.groups[0].error_code
        )
        (group,) = response.groups
        return _info(kind, group, await self.client.coordinator(group_id))

    async def delete_groups(self, group_ids: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups that have no members, with their offsets."""
        from barnabas.wire.generated.delete_groups import DeleteGroupsRequest

        async def ask(group_id: str) -> None:
            response = await self.client.ask_coordinator(
                group_id,
                DeleteGroupsRequest([group_id]),
                error_of=lambda response: response.results[0].error_code,
            )
            (result,) = response.results
            check(result.error_code, f"deleting group {group_id!r}", result.error_message)

        return await self.client.each(group_ids, ask)

    async def remove_members(
        self, group_id: str, members: Iterable[GroupMember], *, reason: str = "removed by an administrator"
    ) -> dict[str, Outcome]:
        """Remove members from a group; static ones by their instance ids. Outcomes by member id."""
        from barnabas.wire.generated.leave_group import LeaveGroupRequest as Request

        removed = list(members)
        request = Request(group_id)
        connection = await self.client.broker(await self.client.coordinator(group_id))
        version = connection.version_of(13)
        for member in removed:
            # Kafka's own tool names a static member by its instance id alone.
            identity = Request.MemberIdentity(
                "" if member.instance_id else member.member_id, member.instance_id
            )
            if version >= 5:
                identity.reason = reason
            request.members.append(identity)
        if version < 3:
            if len(removed) != 1:
                raise ResponseError(ErrorCode.UNSUPPORTED_VERSION, "removing several members at once")
            request = Request(group_id, removed[0].member_id)
        response = await self.client.ask_coordinator(group_id, request, version=version)
        check(response.error_code, f"removing members of {group_id!r}")
        if version < 3:
            return {removed[0].member_id: None}
        doing = f"removing a member of {group_id!r}"
        return {
            member.member_id: outcome(result.error_code, doing)
            for member, result in zip(removed, response.members, strict=True)
        }


def _describing(kind: str, group_ids: list[str]) -> Any:
    """Return the request that describes groups of a kind."""
    if kind == CLASSIC:
        from barnabas.wire.generated.describe_groups import DescribeGroupsRequest

        return DescribeGroupsRequest(group_ids)
    if kind == CONSUMER:
        from barnabas.wire.generated.consumer_group_describe import ConsumerGroupDescribeRequest

        return ConsumerGroupDescribeRequest(group_ids)
    if kind == SHARE:
        from barnabas.wire.generated.share_group_describe import ShareGroupDescribeRequest

        return ShareGroupDescribeRequest(group_ids)
    from barnabas.wire.generated.streams_group_describe import StreamsGroupDescribeRequest

    return StreamsGroupDescribeRequest(group_ids)


def _info(kind: str, group: Any, coordinator: int) -> GroupInfo:
    """Return a group of a response. Raises ResponseError."""
    group_id = group.group_id
    doing = f"describing group {group_id!r}"
    check(group.error_code, doing, group.error_message)
    if kind == CLASSIC:
        # versions without an error for a missing group report it by its state
        if group.group_state == "Dead":
            raise ResponseError(ErrorCode.GROUP_ID_NOT_FOUND, doing)
        members = tuple(_classic_member(member, group.protocol_type) for member in group.members)
        return GroupInfo(group_id, kind, group.group_state, group.protocol_data, None, coordinator, members)
    of = streams_member(group) if kind == STREAMS else _member
    return GroupInfo(
        group_id,
        kind,
        group.group_state,
        getattr(group, "assignor_name", "") or "",
        group.group_epoch,
        coordinator,
        tuple(of(member) for member in group.members),
    )


def _is_wanted(group: ListedGroup, states: Sequence[str], kinds: Sequence[str]) -> bool:
    """Return whether a group passes the filters, which old brokers ignore."""
    has_state = not states or not group.state or group.state.lower() in {state.lower() for state in states}
    return has_state and (not kinds or group.kind in {kind.lower() for kind in kinds})


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    assignment: tuple[TopicPartition, ...] = ()
    subscription: tuple[str, ...] = ()
    if protocol_type == "consumer":
        assignment, subscription = (
            _assigned(bytes(member.member_assignment)),
            _subscribed(bytes(member.member_metadata)),
        )
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        None,
        subscription,
        assignment,
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in the assignment of a consumer; empty if it cannot be decoded."""
    from barnabas.wire.generated.data import consumer_protocol_assignment

    if not data:
        return ()
    try:
        assignment = decode_prefix(consumer_protocol_assignment.CODEC, data)
    except DecodeError:
        return ()
    return tuple(
        (topic.topic, number)
        for topic in assignment.assigned_partitions
        for number in sorted(topic.partitions)
    )


def _subscribed(data: bytes) -> tuple[str, ...]:
    from barnabas.wire.generated.data import consumer_protocol_subscription

    if not data:
        return ()
    try:
        return tuple(decode_prefix(consumer_protocol_subscription.CODEC, data, version=0).topics)
    except DecodeError:
        return ()


def _member(member: Any) -> GroupMember:
    """Return a member of a consumer or share group."""
    pattern = getattr(member, "subscribed_topic_regex", None)
    return GroupMember(
        member.member_id,
        getattr(member, "instance_id", None),
        member.client_id,
        member.client_host,
        member.member_epoch,
        (*member.subscribed_topic_names, *((f"/{pattern}/",) if pattern else ())),
        tuple(
            (topic.topic_name, number)
            for topic in member.assignment.topic_partitions
            for number in sorted(topic.partitions)
        ),
    )


def streams_member(group: Any) -> Any:
    """Return the converter of a streams group's members; partitions are those of the sources of active tasks."""
    subtopologies = (group.topology.subtopologies if group.topology is not None else None) or ()
    sources = {
        subtopology.subtopology_id: (
            *subtopology.source_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
        )
        for subtopology in subtopologies
    }

    def of(member: Any) -> GroupMember:
        tasks = member.assignment.active_tasks
        return GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.member_epoch,
            tuple(sorted({topic for topics in sources.values() for topic in topics})),
            tuple(
                (topic, number)
                for task in tasks
                for topic in sources.get(task.subtopology_id, ())
                for number in sorted(task.partitions)
            ),
        )

    return of
