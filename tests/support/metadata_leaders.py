"""Partitions of `__remote_log_metadata` that other brokers lead: their logs, and their answers as leaders."""

from __future__ import annotations

from typing import Any

import trio

from barnabas.cluster.metadata.changes import PartitionChanged
from barnabas.cluster.metadata.peers import PeerUnavailableError, VersionedRequest
from barnabas.cluster.tiering.metadata import RemoteMetadata
from barnabas.environment.real import real_environment
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.serving.loop_budget import LoopBudget
from barnabas.tiered.metadata import METADATA_TOPIC, MetadataRecord, encode, metadata_partition
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from tests.support.own_stores import InlineThreads
from tests.support.peers import ME, TWO, cluster, topic
from tests.support.remote_segments import PARTITION

COUNT = 2
INDEX = metadata_partition(PARTITION, COUNT)
LATEST = -1
VERSION = 12
WAIT_S = 0.05
NOW_MS = 1_790_000_000_000


class NoReplicas:
    """Stands for `Replicas` of a broker without a replica of the topic."""

    def find(self, topic: str, index: int) -> None:
        """Return None."""


class MetadataLeader:
    """Broker 2, which leads all partitions; it counts requests."""

    def __init__(self) -> None:
        self.metadata = cluster(topic(METADATA_TOPIC, *[TWO] * COUNT))
        self.leader = TWO
        self.epoch = 1
        self.start = 0
        self.records: list[tuple[int, bytes]] = []
        """Leader epoch and value of each record of the partition with the records of `PARTITION`, from `start` on."""
        self.hidden = 0
        """Number of the last records that are not committed."""
        self.fetch_error = 0
        self.lost_offsets = 0
        """So many answers to requests for the first offset are lost."""
        self.lost_answers = 0
        """Number of next Produce responses to lose, after the append."""
        self.append_errors: list[int] = []
        self.appends = 0
        self.environment = real_environment()._replace(
            monotonic=trio.current_time,
            threads=InlineThreads(),  # type: ignore[arg-type]
        )
        self.state = RemoteMetadata(
            self.metadata,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            NoReplicas(),  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            LoopBudget(),
            self.environment,
            ME,
        )

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def write(self, *records: MetadataRecord) -> None:
        """Append records, as another broker does."""
        self.records += [(self.epoch, encode(record)) for record in records]

    async def elect(self, leader: int) -> None:
        """Have another broker lead, in the next epoch."""
        self.leader, self.epoch = leader, self.epoch + 1
        info = self.metadata.image.topics[METADATA_TOPIC].partitions[INDEX]
        changed = info._replace(leader=leader, leader_epoch=self.epoch, replicas=(leader,), isr=(leader,))
        await self.metadata.apply([PartitionChanged(METADATA_TOPIC, INDEX, changed)])
        self.state.look()

    # --- answers, as `Peers` --------------------------------------------------------------------------------------

    async def ask(self, broker_id: int, request: Any, **options: Any) -> Any:
        """Answer a request; a fetch without new records waits a little."""
        message = request.make(VERSION) if isinstance(request, VersionedRequest) else request
        response = self._answer(broker_id, message)
        if isinstance(response, FetchResponse) and not any(
            data.records or data.error_code or data.diverging_epoch.end_offset >= 0
            for data in response.responses[0].partitions
        ):
            await trio.sleep(WAIT_S)
        return response

    def _answer(self, broker_id: int, request: Any) -> Any:
        if broker_id != self.leader:
            raise PeerUnavailableError(f"broker {broker_id} is gone")
        match request:
            case FetchRequest():
                data = [self._read(part) for part in request.topics[0].partitions]
                named = FetchResponse.FetchableTopicResponse(topic=METADATA_TOPIC, partitions=data)
                return FetchResponse(responses=[named])
            case ListOffsetsRequest():
                (asked,) = request.topics[0].partitions
                if self.lost_offsets and asked.timestamp != LATEST:
                    self.lost_offsets -= 1
                    raise PeerUnavailableError("the connection is lost")
                committed = self.end - self.hidden if asked.partition_index == INDEX else 0
                offset = committed if asked.timestamp == LATEST else self.start
                answer = ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, offset=offset
                )
                return ListOffsetsResponse(
                    topics=[ListOffsetsResponse.ListOffsetsTopicResponse(METADATA_TOPIC, [answer])]
                )
        assert isinstance(request, ProduceRequest)
        return self._append(request.topic_data[0].partition_data[0])

    def _read(self, part: FetchRequest.FetchPartition) -> FetchResponse.PartitionData:
        answer = FetchResponse.PartitionData(partition_index=part.partition, records=b"")
        if part.partition != INDEX:
            return answer
        if self.fetch_error or not self.start <= part.fetch_offset <= self.end:
            answer.error_code = self.fetch_error or ErrorCode.OFFSET_OUT_OF_RANGE
            return answer
        number = part.fetch_offset - self.start
        if part.last_fetched_epoch >= 0 and number and self.records[number - 1][0] != part.last_fetched_epoch:
            answer.diverging_epoch = FetchResponse.EpochEndOffset(0, self.start)
            return answer
        stop = len(self.records) - self.hidden
        answer.records = b"".join(
            bytes(encode_batch([Record(position, NOW_MS, None, value, [])], leader_epoch=epoch))
            for position, (epoch, value) in enumerate(self.records[number:stop], part.fetch_offset)
        )
        return answer

    def _append(self, data: ProduceRequest.PartitionProduceData) -> ProduceResponse:
        assert data.index == INDEX
        self.appends += 1
        answer = ProduceResponse.PartitionProduceResponse(index=INDEX, base_offset=self.end)
        if self.append_errors:
            answer.error_code = self.append_errors.pop(0)
        else:
            records = bytes(data.records or b"")
            for at, _ in iter_batches(records):
                self.records += [
                    (self.epoch, record.value or b"") for record in iter_any_records(records, at)
                ]
        if self.lost_answers:
            self.lost_answers -= 1
            raise PeerUnavailableError("the connection is lost")
        named = ProduceResponse.TopicProduceResponse(name=METADATA_TOPIC, partition_responses=[answer])
        return ProduceResponse(responses=[named])
