"""The check before every transactional append that it is part of a transaction (KIP-890).

The rule: a partition in which the producer's transaction is already open needs no check, since only its end marker closes
it. The others are verified at the coordinator, or added to the transaction if the client leaves that to the broker. The
coordinator's answer holds until this transaction's end marker arrives at the partition:

- Version 2 of transactions raises the epoch at each end, so that the marker has a higher epoch than the batches it
  ends. A marker of the batch's own epoch is the end of the previous transaction: it may arrive while the coordinator, which
  waits for it, is being asked.
- In version 1 the epoch stays. Clients add their partitions first, which they can do once the previous transaction is
  ended everywhere, so any marker that arrives after the request ends the transaction of the request.

A batch that arrives before the answer is noted in the partition by its first sequence number: while that batch is awaited
again, as the coordinator was unavailable or too few replicas were in sync, no later batch is appended in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.coordinators.transactions.transaction import Producer
from barnabas.errors import RequestError
from barnabas.log.producers import NO_OFFSET
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.topic_partitions import TopicPartition

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordinators.transactions.ports import TransactionVerifier

_COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)


NO_SEQUENCES: Mapping[TopicPartition, int] = MappingProxyType({})


class Part(NamedTuple):
    """A partition that a producer is about to write to."""

    topic_partition: TopicPartition
    producer: Producer


@dataclass(slots=True, kw_only=True)
class Admission:
    """Admits the records of one request to their transaction.

    `implicit`: partitions that are not in the transaction are added, as the client expects; `abortable_known`: the
    client understands TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    implicit: bool
    abortable_known: bool
    replicas: Replicas
    verifier: TransactionVerifier
    config: BrokerConfig
    _admitted: dict[Part, tuple[int, int]] = field(default_factory=dict)
    """State of a partition before the coordinator was asked: leader epoch, offset of the last end marker."""

    async def admit(
        self,
        parts: Sequence[Part],
        sequences: Mapping[TopicPartition, int] = NO_SEQUENCES,
        *,
        now_ms: int = 0,
    ) -> dict[TopicPartition, RequestError]:
        """Check that the partitions are in the producer's transaction.

        `sequences` are the first sequence numbers of the batches. Returns the refusals, by place. Between this and the
        append may be checkpoints if `refusal` is asked right before it.
        """
        unknown = [part for part in parts if not self._has_begun(part)]
        if not self._is_checked:
            return {}
        refused = {part.topic_partition: _older() for part in unknown if self._is_older(part)}
        unknown = [part for part in unknown if part.topic_partition not in refused]
        for part in unknown:
            if part.topic_partition in sequences:
                self.replicas.leader(*part.topic_partition).log.producers.expect(
                    *part.producer, sequences[part.topic_partition], from_zero=self.implicit, now_ms=now_ms
                )
        if not self.transactional_id:
            no_id = RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
            return refused | {part.topic_partition: no_id for part in unknown}
        self._admitted.update({part: self._seen(part) for part in unknown})
        for producer in {part.producer for part in unknown}:
            topic_partitions = frozenset(
                part.topic_partition for part in unknown if part.producer == producer
            )
            try:
                codes = await self.verifier.verify(
                    self.transactional_id, producer, topic_partitions, implicit=self.implicit
                )
                errors = {partition: RequestError(code) for partition, code in codes.items()}
            except RequestError as error:
                errors = dict.fromkeys(topic_partitions, error)
            refused.update((partition, self._as_answer(error)) for partition, error in errors.items())
        return refused

    def refusal(self, part: Part) -> RequestError | None:
        """Return the error if an admitted partition's transaction has ended since; else None."""
        if not self._is_checked or self._has_begun(part):
            return None
        admitted = self._admitted.get(part)
        if self.implicit and admitted is not None:
            return _older() if self._is_older(part) else None
        return None if admitted == self._seen(part) else self._missing()

    @property
    def _is_checked(self) -> bool:
        return self.implicit or self.config.get(settings.TRANSACTION_PARTITION_VERIFICATION_ENABLE)

    def _missing(self) -> RequestError:
        return RequestError(
            ErrorCode.TRANSACTION_ABORTABLE if self.abortable_known else ErrorCode.INVALID_TXN_STATE,
            f"the partition was not added to the transaction of {self.transactional_id!r}",
        )

    def _seen(self, part: Part) -> tuple[int, int]:
        """Return a value that changes when a transaction of the producer ends in the partition, or its leadership does."""
        replica = self.replicas.leader(*part.topic_partition)
        state = replica.log.producers.get(part.producer.id)
        return replica.leader_epoch, NO_OFFSET if state is None else state.marker_offset

    def _is_older(self, part: Part) -> bool:
        """Return whether the partition has a higher epoch of the producer: then the coordinator need not be asked."""
        state = self.replicas.leader(*part.topic_partition).log.producers.get(part.producer.id)
        return state is not None and state.producer_epoch > part.producer.epoch

    def _has_begun(self, part: Part) -> bool:
        """Return whether the producer's transaction has begun in the partition, and is not yet ended there."""
        try:
            partition = self.replicas.leader(*part.topic_partition)
        except RequestError:
            return True  # appending reports why
        state = partition.log.producers.get(part.producer.id)
        return (
            state is not None
            and state.current_txn_first_offset >= 0
            and state.producer_epoch == part.producer.epoch
        )

    def _as_answer(self, error: RequestError) -> RequestError:
        """Translate a coordinator's error, as Kafka does, into one that the producer knows how to handle."""
        if error.code == ErrorCode.TRANSACTION_ABORTABLE:
            return self._missing()
        if error.code == ErrorCode.PRODUCER_FENCED:
            return RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
        if error.code in _COORDINATOR_BUSY or (
            error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not self.implicit
        ):
            return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be checked: {error}")
        return error


def _older() -> RequestError:
    return RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, "the partition knows a higher epoch")
