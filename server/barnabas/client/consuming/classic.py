"""Membership by the classic protocol: join, assign as the leader, and send heartbeats until the group rebalances.

The rule: one task joins, `run`, and another sends heartbeats while the member is in a generation. An eager
member revokes all partitions before it joins; a cooperative one keeps its partitions, revokes those that it no longer
gets, and then joins again for new ones (KIP-429).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import trio

from barnabas.client.consuming import protocol
from barnabas.client.consuming.assignors import ASSIGNORS
from barnabas.client.consuming.membership import COORDINATOR_ERRORS, Membership
from barnabas.client.errors import (
    ClientError,
    FencedInstanceError,
    ResponseError,
)
from barnabas.client.values import TopicPartition
from barnabas.wire.errors import DecodeError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest

JOIN_VERSION_MAX, SYNC_VERSION_MAX, HEARTBEAT_VERSION_MAX, LEAVE_VERSION_MAX = 9, 5, 4, 5
JOIN_GRACE_MS = 5_000
"""Beyond the rebalance timeout, for the answer of JoinGroup, as Kafka's client has it."""
PROTOCOL_TYPE = "consumer"
_UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class _AgainError(Exception):
    """The member has to join again."""


class ClassicMembership(Membership):
    """A member of a classic group."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.join_due = trio.Event()
        self._remembered: set[TopicPartition] = set()
        """Partitions that an eager member had before it gave all up, for the sticky assignor."""
        self._last_generation = -1
        self._assigned_counts: dict[str, int] | None = None
        """Topics and numbers of their partitions that the assignment was made for, if the member leads."""
        self._joined_topics: frozenset[str] | None = None
        """Topics of the newest request to join; None before the first."""
        self.is_joining = False
        self._has_left = False
        self._leads_topics: set[str] = set()

    def wake(self) -> None:
        """Join again if the subscription or the topics have changed."""
        if self.subscription.topics(self._topics) != self._joined_topics or self._counts_have_changed():
            self.join_due.set()

    def rejoin(self) -> None:
        """Join again, as a new member."""
        self._forget_member()
        self.join_due.set()

    def _forget_member(self) -> None:
        self.generation = -1
        self._assigned_counts = None

    def _counts_have_changed(self) -> bool:
        return self._assigned_counts is not None and self._counts(self._leads_topics) != self._assigned_counts

    def _counts(self, topics: set[str]) -> dict[str, int]:
        infos = self._topics.infos
        return {name: len(infos[name].partitions) for name in topics if name in infos}

    async def run(self) -> None:
        """Maintain the membership until cancelled; the consumer gets an error that ends it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.beat)
            nursery.start_soon(self._follow_topics)
            while not self._has_left:
                await self.join_due.wait()
                self.join_due = trio.Event()
                try:
                    await self.join()
                except _AgainError:
                    self.join_due.set()
                except ClientError as error:
                    if not error.is_retriable:
                        self._has_left = True
                        self._host.fail(error)
                        return
                    self.join_due.set()
                    await self._pause()

    async def _follow_topics(self) -> None:
        while True:
            await self._topics.changed()
            self.wake()

    # --- joining --------------------------------------------------------------------------------------------

    async def join(self) -> None:
        """Join, and apply the assignment. Raises _AgainError, ClientError."""
        host, settings = self._host, self._settings
        if self.subscription.pattern is not None and not self._topics.version:
            await self._topics.changed()
        if host.assigned:
            if self.generation < 0:
                await host.lose(set(host.assigned))
            elif not settings.is_cooperative:
                self._remembered = set(host.assigned)
                await host.revoke(set(host.assigned))
        topics = self.subscription.topics(self._topics)
        self.is_joining = True
        self._joined_topics = topics
        try:
            joined = await self._ask_join(topics)
            self.member_id = joined.member_id
            generation = joined.generation_id
            assigned = await self._sync(joined, generation)
        finally:
            self.is_joining = False
        self.generation = self._last_generation = generation
        self._remembered = set()
        await self._take(assigned)

    async def _take(self, assigned: set[TopicPartition]) -> None:
        host = self._host
        gone = host.assigned - assigned
        if gone:
            await host.revoke(gone)
        await host.add(assigned - host.assigned)
        if gone and self._settings.is_cooperative:
            self.join_due.set()  # now that others can have them
        self.wake()

    async def _ask_join(self, topics: frozenset[str]) -> JoinGroupResponse:
        settings, owned = self._settings, self._host.assigned
        entry = JoinGroupRequest.JoinGroupRequestProtocol
        generation = self._last_generation
        remembered = self._remembered or owned
        request = JoinGroupRequest(
            self.group_id,
            settings.session_timeout_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                entry(
                    name,
                    protocol.encode_subscription(name, topics, owned, remembered, generation, settings.rack),
                )
                for name in settings.assignors
            ],
        )
        timeout_ms = max(
            settings.max_poll_interval_ms + JOIN_GRACE_MS, self._client.settings.request_timeout_ms
        )

        def prepare(version: int) -> None:
            request.rebalance_timeout_ms = settings.max_poll_interval_ms if version >= 1 else -1

        response: JoinGroupResponse = await self._ask(
            request, version_max=JOIN_VERSION_MAX, timeout_ms=timeout_ms, prepare=prepare
        )
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            raise _AgainError
        self._check(response.error_code, "joining")
        return response

    async def _sync(self, joined: JoinGroupResponse, generation: int) -> set[TopicPartition]:
        name = joined.protocol_name or ""
        request = SyncGroupRequest(self.group_id, generation, self.member_id, self._settings.instance_id)

        def prepare(version: int) -> None:
            named = (PROTOCOL_TYPE, name) if version >= 5 else (None, None)
            request.protocol_type, request.protocol_name = named

        self._assigned_counts = None
        if joined.leader == joined.member_id:
            request.assignments = await self._assign(name, joined)
        response = await self._ask(request, version_max=SYNC_VERSION_MAX, prepare=prepare)
        self._check(response.error_code, "waiting for the assignment")
        try:
            return protocol.decode_assignment(response.assignment)
        except DecodeError as error:
            raise ResponseError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"reading the assignment of {self.group_id!r}",
                str(error),
            ) from error

    async def _assign(
        self, name: str, joined: JoinGroupResponse
    ) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        """Assign as the leader. Raises ClientError for members that speak another language."""
        if name not in ASSIGNORS:
            raise ResponseError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"assigning by {name!r}")
        try:
            members = [
                protocol.decode_member(name, member.member_id, member.group_instance_id, member.metadata)
                for member in joined.members
            ]
        except DecodeError as error:
            raise ResponseError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"assigning in {self.group_id!r}", str(error)
            ) from error
        topics = {topic for member in members for topic in member.topics}
        if not topics <= self._topics.infos.keys() | self._topics.errors.keys():
            self._topics.watch(
                topics | self.subscription.names, everything=self.subscription.pattern is not None
            )
            with trio.move_on_after(self._client.settings.request_timeout_ms / 1000):
                while not topics <= self._topics.infos.keys() | self._topics.errors.keys():
                    await self._topics.changed()
        self._leads_topics, self._assigned_counts = topics, self._counts(topics)
        if joined.skip_assignment:
            return []
        entry = SyncGroupRequest.SyncGroupRequestAssignment
        shares = ASSIGNORS[name].assign(members, self._assigned_counts)
        return [entry(member_id, protocol.encode_assignment(places)) for member_id, places in shares.items()]

    def _check(self, code: int, doing: str) -> None:
        """Raise for an error code: _AgainError where joining again helps."""
        if not code:
            return
        if code in _UNKNOWN:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self._forget_member()
            raise _AgainError
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise _AgainError
        if code == ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(f"another member of {self.group_id!r} has the same instance id")
        raise ResponseError(code, f"{doing} in group {self.group_id!r}")

    # --- heartbeats -----------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send heartbeats while the member is in a generation and does not join."""
        settings = self._settings
        while True:
            await trio.sleep(settings.heartbeat_interval_ms / 1000)
            if self.generation < 0 or self.is_joining or self._has_left:
                continue
            if self._host.busy_s() * 1000 > settings.max_poll_interval_ms:
                await self._step_back()
                continue
            generation = self.generation
            request = HeartbeatRequest(self.group_id, generation, self.member_id, settings.instance_id)
            try:
                response = await self._ask(request, version_max=HEARTBEAT_VERSION_MAX)
            except ClientError as error:
                if not error.is_retriable:
                    self._host.fail(error)
                    return
                continue
            if generation == self.generation and not self.is_joining:
                self.take_beat(response.error_code)

    def take_beat(self, code: int) -> None:
        """React to the error code of a heartbeat. Raises ClientError."""
        if not code or code in COORDINATOR_ERRORS:
            return
        if code in _UNKNOWN:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            self.rejoin()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join_due.set()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._host.fail(
                FencedInstanceError(f"another member of {self.group_id!r} has the same instance id")
            )
        else:
            self._host.fail(ResponseError(code, f"sending heartbeats to group {self.group_id!r}"))

    async def _step_back(self) -> None:
        """Leave the group because the program exceeds `max_poll_interval_ms`, and join again at its next call."""
        with suppress(ClientError):  # the session will time out
            await self._send_leave()
        self._forget_member()
        self.member_id = ""
        await self._host.lose(set(self._host.assigned))
        await self._host.idle()
        self.join_due.set()

    async def leave(self) -> None:
        """Leave the group, unless the member is static. Raises ClientError."""
        self._has_left = True
        if self._settings.instance_id is None and self.member_id:
            await self._send_leave()
        self._forget_member()

    async def _send_leave(self) -> None:
        request = LeaveGroupRequest(self.group_id)

        def prepare(version: int) -> None:
            if version >= 3:
                entry = LeaveGroupRequest.MemberIdentity
                request.members = [entry(self.member_id, self._settings.instance_id)]
            else:
                request.member_id = self.member_id

        await self._ask(request, version_max=LEAVE_VERSION_MAX, prepare=prepare)
