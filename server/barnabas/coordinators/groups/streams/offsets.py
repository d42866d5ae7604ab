"""Offsets up to which members have restored the state of tasks, as reported (KIP-1071, KIP-1357). Pure.

The rule: offsets are only in memory. After a load of the group none is known until members report again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.coordinators.groups.streams.tasks import TaskId
from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.streams_group_heartbeat import StreamsGroupHeartbeatRequest

OFFSETS_MAX = 10_000
"""Largest number of tasks for which a member may report offsets; Kafka has no such bound."""


@dataclass(frozen=True, slots=True)
class TaskOffsets:
    """Sums of the offsets of the changelogs that a member has read for each task, and of their ends."""

    offsets: Mapping[TaskId, int] = field(default_factory=dict)
    ends: Mapping[TaskId, int] = field(default_factory=dict)

    def after_heartbeat(self, request: StreamsGroupHeartbeatRequest) -> TaskOffsets:
        """Return the offsets updated from a heartbeat; null leaves a field unchanged.

        Raises INVALID_REQUEST if a task is named twice.
        """
        reported, ends = request.task_offsets, request.task_end_offsets
        return TaskOffsets(
            self.offsets if reported is None else _by_task(reported),
            self.ends if ends is None else _by_task(ends),
        )


NO_OFFSETS = TaskOffsets()


def check_offsets(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST if there are offsets of too many tasks."""
    for entries in (request.task_offsets or (), request.task_end_offsets or ()):
        if len(entries) > OFFSETS_MAX:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"offsets of at most {OFFSETS_MAX} tasks are taken from a member"
            )


def _by_task(entries: Sequence[StreamsGroupHeartbeatRequest.TaskOffset]) -> dict[TaskId, int]:
    offsets = {(entry.subtopology_id, entry.partition): entry.offset for entry in entries}
    if len(offsets) < len(entries):
        raise RequestError(ErrorCode.INVALID_REQUEST, "the offset of a task comes twice")
    return offsets
