"""The leader of a quorum as seen by an observer: it answers from a log that Kafka 4.3.1 wrote."""

import random
from pathlib import Path

from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID
from barnabas.records.batch import iter_batches
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "metadata" / "kafka-4.3.1"
LOG = GOLDEN / "__cluster_metadata-0"
DATA = (LOG / "00000000000000000000.log").read_bytes()
BATCHES = [(header, DATA[at : at + header.size]) for at, header in iter_batches(DATA)]
SNAPSHOT = LOG / "00000000000000000076-0000000001.checkpoint"
END = 105
EPOCH, EPOCH_START = 2, 85


class SimulatedLeader:
    """A leader that answers from the golden log, in pieces of sizes that it chooses."""

    def __init__(self, seed, *, snapshot=False, leads=True, leader_id=1, address=("controller-1", 9093)):
        self.random = random.Random(seed)
        self.snapshot = SNAPSHOT.read_bytes() if snapshot else b""
        self.leads = leads
        self.leader_id = leader_id
        self.address = address
        self.batches = list(BATCHES)
        self.high_watermark = -1
        self.end = END

    def answer(self, request):
        return self.fetch(request) if isinstance(request, FetchRequest) else self.piece(request)

    def partition(self, **fields):
        return FetchResponse.PartitionData(
            current_leader=FetchResponse.LeaderIdAndEpoch(self.leader_id, EPOCH), high_watermark=-1, **fields
        )

    def response(self, partition):
        host, port = self.address
        return FetchResponse(
            responses=[
                FetchResponse.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])
            ],
            node_endpoints=[FetchResponse.NodeEndpoint(node_id=1, host=host, port=port)],
        )

    def fetch(self, request):
        asked = request.topics[0].partitions[0]
        partition = self.partition()
        if asked.current_leader_epoch < EPOCH:
            partition.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif not self.leads:
            partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.last_fetched_epoch == 1 and asked.fetch_offset > EPOCH_START:
            partition.diverging_epoch = FetchResponse.EpochEndOffset(1, EPOCH_START)
        elif self.snapshot and asked.fetch_offset == 0:
            partition.snapshot_id = FetchResponse.SnapshotId(76, 1)
        else:
            data, end = b"", asked.fetch_offset
            for header, batch in self.batches:
                if header.base_offset >= end and self.random.random() < 0.8:
                    data, end = data + batch, header.last_offset + 1
                elif header.base_offset >= end:
                    break
            self.high_watermark = max(self.high_watermark, self.random.choice((-1, end - 20, end, self.end)))
            partition.high_watermark = self.high_watermark
            partition.records = data + self.random.choice((b"", DATA[: self.random.randrange(200)][:60]))
        return self.response(partition)

    def piece(self, request):
        position = request.topics[0].partitions[0].position
        count = self.random.randrange(1, 400)
        partition = FetchSnapshotResponse.PartitionSnapshot(
            snapshot_id=FetchSnapshotResponse.SnapshotId(76, 1),
            current_leader=FetchSnapshotResponse.LeaderIdAndEpoch(1, EPOCH),
            size=len(self.snapshot),
            position=position,
            unaligned_records=self.snapshot[position : position + count],
        )
        return FetchSnapshotResponse(topics=[FetchSnapshotResponse.TopicSnapshot(partitions=[partition])])
