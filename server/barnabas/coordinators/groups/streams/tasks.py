"""Tasks of a topology, in the roles that a member can run them in. Pure.

A task is one partition's share of a subtopology. It has one active copy in the group, and at most one copy of any role
in a process, since the copies of a process share a state directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

ACTIVE, STANDBY, WARMUP = "active", "standby", "warmup"
ROLES = (ACTIVE, STANDBY, WARMUP)

TaskId = tuple[str, int]
"""Subtopology and partition."""
Task = tuple[str, str, int]
"""Role, subtopology and partition."""
Tasks = frozenset[Task]

NO_TASKS: Tasks = frozenset()


def of_role(role: str, tasks: Iterable[Task]) -> list[tuple[str, list[int]]]:
    """The tasks of a role as (subtopology, partitions), both in order."""
    partitions: dict[str, list[int]] = {}
    for other, subtopology, partition in sorted(tasks):
        if other == role:
            partitions.setdefault(subtopology, []).append(partition)
    return list(partitions.items())


def read_tasks(active: Iterable[Any], standby: Iterable[Any], warmup: Iterable[Any]) -> Tasks:
    """The tasks in three lists of any message's `TaskIds`."""
    return frozenset(
        (role, entry.subtopology_id, partition)
        for role, entries in zip(ROLES, (active, standby, warmup), strict=True)
        for entry in entries
        for partition in entry.partitions
    )


class TakenTasks(Collection[Task]):
    """Tasks that no member of a process may get now: active ones that any member runs, and those of which it has a copy.

    `active` maps tasks to the processes that run them, `copies` has (process, task) of every copy.
    """

    def __init__(
        self, active: Mapping[TaskId, str], copies: Collection[tuple[str, TaskId]], process_id: str
    ) -> None:
        self._active = active
        self._copies = copies
        self._process_id = process_id

    def __contains__(self, task: object) -> bool:
        if not isinstance(task, tuple):
            return False
        task_id = (task[1], task[2])
        return (task[0] == ACTIVE and task_id in self._active) or (self._process_id, task_id) in self._copies

    def __iter__(self) -> Any:
        raise TypeError("ask for single tasks")

    def __len__(self) -> int:
        raise TypeError("ask for single tasks")
