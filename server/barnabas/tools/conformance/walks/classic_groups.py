"""Walks over a classic group: members join, are assigned, commit, come back, leave, and are refused what is not theirs.

Whether a rebalance is complete depends on the order in which members join: a step that begins one waits until the others
can see it, so that the next generation has exactly the members of the model.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import trio

from barnabas.tools.conformance.fixture import PARTITIONS, PAUSE_S, READY_S
from barnabas.tools.conformance.suites.acting import committed
from barnabas.tools.conformance.tables.groups import joining, syncing
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.conformance.walks.walk import NO_ERROR, Attempt, Walk, commit_offset
from barnabas.tools.probing.exchanges import COORDINATOR_COMES, Wire
from barnabas.wire.generated.errors import ErrorCode

STEPS, MEMBERS_MAX = 40, 4
TIMEOUT_MS = 60_000
"""Of sessions and rebalances: longer than a busy machine may stall."""


@dataclass(eq=False)
class Member:
    """A member, with a separate connection."""

    wire: Wire
    id: str = ""
    instance: str | None = None
    assignment: bytes = b""


@dataclass
class Group(Walk):
    """The model: members, generation, leader, committed offsets."""

    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    id: str = ""
    members: list[Member] = field(default_factory=list)
    leader: Member | None = None
    generation: int = 0
    commits: dict[int, int] = field(default_factory=dict)
    count: int = 0

    @property
    def topic(self) -> tuple[str, bytes]:
        """The topic for commits."""
        return self.trial.topic, self.trial.topic_id

    async def ask(self, member: Member, api: str, values: dict[str, Any]) -> Any:
        """Ask on a member's connection, again while the coordinator is being loaded."""
        with trio.move_on_after(READY_S):
            while True:
                answer = await self.trial.ask(api, values, wire=member.wire)
                if answer.error_code not in COORDINATOR_COMES:
                    return answer
                await trio.sleep(PAUSE_S)
        return answer

    def identity(self, member: Member, **changes: Any) -> dict[str, Any]:
        """Return the fields of a request that identify the member."""
        return {
            "group_id": self.id,
            "generation_id": self.generation,
            "member_id": member.id,
            "group_instance_id": member.instance,
        } | changes

    def join(self, member: Member) -> dict[str, Any]:
        """Return a member's JoinGroup."""
        timeouts = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        return joining(self.id, member.id, group_instance_id=member.instance, **timeouts)


async def run(trial: Trial) -> None:
    """Members of a classic group join, are assigned, commit, come back and leave as the model of the group says."""
    async with AsyncExitStack() as stack:
        walk = Group.of(trial)
        walk.stack, walk.id = stack, await trial.group()
        for _ in range(STEPS):
            await walk.random.choice(_WITH_MEMBERS if walk.members else _EMPTY)(walk)
        while walk.members:
            await _leave(walk)


async def _new_member(walk: Group) -> Member:
    walk.count += 1
    instance = f"instance-{walk.count}" if walk.random.random() < 0.3 else None
    member = Member(await walk.stack.enter_async_context(walk.trial.connection()), instance=instance)
    if instance is None:
        answer = await walk.ask(member, "JoinGroup", walk.join(member))
        walk.check_code(answer.error_code, "MEMBER_ID_REQUIRED")
        member.id = answer.member_id
    return member


# --- rebalances ---------------------------------------------------------------------------------------------------


async def _join(walk: Group) -> None:
    if len(walk.members) == MEMBERS_MAX:
        return
    walk.step(f"a member joins {len(walk.members)} others")
    member = await _new_member(walk)
    await _rebalance(walk, [*walk.members, member], member)


async def _leader_joins_again(walk: Group) -> None:
    assert walk.leader is not None
    walk.step(f"the leader of {len(walk.members)} joins again")
    await _rebalance(walk, walk.members, walk.leader)


