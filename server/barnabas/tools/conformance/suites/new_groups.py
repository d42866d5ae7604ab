"""Groups that the broker assigns: of KIP-848, and share groups of KIP-932."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import trio

from barnabas.tools.conformance.batches import batch
from barnabas.tools.conformance.cases import Case
from barnabas.tools.conformance.suites.acting import append, committed, described, values_in
from barnabas.tools.conformance.tables.new_groups import entering
from barnabas.tools.conformance.trial import Trial
from barnabas.tools.probing.exchanges import COORDINATOR_COMES
from barnabas.wire.ids import uuid_text

GROUP_TYPE = 32


def cases() -> Iterator[Case]:
    """Return the cases of this module."""
    new = ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe", "FindCoordinator")
    yield from described(
        "consumer groups",
        "KIP-848",
        {
            "one member": _new_one,
            "two members": _new_two,
            "old epoch": _new_fenced,
            "commits": _new_commits,
            "expression": _new_expression,
            "static member": _new_static,
        },
        *new,
        feature=("group.version", 1),
        ConsumerGroupHeartbeat=1,
    )
    shares = (
        "ShareGroupHeartbeat",
        "ShareFetch",
        "ShareAcknowledge",
        "FindCoordinator",
        "IncrementalAlterConfigs",
    )
    yield from described(
        "share groups",
        "KIP-932",
        {
            "accepted": _accepted,
            "released": _released,
            "session epochs": _session_epochs,
        },
        *shares,
        feature=("share.version", 1),
    )


API = "ConsumerGroupHeartbeat"


async def _enter(trial: Trial, group: str, topic: str, number: int = 1, **changes: Any) -> Any:
    member_id = uuid_text(bytes([number]) * 16)
    asked = entering(trial, group, member_id, subscribed_topic_names=[topic]) | changes
    answer = await trial.until(
        API, asked, lambda response: response.error_code not in COORDINATOR_COMES, "the heartbeat is taken"
    )
    trial.expect(answer, {"error_code": 0, "member_id": member_id, "member_epoch": lambda epoch: epoch > 0})
    return answer


def _quiet(group: str, answer: Any, **changes: Any) -> dict[str, Any]:
    return {
        "group_id": group,
        "member_id": answer.member_id,
        "member_epoch": answer.member_epoch,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "topic_partitions": None,
    } | changes


def _given(answer: Any) -> list[tuple[bytes, list[int]]]:
    return (
        []
        if answer.assignment is None
        else [
            (bytes(topic_partition.topic_id), sorted(topic_partition.partitions))
            for topic_partition in answer.assignment.topic_partitions
        ]
    )


async def _assigned(trial: Trial, group: str, answer: Any, count: int) -> Any:
    """Send heartbeats until this many partitions are assigned; return the last answer with an assignment."""
    held, last = _given(answer), answer
    with trio.move_on_after(30):
        while sum(len(partitions) for _, partitions in held) != count:
            owned = [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in held]
            last = await trial.ask(API, _quiet(group, last, topic_partitions=owned))
            trial.expect(last, {"error_code": 0})
            held = _given(last) if last.assignment is not None else held
            await trio.sleep(0.02)
        return last
    trial.check(False, f"{held} are assigned, not {count} partitions")
    return last


async def _new_leaves(trial: Trial, group: str, answer: Any, epoch: int = -1) -> None:
    await trial.expecting(
        API, _quiet(group, answer, member_epoch=epoch), {"error_code": 0, "member_epoch": epoch}
    )


async def _new_one(trial: Trial) -> None:
    """A member alone is assigned all partitions by the broker, and is described with them."""
    group = await trial.group()
    name, topic_id = await trial.new_topic(3)
    answer = await _assigned(trial, group, await _enter(trial, group, name), 3)
    described = await trial.ask("ConsumerGroupDescribe", {"group_ids": [group]})
    trial.expect(
        described,
        {
            "groups.0.error_code": 0,
            "groups.0.members.len": 1,
            "groups.0.members.0.member_id": answer.member_id,
            "groups.0.members.0.target_assignment.topic_partitions.0.topic_id": topic_id,
            "groups.0.members.0.target_assignment.topic_partitions.0.partitions": lambda partitions: (
                sorted(partitions) == [0, 1, 2]
            ),
        },
    )
    await _new_leaves(trial, group, answer)
    await trial.until(
        "ConsumerGroupDescribe",
        {"group_ids": [group]},
        lambda response: response.groups[0].group_state == "Empty",
        "empty",
    )


async def _new_two(trial: Trial) -> None:
    """A second member gets partitions once the first has given them up."""
    group = await trial.group()
    name, _ = await trial.new_topic(2)
    first = await _assigned(trial, group, await _enter(trial, group, name), 2)
    second = await _enter(trial, group, name, 2)
    first = await _assigned(trial, group, first, 1)
    held = _given(first)
    owned = [{"topic_id": at, "partitions": partitions} for at, partitions in held]
    first = await trial.ask(API, _quiet(group, first, topic_partitions=owned))
    second = await _assigned(trial, group, second, 1)
    trial.check(_given(second) != held, f"both have {held}")
    for answer in (first, second):
        await _new_leaves(trial, group, answer)


async def _new_fenced(trial: Trial) -> None:
    """An epoch that is not the member's is FENCED_MEMBER_EPOCH, a member that there is not UNKNOWN_MEMBER_ID."""
    group = await trial.group()
    name, _ = await trial.new_topic(1)
    answer = await _enter(trial, group, name)
    await trial.expecting(
        API,
        _quiet(group, answer, member_epoch=answer.member_epoch + 5),
        {"error_code": "FENCED_MEMBER_EPOCH"},
    )
    await trial.expecting(API, _quiet(group, answer, member_id="nobody"), {"error_code": "UNKNOWN_MEMBER_ID"})
    await _new_leaves(trial, group, answer)
    await trial.expecting(
        API, _quiet(group, answer), {"error_code": {"UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"}}
    )


