"""Membership by the consumer protocol (KIP-848): the broker assigns, and heartbeats carry all reports and assignments.

The rule: one task sends heartbeats, another reconciles: it revokes partitions that are no longer assigned and adds
new ones; only then does a heartbeat report them, and the broker assigns the revoked partitions to other members.
"""

from __future__ import annotations

import secrets
from typing import Any

import trio

from barnabas.client.consuming.membership import COORDINATOR_ERRORS, Membership
from barnabas.client.errors import ClientError, FencedInstanceError, ResponseError, is_retriable
from barnabas.client.values import TopicPartition
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.ids import uuid_text

VERSION_MAX = 1
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2
"""Epochs in requests that join, leave, and leave as a static member."""
FIRST_INTERVAL_MS = 1_000
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
TopicIds = dict[bytes, list[int]]


class ConsumerMembership(Membership):
    """A member of a group of the consumer protocol."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.member_id = uuid_text(secrets.token_bytes(16))
        self.interval_ms = FIRST_INTERVAL_MS
        """Time between two heartbeats, as the broker has it."""
        self.beat_due = trio.Event()
        self.reconcile_due = trio.Event()
        self.target: TopicIds | None = None
        """The broker's newest assignment, until it is reconciled."""
        self._said: dict[str, Any] = {}
        """Fields that the broker knows, which are left out until they change."""
        self.owned: TopicIds = {}
        """Partitions that the broker is to know the member has."""
        self.has_left = False

    def wake(self) -> None:
        """Tell the broker of another subscription."""
        self.beat_due.set()

    def rejoin(self) -> None:
        """Join again; the partitions are lost."""
        self.generation = -1
        self.reconcile_due.set()

    async def run(self) -> None:
        """Maintain the membership until cancelled; the consumer gets an error that ends it."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.reconcile)
            nursery.start_soon(self.follow_topics)
            while not self.subscription.names and self.subscription.pattern is None:
                await self._next_beat(None)
            while not self.has_left:
                if self.generation < 0 and self._host.assigned:
                    self.reconcile_due.set()  # they are lost first
                    await self._next_beat(None)
                    continue
                is_late = self._host.busy_s() * 1000 > self._settings.max_poll_interval_ms
                try:
                    if is_late and self.generation >= 0:
                        await self._step_back()
                        continue
                    await self.beat()
                except ClientError as error:
                    if not error.is_retriable:
                        self.has_left = True
                        self._host.fail(error)
                        return
                    self._said.clear()  # it is unknown whether the request arrived
                    await self._pause()
                else:
                    await self._next_beat(self.interval_ms)

    async def _next_beat(self, after_ms: int | None) -> None:
        with trio.move_on_after(float("inf") if after_ms is None else after_ms / 1000):
            await self.beat_due.wait()
        self.beat_due = trio.Event()

    async def follow_topics(self) -> None:
        """Heartbeat and reconcile when topics that matter have changed, for ever."""
        while True:
            await self._topics.changed()
            if self.subscription.pattern is not None:
                names = sorted(self.subscription.topics(self._topics))
                if self._said.get("subscribed_topic_names") != names:
                    self.beat_due.set()
            if self.target is not None:
                self.reconcile_due.set()  # names of topics may be known by now

    # --- heartbeats -----------------------------------------------------------------------------------------

    async def beat(self) -> None:
        """Send a heartbeat. Raises ClientError."""
        settings = self._settings
        is_joining = self.generation < 0
        entry = ConsumerGroupHeartbeatRequest.TopicPartitions
        if is_joining:
            self._said.clear()
            self.owned, self.target = {}, None
        fields: dict[str, Any] = {
            "instance_id": settings.instance_id,
            "rack_id": settings.rack or None,
            "rebalance_timeout_ms": settings.max_poll_interval_ms,
            "subscribed_topic_names": sorted(self.subscription.topics(self._topics)),
            "server_assignor": settings.server_assignor,
            "topic_partitions": [entry(topic_id, list(parts)) for topic_id, parts in self.owned.items()],
        }
        changed = {name: value for name, value in fields.items() if self._said.get(name) != value}
        if settings.instance_id is not None:
            changed["instance_id"] = settings.instance_id
        request = ConsumerGroupHeartbeatRequest(
            self.group_id, self.member_id, JOINS if is_joining else self.generation, **changed
        )
        response: ConsumerGroupHeartbeatResponse = await self._ask(request, version_max=VERSION_MAX)
        if self.has_left or (not is_joining and self.generation < 0):
            return
        self._take(response, fields)

    def _take(self, response: ConsumerGroupHeartbeatResponse, fields: dict[str, Any]) -> None:
        code = response.error_code
        if not code:
            self._said = fields
            self.member_id = response.member_id or self.member_id
            self.generation = response.member_epoch
            self.interval_ms = response.heartbeat_interval_ms or self.interval_ms
            if response.assignment is not None:
                self.target = {
                    topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions
                }
                self.reconcile_due.set()
        elif code in _FENCED:
            self.rejoin()
            self.beat_due.set()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstanceError(f"another member of {self.group_id!r} has the same instance id")
        elif code in COORDINATOR_ERRORS or is_retriable(code):
            self.interval_ms = min(self.interval_ms, FIRST_INTERVAL_MS)
            raise ResponseError(code, f"sending heartbeats to group {self.group_id!r}")
        else:
            doing = f"being a member of group {self.group_id!r}"
            raise ResponseError(code, doing, response.error_message)

    # --- reconciling ----------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Revoke and add partitions until the consumer has its target assignment, each time that this changes."""
        while True:
            await self.reconcile_due.wait()
            self.reconcile_due = trio.Event()
            host = self._host
            if self.generation < 0:
                await host.lose(set(host.assigned))
                self.beat_due.set()
                continue
            target = self.target
            places = None if target is None else self._named(target)
            if places is None:
                continue
            if gone := host.assigned - places:
                await host.revoke(gone)
            if self.generation < 0:
                self.reconcile_due.set()
                continue
            if new := places - host.assigned:
                await host.add(new)
            if self.generation < 0:
                self.reconcile_due.set()
            elif self.target is target:
                assert target is not None
                self.target, self.owned = None, target
                self.beat_due.set()

    def _named(self, target: TopicIds) -> set[TopicPartition] | None:
        """Return partitions by name; None as long as a topic is not known."""
        names = {info.id: name for name, info in self._topics.infos.items()}
        if not target.keys() <= names.keys():
            self._topics.need()
            return None
        return {TopicPartition(names[topic_id], part) for topic_id, parts in target.items() for part in parts}

    # --- leaving --------------------------------------------------------------------------------------------

    async def _step_back(self) -> None:
        """Leave the group because the program exceeds `max_poll_interval_ms`, and join again at its next call."""
        await self._send_leave(LEAVES)
        self.rejoin()
        await self._host.idle()

    async def leave(self) -> None:
        """Leave the group; a static member may return to its partitions. Raises ClientError."""
        self.has_left = True
        if self.generation >= 0:
            await self._send_leave(LEAVES if self._settings.instance_id is None else LEAVES_FOR_A_WHILE)
        self.generation = -1

    async def _send_leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(self.group_id, self.member_id, epoch)
        request.instance_id = self._settings.instance_id
        await self._ask(request, version_max=VERSION_MAX)
