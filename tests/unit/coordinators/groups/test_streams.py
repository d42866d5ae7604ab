"""A streams group (KIP-1071), heartbeat by heartbeat, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinators.groups.group import Committer
from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.tasks import ACTIVE, ROLES, STANDBY, TakenTasks
from barnabas.coordinators.groups.streams.topology import Shape, Status
from barnabas.coordinators.statemachine.decision import Decision
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest as Request
from tests.support.refusals import code_of
from tests.support.streams import ALL, JOINING, Member, Streams, converge, topology


def test_offsets_of_tasks_are_taken_without_a_word() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a")
    offsets = [Request.TaskOffset(subtopology_id="1", partition=0, offset=5)]
    a.beat(task_offsets=offsets, task_end_offsets=offsets)
    a.beat(task_offsets=offsets, task_end_offsets=[])
    assert len(a.told) == 8


def test_standby_tasks_keep_the_state_in_other_processes() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    converge(a, b)
    for first, other in ((a, b), (b, a)):
        standby = sorted(task[1:] for task in first.tasks if task[0] == STANDBY)
        assert standby == [task for task in other.active() if task[0] == "1"]
    coordinator.streams_heartbeat("b", -1)
    converge(a)
    assert a.active() == ALL
    assert len(a.tasks) == 8, "there is no other process for a copy"


def test_a_new_setting_is_taken_up_by_the_group() -> None:
    coordinator = Streams()
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    converge(a, b)
    assert all(task[0] == ACTIVE for task in a.tasks | b.tasks)
    coordinator.configure("g", streams_num_standby_replicas="1")
    converge(a, b)
    assert sum(task[0] == STANDBY for task in a.tasks | b.tasks) == 4


def test_a_new_group_waits_for_more_members() -> None:
    coordinator = Streams(streams_initial_rebalance_delay_ms=3_000)
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    a.beat()
    assert a.status == [Status.ASSIGNMENT_DELAYED, Status.MISSING_INTERNAL_TOPICS]
    assert a.epoch == 1, "an epoch that it can go on from"
    coordinator.advance(1_000)
    b.beat()
    assert b.status == [Status.ASSIGNMENT_DELAYED]
    assert (a.told, b.told) == (set(), set())
    assert coordinator.streams().state_name == "Assigning"
    coordinator.advance(1_999)
    a.beat()
    assert a.told == set()
    coordinator.advance(1)
    a.beat()
    b.beat()
    assert a.status == b.status == []
    assert len(a.told) == len(b.told) == 4, "both get theirs at once: nothing moves"
    a.settle()
    b.settle()
    for member in (a, b):
        coordinator.streams_heartbeat(member.id, -1)
    again = Member(coordinator, "c")
    again.beat()
    assert again.status == [Status.ASSIGNMENT_DELAYED], "an empty group is like a new one"
    coordinator.streams_heartbeat("c", -1)
    coordinator.advance(3_000)
    assert coordinator.streams().state_name == "Empty"


def test_delayed_assignment_comes_with_the_next_heartbeat() -> None:
    coordinator = Streams(streams_initial_rebalance_delay_ms=3_000)
    a = Member(coordinator, "a")
    a.beat()
    coordinator.restart()
    coordinator.advance(10)
    a.beat()
    assert a.status == [], "another broker does not know of the delay"
    assert len(a.told) == 8


def test_clock_set_back_delays_no_assignment() -> None:
    coordinator = Streams(streams_assignment_interval_ms=1_000)
    coordinator.now_ms = 1_000_000_000
    a = Member(coordinator, "a")
    a.beat()
    a.beat()
    assert a.status == [Status.ASSIGNMENT_DELAYED], "the target of no tasks is not a second old"
    coordinator.now_ms -= 3_600_000
    a.beat()
    a.settle()
    assert a.active() == ALL


def test_members_joining_one_by_one_share_an_assignment() -> None:
    coordinator = Streams(streams_assignment_interval_ms=1_000)
    coordinator.advance(1)
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    a.beat()
    a.beat()
    assert a.status == [Status.ASSIGNMENT_DELAYED], "the target of no tasks is not a second old"
    coordinator.advance(1_000)
    a.beat()
    a.settle()
    assert a.active() == ALL
    coordinator.advance(999)
    b.beat()
    assert b.status == [Status.ASSIGNMENT_DELAYED]
    a.beat()
    assert len(a.told) == 8
    coordinator.advance(1)
    coordinator.configure("g", streams_assignment_interval_ms="5000")
    a.beat()
    assert a.status == [Status.ASSIGNMENT_DELAYED]
    coordinator.configure("g", streams_assignment_interval_ms="0")
    a.beat()
    assert len(a.told) == 4


def leave(member: Member, epoch: int) -> None:
    member.coordinator.streams_heartbeat(member.id, epoch, instance_id=member.instance_id)


def test_a_static_member_comes_back_to_its_tasks() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", instance_id="i")
    b = Member(coordinator, "b", process_id="q", instance_id="j")
    converge(a, b)
    epoch, had = coordinator.streams().epoch, set(b.tasks)
    leave(b, -2)
    assert coordinator.streams().members["b"].epoch == -2
    coordinator.advance(10_000)
    a.beat()
    assert a.told == a.tasks, "nobody takes over what will be missed for a short time only"
    again = Member(coordinator, "c", process_id="q", instance_id="j")
    again.beat()
    assert again.told == had
    assert again.epoch == coordinator.streams().epoch == epoch
    assert set(coordinator.streams().members) == {"a", "c"}
    assert coordinator.reloaded().groups == coordinator.shard.groups
    assert code_of(b.beat) == ErrorCode.FENCED_INSTANCE_ID
    leave(again, -1)
    converge(a)
    assert a.active() == ALL


def test_static_member_of_another_process_reassigns() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a = Member(coordinator, "a", instance_id="i")
    b = Member(coordinator, "b", process_id="q", instance_id="j")
    converge(a, b)
    epoch, had = coordinator.streams().epoch, b.active()
    leave(b, -2)
    again = Member(coordinator, "c", process_id="r", instance_id="j")
    converge(a, again)
    assert coordinator.streams().epoch > epoch
    assert again.active() == had
    assert coordinator.reloaded().groups == coordinator.shard.groups


def test_static_member_away_has_revoked_its_partitions() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", instance_id="i", rebalance_timeout_ms=3_000)
    b = Member(coordinator, "b", process_id="q")
    converge(a)
    b.beat()
    a.beat()
    leave(a, -2)
    coordinator.advance(3_000)
    assert set(coordinator.streams().members) == {"a", "b"}, "its rebalance timeout ends with its leave"
    b.beat()
    assert len(b.told) == 4


def test_who_leaves_can_stop_the_others() -> None:
    coordinator = Streams()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    converge(a, b)
    coordinator.streams_heartbeat("a", -1, shutdown_application=True)
    b.beat()
    assert b.status == [Status.SHUTDOWN_APPLICATION]
    coordinator.streams_heartbeat("b", -1)
    c = Member(coordinator, "c")
    c.beat()
    assert c.status == [], "the application is gone; this is a new run of it"


def test_members_are_told_who_answers_queries() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", endpoint=("h", 1))
    b = Member(coordinator, "b", process_id="q", endpoint=("h", 2))
    converge(a, b)
    converge(a, b)
    assert a.endpoints.keys() == b.endpoints.keys() == {1, 2}
    numbers = sorted(a.endpoints[1]["in"] + a.endpoints[2]["in"])
    assert numbers == [0, 1, 2, 3]


def test_one_member_can_stop_the_application() -> None:
    coordinator = Streams()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    converge(a, b)
    a.beat(shutdown_application=True)
    b.beat()
    assert b.status == [Status.SHUTDOWN_APPLICATION]


def test_a_topology_is_settled_by_its_first_member() -> None:
    coordinator = Streams()
    a = Member(coordinator, "a", topology=topology(1))
    converge(a)
    old = Member(coordinator, "b", topology=topology(0))
    old.beat()
    assert old.status == [Status.STALE_TOPOLOGY]
    newer = Member(coordinator, "c", topology=topology(2))
    assert code_of(newer.beat) == ErrorCode.INVALID_REQUEST
    other = Member(coordinator, "c", topology=topology(1, source_topics=["elsewhere"]))
    assert code_of(other.beat) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"topology": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": None}, ErrorCode.INVALID_REQUEST),
        ({"active_tasks": [Request.TaskIds(subtopology_id="0", partitions=[1])]}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"warmup_tasks": [Request.TaskIds(subtopology_id="0", partitions=[1])]}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"topology": topology(source_topic_regex=["a.*"])}, ErrorCode.INVALID_REQUEST),
        (
            {"topology": topology(state_changelog_topics=[Request.TopicInfo(name="x", partitions=3)])},
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
        ),
        ({"topology": topology(repartition_sink_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        ({"topology": topology(source_topics=[])}, ErrorCode.STREAMS_INVALID_TOPOLOGY),
        (
            {"topology": topology(copartition_groups=[Request.CopartitionGroup(source_topics=[7])])},
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(fields: dict[str, Any], code: int) -> None:
    coordinator = Streams()
    assert code_of(coordinator.streams_heartbeat, "a", 0, **{**JOINING, **fields}) == code
    assert coordinator.journal == []


def test_the_journal_tells_everything() -> None:
    coordinator = Streams()
    coordinator.configure("g", streams_num_standby_replicas="1")
    a, b = Member(coordinator, "a", endpoint=("h", 1)), Member(coordinator, "b", process_id="q")
    converge(a)
    b.beat()
    a.beat()
    assert coordinator.reloaded().groups == coordinator.shard.groups
    coordinator.restart()
    converge(a, b)
    assert coordinator.reloaded().groups == coordinator.shard.groups
    for member in (a, b):
        coordinator.streams_heartbeat(member.id, -1)
    coordinator.write(lambda shard, out: shard.delete_group("g", out))
    assert coordinator.reloaded().groups == coordinator.shard.groups == {}
    assert all(value is None for value in dict(coordinator.journal).values())


def test_commits_are_checked_against_the_tasks() -> None:
    coordinator = Streams()
    a, b = Member(coordinator, "a"), Member(coordinator, "b", process_id="q")
    converge(a)
    converge(a, b)

    def commit(epoch: int, *numbers: int) -> None:
        coordinator.shard.check_commit(
            "g",
            Committer("a", epoch, topic_partitions=[("in", number) for number in numbers], api_version=9),
            0,
            Decision(),
        )

    kept = [number for name, number in a.active() if name == "0"]
    lost = [number for number in range(4) if number not in kept]
    commit(a.epoch, *range(4))
    commit(a.epoch - 1, *kept)
    assert code_of(commit, a.epoch - 1, *lost) == ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(commit, a.epoch + 1, *kept) == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("gone", ["", "a"])
def test_tasks_and_standbys_stay_with_their_state(gone: str) -> None:
    shapes = {"1": Shape(4, True, frozenset())}
    had = {
        "a": [(ACTIVE, "1", 0), (ACTIVE, "1", 1)], "z": [(ACTIVE, "1", 2), (ACTIVE, "1", 3)],
        "m": [(STANDBY, "1", 0), (STANDBY, "1", 1)], "b": [(STANDBY, "1", 2), (STANDBY, "1", 3)],
    }  # fmt: skip
    workers = [Worker(name, f"p-{name}", frozenset(tasks)) for name, tasks in had.items() if name != gone]
    target = assign_tasks(workers, shapes, 1)
    for name, tasks in target.items():
        assert {task[1:] for task in tasks} >= {task[1:] for task in had[name]}, "as a task or as its copy"
        assert len(tasks) <= (3 if gone else 2)


@pytest.mark.parametrize("standby", [0, 1, 2])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_every_task_is_given_once_and_copies_are_apart(processes: int, standby: int) -> None:
    shapes = {"0": Shape(5, False, frozenset()), "1": Shape(7, True, frozenset())}
    workers = [Worker(f"m{n}", f"p{n % processes}") for n in range(4)]
    for _ in range(2):
        target = assign_tasks(workers, shapes, standby)
        active = sorted(task[1:] for tasks in target.values() for task in tasks if task[0] == ACTIVE)
        assert active == [("0", n) for n in range(5)] + [("1", n) for n in range(7)]
        loads = [sum(task[0] == ACTIVE for task in tasks) for tasks in target.values()]
        assert max(loads) - min(loads) <= 1
        topic_partitions = [(worker.process_id, task[1:]) for worker in workers for task in target[worker.id]]
        assert len(topic_partitions) == len(set(topic_partitions)), "a process has no task twice"
        assert len(topic_partitions) == 12 + 7 * min(standby, processes - 1)
        again = [Worker(worker.id, worker.process_id, target[worker.id]) for worker in workers]
        second = assign_tasks(again, shapes, standby)
        for worker in workers:
            kept = {task for task in target[worker.id] if task[0] == ACTIVE}
            assert kept == {task for task in second[worker.id] if task[0] == ACTIVE}
        workers = workers[1:]


def test_process_gets_no_standby_before_revoking_the_task() -> None:
    task = ("1", 0)
    here, elsewhere = (TakenTasks({task: "p"}, {("p", task)}, process) for process in "pq")
    assert all((role, *task) in here for role in ROLES)
    assert (ACTIVE, *task) in elsewhere, "somebody still runs it"
    assert (STANDBY, *task) not in elsewhere
    assert (ACTIVE, "1", 1) not in here


def test_larger_shares_leave_tasks_for_idle_members():
    """Six tasks of four members: two have two each, and the other two one each."""
    had = {"a": (0, 1), "b": (2, 3), "c": (4, 5), "d": ()}
    workers = [
        Worker(name, name, frozenset((ACTIVE, "0", number) for number in numbers))
        for name, numbers in had.items()
    ]
    target = assign_tasks(workers, {"0": Shape(6, False, frozenset())}, 0)
    assert sorted(len(tasks) for tasks in target.values()) == [1, 1, 2, 2]
    moved = [task for worker in workers for task in worker.assigned - target[worker.id]]
    assert len(moved) == 1