async def _new_commits(trial: Trial) -> None:
    """A member commits with its epoch; another epoch is STALE_MEMBER_EPOCH."""
    group = await trial.group()
    topic = await trial.new_topic(1)
    answer = await _enter(trial, group, topic[0])
    place = [{"partition_index": 0, "committed_offset": 6, "committed_metadata": ""}]
    asked = {
        "group_id": group,
        "generation_id_or_member_epoch": answer.member_epoch,
        "member_id": answer.member_id,
        "topics": [{"name": topic[0], "topic_id": topic[1], "partitions": place}],
    }
    await trial.expecting("OffsetCommit", asked, {"topics.0.partitions.0.error_code": 0})
    stale = asked | {"generation_id_or_member_epoch": answer.member_epoch + 1}
    await trial.expecting("OffsetCommit", stale, {"topics.0.partitions.0.error_code": "STALE_MEMBER_EPOCH"})
    offsets = await committed(trial, group, topic)
    trial.check(offsets == [6], f"committed is {offsets}, not 6")
    await _new_leaves(trial, group, answer)


async def _new_expression(trial: Trial) -> None:
    """A member may be subscribed to all topics that a regular expression matches."""
    group = await trial.group()
    name, _ = await trial.new_topic(2)
    first = await _enter(
        trial, group, name, subscribed_topic_names=None, subscribed_topic_regex=f"{name[:-1]}[{name[-1]}]"
    )
    answer = await _assigned(trial, group, first, 2)
    await _new_leaves(trial, group, answer)


async def _new_static(trial: Trial) -> None:
    """A static member that leaves for a while keeps its partitions for the member that comes back under its instance."""
    group = await trial.group()
    name, _ = await trial.new_topic(2)
    first = await _assigned(trial, group, await _enter(trial, group, name, instance_id="one"), 2)
    await trial.expecting(
        API, _quiet(group, first, instance_id="one", member_epoch=-2), {"error_code": 0, "member_epoch": -2}
    )
    again = await _enter(trial, group, name, 2, instance_id="one")
    trial.check(sum(len(partitions) for _, partitions in _given(again)) == 2, f"it has {_given(again)}")
    await trial.expecting(API, _quiet(group, again, instance_id="one", member_epoch=-1), {"error_code": 0})


# --- share groups -----------------------------------------------------------------------------------------------


async def _sharing(trial: Trial) -> tuple[str, str, tuple[str, bytes]]:
    """Bring a member into a share group that begins at the start; return group, member and topic."""
    group = await trial.group("share")
    config = {"name": "share.auto.offset.reset", "value": "earliest", "config_operation": 0}
    asked = {"resources": [{"resource_type": GROUP_TYPE, "resource_name": group, "configs": [config]}]}
    await trial.expecting("IncrementalAlterConfigs", asked, {"responses.0.error_code": 0})
    topic = await trial.new_topic(1)
    member_id = uuid_text(trial.number.to_bytes(16, "big"))
    beat = {
        "group_id": group,
        "member_id": member_id,
        "member_epoch": 0,
        "subscribed_topic_names": [topic[0]],
    }
    answer = await trial.until(
        "ShareGroupHeartbeat",
        beat,
        lambda response: response.error_code not in COORDINATOR_COMES,
        "the heartbeat is taken",
    )
    trial.expect(answer, {"error_code": 0})

    with trio.move_on_after(30):
        while not _given(answer):
            epoch = {"member_epoch": answer.member_epoch, "subscribed_topic_names": None}
            answer = await trial.ask("ShareGroupHeartbeat", beat | epoch)
            trial.expect(answer, {"error_code": 0})
            await trio.sleep(0.05)
    trial.check(bool(_given(answer)), "nothing is assigned")
    return group, member_id, topic


