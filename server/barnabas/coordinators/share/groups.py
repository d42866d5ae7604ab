"""Share groups at both coordinators: the group coordinator has the members, the share coordinator the states.

The rule: the group coordinator writes a record before it asks the share coordinator, and another one after the answer.
An interrupted request is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from barnabas.coordinators.groups import share_states
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.shard import GroupShard
from barnabas.coordinators.groups.share.membership import Answer, Beginning, Heartbeat
from barnabas.coordinators.share.ports import ShareStatePort
from barnabas.coordinators.statemachine.context import EventContext
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Decision
from barnabas.errors import RequestError, detached
from barnabas.wire.generated.share_group_heartbeat import ShareGroupHeartbeatResponse
from barnabas.wire.topic_partitions import TopicIdPartition


class ShareGroups:
    """Operations that need both coordinators. `state_changed` is called for a group with a new or deleted state."""

    def __init__(
        self,
        groups: GroupCoordinator,
        state: ShareStatePort,
        now_ms: Callable[[], int],
        state_changed: Callable[[str], None],
    ) -> None:
        self._groups = groups
        self._state = state
        self._now_ms = now_ms
        self._state_changed = state_changed

    async def heartbeat(self, beat: Heartbeat, size: int = 0) -> ShareGroupHeartbeatResponse:
        """Handle a ShareGroupHeartbeat request, for topics with `size` partitions. Raises RequestError.

        The first member that is subscribed to a topic gets its partitions in this response, not at the next heartbeat; the
        group's epoch rises, and the assignment is written, at that next heartbeat as in Kafka.
        """
        answer = await self._beat(beat, size)
        if answer.beginning is None:
            return answer.response
        group_id = beat.request.group_id
        for error in (await self._begin(group_id, answer.beginning)).values():
            if error is not None:
                raise error
        member_id = beat.request.member_id
        ahead = await self._groups.write(
            group_id,
            lambda shard, _: shard.share_assignment_ahead(group_id, member_id),
            is_large=partial(_is_large, group_id, 0),
        )
        if ahead is not None:
            answer.response.assignment = ahead
        return answer.response

    async def _beat(self, beat: Heartbeat, size: int) -> Answer:
        now_ms, request = self._now_ms(), beat.request

        def is_large(shard: GroupShard) -> bool:
            says_more = request.member_epoch <= 0 or request.subscribed_topic_names is not None
            of_group = shard.event_size(request.group_id, request.member_id, says_more=says_more)
            return size + of_group > EVENT_SIZE_MAX

        return await self._groups.write(
            request.group_id, lambda shard, out: shard.share_heartbeat(beat, now_ms, out), is_large=is_large
        )

    async def _begin(
        self, group_id: str, beginning: Beginning
    ) -> dict[TopicIdPartition, RequestError | None]:
        """Initialize states, and record the result; returns the outcome for each partition."""
        results: dict[TopicIdPartition, RequestError | None] = {}
        for topic_partition, offset in beginning.offsets.items():
            results[topic_partition] = None
            try:
                await self._state.initialize((group_id, *topic_partition), beginning.state_epoch, offset)
            except RequestError as error:
                results[topic_partition] = detached(error)
        done = [topic_partition for topic_partition, error in results.items() if error is None]
        failed = [topic_partition for topic_partition, error in results.items() if error is not None]
        await self._groups.write(
            group_id,
            lambda shard, out: share_states.begun(shard, group_id, done, failed, out),
            is_large=partial(_is_large, group_id, len(results)),
        )
        return results

    # --- offsets --------------------------------------------------------------------------------------------

    async def check_alterable(self, group_id: str) -> None:
        """Check that the offsets of a group, if it exists, may be altered. Raises as `alter_offsets`."""
        await self._groups.read(group_id, lambda shard: share_states.check_alterable(shard, group_id))

    async def alter_offsets(
        self, group_id: str, offsets: dict[TopicIdPartition, int]
    ) -> dict[TopicIdPartition, RequestError | None]:
        """Alter the start offsets of a group without members; returns the outcome for each partition.

        Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        now_ms = self._now_ms()

        def event(shard: GroupShard, out: Decision) -> int:
            return share_states.begin(
                shard, group_id, offsets, EventContext(shard.metadata.image, now_ms, out)
            )

        is_large = partial(_is_large, group_id, len(offsets))
        state_epoch = await self._groups.write(group_id, event, is_large=is_large)
        results = await self._begin(group_id, Beginning(state_epoch, offsets))
        self._state_changed(group_id)
        return results

    async def delete_offsets(
        self, group_id: str, topic_ids: Iterable[bytes]
    ) -> dict[bytes, RequestError | None]:
        """Delete the states of topics in a group without members; returns the outcome for each topic with a state.

        Raises NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
        """
        deleted = frozenset(topic_ids)
        is_large = partial(_is_large, group_id, len(deleted))
        topic_partitions = await self._groups.write(
            group_id,
            lambda shard, out: share_states.being_deleted(shard, group_id, deleted, out),
            is_large=is_large,
        )
        results: dict[bytes, RequestError | None] = {}
        for topic_partition in sorted(topic_partitions):
            results.setdefault(topic_partition[0], None)
            try:
                await self._state.delete((group_id, *topic_partition))
            except RequestError as error:
                results[topic_partition[0]] = detached(error)
        done = frozenset(topic_id for topic_id, error in results.items() if error is None)
        await self._groups.write(
            group_id, lambda shard, out: share_states.deleted(shard, group_id, done, out), is_large=is_large
        )
        self._state_changed(group_id)
        return results

    async def delete_group(self, group_id: str) -> None:
        """Delete a group of any kind, with its offsets or its partitions' states. Raises RequestError."""
        topic_partitions = await self._groups.write(
            group_id,
            lambda shard, out: share_states.being_deleted(shard, group_id, None, out),
            is_large=partial(_is_large, group_id, 0),
        )
        for topic_partition in sorted(topic_partitions):
            await self._state.delete((group_id, *topic_partition))
        await self._groups.delete_group(group_id)
        self._state_changed(group_id)


def _is_large(group_id: str, asked: int, shard: GroupShard) -> bool:
    """Return whether an event about the states of a group visits very many of them."""
    return asked + shard.share_state_size(group_id) > EVENT_SIZE_MAX
