"""The group coordinator, as the handlers see it: shards of groups over the partitions of __consumer_offsets.

The modules of groups are imported at the first request for a group: a broker without groups starts faster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from barnabas.cluster.metadata.image import ImageSource
from barnabas.coordinators.groups.settings import GroupSettings
from barnabas.coordinators.runtime.journal import Journal
from barnabas.coordinators.runtime.refused import refuse
from barnabas.coordinators.runtime.runtime import Runtime
from barnabas.coordinators.runtime.shard import Checkpoint, no_checkpoint
from barnabas.coordinators.statemachine.decision import EVENT_SIZE_MAX, Entry, slices
from barnabas.environment.lazy import import_modules
from barnabas.errors import PeerError, RequestError

if TYPE_CHECKING:
    from barnabas.coordinators.groups.generation import RecordNeeded
    from barnabas.coordinators.groups.shard import AnyTarget, GroupShard
    from barnabas.coordinators.runtime.shard import Shard
    from barnabas.environment import Threads

log = logging.getLogger(__name__)

T = TypeVar("T")

TARGETS_PER_EVENT: Final = 50
"""Members of a large assignment written in one batch: a millisecond."""
TARGETS_COMPARED_PER_EVENT: Final = 1_000
"""Members compared with the written target in one event: less than a millisecond."""


class GroupCoordinator(Runtime["GroupShard"]):
    """Facade for the handlers; lifecycle as in `Runtime`."""

    def __init__(
        self,
        journal: Journal,
        settings: GroupSettings,
        now_ms: Callable[[], int],
        metadata: ImageSource,
        *,
        steady_ms: Callable[[], int] | None = None,
        checkpoint: Checkpoint = no_checkpoint,
        threads: Threads | None = None,
    ) -> None:
        def make() -> GroupShard:
            from barnabas.coordinators.groups.shard import GroupShard

            return GroupShard(settings, metadata)

        super().__init__(
            journal,
            make,
            now_ms,
            steady_ms=steady_ms,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            checkpoint=checkpoint,
            prepare=self._import_groups,
            threads=threads,
            is_large_timer=_is_large_timer,
        )
        self.settings = settings

    async def load_all(self) -> None:
        """Load every partition with records that this broker leads."""
        if self._journal.partition_count():
            await self.prepare()
        await super().load_all()

    async def _import_groups(self) -> None:
        """Import the modules of groups in a thread: it takes tenths of a second."""
        if self._threads is not None:
            await self._threads.run(_import_groups)

    def _replay(self, partition: int, machine: GroupShard, entry: Entry, *, loading: bool) -> None:
        if entry.committed is not None:
            machine.transaction_ended(entry.producer_id, committed=entry.committed, loading=loading)
            return
        decoded = entry.decoded
        for index, (key, value) in enumerate(entry.records):
            record = decoded.get(index) if decoded else None
            if record is not None:
                machine.replay_decoded(record, entry.producer_id)
                continue
            try:
                machine.replay(key, value, loading=loading, producer_id=entry.producer_id)
            except PeerError as error:
                refuse(self._journal.topic, partition, entry, index, error)

    def transaction_ended(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Note the marker of a producer's transaction, which has been appended to this partition."""
        shard = self._shards.get(partition)
        if shard is None or not shard.is_active:
            return  # the marker is found when the partition is read
        end = partial(shard.machine.transaction_ended, producer_id, committed=committed)
        if shard.is_held:
            shard.after_hold.append(end)
        else:
            end()

    async def take_effect(self, effect: AnyTarget | RecordNeeded, shard: Shard[GroupShard]) -> None:
        """Run a long computation in a thread, and write its result to the group."""
        from barnabas.coordinators.groups.generation import RecordNeeded

        if isinstance(effect, RecordNeeded):
            await self._keep_generation(effect, shard)
        else:
            await self._compute_target(effect, shard)

    async def _keep_generation(self, needed: RecordNeeded, shard: Shard[GroupShard]) -> None:
        """Encode and append the record of a large classic group, then send its members their assignments."""
        code = 0
        try:
            record = await self._aside(needed.compute)
            if not await self.write_on(
                shard, lambda machine, out: machine.keep_generation(needed, record, out)
            ):
                return
        except RequestError as error:
            log.warning("the assignment of group %r cannot be written: %s", needed.group_id, error)
            code = error.code
        try:
            await self.write_on(
                shard, lambda machine, out: machine.generation_kept(needed, code, self._now_ms(), out)
            )
        except RequestError as error:
            log.warning("the assignment of group %r is not known to its members: %s", needed.group_id, error)

    async def _aside(self, work: Callable[[], T]) -> T:
        return await self._threads.run(work) if self._threads is not None else work()

    async def _compute_target(self, effect: AnyTarget, shard: Shard[GroupShard]) -> None:
        target: Mapping[str, frozenset[Any]] | None = None
        compute: Callable[[], Mapping[str, frozenset[Any]]] = effect.compute
        try:
            target = await self._aside(compute)
        except Exception:
            log.exception("the assignment of group %r cannot be computed", effect.group_id)
        try:
            parts = list((target or {}).items())
            # twice, as the last event compares everything: all must be known to be written by then
            for part in (*slices(parts, TARGETS_PER_EVENT), *slices(parts, TARGETS_COMPARED_PER_EVENT)):
                if not await self.write_on(
                    shard,
                    lambda machine, out, part=part: machine.write_part_of_target(  # type: ignore[misc]
                        effect, part, self._now_ms(), out
                    ),
                    is_large=partial(_is_large_part, part),
                ):
                    break
                await self._checkpoint()
            await self.write_on(
                shard, lambda machine, out: machine.target_computed(effect, target, self._now_ms(), out)
            )
        except RequestError as error:
            log.warning("the assignment of group %r is not written: %s", effect.group_id, error)

    async def expire_offsets(self) -> None:
        """Remove expired offsets, and groups that have become empty."""
        from barnabas.coordinators.groups.expiry import expiring

        now_ms = self._now_ms()
        await self.write_all(lambda shard: expiring(shard, now_ms))

    async def forget_topics(self, names: frozenset[str], ids: frozenset[bytes], deleted_ms: int) -> None:
        """Remove the offsets that were committed in deleted topics until their deletion, and the topics in share groups."""
        if not self._journal.partition_count():
            return
        await self.prepare()
        from barnabas.coordinators.groups.expiry import forgetting_topics
        from barnabas.coordinators.groups.share_states import forgetting_topics as forgetting_states

        await self.write_all(lambda shard: forgetting_topics(shard, names, deleted_ms))
        await self.write_all(lambda shard: forgetting_states(shard, ids))

    async def delete_group(self, group_id: str) -> None:
        """Delete a group without members, with its offsets. Raises GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.

        Many offsets are deleted in several batches, as in Kafka: after a failure the rest remains.
        """
        while await self.write(
            group_id,
            lambda shard, out: shard.delete_group(group_id, out),
            is_large=lambda shard: shard.share_state_size(group_id) > EVENT_SIZE_MAX,
        ):
            pass


def _is_large_timer(machine: GroupShard, key: Hashable) -> bool:
    """Return whether a timer removes a member that has very many partitions."""
    assert isinstance(key, tuple)
    return len(key) > 2 and machine.event_size(key[1], key[2]) > EVENT_SIZE_MAX


def _is_large_part(part: Sequence[tuple[str, frozenset[Any]]], machine: GroupShard) -> bool:  # noqa: ARG001
    """Return whether the parts of these members have very many partitions together."""
    return sum([len(assigned) for _, assigned in part]) > EVENT_SIZE_MAX


def _import_groups() -> None:
    java = ("encodings.utf_16_be", "encodings.utf_16_le")  # Java counts and hashes these units
    ours = (
        "barnabas.coordinators.runtime.entries",
        "barnabas.coordinators.groups.shard",
        "barnabas.coordinators.groups.expiry",
        "barnabas.coordinators.groups.share_states",
    )
    import_modules(*java, *ours)
