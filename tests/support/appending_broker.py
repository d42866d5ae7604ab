"""Brokers that append a producer's batches, by the rules for sequences, and answer as a test specifies, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from barnabas.records.batch import read_header, read_records
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from tests.support.scripted_broker import SILENCE, TOPIC_ID, VERSIONS, ScriptedCluster

REMEMBERED = 5
"""Number of a producer's last batches that a broker detects as duplicates."""
CLOSES, FORGETS_ANSWER = "closes", "appends and closes"
"""Faults of a request: the connection is lost before, or after, the batches are appended."""
SILENT = "never answers"


@dataclass
class Log:
    """A partition: records, and the state of the last batches of each producer."""

    records: list[tuple[bytes | None, int]] = field(default_factory=list)
    """Values, and the number of the batch that brought each."""
    recent: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=dict)
    """Epoch, first and last sequence, base offset of batches, by producer id."""

    def append(self, data: bytes) -> tuple[int, int]:
        """Append a batch as a broker does: (error code, base offset)."""
        header = read_header(data)
        values = [record.value for record in read_records(data)]
        if header.producer_id < 0:
            self.records += [(value, len(self.records)) for value in values]
            return 0, len(self.records) - len(values)
        batches = self.recent.setdefault(header.producer_id, [])
        last = batches[-1] if batches else None
        first, end = header.base_sequence, header.last_sequence
        if last is not None and header.producer_epoch < last[0]:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        for epoch, known_first, known_last, offset in batches:
            if (epoch, known_first, known_last) == (header.producer_epoch, first, end):
                return 0, offset
        if last is None or header.producer_epoch > last[0]:
            expected = 0
        else:
            expected = last[2] + 1
        if first != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        offset = len(self.records)
        self.records += [(value, offset) for value in values]
        batches.append((header.producer_epoch, first, end, offset))
        del batches[:-REMEMBERED]
        return 0, offset


class AppendingCluster(ScriptedCluster):
    """Two brokers; each partition is led by one of them. `fault(partition)` returns the fault of a batch.

    It returns 0, an error code, or one of the faults above; a code in `AFTER` is returned after the batch was appended.
    """

    AFTER = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)

    def __init__(self, partitions: int = 2) -> None:
        super().__init__()
        self.versions = {**VERSIONS, 22: (0, 5)}
        self.logs = [Log() for _ in range(partitions)]
        self.leaders = [1 + index % 2 for index in range(partitions)]
        self.fault: Callable[[int], Any] = lambda partition: 0
        self.producer_ids = 0
        self.produced: list[ProduceRequest] = []
        self.answer = self._answer

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Answer for the topics that are asked for."""
        response = super().metadata(request)
        entry = MetadataResponse.MetadataResponsePartition
        for topic in response.topics:
            topic.partitions = [
                entry(partition_index=index, leader_id=leader, leader_epoch=1)
                for index, leader in enumerate(self.leaders)
            ]
            assert topic.topic_id in (TOPIC_ID, bytes(16))
        return response

    def _answer(self, host: str, request: Any) -> Any:
        if isinstance(request, InitProducerIdRequest):
            self.producer_ids += 1
            return InitProducerIdResponse(producer_id=self.producer_ids)
        assert isinstance(request, ProduceRequest)
        self.produced.append(request)
        answers = []
        ends: object = None
        for topic in request.topic_data:
            for part in topic.partition_data:
                fault = self.fault(part.index)
                if fault in (CLOSES, SILENT):
                    return SILENCE if fault == SILENT else None
                if self.addresses[self.leaders[part.index]].host != host:
                    code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
                elif isinstance(fault, ErrorCode) and fault not in self.AFTER:
                    code, offset = fault, -1
                else:
                    code, offset = self.logs[part.index].append(bytes(part.records))  # type: ignore[arg-type]
                    if not code and fault in self.AFTER:
                        code = fault
                    if fault == FORGETS_ANSWER:
                        ends = fault
                entry = ProduceResponse.PartitionProduceResponse
                answers.append(entry(index=part.index, error_code=code, base_offset=offset))
        if ends or not request.acks:
            return None if ends else SILENCE
        topic_name = request.topic_data[0].name
        return ProduceResponse(
            responses=[ProduceResponse.TopicProduceResponse(topic_name, partition_responses=answers)]
        )
