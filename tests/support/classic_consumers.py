"""Consumers of the classic protocol that behave like stock clients: they revoke all partitions, join, sync, and fetch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.coordinators.groups.assignors import ASSIGNORS
from barnabas.coordinators.groups.assignors.subscriber import Subscriber
from barnabas.coordinators.groups.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from barnabas.coordinators.groups.member import Joining
from barnabas.coordinators.groups.topics import by_topic, partition_counts, topic_ids
from barnabas.errors import RequestError
from barnabas.wire.codec import encode_versioned
from barnabas.wire.generated.data import consumer_protocol_subscription as subscription
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas.wire.topic_partitions import TopicIdPartition
from tests.support.consumers import Coordinator

SUBSCRIPTION_VERSION = 1


@dataclass
class ClassicClient:
    """An eager consumer; `step` does its next action, and `waiter` is the request in flight."""

    coordinator: Coordinator
    id: str
    topics: Sequence[str] = ("t",)
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    rebalance_timeout_ms: int = 10_000
    cooperative: bool = False
    protocol: str = "range"
    dawdles: bool = False
    """True if it sends heartbeats, but does not rejoin when a rebalance begins."""
    member_id: str = ""
    generation: int = -1
    owned: set[TopicIdPartition] = field(default_factory=set)
    waiter: int | None = None
    joined: bool = False
    error: int = 0
    polled_ms: int = 0
    """When it took its last step."""

    def metadata(self) -> bytes:
        value = subscription.ConsumerProtocolSubscription(
            topics=list(self.topics),
            owned_partitions=[
                subscription.ConsumerProtocolSubscription.TopicPartition(topic=name, partitions=partitions)
                for topic_id, partitions in by_topic(self.owned)
                if (name := self.coordinator.image.topic_name(topic_id)) is not None
            ],
        )
        return encode_versioned(subscription.CODEC, value, SUBSCRIPTION_VERSION)

    def join(self) -> None:
        """Revoke all partitions, unless cooperative, and send JoinGroup."""
        if not self.cooperative:
            self.owned = set()
        self.joined = False
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=self.protocol, metadata=self.metadata())
            ],
        )
        now_ms = self.coordinator.now_ms
        self._wait(
            lambda shard, out, waiter: shard.join(
                Joining(
                    request, "client", "/host", waiter, self.id,
                    known_id_required=False, can_skip_assignment=True,
                ),
                now_ms,
                out,
            )
        )  # fmt: skip

    def _wait(self, event: Any) -> None:
        try:
            self.waiter = self.coordinator.perform_and_wait(event)
        except RequestError as error:
            self._failed(error.code)

    def _failed(self, code: int) -> None:
        self.waiter, self.joined, self.error = None, False, code
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id, self.owned = "", set()

    def _lose_all(self) -> None:
        self.waiter, self.joined = None, False
        self.member_id, self.owned = "", set()

    def step(self) -> None:
        """Handle a response that has arrived, or do the next action.

        A consumer after a too long pause (`max.poll.interval.ms`) has lost its partitions, and joins as a new member: the
        group may have assigned them to others, and admits members that it has removed, as Kafka's does.
        """
        now_ms = self.coordinator.now_ms
        if self.polled_ms and now_ms - self.polled_ms >= self.rebalance_timeout_ms:
            self._lose_all()
        self.polled_ms = now_ms
        if self.waiter is not None:
            answer = self.coordinator.answers.pop(self.waiter, None)
            if answer is not None:
                self.waiter = None
                self._take(answer)
        elif not self.joined:
            self.join()
        else:
            self._heartbeat()

    def _take(self, answer: JoinGroupResponse | SyncGroupResponse) -> None:
        if answer.error_code:
            self._failed(answer.error_code)
        elif isinstance(answer, JoinGroupResponse):
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self._sync(answer)
        else:
            self.joined = True
            assigned = set(read_assignment(answer.assignment, self.coordinator.image))
            gives_up = self.owned - assigned
            self.owned = assigned
            if self.cooperative and gives_up:
                self.join()

    def _sync(self, answer: JoinGroupResponse) -> None:
        assignments = []
        if answer.leader == self.member_id and answer.members:
            assignments = self._assign(answer)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=answer.protocol_type,
            protocol_name=answer.protocol_name,
            assignments=assignments,
        )
        now_ms = self.coordinator.now_ms
        self._wait(lambda shard, out, waiter: shard.sync(request, waiter, now_ms, out))

    def _assign(self, answer: JoinGroupResponse) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        image = self.coordinator.image
        members = [
            Subscriber(member.member_id, topic_ids(read_subscription(member.metadata).topics, image))
            for member in answer.members
        ]
        subscribed = frozenset().union(*(member.topic_ids for member in members))
        target = ASSIGNORS["range"](members, partition_counts(subscribed, image))
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member.member_id,
                assignment=write_assignment(target[member.member_id], member.metadata, image),
            )
            for member in answer.members
        ]

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        now_ms = self.coordinator.now_ms
        try:
            must_join = self.coordinator.write(lambda shard, out: shard.heartbeat(request, now_ms, out))
            if must_join and not self.dawdles:
                self.join()
        except RequestError as error:
            self._failed(error.code)
            self.join()

    def leave(self) -> None:
        members = [LeaveGroupRequest.MemberIdentity(member_id=self.member_id)]
        now_ms = self.coordinator.now_ms
        (code,) = self.coordinator.write(lambda shard, out: shard.leave("g", members, now_ms, out))
        assert code == 0
        self.owned, self.joined, self.member_id = set(), False, ""
