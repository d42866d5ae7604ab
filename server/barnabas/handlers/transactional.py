"""What is written in a transaction must be in one: the check before every transactional append (KIP-890).

The rule: a partition in which the producer's transaction is already open needs no check, since only its end marker
closes it. The others are asked about at the coordinator, or made part of the transaction when the client leaves that to
the broker; and what the coordinator said holds until an end marker comes to the partition, or its leader changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.config import broker as settings
from barnabas.errors import RequestError
from barnabas.log.producers import NO_OFFSET
from barnabas.topic_partitions import TopicPartition
from barnabas.transactions.transaction import Producer
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.coordination.ports import TransactionVerifier
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


@dataclass(slots=True, kw_only=True)
class Admission:
    """Lets what one request writes into its transaction.

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
    """What was known of the partition when its verification began: leader epoch, and offset of the last end marker."""

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
        self._admitted.update({part: self._seen(part) for part in unknown})
        for producer in {part.producer for part in unknown}:
            topic_partitions = frozenset(
                part.topic_partition for part in unknown if part.producer == producer
            )
            try:
                codes = await self.verifier.verify(
                    self.transactional_id, producer, topic_partitions, implicit=self.implicit
                )
                errors = {one: RequestError(code) for one, code in codes.items()}
            except RequestError as error:
                errors = dict.fromkeys(topic_partitions, error)
            refused.update((one, self._as_answer(error)) for one, error in errors.items())
        return refused

    def refusal(self, part: Part) -> RequestError | None:
        """Why a partition that was let in may not be appended to any more: a transaction has ended in it since."""
        if not self._is_checked or self._has_begun(part) or self._admitted.get(part) == self._seen(part):
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

    def _seen(self, part: Part) -> tuple[int, int]:
        """Return what changes when a transaction of the producer ends in the partition, or its leadership does."""
        replica = self.replicas.leader(*part.topic_partition)
        known = replica.log.producers.get(part.producer.id)
        return replica.leader_epoch, NO_OFFSET if known is None else known.marker_offset

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

    def _as_answer(self, error: RequestError) -> RequestError:
        """What a producer is told of a coordinator's error: what it knows how to handle, as Kafka translates it."""
        if error.code == ErrorCode.TRANSACTION_ABORTABLE:
            return self._missing()
        if error.code == ErrorCode.PRODUCER_FENCED:
            return RequestError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
        if error.code in _COORDINATOR_BUSY or (
            error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not self.implicit
        ):
            return RequestError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be checked: {error}")
        return error
