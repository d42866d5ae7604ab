"""Classic groups: members that join, are assigned, commit and leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio

from barnabas.tools.conformance.cases import Case, NotApplicableError
from barnabas.tools.conformance.suites.acting import committed, described
from barnabas.tools.conformance.tables.groups import committing, joining, syncing
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.probing.exchanges import COORDINATOR_COMES
from barnabas.wire.generated.errors import ErrorCode

GROUP_TYPE = 32
MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
REBALANCES = ErrorCode.REBALANCE_IN_PROGRESS


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    classic = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "FindCoordinator")
    yield from described(
        "classic groups",
        "KIP-394, KIP-345, protocol guide",
        {
            "one member": _one,
            "wrong generation": _wrong_generation,
            "two members": _two,
            "leaves": _leaves,
            "static member": _static,
            "described": _described,
            "not empty": _not_empty,
        },
        *classic,
        "DescribeGroups",
        "DeleteGroups",
        with_topic=True,
        JoinGroup=5,
    )
    yield from described(
        "committed offsets",
        "KIP-211, KIP-496, protocol guide",
        {
            "by nobody": _commit_by_nobody,
            "of members": _commit_of_members,
            "deleted": _offsets_deleted,
            "the last deleted": _last_deleted,
            "no metadata": _no_metadata,
        },
        *classic,
        "OffsetCommit",
        "OffsetFetch",
        "DeleteGroups",
        with_topic=True,
    )


# --- classic groups ---------------------------------------------------------------------------------------------


async def join(trial: Trial, group: str, member_id: str = "", **changes: Any) -> Any:
    """Join, again with the id that the first answer gives; return the answer when the group is complete."""
    asked = joining(group, member_id, **changes)
    answer = await trial.until(
        "JoinGroup", asked, lambda response: response.error_code not in COORDINATOR_COMES, "JoinGroup"
    )
    if answer.error_code == MEMBER_ID_REQUIRED:
        answer = await trial.ask("JoinGroup", asked | {"member_id": answer.member_id})
    trial.expect(answer, {"error_code": 0})
    return answer


async def alone(trial: Trial, group: str, **changes: Any) -> Any:
    """Add one member to a group and complete its assignment; returns its JoinGroup answer."""
    answer = await join(trial, group, **changes)
    instance = {key: value for key, value in changes.items() if key == "group_instance_id"}
    asked = syncing(group, answer.member_id, answer.generation_id, answer.member_id, **instance)
    await trial.expecting("SyncGroup", asked, {"error_code": 0})
    return answer


def _beat(group: str, answer: Any, **changes: Any) -> dict[str, Any]:
    return {"group_id": group, "generation_id": answer.generation_id, "member_id": answer.member_id} | changes


def _leaving(group: str, member_id: str) -> dict[str, Any]:
    return {"group_id": group, "member_id": member_id, "members": [{"member_id": member_id}]}


async def _one(trial: Trial) -> None:
    """A member alone leads its group, is given what it assigns itself, and lives by heartbeats."""
    group = await trial.group()
    answer = await join(trial, group)
    trial.expect(
        answer, {"leader": answer.member_id, "generation_id": 1, "protocol_name": "range", "members.len": 1}
    )
    synced = await trial.ask(
        "SyncGroup", syncing(group, answer.member_id, answer.generation_id, answer.member_id)
    )
    trial.expect(synced, {"error_code": 0, "assignment": b"for " + answer.member_id.encode()})
    await trial.expecting("Heartbeat", _beat(group, answer), {"error_code": 0})
    await trial.expecting("LeaveGroup", _leaving(group, answer.member_id), {"error_code": 0})
    await trial.expecting("Heartbeat", _beat(group, answer), {"error_code": "UNKNOWN_MEMBER_ID"})


async def _wrong_generation(trial: Trial) -> None:
    """A generation that is not the group's is ILLEGAL_GENERATION."""
    group = await trial.group()
    answer = await alone(trial, group)
    for generation in (answer.generation_id + 1, answer.generation_id - 1):
        await trial.expecting(
            "Heartbeat", _beat(group, answer, generation_id=generation), {"error_code": "ILLEGAL_GENERATION"}
        )
        asked = syncing(group, answer.member_id, generation)
        await trial.expecting("SyncGroup", asked, {"error_code": "ILLEGAL_GENERATION"})
    await trial.ask("LeaveGroup", _leaving(group, answer.member_id))


