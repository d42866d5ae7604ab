"""What a produce request appends to one partition after the other, where there is nothing special about it.

The rule: one call for each partition, which returns its answer. What is not usual is left to the caller, and nothing has
happened then.
"""

from typing import Final

from barnabas.log.results import AppendResult
from barnabas.replicas.manager import Replicas
from barnabas.replicas.replica import Replica
from barnabas.wire.generated.produce import ProduceResponse

PartitionResponse = ProduceResponse.PartitionProduceResponse
NO_LEADER: Final = ProduceResponse.LeaderIdAndEpoch()
NO_RECORD_ERRORS: Final[list[ProduceResponse.BatchIndexAndErrorMessage]] = []
"""What most answers say; shared, so they are replaced, never changed."""


class Appends:
    """Appends the records of one produce request.

    `pending` takes the partitions whose records cannot be acknowledged at once, with the offset after the records.
    """

    __slots__ = ("_acks", "_api_version", "_now_ms", "_replicas", "pending")

    def __init__(self, replicas: Replicas, *, acks: int, api_version: int, now_ms: int) -> None:
        self.pending: list[tuple[Replica, int, ProduceResponse.PartitionProduceResponse]] = []
        self._replicas = replicas
        self._acks = acks
        self._api_version = api_version
        self._now_ms = now_ms

    def append(
        self, topic: str, index: int, records: memoryview
    ) -> ProduceResponse.PartitionProduceResponse | None:
        """Append a producer's records and return the answer; None if that takes several steps.

        Raises RequestError as `Replicas.leader` and `Replica.append_at_once`.
        """
        replica = self._replicas.leader(topic, index)
        result = replica.append_at_once(records, self._acks, self._api_version, self._now_ms)
        return None if result is None else self.answer(replica, result)

    def answer(self, replica: Replica, result: AppendResult) -> ProduceResponse.PartitionProduceResponse:
        """Return the answer of a partition to which records were appended."""
        response = PartitionResponse(
            replica.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset,
            NO_RECORD_ERRORS, None, NO_LEADER,
        )  # fmt: skip
        end_offset = result.last_offset + 1
        if replica.log.high_watermark < end_offset:
            self.pending.append((replica, end_offset, response))
        return response
