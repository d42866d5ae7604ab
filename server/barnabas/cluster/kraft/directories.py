"""Reports of the log dirs of this broker's replicas to the controller (AssignReplicasToDirs, KIP-858).

With one log dir, the controller assigns it itself. With several, a new replica is unassigned: this broker chooses the
dir of its log and reports it; until then the controller cannot tell that the failure of that dir affects the replica.

The rule: the assignment is the dir of the log. A difference is reported until the image shows it, one request at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.wire.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.kraft.store import QuorumStore
    from barnabas.cluster.metadata.image import Delta
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.serving.loop_budget import LoopBudget

log = logging.getLogger(__name__)

ASSIGNMENTS_PER_REQUEST: Final = 2_250
"""Kafka's limit, which keeps a request below 64 KiB."""
BACKOFF_SECONDS_MIN, BACKOFF_SECONDS_MAX = 0.1, 10.0
CHANNEL = "directory-assignments"

Assigned = tuple[bytes, int]
"""Id of a topic, and number of a partition."""


class DirectoryAssignments:
    """Reports log dirs to the controller. Lifecycle: subscribed to the store, `run` in a task until cancelled."""

    def __init__(
        self,
        broker_id: int,
        store: QuorumStore,
        controllers: Peers,
        broker_epoch: Callable[[], int],
        directory_of: Callable[[str, int], bytes | None],
        budget: LoopBudget,
    ) -> None:
        """`directory_of` returns the id of the log dir of a partition's log, None if it has no log."""
        self._broker_id = broker_id
        self._store = store
        self._controllers = controllers
        self._broker_epoch = broker_epoch
        self._directory_of = directory_of
        self._budget = budget
        self._waiting: dict[Assigned, bytes] = {}
        self._wake = trio.Event()

    # --- following the image --------------------------------------------------------------------------------

    async def prepare(self, delta: Delta) -> None:
        """Do nothing."""

    def publish(self, delta: Delta) -> None:
        """Do nothing: logs are in place once the image is cleaned up."""

    async def clean_up(self, delta: Delta) -> None:
        """Compare the log dirs of replicas that the change affects."""
        for name in delta.topics:
            await self._compare_topic(name)

    async def _compare_topic(self, name: str) -> None:
        topic = self._store.image.topics.get(name)
        for index in range(len(topic.partitions)) if topic is not None else ():
            self.compare(name, index)
            await self._budget.checkpoint()

    def compare(self, topic: str, index: int) -> None:
        """Queue a report of a replica's log dir if the image has another."""
        info, topic_id = self._store.image.partition(topic, index), self._store.image.topic_id(topic)
        if info is None or topic_id is None or self._broker_id not in info.replicas or not info.directories:
            return
        assigned = info.directories[info.replicas.index(self._broker_id)]
        actual = self._directory_of(topic, index)
        if actual is None:
            return  # a log in a failed dir is reported all the same: its leader moves once the controller knows the dir
        if actual == assigned:
            self._waiting.pop((topic_id, index), None)
        else:
            self._waiting[topic_id, index] = actual
            self._wake.set()

    # --- reports --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Compare all replicas, then send reports until cancelled."""
        for name in tuple(self._store.image.topics):
            await self._compare_topic(name)
        backoff_s = BACKOFF_SECONDS_MIN
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            while self._waiting:
                if self._broker_epoch() < 0:  # not registered yet
                    await trio.sleep(BACKOFF_SECONDS_MIN)
                    continue
                told = dict(list(self._waiting.items())[:ASSIGNMENTS_PER_REQUEST])
                if await self._tell(told):
                    backoff_s = BACKOFF_SECONDS_MIN
                else:
                    await trio.sleep(backoff_s)
                    backoff_s = min(backoff_s * 2, BACKOFF_SECONDS_MAX)

    async def _tell(self, assignments: Mapping[Assigned, bytes]) -> bool:
        """Send one request; returns whether any assignment was accepted."""
        request = _request(self._broker_id, self._broker_epoch(), assignments)
        try:
            response = await self._controllers.ask_controller(request, channel=CHANNEL)
        except PeerUnavailableError as error:
            log.warning("log dirs of %d replicas are not assigned: %s", len(assignments), error)
            return False
        if response.error_code:
            log.warning(
                "the controller refuses the log dirs of %d replicas: error %d",
                len(assignments),
                response.error_code,
            )
            return False
        settled = 0
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = (topic.topic_id, partition.partition_index)
                    if not partition.error_code and self._waiting.get(key) == directory.id:
                        del self._waiting[key]
                        settled += 1
                    elif partition.error_code in _GONE:
                        self._waiting.pop(key, None)
        return settled > 0


def _request(
    broker_id: int, broker_epoch: int, assignments: Mapping[Assigned, bytes]
) -> AssignReplicasToDirsRequest:
    """Return a request with the assignments by dir and topic."""
    directories: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, index), directory in assignments.items():
        directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    return AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        directories=[
            AssignReplicasToDirsRequest.DirectoryData(
                id=directory,
                topics=[
                    AssignReplicasToDirsRequest.TopicData(
                        topic_id=topic_id,
                        partitions=[AssignReplicasToDirsRequest.PartitionData(index) for index in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in directories.items()
        ],
    )


_GONE = frozenset(
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_ID)
)
