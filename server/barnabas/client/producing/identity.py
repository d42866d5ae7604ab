"""Identity of an idempotent producer: its id, and its epoch, which grows where sequences restart.

The rule: the epoch of a producer without transactions is its own to raise (KIP-360); a new id is asked for only at the
start and when the epochs are used up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.client.client import Client
from barnabas.client.errors import ClientError, check
from barnabas.client.producing.outbox import NO_PRODUCER, Outbox, Producer
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from barnabas.client.producing.settings import ProducerSettings

EPOCH_MAX = (1 << 15) - 1
INIT_PRODUCER_ID_VERSION_MAX = 5


class Identity:
    """Identity of a producer without transactions. `run` is a task of the producer."""

    is_transactional = False
    is_aborting = False
    """True if unsent records are to be dropped."""
    is_v2 = False
    """True if transactions are those of KIP-890."""

    def __init__(self, client: Client, settings: ProducerSettings, wake: Callable[[], None]) -> None:
        self.producer: Producer | None = NO_PRODUCER if settings.is_idempotent else None
        """Id and epoch; None if the producer is not idempotent."""
        self.failure: ClientError | None = None
        """Reason why the producer can no longer send; None if it can."""
        self._client = client
        self._settings = settings
        self._wake = wake
        self._needed = trio.Event()
        self._refused: list[Outbox] = []

    async def run(self) -> None:
        """Get a producer id whenever one is needed."""
        if self.producer is None:
            return
        while True:
            await self._needed.wait()
            self._needed = trio.Event()
            if self.producer != NO_PRODUCER:
                continue  # a new id was requested again while the answer was in flight
            try:
                self.producer = await self._new_producer()
            except ClientError as error:
                if error.is_retriable:
                    self._needed.set()  # batches that wait for it end by themselves
                    continue
                self.failure = error
            else:
                self._restart_refused(self.producer)
            self._wake()

    async def _new_producer(self) -> Producer:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)

        async def attempt() -> Producer:
            connection = await self._client.any_connection()
            response = await connection.ask(request, version_max=INIT_PRODUCER_ID_VERSION_MAX)
            check(response.error_code, "asking for a producer id")
            return response.producer_id, response.producer_epoch

        return await self._client.retrying(attempt)

    def current(self) -> Producer | None:
        """Return the producer to send with, in a new epoch where sequences were refused; None if it is not idempotent."""
        if self.producer is None:
            return None
        producer_id, epoch = self.producer
        if producer_id < 0:
            self._needed.set()
        elif self._refused:
            if epoch == EPOCH_MAX:
                self.producer = NO_PRODUCER
                self._needed.set()
            else:
                self.producer = producer_id, epoch + 1
                self._restart_refused(self.producer)
        return self.producer

    def _restart_refused(self, producer: Producer) -> None:
        for outbox in self._refused:
            outbox.restart(producer)
        self._refused.clear()

    def may_send(self, outbox: Outbox) -> bool:
        """Return whether the producer may send to a partition now; if not, wake the sender once it may."""
        return self.failure is None and self.producer != NO_PRODUCER and outbox not in self._refused

    def has_sent(self) -> None:
        """Note that a batch was sent."""

    def refuse_sequences(self, outbox: Outbox) -> None:
        """Note that the sequences of a partition lead nowhere."""
        if outbox not in self._refused:
            self._refused.append(outbox)
        self._wake()

    def has_failed(self, error: ClientError) -> None:
        """Note that a batch has failed."""
