"""Share groups of a broker: the coordinator of their state, the share partitions, the sessions.

The rule: created with the first request for a share group, and then kept as long as the broker runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from barnabas.config import broker as settings
from barnabas.coordinators.share.coordinator import ShareStateCoordinator
from barnabas.coordinators.share.counts import ShareCounts
from barnabas.coordinators.share.groups import ShareGroups
from barnabas.coordinators.share.partitions import SharePartitions
from barnabas.coordinators.share.sessions import SessionKey, ShareSession, ShareSessions
from barnabas.coordinators.share.settings import ShareSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.runtime.journal import Journal
    from barnabas.coordinators.share.dead_letter_queue import DeadLetterQueues
    from barnabas.coordinators.share.ports import HighWatermarks, ShareStatePort
    from barnabas.serving.loop_budget import LoopBudget
    from barnabas.serving.step_runner import StepRunner


class Shares:
    """Lifecycle: `run` in a task, until cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        journal: Journal,
        *,
        groups: GroupCoordinator,
        metadata: MetadataStore,
        replicas: Replicas,
        budget: LoopBudget,
        step_runner: StepRunner,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        elsewhere: Callable[[ShareStateCoordinator], ShareStatePort] | None,
        high_watermarks: HighWatermarks,
        queues: DeadLetterQueues | None = None,
        counts: ShareCounts | None = None,
    ) -> None:
        """`journal` is that of __share_group_state; `elsewhere` wraps the local state coordinator with access to other
        brokers.

        `queues` are the dead letter queues of groups that have them.
        """
        get = config.get
        self.counts = ShareCounts() if counts is None else counts
        self.state = ShareStateCoordinator(
            journal,
            now_ms,
            lambda: metadata.image,
            steady_ms=steady_ms,
            updates_max=get(settings.SHARE_COORDINATOR_SNAPSHOT_UPDATE_RECORDS_PER_SNAPSHOT),
            write_timeout_ms=get(settings.SHARE_COORDINATOR_WRITE_TIMEOUT_MS),
            checkpoint=budget.checkpoint,
            counts=self.counts,
        )
        self.state_port: ShareStatePort = self.state if elsewhere is None else elsewhere(self.state)
        """The states of all share partitions on any broker; `state` has those that this broker coordinates."""
        self.high_watermarks = high_watermarks
        self.sessions = ShareSessions(get(settings.GROUP_SHARE_MAX_SHARE_SESSIONS))
        self.partitions = SharePartitions(
            metadata,
            replicas,
            self.state_port,
            step_runner,
            now_ms,
            steady_ms,
            ShareSettings(
                record_lock_ms=get(settings.GROUP_SHARE_RECORD_LOCK_DURATION_MS),
                deliveries_max=get(settings.GROUP_SHARE_DELIVERY_COUNT_LIMIT),
                records_in_flight_max=get(settings.GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS),
            ),
            queues,
            self.counts,
        )
        self._nursery: trio.Nursery | None = None
        self._prune_seconds = get(settings.SHARE_COORDINATOR_STATE_TOPIC_PRUNE_INTERVAL_MS) / 1000
        self.groups = ShareGroups(groups, self.state_port, now_ms, self.partitions.forget_group)

    async def run(self) -> None:
        """Expire locks and prune redundant records, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                nursery.start_soon(self.state.run)
                nursery.start_soon(self.partitions.run)
                while True:
                    await trio.sleep(self._prune_seconds)
                    await self.state.prune()
            finally:
                self._nursery = None

    def unload(self) -> None:
        """Drop the states that were read, as __share_group_state was deleted."""
        self.state.unload()
        self.partitions.unload()

    def connection_closed(self, connection_id: int) -> None:
        """End the sessions that began on a connection; their records are released in the background.

        Connections that close while the broker ends release nothing: the end of the broker frees all acquired records.
        """
        for session in self.sessions.of_connection(connection_id):
            self.sessions.close(session.key)
            if self._nursery is not None:
                self._nursery.start_soon(self._release, session)

    async def end_session(self, key: SessionKey) -> None:
        """End a session, if it exists, and release its member's acquired records."""
        session = self.sessions.close(key)
        if session is not None:
            await self._release(session)

    async def _release(self, session: ShareSession) -> None:
        await self.partitions.release(*session.key, session.topic_partitions)
        group_id = session.key[0]
        if not self.sessions.has_any(group_id):  # the broker ends: the persisted state is sufficient
            self.partitions.forget_group(group_id)
