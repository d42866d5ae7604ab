"""Answers of partitions to which a produce request appends nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.records.errors import NotOneBatchError
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.produce import ProduceResponse

if TYPE_CHECKING:
    from barnabas.cluster.replicas.manager import Replicas
    from barnabas.errors import RequestError
    from barnabas.serving.context import RequestContext

log = logging.getLogger(__name__)

PartitionResponse = ProduceResponse.PartitionProduceResponse
NO_LEADER: Final = ProduceResponse.LeaderIdAndEpoch()
NO_RECORD_ERRORS: Final[list[ProduceResponse.BatchIndexAndErrorMessage]] = []
"""Values that most answers have; shared, so they are replaced, never changed."""

_TELLS_LOG_START: Final = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    )
)
"""Error codes of a leader after it has read the records: with these, Kafka's response has the log start offset."""


class Refusals:
    """Builds the responses of partitions to which nothing was appended.

    `has_moved`: whether another broker leads one of them.
    """

    __slots__ = ("_context", "_replicas", "has_moved")

    def __init__(self, context: RequestContext, replicas: Replicas) -> None:
        self._context = context
        self._replicas = replicas
        self.has_moved = False

    def note(self, error: RequestError) -> None:
        """Remember why a partition is refused."""
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.has_moved = True

    def response(
        self, topic: str, index: int, error: RequestError, *, by_coordinator: bool = False
    ) -> ProduceResponse.PartitionProduceResponse:
        """Return the result of a refused partition, with details for the client, and log the reason.

        `by_coordinator`: the partition was not added to its transaction, so its records were not read.
        """
        self.note(error)
        self._context.log(
            log, logging.INFO, "refused produce requests", "produce to %s-%d refused: %s", topic, index, error
        )
        response = PartitionResponse(
            index, error.code, -1, -1, -1, NO_RECORD_ERRORS, error.message or None, NO_LEADER
        )
        response.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=message)
            for record, message in getattr(error, "record_errors", ())
        ]
        is_looked_into = error.code in _TELLS_LOG_START and not by_coordinator
        if is_looked_into and not isinstance(error, NotOneBatchError):
            partition = self._replicas.find(topic, index)
            if partition is not None:
                response.log_start_offset = partition.log.log_start_offset
        return response
