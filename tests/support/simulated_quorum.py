"""A quorum of three controllers as seen by an observer: elections, diverging logs, snapshots, and committed records.

The rule: committed records are replayed here one by one, and observers are compared with the result. Controllers answer
as Kafka's do; `Unreliable` loses, repeats and corrupts responses on the way.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from barnabas.cluster.kraft.decisions import SnapshotId
from barnabas.cluster.kraft.follower import ControllerError
from barnabas.cluster.kraft.image import EMPTY, TOPIC, Draft, Position, QuorumImage
from barnabas.cluster.kraft.quorum import Leadership, decode_control
from barnabas.cluster.kraft.replica_values import METADATA_TOPIC_ID
from barnabas.cluster.kraft.snapshots import snapshot_batches
from barnabas.cluster.kraft.state import LogState
from barnabas.cluster.kraft.transitions import apply_record
from barnabas.log.format.names import CLUSTER_METADATA_TOPIC
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import read_any_header
from barnabas.records.building import encode_batch
from barnabas.records.control import ControlType, encode_key
from barnabas.records.record import Record
from barnabas.wire.generated.data import kraft_version_record, leader_change_message, voters_record
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.fetch_snapshot import FetchSnapshotResponse
from barnabas.wire.generated.metadata_records.abort_transaction import AbortTransactionRecord
from barnabas.wire.generated.metadata_records.begin_transaction import BeginTransactionRecord
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.end_transaction import EndTransactionRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.partition_change import PartitionChangeRecord
from barnabas.wire.generated.metadata_records.remove_topic import RemoveTopicRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import decode_record, encode_record

CLUSTER = "simulated-cluster-id"
NODES = 3
MAJORITY = 2
ADDRESSES = tuple((f"controller-{number}", 9093) for number in range(1, NODES + 1))


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    epoch: int
    data: bytes


class Place(NamedTuple):
    """A moment at which a snapshot may be taken: after a committed batch, outside of transactions."""

    id: SnapshotId
    image: QuorumImage
    leadership: Leadership


def apply_batch(state, batch):
    header = read_any_header(batch.data, 0)
    for record in iter_any_records(batch.data):
        state.step(header, record, "the simulated log")


class PlainReplay:
    """A replay of the committed log, record by record: each transaction is applied when it has ended."""

    def __init__(self):
        self.image = EMPTY
        self.leadership = Leadership()
        self._open = None

    @property
    def in_transaction(self):
        return self._open is not None

    def apply(self, batch):
        header = read_any_header(batch.data, 0)
        for record in iter_any_records(batch.data):
            messages = []
            if header.is_control:
                self.leadership = self.leadership.after(decode_control(record)[1], batch.epoch, record)
            else:
                messages = self._of_transaction(decode_record(record.value)[0])
            if self._open is None:
                draft = Draft(self.image)
                for message in messages:
                    apply_record(draft, message)
                self.image = draft.image(Position(record.offset, batch.epoch, record.timestamp))

    def _of_transaction(self, message):
        """Return the messages to apply with this record: itself, those of a transaction at its end, or none."""
        name = type(message).__name__
        if name == "BeginTransactionRecord":
            self._open = []
        elif name.endswith("TransactionRecord"):
            ended, self._open = self._open, None
            return ended if name == "EndTransactionRecord" else []
        elif self._open is None:
            return [message]
        else:
            self._open.append(message)
        return []


class Controller:
    """A controller: its log from `start_offset` on, its snapshots, and the leader known to it."""

    def __init__(self, number):
        self.id = number + 1
        self.log = []
        self.start_offset = 0
        self.snapshots = {}
        self.known = (-1, 0)  # leader and epoch

    @property
    def end_offset(self):
        return self.log[-1].next_offset if self.log else self.start_offset

    def end_of_epoch(self, epoch):
        """Return the largest epoch up to `epoch`, and its end offset; (-1, -1) if the log has none."""
        before = [batch for batch in self.log if batch.epoch <= epoch]
        if before:
            return before[-1].epoch, before[-1].next_offset
        for snapshot_id in sorted(self.snapshots, reverse=True):
            if snapshot_id.epoch <= epoch and snapshot_id.end_offset == self.start_offset:
                return snapshot_id.epoch, snapshot_id.end_offset
        return -1, -1


class SimulatedQuorum:
    """Lifecycle: `advance` for each random event, `answer` requests between.

    `images` has the image after each committed batch, by the offset of its last record.
    """

    def __init__(self, random, *, is_dynamic):
        self.random = random
        self.is_dynamic = is_dynamic
        self.nodes = [Controller(number) for number in range(NODES)]
        self.epoch = 0
        self.leader = None
        self.committed = []
        self.truth = PlainReplay()
        self.images = {-1: self.truth.image}
        self.places = []
        self.high_watermark = -1  # in the leader's responses
        self.pending = LogState()  # of the leader's log
        self.topic_count = 0
        self.elect()

    @property
    def committed_end(self):
        return self.committed[-1].next_offset if self.committed else 0

    # --- events -------------------------------------------------------------------------------------------------

    def advance(self):
        roll = self.random.random()
        if roll < 0.5:
            self.append()
        elif roll < 0.85:
            self.replicate()
        elif roll < 0.91:
            self.take_snapshot()
        elif roll < 0.93:
            self.forget_old()
        elif roll < 0.96:
            self.learn()
        else:
            self.elect()

    def elect(self):
        """Elect a node with all committed records and a log that is not behind those of a majority; or no node."""

        def rank(node):
            return (node.log[-1].epoch if node.log else 0, node.end_offset)

        ranks = sorted(map(rank, self.nodes))
        candidates = [
            node
            for node in self.nodes
            if rank(node) >= ranks[NODES - MAJORITY] and node.end_offset >= self.committed_end
        ]
        self.epoch += self.random.choice((1, 1, 2))
        if self.random.random() < 0.2:
            self.leader = None  # an election without a winner
            self.random.choice(self.nodes).known = (-1, self.epoch)
            return
        self.leader = self.random.choice(candidates)
        self.leader.known = (self.leader.id, self.epoch)
        self.high_watermark = -1
        self.pending = LogState()
        for batch in self._whole_log(self.leader):
            apply_batch(self.pending, batch)
        change = leader_change_message.LeaderChangeMessage(leader_id=self.leader.id)
        change.voters = [
            leader_change_message.LeaderChangeMessage.Voter(number + 1) for number in range(NODES)
        ]
        controls = [(ControlType.LEADER_CHANGE, leader_change_message.CODEC.encode_bytes(change, 0))]
        if self.is_dynamic and not self.pending.leadership.kraft_version:
            level = kraft_version_record.KRaftVersionRecord(kraft_version=1)
            controls.append((ControlType.KRAFT_VERSION, kraft_version_record.CODEC.encode_bytes(level, 0)))
        if self.is_dynamic and self.random.random() < 0.25:
            controls.append((ControlType.KRAFT_VOTERS, self._voters()))
        self._write([(encode_key(kind), value) for kind, value in controls], control=True)
        if self.pending.in_transaction:  # a new controller aborts an open transaction
            self._write([(None, encode_record(AbortTransactionRecord("new controller"), 0))])

    def _voters(self):
        voter, endpoint = voters_record.VotersRecord.Voter, voters_record.VotersRecord.Endpoint
        voters = [
            voter(number + 1, bytes([number + 1]) * 16, [endpoint("CONTROLLER", *ADDRESSES[number])])
            for number in range(self.random.choice((2, NODES)))
        ]
        return voters_record.CODEC.encode_bytes(voters_record.VotersRecord(voters=voters), 0)

    def _whole_log(self, node):
        """Return the log from offset 0: the batches before a node's log start are committed."""
        return [batch for batch in self.committed if batch.next_offset <= node.start_offset] + node.log

    def _write(self, pairs, *, control=False):
        base_offset = self.leader.end_offset
        records = [
            Record(base_offset + index, 1000 + base_offset, key, value)
            for index, (key, value) in enumerate(pairs)
        ]
        data = bytes(encode_batch(records, leader_epoch=self.epoch, control=control))
        batch = Batch(base_offset, base_offset + len(records), self.epoch, data)
        apply_batch(self.pending, batch)
        self.leader.log.append(batch)

    def append(self):
        if self.leader is None:
            return
        state = self.pending
        messages = []
        if state.in_transaction:
            ends = self.random.random()
            if ends < 0.5:
                messages = [
                    (EndTransactionRecord() if ends < 0.35 else AbortTransactionRecord("given up"), 0)
                ]
            else:
                self.topic_count += 1
                messages = [(TopicRecord(f"t{self.topic_count}", self._topic_id()), 0)]
        elif self.random.random() < 0.1:
            messages = [(BeginTransactionRecord("several"), 0)]
        else:
            messages = self._changes(state.image)
        self._write([(None, encode_record(message, version)) for message, version in messages])

    def _topic_id(self):
        return self.topic_count.to_bytes(8, "big") + self.random.randbytes(8)

    def _changes(self, image):
        random = self.random
        topics = list(image.topics.values())
        roll = random.random()
        if roll < 0.3 or not topics:
            self.topic_count += 1
            topic_id = self._topic_id()
            partitions = [
                (
                    PartitionRecord(
                        index, topic_id, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0
                    ),
                    0,
                )
                for index in range(random.randrange(1, 5))
            ]
            return [(TopicRecord(f"t{self.topic_count}", topic_id), 0), *partitions]
        topic = random.choice(topics)
        if roll < 0.5 and image.partition_counts.get(topic.id):
            index = random.randrange(image.partition_counts[topic.id])
            return [(PartitionChangeRecord(index, topic.id, leader=random.choice((1, 2, -1))), 0)]
        if roll < 0.5 + min(len(topics), 40) / 200:
            return [(RemoveTopicRecord(topic.id), 0)]
        if roll < 0.65:
            return [(FeatureLevelRecord("metadata.version", random.choice((20, 25, 30))), 0)]
        if roll < 0.85:
            value = random.choice((None, str(random.randrange(100))))
            return [(ConfigRecord(TOPIC, topic.name, f"key{random.randrange(3)}", value), 0)]
        return [(NoOpRecord(), 0)]

    def replicate(self):
        """Let one node fetch from the leader, and commit batches of the leader's epoch that a majority has."""
        if self.leader is None:
            return
        self.learn()
        follower = self.random.choice([node for node in self.nodes if node is not self.leader])
        follower.known = self.leader.known
        whole = self._whole_log(self.leader)
        mine = self._whole_log(follower)
        common = next(
            (index for index, (batch, other) in enumerate(zip(whole, mine, strict=False)) if batch != other),
            min(len(whole), len(mine)),
        )
        count = min(common + self.random.randrange(1, 6), len(whole))
        follower.log = [batch for batch in whole[:count] if batch.base_offset >= follower.start_offset]
        if count and whole[count - 1].epoch == self.epoch:
            self._commit(whole[:count])

    def _commit(self, batches):
        for batch in batches[len(self.committed) :]:
            self.truth.apply(batch)
            self.committed.append(batch)
            self.images[batch.next_offset - 1] = self.truth.image
            if (
                not self.truth.in_transaction and len(self.committed) % 5 == 0
            ):  # so that nodes choose the same
                snapshot_id = SnapshotId(batch.next_offset, batch.epoch)
                self.places.append(Place(snapshot_id, self.truth.image, self.truth.leadership))
        self.high_watermark = max(self.high_watermark, self.committed_end)

    def learn(self):
        if self.leader is not None:
            self.random.choice(self.nodes).known = self.leader.known

    def take_snapshot(self):
        node = self.random.choice(self.nodes)
        places = [
            place
            for place in self.places[-4:]
            if max(node.start_offset, 1) < place.id.end_offset <= min(node.end_offset, self.committed_end)
            and any(
                batch.next_offset == place.id.end_offset and batch.epoch == place.id.epoch
                for batch in node.log
            )
        ]
        if not places:
            return
        place = self.random.choice(places)
        topics = list(place.image.topics.items())
        settings = list(place.image.settings.items())
        self.random.shuffle(topics)
        self.random.shuffle(settings)
        image = place.image._replace(topics=dict(topics), settings=dict(settings))
        batches = snapshot_batches(image, place.leadership, now_ms=5000, records_per_batch=2)
        node.snapshots[place.id] = b"".join(batches)

    def forget_old(self):
        node = self.random.choice(self.nodes)
        if node.snapshots:
            kept = self.random.choice(sorted(node.snapshots))
            node.snapshots = {name: data for name, data in node.snapshots.items() if name >= kept}
            node.log = [batch for batch in node.log if batch.base_offset >= kept.end_offset]
            node.start_offset = kept.end_offset

    # --- answers ------------------------------------------------------------------------------------------------

    def answer(self, address, request):
        node = self.nodes[ADDRESSES.index(address)]
        is_fetch = isinstance(request, FetchRequest)
        if request.cluster_id != CLUSTER:
            cls = FetchResponse if is_fetch else FetchSnapshotResponse
            return cls(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        (topic,) = request.topics
        (asked,) = topic.partitions
        cls = FetchResponse if is_fetch else FetchSnapshotResponse
        partition = (cls.PartitionData if is_fetch else cls.PartitionSnapshot)(
            current_leader=cls.LeaderIdAndEpoch(*node.known)
        )
        if asked.current_leader_epoch < node.known[1]:
            partition.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > node.known[1]:
            partition.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        elif node is not self.leader:
            partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif is_fetch:
            self._fetch(node, asked, partition)
        else:
            self._piece(node, asked, partition)
        endpoints = [cls.NodeEndpoint(number + 1, *ADDRESSES[number]) for number in range(NODES)]
        if self.random.random() < 0.2 and self.is_dynamic:
            endpoints = []  # before v17 responses have no endpoints: the addresses are those of the voters in the log
        if is_fetch:
            topics = [cls.FetchableTopicResponse(topic_id=METADATA_TOPIC_ID, partitions=[partition])]
            return cls(responses=topics, node_endpoints=endpoints)
        return cls(topics=[cls.TopicSnapshot(CLUSTER_METADATA_TOPIC, [partition])], node_endpoints=endpoints)

    def _fetch(self, node, asked, partition):
        offset, last_epoch = asked.fetch_offset, asked.last_fetched_epoch
        partition.high_watermark = self.high_watermark
        newest = max(node.snapshots, default=None)
        if newest is not None and (offset == 0 or offset < node.start_offset):
            partition.snapshot_id = FetchResponse.SnapshotId(*newest)
            return
        epoch, end_offset = node.end_of_epoch(last_epoch) if offset else (last_epoch, 0)
        if epoch < 0:
            partition.snapshot_id = FetchResponse.SnapshotId(*newest)
        elif epoch != last_epoch or end_offset < offset:
            partition.diverging_epoch = FetchResponse.EpochEndOffset(epoch, end_offset)
        else:
            batches = [batch for batch in node.log if batch.base_offset >= offset]
            taken = batches[: self.random.randrange(1, 12)]
            data = b"".join(batch.data for batch in taken)
            if len(taken) < len(batches):
                data += batches[len(taken)].data[: self.random.randrange(60)]
            partition.records = data

    def _piece(self, node, asked, partition):
        snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        data = node.snapshots.get(snapshot_id)
        partition.snapshot_id = FetchSnapshotResponse.SnapshotId(*snapshot_id)
        if data is None:
            partition.error_code = ErrorCode.SNAPSHOT_NOT_FOUND
        elif asked.position >= len(data):
            partition.error_code = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            count = self.random.choice((self.random.randrange(1, 300), 4000))
            partition.size, partition.position = len(data), asked.position
            partition.unaligned_records = data[asked.position : asked.position + count]


def cuts(answer):
    """Return whether a response truncates the log: no late one can, as connections keep the order."""
    return (
        isinstance(answer, FetchResponse)
        and answer.responses[0].partitions[0].diverging_epoch.end_offset >= 0
    )


class Unreliable:
    """The network between an observer and a simulated quorum, as `Controllers`; without faults if `is_calm`."""

    def __init__(self, quorum, random):
        self.quorum = quorum
        self.random = random
        self.is_calm = False
        self.asked = 0
        self._earlier = []

    async def ask(self, address, make):
        self.asked += 1
        random = self.random
        await trio.sleep(random.choice((0.001, 0.02, 0.3)) * random.random())
        if self.is_calm:
            self.quorum.learn()
            return self.quorum.answer(address, make(random.randrange(13, 19)))
        is_away = random.random() < 0.04  # so long that the leader's log starts later
        for _ in range(100 if is_away else random.randrange(9)):
            self.quorum.advance()
        request = make(random.randrange(13, 19))
        fault = random.random()
        if fault < 0.05:
            raise ControllerError("the request is lost")
        response = self.quorum.answer(address, request)
        self._earlier.append((type(request), response))
        if fault < 0.1:
            raise ControllerError("the answer is lost")
        if fault < 0.15:
            of_this_kind = [answer for kind, answer in self._earlier[-8:] if kind is type(request)]
            return random.choice([answer for answer in of_this_kind if not cuts(answer)] or [response])
        if fault < 0.25:
            self._falsify(response)
        return response

    def _falsify(self, response):
        random = self.random
        partition = (response.responses if isinstance(response, FetchResponse) else response.topics)[
            0
        ].partitions[0]
        if isinstance(response, FetchResponse):
            data = bytearray(partition.records or b"")
            kind = random.randrange(4)
            if kind == 0 and len(data) > 100:  # no checksum covers the epoch before it
                data[random.randrange(16, 90)] ^= 1 << random.randrange(8)
            elif kind == 1 and len(data) > 100:
                data = data[read_any_header(bytes(data), 0).size :]
            elif kind == 2:
                partition.error_code = random.choice((1, 8, -1))
            partition.records = bytes(data)
        else:
            data = bytearray(partition.unaligned_records or b"")
            kind = random.randrange(4)
            if kind == 0:
                partition.position += 7
            elif kind == 1 and data:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            elif kind == 2:
                partition.size += 1
            else:
                data = bytearray()
            partition.unaligned_records = bytes(data)
