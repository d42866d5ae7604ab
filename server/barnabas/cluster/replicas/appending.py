"""Fast path of Produce: appends to one partition after the other, where there is nothing special about it.

The rule: one call for all partitions of a topic, as far as they are usual and the event loop need not be looked at. What
is not usual is left to the caller, and nothing has happened to it then.
"""

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.cluster.replicas.manager import Replicas
from barnabas.cluster.replicas.replica import Replica
from barnabas.errors import RequestError
from barnabas.log.background_write import BACKGROUND_BYTES
from barnabas.log.results import AppendResult
from barnabas.records.validated import ValidatedBatches
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse

PartitionResponse = ProduceResponse.PartitionProduceResponse
Refuse = Callable[[str, int, RequestError], ProduceResponse.PartitionProduceResponse]
NO_LEADER: Final = ProduceResponse.LeaderIdAndEpoch()
NO_RECORD_ERRORS: Final[list[ProduceResponse.BatchIndexAndErrorMessage]] = []
"""Values that most answers have; shared, so they are replaced, never changed."""


PARTITIONS_PER_CHECKPOINT: Final = 16
BYTES_PER_PARTITION: Final = 16 * 1024
"""Between two looks at the loop's budget: so many small partitions, or as many bytes of records."""
BYTES_PER_CHECKPOINT: Final = PARTITIONS_PER_CHECKPOINT * BYTES_PER_PARTITION


class Appends:
    """Appends the records of one produce request.

    `pending` takes the partitions whose records cannot be acknowledged at once, with the offset after the records.
    """

    __slots__ = (
        "_acks",
        "_api_version",
        "_is_among_others",
        "_now_ms",
        "_refuse",
        "_replicas",
        "_room",
        "pending",
    )

    def __init__(
        self,
        replicas: Replicas,
        refuse: Refuse,
        *,
        acks: int,
        api_version: int,
        now_ms: int,
        is_among_others: bool,
    ) -> None:
        """`refuse` makes the answer of a topic's partition to which nothing is appended.

        With `is_among_others` others would wait while much is written, which is left to a thread then.
        """
        self.pending: list[tuple[Replica, int, ProduceResponse.PartitionProduceResponse]] = []
        self._replicas = replicas
        self._refuse = refuse
        self._acks = acks
        self._api_version = api_version
        self._now_ms = now_ms
        self._is_among_others = is_among_others
        self._room = BYTES_PER_CHECKPOINT

    @property
    def is_used_up(self) -> bool:
        """True if so much was appended that the loop's budget must be looked at."""
        return self._room <= 0

    def is_checkpoint_due(self) -> bool:
        """Say, once, whether so much was appended that the loop's budget must be looked at."""
        if self._room > 0:
            return False
        self._room = BYTES_PER_CHECKPOINT
        return True

    def are_in_background(self, size: int) -> bool:
        """Say whether so many bytes of records are written in a thread before they are appended."""
        return size >= BACKGROUND_BYTES and self._is_among_others

    def count(self, size: int) -> None:
        """Count a partition that brings so many bytes."""
        self._room -= size if size > BYTES_PER_PARTITION else BYTES_PER_PARTITION

    def append_usual(
        self,
        topic: str,
        partitions: Sequence[ProduceRequest.PartitionProduceData],
        responses: list[ProduceResponse.PartitionProduceResponse],
    ) -> bool:
        """Append the records of a topic's partitions, beginning with the first one that has no response yet.

        Some partitions are validated one after the other, and then appended one after the other: code that goes from
        partition to partition stays in the processor's cache, which validating and appending together do not fit.

        What is refused is answered, and ends what is validated together. Returns true before a partition that takes
        several steps; false at the end, after a refused one, or where a checkpoint is due.
        """
        valid: list[tuple[Replica, ValidatedBatches]] = []
        refused: ProduceResponse.PartitionProduceResponse | None = None
        is_unusual = False
        for number in range(len(responses), len(partitions)):
            if self._room <= 0:
                break
            data = partitions[number]
            try:
                found = self._validate(topic, data)
            except RequestError as error:
                refused = self._refuse(topic, data.index, error)
                self.count(0)
                break
            if found is None:
                is_unusual = True
                break
            valid.append(found)
            self.count(len(found[1].records))
        for replica, batches in valid:
            responses.append(self._append(replica, batches))
        if refused is not None:
            responses.append(refused)
        return is_unusual

    def _validate(
        self, topic: str, data: ProduceRequest.PartitionProduceData
    ) -> tuple[Replica, ValidatedBatches] | None:
        """Find the leader of a partition and validate its records; None where that takes several steps, or a thread.

        Raises RequestError as `Replicas.leader` and `Replica.validate_at_once`.
        """
        records = data.records
        if not isinstance(records, memoryview) or self.are_in_background(len(records)):
            return None
        replica = self._replicas.leader(topic, data.index)
        valid = replica.validate_at_once(records, self._acks, self._api_version, self._now_ms)
        return None if valid is None else (replica, valid)

    def _append(self, replica: Replica, valid: ValidatedBatches) -> ProduceResponse.PartitionProduceResponse:
        """Append what is validated; what speaks against it is its answer, since others are validated too."""
        try:
            result = replica.append(
                valid, acks=self._acks, api_version=self._api_version, now_ms=self._now_ms
            )
        except RequestError as error:
            return self._refuse(replica.topic, replica.index, error)
        return self.answer(replica, result)

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
