"""An active controller without a log: handles requests, and applies their records to its image immediately.

The rule: each record is encoded and decoded before it is applied, and the incrementally updated index is compared with a
new one, so that every test covers both.
"""

from random import Random

from barnabas.cluster.kraft.controller import (
    brokers,
    deletion,
    elections,
    heartbeats,
    index,
    log_dirs,
    partitions,
    producer_ids,
    reassignments,
    topics,
)
from barnabas.cluster.kraft.controller.index import Index
from barnabas.cluster.kraft.controller.outcome import Caller, ControllerState, at_once
from barnabas.cluster.kraft.image import EMPTY, METADATA_VERSION, Position
from barnabas.cluster.kraft.replay import Replay
from barnabas.config.loading import BrokerConfig
from barnabas.errors import RequestError
from barnabas.testing.simulation.world import SimulatedEntropy
from barnabas.wire.generated.alter_partition import AlterPartitionRequest
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.broker_registration import BrokerRegistrationRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.metadata_records.config import ConfigRecord
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.metadata_records import decode_record, encode_record, record_codec, record_key

CLUSTER = "the-cluster"
ELR = "eligible.leader.replicas.version"
PARTS = (brokers, heartbeats, partitions, topics, deletion, producer_ids, elections, reassignments, log_dirs)
HANDLERS = {key: handler for part in PARTS for key, handler in part.HANDLERS.items()}
TICKS = [tick for part in PARTS for tick in getattr(part, "TICKS", ())]
FAR_OFFSET = 2**40


def log_dir(broker_id, number=0):
    """Return the id of a broker's log dir."""
    return bytes([200, broker_id, number]).ljust(16, b"\1")


