"""Walks over a group of KIP-848: members come, own what they are assigned, subscribe to other topics, are fenced, leave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.tools.conformance.fixture import PAUSE_S, READY_S
from barnabas.tools.conformance.suites.acting import committed
from barnabas.tools.conformance.tables.new_groups import entering
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.conformance.walks.walk import NO_ERROR, Attempt, Walk, commit_offset
from barnabas.tools.probing.exchanges import COORDINATOR_COMES
from barnabas.wire.ids import uuid_text

STEPS, TOPICS, PARTITIONS, MEMBERS_MAX = 50, 2, 3, 4
TIMEOUT_MS = 60_000
"""Of rebalances: longer than a busy machine may stall."""
API = "ConsumerGroupHeartbeat"
Partition = tuple[bytes, int]
"""A topic id and a partition."""


@dataclass(eq=False)
class Member:
    """A member as its client sees itself."""

    id: str
    topics: list[str]
    epoch: int = 0
    held: frozenset[Partition] = frozenset()
    """Partitions that the member owns: its last assignment."""
    reported: frozenset[Partition] = frozenset()
    """Partitions that the member owned by its last report."""


@dataclass
class Group(Walk):
    """The model: members, the partitions that each owns, committed offsets."""

    id: str = ""
    topics: list[tuple[str, bytes]] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    commits: dict[int, int] = field(default_factory=dict)

    def subscription(self) -> list[str]:
        """Choose one topic or all of them."""
        names = [name for name, _ in self.topics]
        return self.random.choice([names, names, names[:1], names[1:]])

    async def beat(self, member: Member, **changes: Any) -> Any:
        """Send a member's heartbeat with all that it owns, as a client does after a change."""
        owned: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(member.held):
            owned.setdefault(topic_id, []).append(partition)
        asked = entering(self.trial, self.id, member.id) | {
            "member_epoch": member.epoch,
            "rebalance_timeout_ms": TIMEOUT_MS,
            "subscribed_topic_names": member.topics,
            "topic_partitions": [{"topic_id": key, "partitions": value} for key, value in owned.items()],
        }
        return await self.trial.until(
            API, asked | changes, lambda response: response.error_code not in COORDINATOR_COMES, "heartbeat"
        )

    def take(self, member: Member, answer: Any) -> None:
        """Process the answer to a heartbeat, and check the assignment."""
        self.check_code(answer.error_code, NO_ERROR)
        self.check(
            answer.member_epoch >= member.epoch, f"epoch {answer.member_epoch} comes after {member.epoch}"
        )
        member.reported, member.epoch = member.held, answer.member_epoch
        if answer.assignment is None:
            return
        assigned = _partitions_of(answer)
        for other in self.members:
            both = assigned & (other.held | other.reported) if other is not member else frozenset()
            self.check(not both, f"{_text(both)} are given to {member.id} while {other.id} owns them")
        member.held = assigned


async def run(trial: Trial) -> None:
    """No partition of a consumer group is given to two members, and in the end each is assigned, evenly."""
    walk = Group.of(trial)
    walk.topics = [await trial.new_topic(PARTITIONS) for _ in range(TOPICS)]
    walk.id = await trial.group()
    for _ in range(STEPS):
        await walk.random.choice(_WITH_MEMBERS if walk.members else _EMPTY)(walk)
    if walk.members:
        await _settle(walk)
    while walk.members:
        await _leave(walk)


def _partitions_of(assigned: Any) -> frozenset[Partition]:
    """Return the assignment in a heartbeat's answer or of a described member."""
    return frozenset(
        (bytes(topic_partitions.topic_id), partition)
        for topic_partitions in assigned.assignment.topic_partitions
        for partition in topic_partitions.partitions
    )


def _text(partitions: frozenset[Partition]) -> str:
    return ", ".join(f"{topic_id.hex()[:8]}-{partition}" for topic_id, partition in sorted(partitions))


# --- members ------------------------------------------------------------------------------------------------------


async def _join(walk: Group) -> None:
    if len(walk.members) == MEMBERS_MAX:
        return
    member = Member(uuid_text(walk.random.randbytes(16)), walk.subscription())
    walk.step(f"{member.id} joins {len(walk.members)} others for {len(member.topics)} topics")
    walk.members.append(member)
    answer = await walk.beat(member)
    walk.take(member, answer)
    walk.check(answer.member_epoch > 0, "it has joined, and has no epoch")


