"""Members of consumer groups (KIP-848) and streams groups (KIP-1071): they heartbeat, take what they are given, and commit.

The rule: a member gives up at once what it is told to, and says so with the next heartbeat; it commits only what it has.
"""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client.base_client import GROUP
from barnabas.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.simulation.clients import TOPIC, Asker
from tests.simulation.history import Commit, Gained
from tests.simulation.members import commit_error, fetch_committed

CONSUMERS, STREAMS = "consumers", "streams"
REBALANCE_TIMEOUT_MS = 5_000
LEAVE, LEAVE_FOR_A_WHILE = -1, -2
SETTINGS = {
    f"group.{kind}.{name}": value
    for kind in ("consumer", "streams", "share")
    for name, value in {
        "min.session.timeout.ms": "6000",
        "session.timeout.ms": "6000",
        "min.heartbeat.interval.ms": "1000",
        "heartbeat.interval.ms": "1000",
    }.items()
} | {
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Of the broker: sessions as short as those of classic members, and no pause between assignments."""
_FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
_LATER = {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.STALE_MEMBER_EPOCH}


class FencedError(Exception):
    """The group has given to others what this member had."""


class EpochMember:
    """One member of a consumer group, from its first heartbeat to its last."""

    group_id = CONSUMERS

    def __init__(self, asker: Asker, *, is_static: bool = False) -> None:
        self.asker = asker
        self.instance_id = asker.name if is_static else None
        self.epoch = 0
        self.owned: dict[int, int] = {}
        """The offset that is committed of each partition that it has."""
        self._ids = 0
        self._become_new()

    def _become_new(self) -> None:
        self._ids += 1
        self.id = f"{self.asker.name}.{self._ids}"
        self._give_up()

    def _give_up(self) -> None:
        self.epoch = 0
        self.owned.clear()

    def _check(self, code: int, what: str) -> bool:
        """Return whether there was no error. Raises FencedError."""
        if not code:
            return True
        self.asker.note(f"{what}: {ErrorCode(code).name}")
        if code in _FENCED:
            raise FencedError
        if code not in _LATER:
            self.asker.history.surprises.append(
                f"{self.asker.name}: {what} failed with {ErrorCode(code).name}"
            )
        return False

    async def take_part(self, rounds: int) -> None:
        """Stay in the group for so many rounds of heartbeats and commits."""
        random = self.asker.random
        for _ in range(rounds):
            try:
                if await self._beat() and self.epoch > 0:
                    for partition in sorted(self.owned):
                        if random.random() < 0.5:
                            await self._commit(partition)
            except FencedError:
                self._give_up()
                continue
            if self.instance_id is not None and self.epoch > 0 and random.random() < 0.2:
                await self._leave(LEAVE_FOR_A_WHILE)
                self._become_new()
            await self.asker.pause(1.0)
        if self.epoch > 0 and random.random() < 0.5:
            await self._leave(LEAVE)

    async def _leave(self, epoch: int) -> None:
        response = await self.asker.ask_coordinator(
            self.group_id, GROUP, self._goodbye(epoch), self.heartbeat_version
        )
        self.asker.note(f"leaves as {self.id} ({epoch}): {response.error_code}")

    async def _beat(self) -> bool:
        """Heartbeat, and take what the answer gives; returns whether it was no refusal. Raises FencedError."""
        response = await self.asker.ask_coordinator(
            self.group_id, GROUP, self._heartbeat(), self.heartbeat_version
        )
        if not self._check(int(response.error_code), "heartbeat"):
            return False
        self.epoch = response.member_epoch
        assigned = self._given(response)
        if assigned is None:
            return True
        gained = sorted(assigned - self.owned.keys())
        for partition in self.owned.keys() - assigned:
            del self.owned[partition]
        for partition in gained:
            self.asker.history.gained.append(
                Gained(self.group_id, self.asker.name, partition, self.epoch, trio.current_time())
            )
        self.asker.note(f"has {sorted(assigned)} in epoch {self.epoch} as {self.id}")
        if gained:
            offsets = await fetch_committed(self.asker, gained, self.group_id)
            self.owned.update({partition: max(offset, 0) for partition, offset in offsets.items()})
        return True

    heartbeat_version = 1

    def _heartbeat(self) -> Any:
        owned = ConsumerGroupHeartbeatRequest.TopicPartitions(
            topic_id=self.asker.topic_ids[TOPIC], partitions=sorted(self.owned)
        )
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[owned] if self.owned else [],
        )

    def _goodbye(self, epoch: int) -> Any:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.id, member_epoch=epoch, instance_id=self.instance_id
        )

    def _given(self, response: Any) -> set[int] | None:
        if response.assignment is None:
            return None
        return {partition for topic in response.assignment.topic_partitions for partition in topic.partitions}

    async def _commit(self, partition: int) -> None:
        offset = self.owned[partition] + 1
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset
        )
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        commit = Commit(
            self.group_id, partition, offset, trio.current_time(), member=self.asker.name, epoch=self.epoch
        )
        self.asker.history.commits.append(commit)
        response = await self.asker.ask_coordinator(self.group_id, GROUP, request, 9, commit_error)
        if self._check(int(response.topics[0].partitions[0].error_code), "commit"):
            commit.ended_s = trio.current_time()
            self.owned[partition] = offset
            self.asker.note(f"has committed {offset} of {partition} in epoch {self.epoch}")


class StreamsMember(EpochMember):
    """One member of a streams group with a topology of one step; its tasks are the partitions of the topic."""

    group_id = STREAMS
    heartbeat_version = 0

    def _heartbeat(self) -> Any:
        request = StreamsGroupHeartbeatRequest
        first = self.epoch == 0
        tasks = [request.TaskIds(subtopology_id="0", partitions=sorted(self.owned))] if self.owned else []
        topology = request.Topology(
            epoch=0, subtopologies=[request.Subtopology(subtopology_id="0", source_topics=[TOPIC])]
        )
        return request(
            group_id=self.group_id,
            member_id=self.id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            topology=topology if first else None,
            process_id=self.id if first else None,
            active_tasks=tasks,
            standby_tasks=[],
            warmup_tasks=[],
            client_tags=[] if first else None,
        )

    def _goodbye(self, epoch: int) -> Any:
        return StreamsGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.id, member_epoch=epoch, instance_id=self.instance_id
        )

    def _given(self, response: Any) -> set[int] | None:
        if response.active_tasks is None:
            return None
        return {partition for tasks in response.active_tasks for partition in tasks.partitions}
