"""Copies of tasks in a streams group: roles that change in place, reported offsets, client tags; as Kafka 4.4."""

from __future__ import annotations

import pytest

from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.offsets import OFFSETS_MAX
from barnabas.coordinators.groups.streams.tasks import ACTIVE, STANDBY
from barnabas.coordinators.groups.streams.topology import Shape, Status
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.refusals import code_of
from tests.support.streams import JOINING, Member, Streams, converge

STATEFUL = {"0": Shape(2, True, frozenset())}


def offsets(**partitions: int) -> list[Request.TaskOffset]:
    return [
        Request.TaskOffset(subtopology_id="1", partition=int(name[1:]), offset=offset)
        for name, offset in partitions.items()
    ]


def test_standby_task_becomes_active_in_place() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    converge(a, b)
    copies = {task for task in b.tasks if task[0] == STANDBY}
    assert copies
    coordinator.streams_heartbeat("a", -1)
    b.beat()
    assert {(ACTIVE, *task[1:]) for task in copies} <= b.told
    assert not [task for task in b.told if task[0] == STANDBY]


def test_copy_stays_until_it_can_be_the_active_task() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    converge(a, b)
    c = Member(coordinator, "c", process_id="r")
    for member in (c, a, b, c, a, b):
        member.beat()
        target = coordinator.streams().target[member.id]
        waits = {task for task in member.tasks if task[0] == STANDBY and (ACTIVE, *task[1:]) in target}
        assert {task for task in waits if (ACTIVE, *task[1:]) not in member.told} <= member.told
        member.settle()
    converge(a, b, c)


def test_active_task_becomes_a_copy_in_place() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a = Member(coordinator, "a")
    converge(a)
    b = Member(coordinator, "b", process_id="q")
    b.beat()
    a.beat()
    given_up = {task[1:] for task in a.tasks if task[0] == ACTIVE and task not in a.told}
    assert given_up
    copies = {task[1:] for task in coordinator.streams().target["a"] if task[0] == STANDBY}
    assert given_up & copies == {task[1:] for task in a.told if task[0] == STANDBY} != set()


def test_member_that_is_further_gets_the_task() -> None:
    workers = [
        Worker("a", "p"),
        Worker("b", "q", offsets={("0", 0): 5}),
        Worker("c", "r", offsets={("0", 0): 7}),
    ]
    assert (ACTIVE, "0", 0) in assign_tasks(workers, STATEFUL, 0)["c"]


def test_standby_task_comes_before_unused_state() -> None:
    standby = Worker("a", "p", frozenset({(STANDBY, "0", 0)}))
    unused = Worker("b", "q", offsets={("0", 0): 1_000})
    assert (ACTIVE, "0", 0) in assign_tasks([unused, standby], STATEFUL, 0)["a"]


def test_offsets_are_kept_until_others_come() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a")
    converge(a)
    a.beat(task_offsets=offsets(p0=5, p3=9), task_end_offsets=offsets(p0=8))
    a.beat()
    reported = coordinator.streams().offsets_of("a")
    assert reported.offsets == {("1", 0): 5, ("1", 3): 9}
    assert reported.ends == {("1", 0): 8}
    a.beat(task_offsets=offsets(p1=1))
    assert coordinator.streams().offsets_of("a").offsets == {("1", 1): 1}
    coordinator.streams_heartbeat("a", -1)
    assert coordinator.streams().offsets_of("a").offsets == {}


@pytest.mark.parametrize("entries", [offsets(p0=1) * 2, offsets(p0=1) * (OFFSETS_MAX + 1)])
def test_offsets_that_come_twice_are_refused(entries: list[Request.TaskOffset]) -> None:
    fields = {**JOINING, "task_end_offsets": entries}
    assert code_of(Streams().streams_heartbeat, "a", 0, **fields) == ErrorCode.INVALID_REQUEST


def test_members_without_a_tag_are_told() -> None:
    coordinator = Streams()
    converge(Member(coordinator, "b", process_id="q"))
    coordinator.configure("g", streams_rack_aware_assignment_tags="zone,rack")
    a = Member(coordinator, "a")
    a.beat(client_tags=[Request.KeyValue(key="rack", value="r")])
    assert a.status == [Status.MISSING_CLIENT_TAGS]
    assert coordinator.streams().settings_used == {
        "num.standby.replicas": "0",
        "rack.aware.assignment.tags": "zone,rack",
    }
    a.beat(client_tags=[Request.KeyValue(key=key, value="r") for key in ("rack", "zone")])
    assert a.status == []


def test_clients_of_v0_are_not_told_of_tags() -> None:
    coordinator = Streams(streams_assignment_tags=("zone",))
    assert not coordinator.streams_heartbeat("a", 0, version=0, **JOINING).response.status[1:]


def test_new_endpoint_is_told_to_all() -> None:
    coordinator = Streams()
    a, b = Member(coordinator, "a", endpoint=("h", 1)), Member(coordinator, "b", process_id="q")
    converge(a, b)
    b.beat()
    a.beat(user_endpoint=Request.Endpoint(host="h", port=7))
    b.beat()
    assert b.endpoints.keys() == {7}


def test_settings_of_the_group_are_told_to_members() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_task_offset_interval_ms="20000", streams_acceptable_recovery_lag="7")
    response = coordinator.streams_heartbeat("a", 0, **JOINING).response
    assert (response.task_offset_interval_ms, response.acceptable_recovery_lag) == (20_000, 7)
    response = coordinator.streams_heartbeat("b", 0, version=0, **JOINING).response
    assert response.task_offset_interval_ms == 0
    of_4_4 = Streams(streams_offsets_asked_since=0)
    assert of_4_4.streams_heartbeat("b", 0, version=0, **JOINING).response.task_offset_interval_ms == 60_000
