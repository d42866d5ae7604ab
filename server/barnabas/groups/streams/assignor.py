"""The sticky assignor of tasks. Pure.

The rule, in this order: members run equally many active tasks, those with state spread on their own; a task stays where
it is, or goes where a copy of its state is; copies are spread over the processes that run least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.groups.streams.tasks import ACTIVE, NO_TASKS, STANDBY, Task, TaskId, Tasks
from barnabas.groups.streams.topology import Shape


@dataclass(frozen=True, slots=True)
class Worker:
    """A member as the assignor sees it; `assigned` is what it was to have until now."""

    id: str
    process_id: str
    assigned: Tasks = NO_TASKS


@dataclass(slots=True)
class _Plan:
    """What has been given to whom so far."""

    workers: Sequence[Worker]
    given: dict[str, set[Task]] = field(default_factory=dict)
    processes: dict[str, list[Worker]] = field(default_factory=dict)
    holders: dict[TaskId, set[str]] = field(default_factory=dict)

    def give(self, worker: Worker, role: str, task: TaskId) -> None:
        self.given[worker.id].add((role, *task))
        self.holders.setdefault(task, set()).add(worker.process_id)

    def load(self, worker: Worker) -> tuple[float, int, str]:
        """The load of its process per member, and its own; the id makes the order definite."""
        process = self.processes[worker.process_id]
        total = sum(len(self.given[other.id]) for other in process)
        return total / len(process), len(self.given[worker.id]), worker.id


def assign_tasks(
    workers: Sequence[Worker], shapes: Mapping[str, Shape], standby_replicas: int
) -> dict[str, Tasks]:
    """The tasks by member id, with every member in it. The same input always gives the same answer."""
    plan = _Plan(sorted(workers, key=lambda worker: worker.id))
    for worker in plan.workers:
        plan.given[worker.id] = set()
        plan.processes.setdefault(worker.process_id, []).append(worker)
    if plan.workers:
        stateful, stateless = (
            [
                (name, n)
                for name in sorted(shapes)
                if shapes[name].is_stateful is kind
                for n in range(shapes[name].tasks)
            ]
            for kind in (True, False)
        )
        _assign_active(plan, stateful, len(stateful))
        _assign_active(plan, stateless, len(stateful) + len(stateless))
        for _ in range(standby_replicas):
            _assign_standby(plan, stateful)
    return {worker_id: frozenset(tasks) for worker_id, tasks in plan.given.items()}


def _assign_active(plan: _Plan, tasks: Sequence[TaskId], total: int) -> None:
    """Give out active tasks until all members together have `total`, none more than one above another."""
    least, extra = divmod(total, len(plan.workers))
    extra -= sum(len(plan.given[worker.id]) > least for worker in plan.workers)
    rest: dict[TaskId, None] = dict.fromkeys(tasks)

    def may_take(worker: Worker) -> bool:
        load = len(plan.given[worker.id])
        return load < least or (load == least and extra > 0)

    for role in (ACTIVE, STANDBY):
        for worker in plan.workers:
            for task in [task for task in rest if (role, *task) in worker.assigned]:
                if may_take(worker):
                    extra -= len(plan.given[worker.id]) == least
                    plan.give(worker, ACTIVE, task)
                    del rest[task]
    for task in rest:
        worker = min((worker for worker in plan.workers if may_take(worker)), key=plan.load)
        extra -= len(plan.given[worker.id]) == least
        plan.give(worker, ACTIVE, task)


def _assign_standby(plan: _Plan, tasks: Sequence[TaskId]) -> None:
    """One more copy of each task's state, in a process that has none; where there is no such process, none."""
    for task in tasks:
        free = [worker for worker in plan.workers if worker.process_id not in plan.holders[task]]
        if free:
            had = [w for w in free if (STANDBY, *task) in w.assigned or (ACTIVE, *task) in w.assigned]
            worker = min(free, key=plan.load)
            lightest = plan.load(worker)[0]
            for former in had:
                if plan.load(former)[0] <= lightest + 1:
                    worker = former
                    break
            plan.give(worker, STANDBY, task)
