"""A shard of groups with its surroundings, and members of the consumer protocol that behave like stock clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.cluster.metadata.changes import ConfigChanged, PartitionsAdded, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import GROUP, Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.coordinators.groups.consumer.group import ConsumerGroup
from barnabas.coordinators.groups.consumer.membership import Heartbeat, check_heartbeat
from barnabas.coordinators.groups.records import CommittedOffset, DecodedRecord
from barnabas.coordinators.groups.settings import TOGETHER_MS, GroupSettings
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.topics import by_topic
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.errors import RequestError
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire import registry
from barnabas.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.wire.topic_partitions import TopicIdPartition

ONE = PartitionInfo(1, (1,), (1,))
HEARTBEAT_VERSION = 1


class Coordinator:
    """A shard with its records in a journal, timers that a test runs, and topics that can change."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(
            initial_rebalance_delay_ms=0, consumer_assignment_interval_ms=0
        )
        self.image = ClusterImage("c")
        self.shard = GroupShard(self.settings, self)
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.timers: dict[Any, int] = {}
        self.answers: dict[int, Any] = {}
        self.now_ms = 0
        self.topics_made = 0
        self._waiter = 0

    # --- topics ---------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int) -> bytes:
        self.topics_made += 1
        topic_id = self.topics_made.to_bytes(16, "big")
        self._change(TopicCreated(TopicInfo(name, topic_id, (ONE,) * partitions)))
        return topic_id

    def grow(self, name: str, more: int) -> None:
        self._change(PartitionsAdded(name, (ONE,) * more))

    def delete(self, name: str) -> None:
        self._change(TopicDeleted(name))

    def configure(self, group_id: str, **settings: str) -> None:
        pairs = tuple((name.replace("_", "."), value) for name, value in settings.items())
        self._change(ConfigChanged(GROUP, group_id, pairs))

    def _change(self, change: Change) -> None:
        self.image = self.image.apply([change])

    # --- events ---------------------------------------------------------------------------------------------

    def write(self, event: Any) -> Any:
        """Run an event, and apply its decision as the runtime does: nothing if it raises. Returns its result."""
        out = Decision()
        result = event(self.shard, out)
        self._settle(out)
        for needed in out.effects:
            self.write(
                lambda shard, out, needed=needed: shard.target_computed(
                    needed, needed.compute(), self.now_ms, out
                )
            )
        return result

    def perform_and_wait(self, event: Any) -> int:
        """Run an event that answers a waiter later; returns the waiter's key in `answers`."""
        self._waiter += 1
        number = self._waiter
        self.write(lambda shard, out: event(shard, out, number))
        return number

    def _settle(self, out: Decision) -> None:
        for index, (key, value) in enumerate(out.records):
            self.journal.append((key, value))
            content = out.decoded.get(index)
            if content is None:
                self.shard.replay(key, value, loading=False)
            else:
                _check_said(content, key, value)
                self.shard.replay_decoded(content, NO_PRODUCER_ID)
        self.answers.update(out.replies)
        for timer, at_ms in out.timers.items():
            if at_ms is None:
                self.timers.pop(timer, None)
            else:
                self.timers[timer] = at_ms
        begins_ms = self.now_ms + TOGETHER_MS
        for timer in [key for key, at_ms in out.timers.items() if at_ms == begins_ms and key[0] == "join"]:
            # A classic group that waits for no member begins its first generation.
            del self.timers[timer]
            self.write(lambda shard, out, timer=timer: shard.expire(timer, self.now_ms, out))

    def advance(self, ms: int) -> None:
        """Advance the clock, and run all timers that expire meanwhile."""
        end_ms = self.now_ms + ms
        while self.timers:
            timer = min(self.timers, key=lambda key: (self.timers[key], str(key)))
            if self.timers[timer] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(timer))
            self.write(lambda shard, out, timer=timer: shard.expire(timer, self.now_ms, out))
        self.now_ms = end_ms

    def reloaded(self) -> GroupShard:
        """Return the groups as another broker would load them from the journal."""
        shard = GroupShard(self.settings, self)
        for key, value in self.journal:
            shard.replay(key, value, loading=True)
        return shard

    def restart(self) -> None:
        """Move the groups to another broker, which loads them from the journal."""
        self.shard = self.reloaded()
        self.timers.clear()
        out = Decision()
        self.shard.loaded(self.now_ms, out)
        self._settle(out)

    def group(self, group_id: str = "g") -> ConsumerGroup:
        return self.shard.consumer_group(group_id)

    def state(self, group_id: str = "g") -> str:
        return self.group(group_id).state_name

    def heartbeat(
        self, member_id: str, epoch: int, *, api_version: int = HEARTBEAT_VERSION, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        check_heartbeat(request, api_version, self.settings)
        beat = Heartbeat(request, "client", "/host", "made-by-coordinator")
        self.shard.is_up_to_date(beat, self.now_ms)
        return self.write(lambda shard, out: shard.consumer_heartbeat(beat, self.now_ms, out))


def _check_said(content: DecodedRecord | CommittedOffset, key: bytes, value: bytes | None) -> None:
    """Check that a record decodes to the content that came with it."""
    if isinstance(content, DecodedRecord):
        record_type = registry.record_type("__consumer_offsets", content.type_id)
        assert value is not None
        assert (record_type.decode_key(key), record_type.decode_value(value)) == (content.key, content.value)


def owned_by(topics: Iterable[Any]) -> set[TopicIdPartition]:
    return {(topic.topic_id, partition) for topic in topics for partition in topic.partitions}


@dataclass
class Client:
    """A member that behaves like stock clients: it revokes partitions, and reports that in its next heartbeat."""

    coordinator: Coordinator
    id: str
    topics: Sequence[str] = ("t",)
    regex: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    rebalance_timeout_ms: int = 10_000
    epoch: int = 0
    owned: set[TopicIdPartition] = field(default_factory=set)
    told: set[TopicIdPartition] = field(default_factory=set)
    says_owned: bool = True
    """True if the next heartbeat must list the owned partitions, since they have changed."""
    says_all: bool = True
    """True if the next heartbeat must be a full one, since a response was lost."""

    def join(self) -> None:
        """Send a full heartbeat without owned partitions."""
        self.epoch, self.owned, self.told = 0, set(), set()
        self._take(self._send(full=True))

    def beat(self, *, lost: bool = False, full: bool = False) -> int:
        """Send a heartbeat; returns the error code. `lost`: the response does not arrive."""
        try:
            response = self._send(full=full)
        except RequestError as error:
            if not lost:
                self.owned = set()
            return error.code
        if lost:
            self.says_all = True
        else:
            self._take(response)
        return 0

    def settle(self) -> None:
        """Revoke partitions that left the assignment, and adopt new ones."""
        if self.owned != self.told:
            self.owned = set(self.told)
            self.says_owned = True

    def leave(self, *, for_a_while: bool = False) -> None:
        self.coordinator.heartbeat(self.id, -2 if for_a_while else -1, instance_id=self.instance_id)
        self.owned, self.told, self.epoch = set(), set(), 0

    def _send(self, *, full: bool) -> ConsumerGroupHeartbeatResponse:
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        full = full or self.says_all or self.epoch == 0
        if full:
            fields.update(
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                subscribed_topic_names=list(self.topics),
                subscribed_topic_regex=self.regex,
                server_assignor=self.assignor,
            )
        if full or self.says_owned:
            fields["topic_partitions"] = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(self.owned)
            ]
        return self.coordinator.heartbeat(self.id, self.epoch, **fields)

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        self.says_owned = self.says_all = False
        if response.assignment is not None:
            self.told = owned_by(response.assignment.topic_partitions)


def converge(*clients: Client, rounds: int = 30) -> None:
    """Let all members send heartbeats and settle until nothing changes."""
    for _ in range(rounds):
        before = [(client.epoch, set(client.owned)) for client in clients]
        for client in clients:
            client.beat()
            client.settle()
        if before == [(client.epoch, client.owned) for client in clients]:
            return
    raise AssertionError(f"no agreement after {rounds} rounds")


def with_topic(partitions: int = 4, **settings: Any) -> Coordinator:
    coordinator = Coordinator(GroupSettings(**{"consumer_assignment_interval_ms": 0, **settings}))
    coordinator.create("t", partitions)
    return coordinator


def partitions_of(client: Client) -> list[int]:
    return sorted(partition for _, partition in client.owned)


def joined(coordinator: Coordinator, *ids: str, **fields: Any) -> list[Client]:
    clients = [Client(coordinator, member_id, **fields) for member_id in ids]
    for client in clients:
        client.join()
    converge(*clients)
    return clients
