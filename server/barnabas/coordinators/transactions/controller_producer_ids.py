"""Producer ids in blocks of the controller (KIP-730).

The rule: the next block is requested before the current one is used up, so that few requests wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from barnabas.cluster.metadata.peers import PeerUnavailableError
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cluster.metadata.peers import Peers

log = logging.getLogger(__name__)

Block = tuple[int, int]
"""The first id, and the number of ids."""
PREFETCHED_AT = 0.9
"""Used share of a block at which the next one is requested (Kafka's constant)."""
PATIENCE_SECONDS = 0.5
"""Longest wait of a request for a block; its client then asks again."""
RETRY_SECONDS = 0.05
PRODUCER_ID_MAX = 2**63 - 1


class ControllerProducerIds:
    """Implements `ports.ProducerIds`.

    Lifecycle: `run` in a task, until cancelled; without it no block is requested.
    """

    def __init__(
        self,
        broker_id: int,
        own_epoch: Callable[[], int],
        peers: Peers,
        note_block: Callable[[], Awaitable[Block]],
    ) -> None:
        """`own_epoch` is the broker epoch of this broker's registration.

        `note_block` allocates a block without the controller, if that is too old for the request (before 3.0).
        """
        self._note_block = note_block
        self._broker_id = broker_id
        self._own_epoch = own_epoch
        self._peers = peers
        self._next = self._end = 0
        self._prefetch_at = -1
        self._following: Block | None = None
        self._wanted = trio.Event()
        self._arrived = trio.Event()

    async def next(self) -> int:
        """Return a new producer id. Raises COORDINATOR_LOAD_IN_PROGRESS if there is no block in time."""
        deadline = trio.current_time() + PATIENCE_SECONDS
        while (producer_id := self._claim()) is None:
            self._wanted.set()
            with trio.move_on_at(deadline) as scope:
                await self._arrived.wait()
            if scope.cancelled_caught:
                raise RequestError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    "the controller has given no block of producer ids yet",
                )
        return producer_id

    def _claim(self) -> int | None:
        """Return an id of the current or the next block; None if both are used up."""
        if self._next == self._end:
            if self._following is None:
                return None
            first, count = self._following
            self._following, self._arrived = None, trio.Event()
            self._next, self._end = first, first + count
            self._prefetch_at = first + int(count * PREFETCHED_AT)
        producer_id = self._next
        self._next += 1
        if producer_id == self._prefetch_at:
            self._wanted.set()
        return producer_id

    async def run(self) -> None:
        """Request blocks from the controller when they are needed, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            logged = ""
            while self._following is None:
                try:
                    self._following = await self._allocated()
                    self._arrived.set()
                except (PeerUnavailableError, RequestError, StorageError) as error:
                    if str(error) != logged:
                        logged = str(error)
                        log.warning(
                            "no block of producer ids; the controller is asked again until there is one: %s",
                            error,
                        )
                    await trio.sleep(RETRY_SECONDS)

    async def _allocated(self) -> Block:
        """Return the first id of a new block, and the number of ids.

        Raises PeerUnavailableError, RequestError, StorageError.
        """
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._own_epoch())
        try:
            response: AllocateProducerIdsResponse = await self._peers.ask_controller(request)
        except PeerUnavailableError as error:
            if not error.lacks_version:
                raise
            return await self._note_block()
        if response.error_code:
            raise RequestError(response.error_code, "the controller allocates no producer ids")
        first, count = response.producer_id_start, response.producer_id_len
        if first < self._end or count <= 0 or first > PRODUCER_ID_MAX - count:
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the controller's block of {count} producer ids from {first} cannot be: this broker has had {self._end}",
            )
        return first, count
