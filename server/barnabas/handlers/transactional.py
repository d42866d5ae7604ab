"""What is written in a transaction must be in one: the check before every transactional append (KIP-890).

The rule: a partition in which the producer's transaction is already open needs no check, since only its end marker
closes it. The others are asked about at the coordinator, or made part of the transaction when the client leaves that to
the broker; and what the coordinator said still holds at the moment of the append.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.topic_partitions import TopicPartition
from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.transactions import TransactionCoordinator
    from barnabas.replicas.manager import Replicas

_COORDINATOR_BUSY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
)


class Part(NamedTuple):
    """A partition that a producer is about to write to."""

    topic_partition: TopicPartition
    producer: Producer


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Lets what a request writes into its transaction.

    `implicit`: partitions that are not in the transaction are added, as the client expects; `abortable_known`: the
    client understands TRANSACTION_ABORTABLE.
    """

    transactional_id: str
    implicit: bool
    abortable_known: bool
    replicas: Replicas
    transaction_coordinator: TransactionCoordinator
    config: BrokerConfig

    async def admit(self, parts: Sequence[Part]) -> dict[TopicPartition, RequestError]:
        """See that the partitions are in the producer's transaction.

        Returns why not, by place. Between this and the append may be checkpoints if `refusal` is asked right before it.
        """
        unknown = [part for part in parts if not self._has_begun(part)]
        if not self._is_checked:
            return {}
        refused = {
            part.topic_partition: RequestError(
                ErrorCode.INVALID_PRODUCER_EPOCH, "the partition knows a higher epoch"
            )
            for part in unknown
            if self._is_older(part)
        }
        unknown = [part for part in unknown if part.topic_partition not in refused]
        if not self.transactional_id:
            nobody = RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
            return refused | {part.topic_partition: nobody for part in unknown}
        transactions = self.transaction_coordinator
        missing = self._missing()
        for producer in {part.producer for part in unknown}:
            topic_partitions = frozenset(
                part.topic_partition for part in unknown if part.producer == producer
            )
            try:
                if self.implicit:
                    await transactions.add_partitions(
                        self.transactional_id, producer, topic_partitions, client_version=2
                    )
                else:
                    known = await transactions.verify_partitions(self.transactional_id, producer)
                    refused.update((topic_partition, missing) for topic_partition in topic_partitions - known)
            except RequestError as error:
                refused.update(
                    (topic_partition, _as_answer(error, implicit=self.implicit))
                    for topic_partition in topic_partitions
                )
        for part in unknown:
            if part.topic_partition not in refused and not self._is_open(part):
                refused[part.topic_partition] = missing
        return refused

    def refusal(self, part: Part) -> RequestError | None:
        """Why a partition that was let in may not be appended to any more: the transaction has ended since."""
        if not self._is_checked or self._has_begun(part) or self._is_open(part):
            return None
        return self._missing()

    @property
    def _is_checked(self) -> bool:
        return self.implicit or self.config.get(settings.TRANSACTION_PARTITION_VERIFICATION_ENABLE)

    def _missing(self) -> RequestError:
        return RequestError(
            ErrorCode.TRANSACTION_ABORTABLE if self.abortable_known else ErrorCode.INVALID_TXN_STATE,
            f"the partition was not added to the transaction of {self.transactional_id!r}",
        )

    def _is_open(self, part: Part) -> bool:
        """Whether the coordinator has the partition in the producer's open transaction."""
        return self.transaction_coordinator.is_open(
            self.transactional_id, part.producer, frozenset({part.topic_partition})
        )

    def _is_older(self, part: Part) -> bool:
        """Whether the partition knows a higher epoch of the producer: then nobody else need be asked."""
        known = self.replicas.leader(*part.topic_partition).log.producers.get(part.producer.id)
        return known is not None and known.producer_epoch > part.producer.epoch

    def _has_begun(self, part: Part) -> bool:
        """Whether the producer's transaction has begun in the partition, and is not yet ended there."""
        try:
            partition = self.replicas.leader(*part.topic_partition)
        except RequestError:
            return True  # whoever appends finds out why
        known = partition.log.producers.get(part.producer.id)
        return (
            known is not None
            and known.current_txn_first_offset >= 0
            and known.producer_epoch == part.producer.epoch
        )


def _as_answer(error: RequestError, *, implicit: bool) -> RequestError:
    """What a producer is told of a coordinator's error: what it knows how to handle, as Kafka translates it."""
    if error.code == ErrorCode.PRODUCER_FENCED:
        return RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if error.code in _COORDINATOR_BUSY or (error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not implicit):
        return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be checked: {error}")
    return error