async def _two(trial: Trial) -> None:
    """A second member makes the first join again; the leader learns of both, and assigns both."""
    group = await trial.group()
    first = await alone(trial, group)
    answers: dict[str, Any] = {}
    async with trial.connection() as wire:
        asked = joining(group)
        answer = await trial.ask("JoinGroup", asked, wire=wire)
        trial.expect(answer, {"error_code": "MEMBER_ID_REQUIRED"})
        second_id = answer.member_id

        async def second() -> None:
            answers["second"] = await trial.ask("JoinGroup", asked | {"member_id": second_id}, wire=wire)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second)
            await trial.until(
                "Heartbeat",
                _beat(group, first),
                lambda response: response.error_code == REBALANCES,
                "a rebalance begins",
            )
            answers["first"] = await trial.ask("JoinGroup", joining(group, first.member_id))
        leader, other = answers["first"], answers["second"]
        trial.expect(
            leader,
            {
                "error_code": 0,
                "generation_id": first.generation_id + 1,
                "members.len": 2,
                "leader": first.member_id,
            },
        )
        trial.expect(
            other,
            {
                "error_code": 0,
                "generation_id": first.generation_id + 1,
                "members.len": 0,
                "leader": first.member_id,
            },
        )

        async def second_syncs() -> None:
            answers["synced"] = await trial.ask(
                "SyncGroup", syncing(group, second_id, other.generation_id), wire=wire
            )

        async with trio.open_nursery() as nursery:
            nursery.start_soon(second_syncs)
            asked = syncing(group, first.member_id, leader.generation_id, first.member_id, second_id)
            await trial.expecting(
                "SyncGroup", asked, {"error_code": 0, "assignment": b"for " + first.member_id.encode()}
            )
        trial.expect(answers["synced"], {"error_code": 0, "assignment": b"for " + second_id.encode()})
    for member_id in (first.member_id, second_id):
        await trial.ask("LeaveGroup", _leaving(group, member_id))


async def _leaves(trial: Trial) -> None:
    """A group is empty after its last member has left, and continues its generations."""
    group = await trial.group()
    first = await alone(trial, group)
    await trial.expecting("LeaveGroup", _leaving(group, first.member_id), {"error_code": 0})
    await trial.expecting(
        "DescribeGroups", {"groups": [group]}, {"groups.0.group_state": "Empty", "groups.0.members.len": 0}
    )
    again = await alone(trial, group)
    trial.check(
        again.generation_id > first.generation_id,
        f"the generation is {again.generation_id} after {first.generation_id}",
    )
    await trial.ask("LeaveGroup", _leaving(group, again.member_id))


async def _static(trial: Trial) -> None:
    """A static member that comes back without an id replaces itself; the one before is FENCED_INSTANCE_ID."""
    group = await trial.group()
    first = await alone(trial, group, group_instance_id="one")
    again = await join(trial, group, group_instance_id="one")
    trial.check(again.member_id != first.member_id, "it has the same id as before")
    asked = _beat(group, first, group_instance_id="one")
    await trial.expecting("Heartbeat", asked, {"error_code": "FENCED_INSTANCE_ID"})
    leaving = {"group_id": group, "members": [{"member_id": "", "group_instance_id": "one"}]}
    await trial.expecting("LeaveGroup", leaving, {"error_code": 0, "members.0.error_code": 0})


async def _described(trial: Trial) -> None:
    """A group is described with its state, protocol and members, and is listed."""
    group = await trial.group()
    member = await alone(trial, group)
    answer = await trial.ask("DescribeGroups", {"groups": [group]})
    trial.expect(
        answer,
        {
            "groups.0.error_code": 0,
            "groups.0.group_state": "Stable",
            "groups.0.protocol_type": "consumer",
            "groups.0.protocol_data": "range",
            "groups.0.members.len": 1,
            "groups.0.members.0.member_id": member.member_id,
            "groups.0.members.0.member_assignment": b"for " + member.member_id.encode(),
        },
    )
    listed = await trial.ask("ListGroups", {})
    mine = [(entry.protocol_type, entry.group_state) for entry in listed.groups if entry.group_id == group]
    expected = [("consumer", "Stable" if trial.fixture.newest("ListGroups") >= 4 else "")]
    trial.check(mine == expected, f"listed as {mine}")
    await trial.ask("LeaveGroup", _leaving(group, member.member_id))


async def _not_empty(trial: Trial) -> None:
    """A group with members cannot be removed: NON_EMPTY_GROUP; an empty one can, once."""
    group = await trial.group()
    member = await alone(trial, group)
    asked = {"groups_names": [group]}
    await trial.expecting("DeleteGroups", asked, {"results.0.error_code": "NON_EMPTY_GROUP"})
    await trial.expecting("LeaveGroup", _leaving(group, member.member_id), {"error_code": 0})
    await trial.expecting("DeleteGroups", asked, {"results.0.error_code": 0})
    await trial.expecting("DeleteGroups", asked, {"results.0.error_code": "GROUP_ID_NOT_FOUND"})