async def _leave(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    walk.step(f"one of {len(walk.members)} leaves")
    named = {"member_id": member.id, "group_instance_id": member.instance}
    asked = {"group_id": walk.id, "member_id": member.id, "members": [named]}
    answer = await walk.ask(member, "LeaveGroup", asked)
    walk.check_code(answer.error_code, NO_ERROR)
    walk.members.remove(member)
    beat = await walk.ask(member, "Heartbeat", walk.identity(member))
    walk.check_code(beat.error_code, "UNKNOWN_MEMBER_ID")
    if member is walk.leader:
        walk.leader = None
    if walk.members:
        await _rebalance(walk, walk.members, None)


async def _rebalance(walk: Group, members: list[Member], first: Member | None) -> None:
    """Make the members join the next generation; `first` begins the rebalance, unless one has begun already."""
    answers: dict[Member, Any] = {}
    waiting = [member for member in walk.members if member is not first]

    async def join(member: Member) -> None:
        answers[member] = await walk.ask(member, "JoinGroup", walk.join(member))

    async with trio.open_nursery() as nursery:
        if first is not None:
            nursery.start_soon(join, first)
        if waiting:
            await _until_rebalance(walk, waiting[0])
        for member in walk.random.sample(waiting, len(waiting)):
            nursery.start_soon(join, member)
    await _judge_generation(walk, members, answers)
    await _synchronize(walk)


async def _until_rebalance(walk: Group, member: Member) -> None:
    with trio.move_on_after(READY_S):
        while True:
            answer = await walk.ask(member, "Heartbeat", walk.identity(member))
            walk.check_code(answer.error_code, NO_ERROR, "REBALANCE_IN_PROGRESS")
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                return
            await trio.sleep(PAUSE_S)
    walk.check(False, f"no rebalance has begun in {READY_S:g} s")


async def _judge_generation(walk: Group, members: list[Member], answers: dict[Member, Any]) -> None:
    was_empty = not walk.members
    for member, answer in answers.items():
        walk.check_code(answer.error_code, NO_ERROR)
        walk.check(
            member.id in ("", answer.member_id), f"{member.id} is {answer.member_id} after it has joined"
        )
        member.id = answer.member_id
    generations = {answer.generation_id for answer in answers.values()}
    least = walk.generation + 1
    walk.check(
        len(generations) == 1 and (min(generations) >= least if was_empty else generations == {least}),
        f"the generation is {sorted(generations)}, not {least}",
    )
    leaders = {answer.leader for answer in answers.values()}
    members_by_id = {member.id: member for member in members}
    walk.check(
        len(leaders) == 1 and leaders <= members_by_id.keys(),
        f"leaders are {leaders}, members {set(members_by_id)}",
    )
    leader = members_by_id[leaders.pop()]
    walk.check(walk.leader in (None, leader), "another member leads, though the leader has joined again")
    for member, answer in answers.items():
        listed = {member.member_id for member in answer.members}
        expected = set(members_by_id) if member is leader else set()
        walk.check(listed == expected, f"{member.id} is given the members {listed}, not {expected}")
    walk.members, walk.leader, walk.generation = list(members), leader, generations.pop()


async def _synchronize(walk: Group) -> None:
    """Make the leader assign, and check that each member gets its own assignment."""
    ids = [member.id for member in walk.members]
    answers: dict[Member, Any] = {}

    async def synchronize(member: Member) -> None:
        assigned = ids if member is walk.leader else []
        asked = syncing(walk.id, member.id, walk.generation, *assigned, group_instance_id=member.instance)
        answers[member] = await walk.ask(member, "SyncGroup", asked)

    async with trio.open_nursery() as nursery:
        for member in walk.random.sample(walk.members, len(walk.members)):
            nursery.start_soon(synchronize, member)
    for member, answer in answers.items():
        walk.check_code(answer.error_code, NO_ERROR)
        member.assignment = b"for " + member.id.encode()
        walk.check(answer.assignment == member.assignment, f"{member.id} is assigned {answer.assignment!r}")


# --- steps in a group that is stable ------------------------------------------------------------------------------


async def _beat(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    attempts: list[Attempt] = [
        ({}, NO_ERROR),
        ({"generation_id": walk.generation + 1}, "ILLEGAL_GENERATION"),
        ({"generation_id": walk.generation - 1}, "ILLEGAL_GENERATION"),
        ({"member_id": "nobody", "group_instance_id": None}, "UNKNOWN_MEMBER_ID"),
        ({"group_instance_id": "nobody"}, "UNKNOWN_MEMBER_ID"),
    ]
    changes, code = walk.random.choice(attempts)
    walk.step(f"heartbeat with {changes or 'what is right'}")
    answer = await walk.ask(member, "Heartbeat", walk.identity(member, **changes))
    walk.check_code(answer.error_code, code)


async def _synchronize_again(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    walk.step("a member asks for its assignment again")
    asked = syncing(walk.id, member.id, walk.generation, group_instance_id=member.instance)
    answer = await walk.ask(member, "SyncGroup", asked)
    walk.check_code(answer.error_code, NO_ERROR)
    walk.check(answer.assignment == member.assignment, f"it is assigned {answer.assignment!r}")


async def _follower_joins_again(walk: Group) -> None:
    followers = [member for member in walk.members if member is not walk.leader]
    if not followers:
        return
    member = walk.random.choice(followers)
    walk.step("a follower joins again with what it had")
    answer = await walk.ask(member, "JoinGroup", walk.join(member))
    walk.check_code(answer.error_code, NO_ERROR)
    walk.check(
        (answer.generation_id, answer.member_id, answer.members) == (walk.generation, member.id, []),
        f"it is {answer.member_id} in generation {answer.generation_id}, not in {walk.generation}",
    )


async def _static_comes_back(walk: Group) -> None:
    """A static member without its id is the same member under another one; no other member has to join again."""
    static = [member for member in walk.members if member.instance is not None]
    if not static:
        return
    member = walk.random.choice(static)
    walk.step(f"a static {'leader' if member is walk.leader else 'follower'} comes back without its id")
    before, member.id = member.id, ""
    answer = await walk.ask(member, "JoinGroup", walk.join(member))
    member.id = answer.member_id
    walk.check_code(answer.error_code, NO_ERROR)
    walk.check(
        answer.generation_id == walk.generation and member.id not in ("", before),
        f"it is {member.id!r}, was {before!r}, in generation {answer.generation_id}, not {walk.generation}",
    )
    fenced = await walk.ask(member, "Heartbeat", walk.identity(member, member_id=before))
    walk.check_code(fenced.error_code, "FENCED_INSTANCE_ID")
    await _synchronize_again(walk)


async def _commit_as_member(walk: Group) -> None:
    member = walk.random.choice(walk.members)
    mine = {
        "generation_id_or_member_epoch": walk.generation,
        "member_id": member.id,
        "group_instance_id": member.instance,
    }
    attempts: list[Attempt] = [
        ({}, NO_ERROR),
        ({}, NO_ERROR),
        ({"generation_id_or_member_epoch": walk.generation + 1}, "ILLEGAL_GENERATION"),
        ({"member_id": "nobody", "group_instance_id": None}, "UNKNOWN_MEMBER_ID"),
        (
            {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
            "UNKNOWN_MEMBER_ID",
        ),
    ]
    changes, code = walk.random.choice(attempts)
    await _commit(walk, mine | changes, code)


async def _commit_as_nobody(walk: Group) -> None:
    await _commit(walk, {}, NO_ERROR)


async def _commit(walk: Group, identity: dict[str, Any], code: str) -> None:
    partition, offset = walk.random.randrange(PARTITIONS), walk.random.randrange(1000)
    walk.step(f"commit {offset} of partition {partition} with {identity}, which is {code}")
    await commit_offset(walk, walk.id, walk.topic, partition, offset, code, **identity)
    if code == NO_ERROR:
        walk.commits[partition] = offset


async def _fetch_offsets(walk: Group) -> None:
    walk.step("what is committed")
    offsets = await committed(walk.trial, walk.id, walk.topic, *range(PARTITIONS))
    expected = [walk.commits.get(partition, -1) for partition in range(PARTITIONS)]
    walk.check(offsets == expected, f"committed is {offsets}, not {expected}")


async def _describe(walk: Group) -> None:
    walk.step("the group is described")
    answer = await walk.trial.ask("DescribeGroups", {"groups": [walk.id]})
    described = answer.groups[0]
    if walk.members:
        seen = (
            described.group_state,
            described.protocol_data,
            {member.member_id for member in described.members},
        )
        expected = "Stable", "range", {member.id for member in walk.members}
        walk.check(seen == expected, f"it is {seen}, not {expected}")
    else:
        walk.check(not described.members, f"it has {len(described.members)} members, not none")
        walk.check(described.group_state in ("Empty", "Dead"), f"it is {described.group_state}")


async def _delete(walk: Group) -> None:
    walk.step("the group is deleted")
    answer = await walk.trial.ask("DeleteGroups", {"groups_names": [walk.id]})
    code = answer.results[0].error_code
    if walk.members:
        walk.check_code(code, "NON_EMPTY_GROUP")
    elif walk.generation or walk.commits:
        walk.check_code(code, NO_ERROR)
        walk.generation, walk.commits = 0, {}
    else:
        walk.check_code(code, "GROUP_ID_NOT_FOUND")


Step = Callable[[Group], Awaitable[None]]
_WITH_MEMBERS: list[Step] = [
    _join,
    _join,
    _leave,
    _leader_joins_again,
    _follower_joins_again,
    _static_comes_back,
    _beat,
    _beat,
    _synchronize_again,
    _commit_as_member,
    _commit_as_member,
    _fetch_offsets,
    _describe,
    _delete,
]
_EMPTY: list[Step] = [_join, _join, _commit_as_nobody, _fetch_offsets, _describe, _delete]
