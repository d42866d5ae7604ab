"""Tasks of a topology, in the roles that a member can run them in. Pure.

A task is one partition's share of a subtopology. It has one active copy in the group, and at most one copy of any role
in a process, since the copies of a process share a state directory. A member that has a copy may change its role in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.coordinators.groups.epoch_member import EpochMember
    from barnabas.coordinators.groups.reconciliation import Step

ACTIVE, STANDBY, WARMUP = "active", "standby", "warmup"
ROLES = (ACTIVE, STANDBY, WARMUP)

TaskId = tuple[str, int]
"""Subtopology and partition."""
Task = tuple[str, str, int]
"""Role, subtopology and partition."""
Tasks = frozenset[Task]

NO_TASKS: Tasks = frozenset()


def of_role(role: str, tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """Return the tasks of a role as (subtopology, partitions), both in order."""
    partitions: dict[str, list[int]] = {}
    for other, subtopology, partition in sorted(tasks):
        if other == role:
            partitions.setdefault(subtopology, []).append(partition)
    return list(partitions.items())


def read_tasks(active: Iterable[Any], standby: Iterable[Any], warmup: Iterable[Any]) -> Tasks:
    """Return the tasks in three lists of any message's `TaskIds`."""
    return frozenset(
        (role, entry.subtopology_id, partition)
        for role, entries in zip(ROLES, (active, standby, warmup), strict=True)
        for entry in entries
        for partition in entry.partitions
    )


class TakenTasks(Collection[Task]):
    """Tasks that a member cannot get now: active tasks that run, and tasks with another copy in its process.

    `active` maps tasks to the processes that run them, `copies` has (process, task) of every standby and warm-up copy,
    `own` are the member's own tasks.
    """

    def __init__(
        self,
        active: Mapping[TaskId, str],
        copies: Collection[tuple[str, Task]],
        process_id: str,
        own: Collection[Task] = (),
    ) -> None:
        self._active = active
        self._copies = copies
        self._process_id = process_id
        self._own = own

    def __contains__(self, task: object) -> bool:
        if not isinstance(task, tuple):
            return False
        role, task_id = task[0], (task[1], task[2])
        if role == ACTIVE:
            is_run = task_id in self._active
        else:
            is_run = self._active.get(task_id) == self._process_id and not (
                role == STANDBY and (ACTIVE, *task_id) in self._own
            )
        return is_run or any(
            (self._process_id, (copy, *task_id)) in self._copies
            and (copy == role or (copy, *task_id) not in self._own)
            for copy in (STANDBY, WARMUP)
        )

    def __iter__(self) -> Any:
        raise TypeError("ask for single tasks")

    def __len__(self) -> int:
        raise TypeError("ask for single tasks")


def change_roles(step: Step, member: EpochMember[Task], target: Tasks, target_epoch: int) -> None:
    """Change the roles of copies in place: their state stays where it is (as Kafka since 4.4).

    An active task becomes a standby task while the member stops running it; a standby task becomes a warm-up task, or
    vice versa, immediately; a copy that is to become the active task keeps its role until then.
    """
    free = []
    for task in step.free:
        role, task_id = task[0], task[1:]
        former: Task = (WARMUP if role == STANDBY else STANDBY, *task_id)
        is_demoted = role == STANDBY and (ACTIVE, *task_id) in member.assigned
        if is_demoted or (role != ACTIVE and former in member.assigned):
            step.kept[task] = target_epoch
            step.revoking.pop(former, None)
        else:
            free.append(task)
    step.free = free
    promoted = [task for task in member.assigned if task[0] != ACTIVE and (ACTIVE, *task[1:]) in target]
    for task in promoted:
        step.revoking.pop(task, None)
    granted = frozenset() if step.has_to_revoke else frozenset(free)
    for task in promoted:
        if (ACTIVE, *task[1:]) not in granted:
            step.kept[task] = member.assigned[task]