def _share_fetch(
    group: str, member_id: str, topic: tuple[str, bytes], epoch: int, batches: Any = ()
) -> dict[str, Any]:
    partition = {
        "partition_index": 0,
        "partition_max_bytes": 1 << 20,
        "acknowledgement_batches": list(batches),
    }
    return {
        "group_id": group,
        "member_id": member_id,
        "share_session_epoch": epoch,
        "max_wait_ms": 300,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 100,
        "batch_size": 100,
        "topics": [{"topic_id": topic[1], "partitions": [partition]}] if epoch == 0 or batches else [],
    }


async def _acquired(
    trial: Trial, group: str, member_id: str, topic: tuple[str, bytes], epoch: int
) -> tuple[Any, int]:
    """Fetch until records are acquired; return the partition's answer and the next epoch."""
    with trio.move_on_after(30):
        while True:
            answer = await trial.ask("ShareFetch", _share_fetch(group, member_id, topic, epoch))
            trial.expect(answer, {"error_code": 0})
            epoch += 1
            for topic_response in answer.responses:
                for partition in topic_response.partitions:
                    if partition.acquired_records:
                        return partition, epoch
    trial.check(False, "no records are acquired")
    raise AssertionError


def _acknowledging(
    group: str, member_id: str, topic: tuple[str, bytes], epoch: int, first: int, last: int, kind: int
) -> dict[str, Any]:
    batches = [{"first_offset": first, "last_offset": last, "acknowledge_types": [kind]}]
    partition = {"partition_index": 0, "acknowledgement_batches": batches}
    return {
        "group_id": group,
        "member_id": member_id,
        "share_session_epoch": epoch,
        "topics": [{"topic_id": topic[1], "partitions": [partition]}],
    }


async def _share_leaves(trial: Trial, group: str, member_id: str) -> None:
    beat = {"group_id": group, "member_id": member_id, "member_epoch": -1, "subscribed_topic_names": None}
    await trial.expecting("ShareGroupHeartbeat", beat, {"error_code": 0})


async def _accepted(trial: Trial) -> None:
    """Records are acquired once, accepted, and not sent again."""
    group, member_id, topic = await _sharing(trial)
    await append(trial, topic, batch(b"a", b"b"))
    partition, epoch = await _acquired(trial, group, member_id, topic, 0)
    trial.check(values_in(partition.records) == [b"a", b"b"], f"read {values_in(partition.records)}")
    batches = [
        (acquired_record.first_offset, acquired_record.last_offset, acquired_record.delivery_count)
        for acquired_record in partition.acquired_records
    ]
    trial.check(batches == [(0, 1, 1)], f"acquired are {batches}")
    answer = await trial.ask("ShareAcknowledge", _acknowledging(group, member_id, topic, epoch, 0, 1, 1))
    trial.expect(answer, {"error_code": 0, "responses.0.partitions.0.error_code": 0})
    answer = await trial.ask("ShareFetch", _share_fetch(group, member_id, topic, epoch + 1))
    acquired = [
        acquired_range
        for each in answer.responses
        for partition in each.partitions
        for acquired_range in partition.acquired_records
    ]
    trial.check(not acquired, "accepted records are sent again")
    await _share_leaves(trial, group, member_id)


async def _released(trial: Trial) -> None:
    """Records that are released are sent again, and counted."""
    group, member_id, topic = await _sharing(trial)
    await append(trial, topic, batch(b"a"))
    _, epoch = await _acquired(trial, group, member_id, topic, 0)
    answer = await trial.ask("ShareAcknowledge", _acknowledging(group, member_id, topic, epoch, 0, 0, 2))
    trial.expect(answer, {"error_code": 0, "responses.0.partitions.0.error_code": 0})
    partition, _ = await _acquired(trial, group, member_id, topic, epoch + 1)
    trial.expect(partition, {"acquired_records.0.delivery_count": 2})
    await _share_leaves(trial, group, member_id)


async def _session_epochs(trial: Trial) -> None:
    """An epoch of a share session out of turn is INVALID_SHARE_SESSION_EPOCH."""
    group, member_id, topic = await _sharing(trial)
    await trial.expecting("ShareFetch", _share_fetch(group, member_id, topic, 0), {"error_code": 0})
    await trial.expecting(
        "ShareFetch", _share_fetch(group, member_id, topic, 9), {"error_code": "INVALID_SHARE_SESSION_EPOCH"}
    )
    await _share_leaves(trial, group, member_id)