class ActiveImage:
    """The state of an active controller, and its handlers."""

    def __init__(self, *, level=30, elr=0, seed=0, **settings):
        texts = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.state = ControllerState(
            config=BrokerConfig({"broker.session.timeout.ms": "9000", **texts}),
            entropy=SimulatedEntropy(Random(seed)),
            node_id=9,
            cluster_id=CLUSTER,
            monotonic_ms=1_000_000,
        )
        self._replay = Replay(EMPTY)
        self.changes = []
        self.apply([FeatureLevelRecord(METADATA_VERSION, level), FeatureLevelRecord(ELR, elr)])

    @property
    def image(self):
        return self.state.image

    def apply(self, records):
        """Apply records as the shell does: as one batch."""
        before, changes = self.state.image, []
        for record in records:
            version = record_codec(record_key(record)).max_version
            decoded, _ = decode_record(encode_record(record, version))
            assert decoded == record
            changes += self._replay.apply(record)
        self.state.next_offset += len(records)
        self.state.committed_offset = self.state.next_offset - 1
        self.state.image = self._replay.publish(Position(self.state.next_offset - 1, 1, 0))
        at_once(index.follow(self.state, before, changes))
        self.changes += changes
        assert _answers(index.index_of(self.state), self.image) == _answers(Index(self.image), self.image)

    def ask(self, key, request, *, version=99, may=lambda *_: True, charge=lambda *_: None):
        """Return the response to a request, after its records are applied. Raises RequestError."""
        outcome = at_once(HANDLERS[key](self.state, request, Caller(version, may=may, charge=charge)))
        self.apply(outcome.records)
        self.records = outcome.records
        return outcome.response

    def code(self, key, request, **options):
        """Return the error code of a request: of its RequestError, or of the response."""
        try:
            return self.ask(key, request, **options).error_code
        except RequestError as error:
            return error.code

    def tick(self, ms=0):
        """Advance the clock, and do all due work; returns the number of records."""
        self.state.monotonic_ms += ms
        count = 0
        for tick in TICKS:
            while records := at_once(tick(self.state)):
                self.apply(records)
                count += len(records)
        return count

    # --- brokers ----------------------------------------------------------------------------------------------------

    def register(self, broker_id, *, incarnation=1, dirs=1, rack=None, version=4, previous=-1, **fields):
        """Return the code of the answer to a registration."""
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=bytes([incarnation]) * 16,
            listeners=[BrokerRegistrationRequest.Listener("PLAINTEXT", f"host{broker_id}", 9092, 0)],
            features=[
                BrokerRegistrationRequest.Feature(METADATA_VERSION, 7, 30),
                BrokerRegistrationRequest.Feature(ELR, 0, 1),
            ],
            rack=rack,
            log_dirs=[log_dir(broker_id, number) for number in range(dirs)],
            previous_broker_epoch=previous,
        )
        for name, value in fields.items():
            setattr(request, name, value)
        return self.code(62, request, version=version)

    def beat(
        self, broker_id, *, offset=FAR_OFFSET, epoch=None, fence=False, stop=False, offline=(), cordoned=None
    ):
        """Return the answer to a heartbeat, or the code if it is refused."""
        if epoch is None:
            epoch = self.image.brokers[broker_id].epoch
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=offset,
            want_fence=fence,
            want_shut_down=stop,
            offline_log_dirs=list(offline),
            cordoned_log_dirs=cordoned,
        )
        try:
            return self.ask(63, request)
        except RequestError as error:
            return error.code

    def start(self, *broker_ids, **options):
        """Register brokers and unfence them."""
        for broker_id in broker_ids:
            assert self.register(broker_id, **options) == 0
            assert not self.beat(broker_id).is_fenced
        return self

    def stop_hearing(self, *silent):
        """Advance past the session timeout, during which all other unfenced brokers send heartbeats."""
        for _ in range(2):
            self.state.monotonic_ms += 5_000
            for broker in list(self.image.brokers.values()):
                if broker.id not in silent and not broker.fenced:
                    self.beat(broker.id)
        self.tick()

    # --- topics and partitions --------------------------------------------------------------------------------------

    def create(self, name, *assignments, version=7, **options):
        """Return the result of the creation of a topic with these replicas."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name,
                    -1,
                    -1,
                    [
                        CreateTopicsRequest.CreatableReplicaAssignment(index, list(replicas))
                        for index, replicas in enumerate(assignments)
                    ],
                    [
                        CreateTopicsRequest.CreatableTopicConfig(*pair)
                        for pair in options.pop("configs", {}).items()
                    ],
                )
            ]
        )
        return self.ask(19, request, version=version, **options).topics[0]

    def key(self, name, number=0):
        """Return the key of a partition."""
        return self.image.topic_ids[name], number

    def partition(self, name, number=0):
        """Return a partition."""
        return self.image.partitions[self.key(name, number)]

    def propose(self, name, isr, number=0, *, version=3, leader=None, broker_epochs=None, **fields):
        """Return the result of a leader's proposal of an ISR; `broker_epochs` are pairs, by default as registered."""
        partition = self.partition(name, number)
        leader = partition.leader if leader is None else leader
        if broker_epochs is None:
            brokers = self.image.brokers
            broker_epochs = [
                (replica, brokers[replica].epoch if replica in brokers else 5) for replica in isr
            ]
        proposal = AlterPartitionRequest.PartitionData(
            partition_index=number,
            leader_epoch=partition.leader_epoch,
            new_isr=list(isr),
            new_isr_with_epochs=[AlterPartitionRequest.BrokerState(*pair) for pair in broker_epochs],
            partition_epoch=partition.partition_epoch,
        )
        for field, value in fields.items():
            setattr(proposal, field, value)
        request = AlterPartitionRequest(
            leader,
            self.image.brokers[leader].epoch,
            [AlterPartitionRequest.TopicData(topic_id=self.key(name)[0], partitions=[proposal])],
        )
        return self.ask(56, request, version=version).topics[0].partitions[0]

    def set(self, name, value, resource=(4, "")):
        """Set a setting of all brokers, or of another resource."""
        self.apply([ConfigRecord(*resource, name, value)])


def _answers(of, image):
    """Return all answers of an index of an image, in a form that can be compared."""
    dirs = {directory for partition in image.partitions.values() for directory in partition.directories}
    broker_ids = {
        *image.brokers,
        *(replica for partition in image.partitions.values() for replica in partition.replicas),
    }
    return (
        [
            (set(of.in_isr(broker_id)), set(of.in_elr(broker_id)), of.leads(broker_id))
            for broker_id in broker_ids
        ],
        [set(of.in_dir(directory)) for directory in dirs if directory[:15] != bytes(15)],
        [of.similar_topic(name) is not None for name in image.topic_ids],
        set(of.leaderless()),
        set(of.reassigning),
        set(of.imbalanced),
    )