# --- committed offsets ------------------------------------------------------------------------------------------


async def _commit(trial: Trial, values: dict[str, Any], *codes: int) -> None:
    answer = await trial.until(
        "OffsetCommit",
        values,
        lambda response: response.topics[0].partitions[0].error_code not in COORDINATOR_COMES,
        "OffsetCommit",
    )
    error_codes = [partition.error_code for partition in answer.topics[0].partitions]
    trial.check(
        error_codes == list(codes), f"OffsetCommit is answered {', '.join(map(code_name, error_codes))}"
    )


async def _commit_by_nobody(trial: Trial) -> None:
    """Offsets may be committed without members, and the last one counts."""
    group = await trial.group()
    for offset in (3, 7, 5):
        await _commit(trial, committing(trial, group, offset), 0)
    offsets = await committed(trial, group, (trial.topic, trial.topic_id), 0, 1)
    trial.check(offsets == [5, -1], f"committed are {offsets}, not 5 and -1")


async def _commit_of_members(trial: Trial) -> None:
    """A group with members takes commits of its members, of this generation."""
    group = await trial.group()
    member = await alone(trial, group)
    mine = {"generation_id_or_member_epoch": member.generation_id, "member_id": member.member_id}
    await _commit(trial, committing(trial, group, 4, **mine), 0)
    stale = mine | {"generation_id_or_member_epoch": member.generation_id + 1}
    await _commit(trial, committing(trial, group, 9, **stale), ErrorCode.ILLEGAL_GENERATION)
    await _commit(
        trial, committing(trial, group, 9, **mine | {"member_id": "nobody"}), ErrorCode.UNKNOWN_MEMBER_ID
    )
    await _commit(trial, committing(trial, group, 9), ErrorCode.UNKNOWN_MEMBER_ID)
    offsets = await committed(trial, group, (trial.topic, trial.topic_id))
    trial.check(offsets == [4], f"committed are {offsets}, not 4")
    await trial.ask("LeaveGroup", _leaving(group, member.member_id))


async def _offsets_deleted(trial: Trial) -> None:
    """Committed offsets are deleted for partitions to which no member of the group is subscribed."""
    group = await trial.group()
    await _commit(trial, committing(trial, group, 4), 0)
    await _commit(trial, committing(trial, group, 6, index=1), 0)
    partitions = [{"partition_index": 0}]
    asked = {"group_id": group, "topics": [{"name": trial.topic, "partitions": partitions}]}
    await trial.expecting("OffsetDelete", asked, {"error_code": 0, "topics.0.partitions.0.error_code": 0})
    offsets = await committed(trial, group, (trial.topic, trial.topic_id), 0, 1)
    trial.check(offsets == [-1, 6], f"committed are {offsets}, not -1 and 6")


async def _last_deleted(trial: Trial) -> None:
    """A group without members that has lost its last offset is empty, and may lose it again."""
    if not trial.is_kafka_4:
        raise NotApplicableError("a rule of the coordinator of Kafka 4")
    group = await trial.group()
    await _commit(trial, committing(trial, group, 4), 0)
    asked = {"group_id": group, "topics": [{"name": trial.topic, "partitions": [{"partition_index": 0}]}]}
    for _ in range(2):
        await trial.expecting("OffsetDelete", asked, {"error_code": 0, "topics.0.partitions.0.error_code": 0})
        await trial.expecting("DescribeGroups", {"groups": [group]}, {"groups.0.group_state": "Empty"})


async def _no_metadata(trial: Trial) -> None:
    """Metadata of null is read as empty."""
    group = await trial.group()
    await _commit(trial, committing(trial, group, 4, committed_metadata=None), 0)
    version = trial.fixture.newest("OffsetFetch")
    named = {"topic_id": trial.topic_id} if version >= 10 else {"name": trial.topic}
    topics = [{"name": trial.topic, "partition_indexes": [0]}]
    asked = {
        "group_id": group,
        "topics": topics,
        "groups": [{"group_id": group, "topics": [named | {"partition_indexes": [0]}]}],
    }
    answer = await trial.ask("OffsetFetch", asked)
    path = "groups.0.topics" if version >= 8 else "topics"
    trial.expect(
        answer, {f"{path}.0.partitions.0.metadata": "", f"{path}.0.partitions.0.committed_offset": 4}
    )