async def _beat(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    walk.step(f"heartbeat of {member.id}")
    walk.take(member, await walk.beat(member))


async def _subscribe(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    member.topics = walk.subscription()
    walk.step(f"{member.id} subscribes to {len(member.topics)} topics")
    walk.take(member, await walk.beat(member))


async def _leave(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    walk.step(f"{member.id} leaves {len(walk.members) - 1} others")
    answer = await walk.beat(member, member_epoch=-1, topic_partitions=[])
    walk.check_code(answer.error_code, NO_ERROR)
    walk.check(answer.member_epoch == -1, f"it has left, and has epoch {answer.member_epoch}")
    walk.members.remove(member)
    answer = await walk.beat(member)
    walk.check_code(answer.error_code, "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND")


async def _wrong(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    attempts: list[Attempt] = [
        ({"member_epoch": member.epoch + walk.random.randint(1, 9)}, "FENCED_MEMBER_EPOCH"),
        ({"member_id": "nobody", "member_epoch": max(1, member.epoch)}, "UNKNOWN_MEMBER_ID"),
        ({"server_assignor": "no-such-assignor"}, "UNSUPPORTED_ASSIGNOR"),
    ]
    changes, code = walk.random.choice(attempts)
    walk.step(f"heartbeat of {member.id} with {changes}")
    answer = await walk.beat(member, **changes)
    walk.check_code(answer.error_code, code)


async def _settle(walk: Group) -> None:
    """Heartbeats of all lead to an assignment of every partition, which is the same where the group is described."""
    walk.step(f"heartbeats of all {len(walk.members)} until the group is stable")
    state = ""
    with trio.move_on_after(READY_S):
        while state != "Stable":  # a broker may assign at most once in an interval
            await trio.sleep(PAUSE_S if state else 0)
            for member in walk.members:
                walk.take(member, await walk.beat(member))
            answer = await walk.trial.ask("ConsumerGroupDescribe", {"group_ids": [walk.id]})
            state = answer.groups[0].group_state
    walk.check(state == "Stable", f"the group is {state} after {READY_S:g} s of heartbeats")
    unassigned = _unassigned(walk)
    walk.check(not unassigned, f"{_text(unassigned)} are assigned to no member")
    _judge_balance(walk)
    described = {
        member.member_id: (member.member_epoch, _partitions_of(member)) for member in answer.groups[0].members
    }
    expected = {member.id: (member.epoch, member.held) for member in walk.members}
    walk.check(described == expected, f"it is described as {described}, not as {expected}")


def _unassigned(walk: Group) -> frozenset[Partition]:
    subscribed = {name for member in walk.members for name in member.topics}
    ids = [topic_id for name, topic_id in walk.topics if name in subscribed]
    everything = {(topic_id, partition) for topic_id in ids for partition in range(PARTITIONS)}
    return frozenset(everything.difference(*(member.held for member in walk.members)))


def _judge_balance(walk: Group) -> None:
    ids = dict(walk.topics)
    for member in walk.members:
        foreign = {
            partition
            for partition in member.held
            if partition[0] not in {ids[name] for name in member.topics}
        }
        walk.check(not foreign, f"{member.id} has {_text(frozenset(foreign))}, which it did not subscribe to")
    if len({tuple(member.topics) for member in walk.members}) == 1:
        sizes = sorted(len(member.held) for member in walk.members)
        walk.check(sizes[-1] - sizes[0] <= 1, f"members with the same topics have {sizes} partitions")


# --- offsets ------------------------------------------------------------------------------------------------------


async def _commit(walk: Group) -> None:
    partition, offset = walk.random.randrange(PARTITIONS), walk.random.randrange(1000)
    attempts: list[Attempt] = [({}, NO_ERROR)]
    if walk.members:
        member = walk.random.choice(walk.members)
        epoch = "generation_id_or_member_epoch"
        attempts = [
            ({epoch: member.epoch, "member_id": member.id}, NO_ERROR),
            ({epoch: member.epoch + 1, "member_id": member.id}, "STALE_MEMBER_EPOCH"),
            ({epoch: member.epoch, "member_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
            ({epoch: -1, "member_id": ""}, "UNKNOWN_MEMBER_ID"),
        ]
    identity, code = walk.random.choice(attempts)
    walk.step(f"commit {offset} of partition {partition} with {identity}, which is {code}")
    await commit_offset(walk, walk.id, walk.topics[0], partition, offset, code, **identity)
    if code == NO_ERROR:
        walk.commits[partition] = offset


async def _fetch_offsets(walk: Group) -> None:
    walk.step("what is committed")
    offsets = await committed(walk.trial, walk.id, walk.topics[0], *range(PARTITIONS))
    expected = [walk.commits.get(partition, -1) for partition in range(PARTITIONS)]
    walk.check(offsets == expected, f"committed is {offsets}, not {expected}")


async def _delete(walk: Group) -> None:
    walk.step("the group is deleted, though it has members")
    answer = await walk.trial.ask("DeleteGroups", {"groups_names": [walk.id]})
    walk.check_code(answer.results[0].error_code, "NON_EMPTY_GROUP")


Step = Callable[[Group], Awaitable[None]]
_WITH_MEMBERS: list[Step] = [
    _join,
    _join,
    _beat,
    _beat,
    _beat,
    _subscribe,
    _leave,
    _wrong,
    _settle,
    _commit,
    _commit,
    _fetch_offsets,
    _delete,
]
_EMPTY: list[Step] = [_join, _join, _commit, _fetch_offsets]
