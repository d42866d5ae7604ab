"""Members of a classic group, static ones too: they join, share the partitions, and commit how far they are.

The rule: a member commits only what it owns, one farther than what it has found committed; so whatever is fetched can
be compared with all that was committed before.
"""

from __future__ import annotations

from typing import Any

import trio

from barnabas.client.base_client import GROUP
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.heartbeat import HeartbeatRequest
from barnabas.wire.generated.join_group import JoinGroupRequest
from barnabas.wire.generated.leave_group import LeaveGroupRequest
from barnabas.wire.generated.offset_commit import OffsetCommitRequest
from barnabas.wire.generated.offset_fetch import OffsetFetchRequest
from barnabas.wire.generated.sync_group import SyncGroupRequest
from tests.simulation.clients import TOPIC, TOPIC_PARTITIONS, Asker
from tests.simulation.history import Commit, Committed, Joined, Owned

GROUP_ID = "readers"
GROUP_PARTITIONS = TOPIC_PARTITIONS
SESSION_MS = 6_000
_JOIN_AGAIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}


class RejoinError(Exception):
    """The group has moved on without this member."""


class Member:
    """One member, from the first JoinGroup to LeaveGroup."""

    def __init__(self, asker: Asker, *, is_static: bool = False) -> None:
        self.asker = asker
        self.instance_id = asker.name if is_static else None
        self.id = ""
        self.generation = -1
        self.leader = ""

    async def _ask(self, message: Any, version: int) -> Any:
        """Ask the coordinator. Raises RejoinError."""
        response = await self.asker.ask_coordinator(GROUP_ID, GROUP, message, version)
        self._check(int(getattr(response, "error_code", 0)), message)
        return response

    def _check(self, code: int, message: Any) -> None:
        if code:
            self.asker.note(f"{type(message).__name__}: {ErrorCode(code).name}")
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.id = ""
        if code in _JOIN_AGAIN:
            raise RejoinError
        if code:
            self.asker.history.surprises.append(
                f"{self.asker.name}: {type(message).__name__} failed with {ErrorCode(code).name}"
            )
            raise RejoinError

    async def take_part(self, rounds: int) -> None:
        """Stay in the group until so many rounds of heartbeats and commits are done."""
        while rounds > 0:
            try:
                partitions = await self._join()
                offsets = await self._fetch(partitions)
                while rounds > 0:
                    rounds -= 1
                    await self._beat()
                    for partition in partitions:
                        if self.asker.random.random() < 0.5:
                            offsets[partition] = await self._commit(partition, max(offsets[partition], 0) + 1)
                    await self.asker.pause(1.0)
                    if self.instance_id is not None and self.asker.random.random() < 0.2:
                        self.id = ""  # it was started again, and takes over from itself
                        raise RejoinError
            except RejoinError:
                await self.asker.pause(0.1)
        if self.asker.random.random() < 0.5 and self.id and self.instance_id is None:
            leave = LeaveGroupRequest(group_id=GROUP_ID, member_id=self.id)
            await self.asker.ask_coordinator(GROUP_ID, GROUP, leave, 2)

    async def _join(self) -> list[int]:
        """Join, have partitions assigned or assign them, and return those that are this member's."""
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="any", metadata=b"")]
        request = JoinGroupRequest(
            group_id=GROUP_ID,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=2_000,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="simulated",
            protocols=protocols,
        )
        response = await self.asker.ask_coordinator(GROUP_ID, GROUP, request, 5)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = self.id = response.member_id
            response = await self.asker.ask_coordinator(GROUP_ID, GROUP, request, 5)
        self._check(int(response.error_code), request)
        self.id, self.generation, self.leader = response.member_id, response.generation_id, response.leader
        self.asker.note(f"joins generation {self.generation} as {self.id}, led by {self.leader}")
        self.asker.history.joined.append(
            Joined(GROUP_ID, self.generation, self.asker.name, client_of(self.leader))
        )
        assignments = []
        if self.id == self.leader:
            ids = sorted(member.member_id for member in response.members)
            for n, member_id in enumerate(ids):
                owned = bytes(range(GROUP_PARTITIONS))[n :: len(ids)]
                assignments.append(
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=owned)
                )
        sync = SyncGroupRequest(
            group_id=GROUP_ID,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            assignments=assignments,
        )
        answer = await self._ask(sync, 3)
        partitions = list(bytes(answer.assignment))
        self.asker.note(f"owns {partitions} in generation {self.generation}")
        self.asker.history.owned.append(
            Owned(GROUP_ID, self.generation, self.asker.name, client_of(self.leader), frozenset(partitions))
        )
        return partitions

    async def _fetch(self, partitions: list[int]) -> dict[int, int]:
        return await fetch_committed(self.asker, partitions)

    async def _beat(self) -> None:
        await self._ask(
            HeartbeatRequest(
                group_id=GROUP_ID,
                generation_id=self.generation,
                member_id=self.id,
                group_instance_id=self.instance_id,
            ),
            3,
        )

    async def _commit(self, partition: int, offset: int) -> int:
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset
        )
        request = OffsetCommitRequest(
            group_id=GROUP_ID,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
        )
        commit = Commit(GROUP_ID, partition, offset, trio.current_time())
        self.asker.history.commits.append(commit)
        response = await self.asker.ask_coordinator(GROUP_ID, GROUP, request, 7, commit_error)
        self._check(int(response.topics[0].partitions[0].error_code), request)
        commit.ended_s = trio.current_time()
        self.asker.note(f"has committed {offset} of {partition}")
        return offset


def commit_error(response: Any) -> int:
    """Return the error of the one partition that a commit is about."""
    return int(response.topics[0].partitions[0].error_code)


def client_of(member_id: str) -> str:
    """Return the name of the client of this member id: a random part follows it."""
    return member_id[:-37]


async def fetch_committed(asker: Asker, partitions: list[int], group_id: str = GROUP_ID) -> dict[int, int]:
    """Return the committed offsets, -1 where there is none."""
    began_s = trio.current_time()
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=partitions)]
    response = await asker.ask_coordinator(
        group_id, GROUP, OffsetFetchRequest(group_id=group_id, topics=topics), 5
    )
    offsets = {part.partition_index: part.committed_offset for part in response.topics[0].partitions}
    for partition, offset in offsets.items():
        asker.note(f"finds {offset} committed of {partition}")
        asker.history.fetched_commits.append(Committed(group_id, partition, offset, began_s))
    return offsets
