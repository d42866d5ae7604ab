"""Streams groups under members that come, go, dawdle, crash and lose answers, while topics and brokers change.

Whatever happens, no active task runs twice among the members that the group knows, no process has two copies of one
task, the journal tells the whole state, and once members have time the group comes to agree. An assignment moves no more
than it must.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.coordinators.groups.streams.assignor import Worker, assign_tasks
from barnabas.coordinators.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, Tasks
from barnabas.coordinators.groups.streams.topology import Shape
from barnabas.errors import RequestError
from tests.support.streams import Member, Streams, converge

SESSION_MS, REBALANCE_MS = 6_000, 4_000


class StreamsGroupMachine(RuleBasedStateMachine):
    """`members` are clients that are alive and, as far as they know, in the group."""

    @initialize(
        partitions=st.integers(1, 5),
        standby=st.integers(0, 2),
        delay_ms=st.sampled_from([0, 3_000]),
        interval_ms=st.sampled_from([0, 1_000]),
    )
    def begin(self, partitions: int, standby: int, delay_ms: int, interval_ms: int) -> None:
        self.coordinator = Streams(
            partitions,
            streams_session_timeout_ms=SESSION_MS,
            streams_initial_rebalance_delay_ms=delay_ms,
            streams_assignment_interval_ms=interval_ms,
        )
        self.coordinator.advance(1_000)
        self.coordinator.configure("g", streams_num_standby_replicas=str(standby))
        self.members: dict[str, Member] = {}
        self.away: dict[str, str] = {}
        """The process of static members that have left for a while, by instance id."""
        self.count = 0

    def beat(self, member: Member) -> None:
        try:
            member.beat()
        except RequestError:
            member.epoch, member.tasks = 0, set()
            member.beat()

    @precondition(lambda self: len(self.members) < 5)
    @rule(process=st.sampled_from("pqr"), is_static=st.booleans())
    def join(self, process: str, is_static: bool) -> None:
        self._join(process, f"i{self.count}" if is_static else None)

    def _join(self, process: str, instance_id: str | None) -> None:
        self.count += 1
        member = Member(
            self.coordinator,
            f"m{self.count}",
            process_id=process,
            instance_id=instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self.members[member.id] = member
        self.beat(member)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), repeated=st.integers(1, 3), settles=st.booleans())
    def one_beats(self, data: st.DataObject, repeated: int, settles: bool) -> None:
        member = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        for _ in range(repeated):
            self.beat(member)
        if settles:
            member.settle()

    @precondition(lambda self: self.members)
    @rule()
    def all_beat(self) -> None:
        for member in self.members.values():
            self.beat(member)
            member.settle()

    @precondition(lambda self: self.members)
    @rule(data=st.data(), crashes=st.booleans())
    def go(self, data: st.DataObject, crashes: bool) -> None:
        member = self.members.pop(data.draw(st.sampled_from(sorted(self.members))))
        if not crashes and member.id in self.known():
            self.coordinator.streams_heartbeat(member.id, -1, instance_id=member.instance_id)

    @precondition(lambda self: any(member.instance_id for member in self.members.values()))
    @rule(data=st.data())
    def go_for_a_while(self, data: st.DataObject) -> None:
        static = sorted(member.id for member in self.members.values() if member.instance_id)
        member = self.members.pop(data.draw(st.sampled_from(static)))
        assert member.instance_id is not None
        self.away[member.instance_id] = member.process_id
        if member.id in self.known():
            self.coordinator.streams_heartbeat(member.id, -2, instance_id=member.instance_id)

    @precondition(lambda self: self.away and len(self.members) < 5)
    @rule(data=st.data(), moves=st.booleans())
    def come_back(self, data: st.DataObject, moves: bool) -> None:
        instance_id = data.draw(st.sampled_from(sorted(self.away)))
        process = self.away.pop(instance_id)
        self._join("s" if moves else process, instance_id)

    @rule(standby=st.integers(0, 2))
    def configure(self, standby: int) -> None:
        self.coordinator.configure("g", streams_num_standby_replicas=str(standby))

    @rule(ms=st.sampled_from([10, 500, 3_000, 7_000]))
    def wait(self, ms: int) -> None:
        self.coordinator.advance(ms)

    @rule()
    def restart(self) -> None:
        self.coordinator.restart()

    @precondition(lambda self: self.members)
    @rule()
    def agree(self) -> None:
        """Members that are gone are found out; the others come to agree, and all tasks run."""
        for _ in range(4):  # longer than a session timeout, in steps that those alive live through
            self.coordinator.advance(SESSION_MS // 3)
            self.all_beat()
        converge(*self.members.values(), pause_ms=SESSION_MS // 3)
        group = self.coordinator.streams()
        assert group.state_name == "Stable"
        assert group.members.keys() == self.members.keys()
        count = len(self.coordinator.image.topics["in"].partitions)
        active = sorted(task for member in self.members.values() for task in member.active())
        assert active == [(name, number) for name in ("0", "1") for number in range(count)]

    def known(self) -> set[str]:
        group = self.coordinator.shard.groups.get("g")
        return set(group.members) if group is not None else set()

    @invariant()
    def nothing_runs_twice(self) -> None:
        present = [member for member in self.members.values() if member.id in self.known()]
        active = [task for member in present for task in member.tasks if task[0] == ACTIVE]
        assert len(active) == len(set(active))
        copies = [(member.process_id, task[1:]) for member in present for task in member.tasks]
        assert len(copies) == len(set(copies))

    @invariant()
    def the_journal_tells_everything(self) -> None:
        assert self.coordinator.reloaded().groups == self.coordinator.shard.groups


SHAPES = st.dictionaries(
    st.sampled_from(["0", "1", "2"]),
    st.builds(Shape, st.integers(1, 6), st.booleans(), st.just(frozenset[str]())),
    min_size=1,
)
PROCESSES = st.lists(st.sampled_from("pqrs"), min_size=1, max_size=6)


def roles(target: dict[str, Tasks], role: str) -> dict[tuple[str, int], list[str]]:
    """The members that have each task in this role."""
    runners: dict[tuple[str, int], list[str]] = {}
    for member, tasks in sorted(target.items()):
        for task in tasks:
            if task[0] == role:
                runners.setdefault(task[1:], []).append(member)
    return runners


@given(SHAPES, st.integers(0, 2), st.lists(PROCESSES, min_size=1, max_size=4))
def test_assignments_are_whole_apart_even_and_stay(
    shapes: dict[str, Shape], standby: int, generations: list[list[str]]
) -> None:
    """Members come and go at the end of the list: in each generation the n-th has the n-th process's name with it."""
    before: dict[str, Tasks] = {}
    for processes in generations:
        members = {f"{process}{n}": process for n, process in enumerate(processes)}
        workers = [Worker(id, process, before.get(id, NO_TASKS)) for id, process in members.items()]
        target = assign_tasks(workers, shapes, standby)
        every = [(name, n) for name, shape in shapes.items() for n in range(shape.tasks)]
        active, copies = roles(target, ACTIVE), roles(target, STANDBY)
        assert sorted(active) == sorted(every)
        assert all(len(runners) == 1 for runners in active.values())
        others = len(set(members.values())) - 1
        for task in every:
            has_copies = shapes[task[0]].is_stateful
            assert len(copies.get(task, ())) == (min(standby, others) if has_copies else 0)
            topic_partitions = [members[member] for member in active[task] + copies.get(task, [])]
            assert len(topic_partitions) == len(set(topic_partitions)), "no process has a task twice"
        counts = Counter(runner for runners in active.values() for runner in runners)
        assert max(counts.values()) - min(counts[member] for member in members) <= 1
        again = [Worker(id, process, target[id]) for id, process in members.items()]
        assert roles(assign_tasks(again, shapes, standby), ACTIVE) == active, "nothing moves without need"
        before = target


TestStreamsGroups = StreamsGroupMachine.TestCase
TestStreamsGroups.settings = settings(max_examples=60, stateful_step_count=30)
