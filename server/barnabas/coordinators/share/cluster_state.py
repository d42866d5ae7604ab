"""The state of share partitions at their coordinator, on any broker (KIP-932).

The rule: if a coordinator has moved, is loading, does not know a topic or cannot be reached, it is looked up and asked
again a few times; requests may be repeated, as epochs fence outdated ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from barnabas.cluster.metadata.internal_topics import SHARE_TOPIC
from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.coordinators.share.attempts import PAUSES
from barnabas.coordinators.share.batches import StateBatch
from barnabas.coordinators.share.coordinator import name_of
from barnabas.coordinators.share.records import UNKNOWN_OFFSET, ShareState, StateKey
from barnabas.errors import RequestError
from barnabas.wire.generated.delete_share_group_state import DeleteShareGroupStateRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.initialize_share_group_state import InitializeShareGroupStateRequest
from barnabas.wire.generated.read_share_group_state import ReadShareGroupStateRequest
from barnabas.wire.generated.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
from barnabas.wire.generated.write_share_group_state import WriteShareGroupStateRequest

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers
    from barnabas.cluster.metadata.store import MetadataStore
    from barnabas.coordinators.share.coordinator import ShareStateCoordinator
    from barnabas.coordinators.share.state import StateWrite

CHANNEL = "share-state"
_TRANSIENT = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
"""Errors after which Kafka's brokers retry (PersisterStateManager). A coordinator may not know a new topic yet."""

R = TypeVar("R")


class ClusterShareState:
    """Implements `ports.ShareStatePort`."""

    def __init__(
        self,
        metadata: MetadataStore,
        broker_id: int,
        *,
        local: ShareStateCoordinator,
        peers: Peers,
        timeout_ms: int,
    ) -> None:
        """`timeout_ms` is the timeout of requests to other brokers."""
        self._metadata = metadata
        self._broker_id = broker_id
        self._local = local
        self._peers = peers
        self._timeout_s = timeout_ms / 1000

    async def initialize(self, key: StateKey, state_epoch: int, start_offset: int) -> None:
        """Initialize a state. Raises RequestError."""
        request = InitializeShareGroupStateRequest
        asked = request.PartitionData(partition=key[2], state_epoch=state_epoch, start_offset=start_offset)
        topics = [request.InitializeStateData(topic_id=key[1], partitions=[asked])]
        await self._ask(
            key,
            lambda: self._local.initialize(key, state_epoch, start_offset),
            request(group_id=key[0], topics=topics),
            lambda _: None,
        )

    async def read_state(self, key: StateKey, leader_epoch: int) -> ShareState:
        """Return the state, for a new leader of the partition. Raises RequestError."""
        request = ReadShareGroupStateRequest
        asked = request.PartitionData(partition=key[2], leader_epoch=leader_epoch)
        topics = [request.ReadStateData(topic_id=key[1], partitions=[asked])]

        def state(result: Any) -> ShareState:
            return ShareState(
                state_epoch=result.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=result.start_offset,
                batches=_batches(result.state_batches),
            )

        return await self._ask(
            key,
            lambda: self._local.read_state(key, leader_epoch),
            request(group_id=key[0], topics=topics),
            state,
        )

    async def write_state(self, key: StateKey, write: StateWrite) -> None:
        """Write the states of records. Raises RequestError."""
        request = WriteShareGroupStateRequest
        asked = request.PartitionData(
            partition=key[2],
            state_epoch=write.state_epoch,
            leader_epoch=write.leader_epoch,
            start_offset=write.start_offset,
            delivery_complete_count=write.complete_count,
            state_batches=[request.StateBatch(*batch) for batch in write.batches],
        )
        topics = [request.WriteStateData(topic_id=key[1], partitions=[asked])]
        await self._ask(
            key,
            lambda: self._local.write_state(key, write),
            request(group_id=key[0], topics=topics),
            lambda _: None,
        )

    async def summary(self, key: StateKey) -> ShareState | None:
        """Return the state without its batches, None if it does not exist. Raises RequestError."""
        request = ReadShareGroupStateSummaryRequest
        asked = request.PartitionData(partition=key[2])
        topics = [request.ReadStateSummaryData(topic_id=key[1], partitions=[asked])]

        def state(result: Any) -> ShareState | None:
            if result.start_offset == UNKNOWN_OFFSET and not result.state_epoch:
                return None
            return ShareState(
                state_epoch=result.state_epoch,
                leader_epoch=result.leader_epoch,
                start_offset=result.start_offset,
                complete_count=result.delivery_complete_count,
            )

        return await self._ask(
            key, lambda: self._local.summary(key), request(group_id=key[0], topics=topics), state
        )

    async def delete(self, key: StateKey) -> None:
        """Delete a state. Raises RequestError."""
        request = DeleteShareGroupStateRequest
        topics = [
            request.DeleteStateData(topic_id=key[1], partitions=[request.PartitionData(partition=key[2])])
        ]
        await self._ask(
            key,
            lambda: self._local.delete(key),
            request(group_id=key[0], topics=topics),
            lambda _: None,
        )

    # --- requests -------------------------------------------------------------------------------------------

    async def _ask(
        self, key: StateKey, here: Callable[[], Awaitable[R]], request: Any, result_of: Callable[[Any], R]
    ) -> R:
        """Ask the coordinator; repeat while it moves. Raises RequestError."""
        for pause in PAUSES:
            await trio.sleep(pause)
            try:
                coordinator = await self._coordinator(key)
                if coordinator == self._broker_id:
                    return await here()
                return result_of(await self._answer(coordinator, request))
            except RequestError as error:
                if error.code not in _TRANSIENT or pause == PAUSES[-1]:
                    raise
        raise AssertionError("the last attempt returns or raises")

    async def _coordinator(self, key: StateKey) -> int:
        """Return the broker that keeps the state. Raises COORDINATOR_NOT_AVAILABLE."""
        partition = await self._local.partition_of(name_of(key))
        image = self._metadata.image
        info = image.partition(SHARE_TOPIC, partition)
        if info is None or info.leader not in image.brokers:
            raise RequestError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_TOPIC}-{partition} has no leader now"
            )
        return info.leader

    async def _answer(self, broker_id: int, request: Any) -> Any:
        """Return the result for the only partition of a request to another broker. Raises RequestError."""
        try:
            response = await self._peers.ask(broker_id, request, timeout_s=self._timeout_s, channel=CHANNEL)
        except PeerUnavailableError as error:
            if error.lacks_version:
                raise RequestError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
        results = [result for topic in response.results for result in topic.partitions]
        if len(results) != 1:
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"broker {broker_id} does not answer what was asked"
            )
        (result,) = results
        if result.error_code:
            raise RequestError(result.error_code, result.error_message or "")
        return result


def _batches(batches: Sequence[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count)
        for batch in batches
    )
