"""The sticky assignor of tasks, after Kafka's StickyTaskAssignor. Pure.

The rule, in this order: a task stays at its member, or goes to one with a copy of its state, up to the member's fair
share; the rest goes to the least loaded member. Among several copies a standby task precedes unused state, and then the
most advanced copy wins. Racks and client tags do not count, as in Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace

from barnabas.coordinators.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, TaskId, Tasks
from barnabas.coordinators.groups.streams.topology import Shape


@dataclass(frozen=True, slots=True)
class Worker:
    """A member as the assignor sees it: its tasks, and the offsets up to which it has restored states."""

    id: str
    process_id: str
    assigned: Tasks = NO_TASKS
    offsets: Mapping[TaskId, int] = field(default_factory=dict)


class _Share:
    """Limit of tasks for a member while other members have fewer. It shrinks when some members are full."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.size = -(-tasks // members)

    def note(self, count: int) -> None:
        """Note that a member now has this many tasks."""
        if count == self.size:
            self._tasks -= count
            self._members -= 1
            self.size = -(-self._tasks // self._members) if self._members else 0


class _Process:
    """The members of one process, which share a state directory, and so have each task once.

    Loads only grow: heaps have possibly outdated loads, and an entry with a lower load than the present one is pushed
    again.
    """

    __slots__ = ("_by_count", "_least", "_with_count", "counts", "id", "tasks")

    def __init__(self, process_id: str) -> None:
        self.id = process_id
        self.counts: dict[str, int] = {}
        self.tasks: set[TaskId] = set()
        self._by_count: list[tuple[int, str]] = []
        self._least = 0
        self._with_count = {0: 0}  # number of members by number of tasks

    def add(self, member: str) -> None:
        """Add a member without tasks."""
        self.counts[member] = 0
        self._with_count[0] += 1
        heappush(self._by_count, (0, member))

    def give(self, member: str, task: TaskId) -> None:
        """Assign a task to a member."""
        self.tasks.add(task)
        count = self.counts[member]
        self.counts[member] = count + 1
        self._with_count[count] -= 1
        self._with_count[count + 1] = self._with_count.get(count + 1, 0) + 1
        while not self._with_count[self._least]:
            self._least += 1

    @property
    def load(self) -> tuple[float, int, str]:
        """Tasks per member; then the count of its least loaded member, and the id, as tie-breakers."""
        return len(self.tasks) / len(self.counts), self._least, self.id

    def least_loaded(self) -> str:
        """The member with the fewest tasks."""
        while True:
            count, member = self._by_count[0]
            if self.counts[member] == count:
                return member
            heapreplace(self._by_count, (self.counts[member], member))


class _Plan:
    """Tasks assigned to each member so far, and the members that had each task before."""

    def __init__(self, workers: Sequence[Worker], active: int, total: int) -> None:
        self.given: dict[str, set[tuple[str, str, int]]] = {worker.id: set() for worker in workers}
        self.processes: dict[str, _Process] = {}
        self.active_share, self.share = _Share(active, len(workers)), _Share(total, len(workers))
        # a heap with possibly outdated loads
        self._members: list[tuple[int, tuple[float, int, str], str]] = []
        self._by_load: list[tuple[float, int, str]] = []  # a heap of the processes
        self.runner: dict[TaskId, Worker] = {}
        copies: dict[TaskId, list[tuple[bool, int, Worker]]] = {}
        for worker in workers:
            process = self.processes.get(worker.process_id)
            if process is None:
                process = self.processes[worker.process_id] = _Process(worker.process_id)
            process.add(worker.id)
            for role, subtopology, number in worker.assigned:
                task_id = (subtopology, number)
                if role == ACTIVE:
                    self.runner[task_id] = worker
                elif role == STANDBY:
                    copies.setdefault(task_id, []).append((False, -worker.offsets.get(task_id, 0), worker))
            for task_id, offset in worker.offsets.items():
                if (STANDBY, *task_id) not in worker.assigned:
                    copies.setdefault(task_id, []).append((True, -offset, worker))
        self._keepers = {
            task_id: [worker for *_, worker in sorted(ranked, key=lambda copy: copy[:2])]
            for task_id, ranked in copies.items()
        }

    def count(self, worker: Worker) -> int:
        """Return the number of tasks of a member."""
        return self.processes[worker.process_id].counts[worker.id]

    def has(self, worker: Worker, task: TaskId) -> bool:
        """Return whether a member's process has the task in any role."""
        return task in self.processes[worker.process_id].tasks

    def give(self, process: _Process, member_id: str, role: str, task: TaskId) -> None:
        """Assign a task to a member."""
        process.give(member_id, task)
        self.given[member_id].add((role, *task))
        if role == ACTIVE:
            self.active_share.note(process.counts[member_id])
        self.share.note(process.counts[member_id])

    def give_to(self, worker: Worker, role: str, task: TaskId) -> None:
        """Assign a task to a worker."""
        self.give(self.processes[worker.process_id], worker.id, role, task)

    def keeper(self, task: TaskId, *, for_copy: bool = False) -> Worker | None:
        """Return the member with the best state of a task, or another one if it and its process have less load; or None.

        For a copy only members of processes without the task count.
        """
        chosen, least = None, (0.0, 0)
        for worker in self._keepers.get(task, ()):
            if for_copy and self.has(worker, task):
                continue
            load, count = self.processes[worker.process_id].load[0], self.count(worker)
            if chosen is None or (load < least[0] and count < least[1]):
                chosen, least = worker, (load, count)
        return chosen

    def give_active(self, task: TaskId) -> None:
        """Assign an active task to the member with the fewest.

        Members are compared first, their processes second: where a member has kept all its tasks and another of its
        process has none, the next assignment would move tasks again.
        """
        if not self._members:
            self._members = [
                (process.counts[member], process.load, member)
                for process in self.processes.values()
                for member in process.counts
            ]
            heapify(self._members)
        while True:
            count, load, member = self._members[0]
            process = self.processes[load[2]]
            now = process.counts[member], process.load, member
            if now == (count, load, member):
                break
            heapreplace(self._members, now)
        self.give(process, member, ACTIVE, task)

    def give_copy(self, task: TaskId) -> bool:
        """Assign a copy to the least loaded process without the task; returns whether there is such a process."""
        if not self._by_load:
            self._by_load = [process.load for process in self.processes.values()]
            heapify(self._by_load)
        having = []
        chosen = None
        while self._by_load and chosen is None:
            load = heappop(self._by_load)
            process = self.processes[load[2]]
            if process.load != load:
                heappush(self._by_load, process.load)
            elif task in process.tasks:
                having.append(load)
            else:
                chosen = process
        if chosen is not None:
            self.give(chosen, chosen.least_loaded(), STANDBY, task)
            having.append(chosen.load)
        for load in having:
            heappush(self._by_load, load)
        return chosen is not None


def assign_tasks(
    workers: Sequence[Worker], shapes: Mapping[str, Shape], standby_replicas: int
) -> dict[str, Tasks]:
    """Return the tasks by member id, with every member in it. The same input always gives the same result."""
    if not workers:
        return {}
    active = [(name, number) for name, shape in shapes.items() for number in range(shape.tasks)]
    stateful = [task for task in active if shapes[task[0]].is_stateful]
    plan = _Plan(
        sorted(workers, key=lambda worker: worker.id),
        len(active),
        len(active) + standby_replicas * len(stateful),
    )
    _assign_active(plan, active)
    _assign_standby(plan, stateful, standby_replicas)
    return {worker_id: frozenset(tasks) for worker_id, tasks in plan.given.items()}


def _by_partition(task: TaskId) -> tuple[int, str]:
    """Return a sort key that keeps tasks of different subtopologies together if they read the same partition."""
    return task[1], task[0]


def _assign_active(plan: _Plan, tasks: Iterable[TaskId]) -> None:
    rest = sorted(tasks, key=_by_partition)
    for former_of in (plan.runner.get, plan.keeper):
        unassigned = []
        for task in rest:
            former = former_of(task)
            if former is not None and plan.count(former) < plan.active_share.size:
                plan.give_to(former, ACTIVE, task)
            else:
                unassigned.append(task)
        rest = unassigned
    for task in sorted(rest):
        plan.give_active(task)


def _assign_standby(plan: _Plan, tasks: Iterable[TaskId], replicas: int) -> None:
    """Assign copies of each task's state to processes without the task; fewer if there are not enough processes."""
    lacking: list[tuple[TaskId, int]] = []
    for task in sorted(tasks, key=_by_partition, reverse=True):
        for placed in range(replicas):
            former = _former_of_copy(plan, task)
            if former is None:
                lacking.append((task, replicas - placed))
                break
            plan.give_to(former, STANDBY, task)
    for task, count in sorted(lacking, reverse=True):
        for _ in range(count):
            if not plan.give_copy(task):
                break


def _former_of_copy(plan: _Plan, task: TaskId) -> Worker | None:
    """Return a worker with the task's state and room for a copy: its former runner, or a keeper of a copy; or None."""
    for worker in (plan.runner.get(task), plan.keeper(task, for_copy=True)):
        if worker is not None and not plan.has(worker, task) and plan.count(worker) < plan.share.size:
            return worker
    return None
