"""An observer that runs: what it refuses with a sentence, what it delivers, and that its steps are short."""

import pytest
import trio

from barnabas.broker.peer_security import for_controllers
from barnabas.client import ClientSettings
from barnabas.client.settings import SaslCredentials
from barnabas.cluster.kraft.contacts import Contacts
from barnabas.cluster.kraft.controllers import reason_against
from barnabas.cluster.kraft.decisions import Taken
from barnabas.cluster.kraft.follower import REPORT_FAILURES, RefusedError
from barnabas.cluster.kraft.joining import observing
from barnabas.cluster.kraft.loader import CHANGES_MAX, Loader
from barnabas.cluster.kraft.observer import Observer
from barnabas.cluster.kraft.replica_values import Identity, Leader, StoredLog
from barnabas.cluster.kraft.state import RECORDS_PER_STEP, MetadataLogError
from barnabas.config.loading import BrokerConfig
from barnabas.config.quorum_broker import quorum_settings
from barnabas.log.format.properties import MetaProperties
from barnabas.log.format.quorum_state import QuorumState
from barnabas.records.building import encode_batch
from barnabas.records.record import Record
from barnabas.testing.simulation.world import run_world
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.no_op import NoOpRecord
from barnabas.wire.generated.metadata_records.partition import PartitionRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import encode_record
from tests.support.metadata_leader import EPOCH, SimulatedLeader
from tests.support.quorum_walks import DIR, SETTINGS, formatted_disk
from tests.support.simulated_quorum import ADDRESSES, CLUSTER, SimulatedQuorum, Unreliable

MAP = "listener.security.protocol.map"
BASE = {
    "node.id": "10",
    "log.dirs": "/a,/b",
    "controller.listener.names": "CONTROLLER,OTHER",
    "controller.quorum.bootstrap.servers": "one:1,two:2",
}


# --- settings ----------------------------------------------------------------------------------------------------------


def test_settings_are_kafkas():
    settings = quorum_settings(
        BrokerConfig({**BASE, "metadata.log.dir": "/c", "metadata.max.retention.ms": "5"})
    )
    assert (settings.node_id, settings.log_dir, settings.bootstrap) == (10, "/c", (("one", 1), ("two", 2)))
    assert (settings.fetch_timeout_ms, settings.retry_backoff_ms, settings.log.retention_ms) == (2_000, 20, 5)
    voters = {**BASE, "controller.quorum.bootstrap.servers": "", "controller.quorum.voters": "1@a:1,2@b:2"}
    settings = quorum_settings(BrokerConfig(voters))
    assert (settings.log_dir, settings.bootstrap) == ("/a", (("a", 1), ("b", 2)))
    assert settings.static_voters == {1: ("a", 1), 2: ("b", 2)}
    assert settings.listener == "CONTROLLER"


def test_controllers_are_reached_by_their_first_listener():
    config = BrokerConfig(
        {
            **BASE,
            MAP: "CONTROLLER:SASL_PLAINTEXT,OTHER:PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.controller.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p";'
            ),
        }
    )
    client = for_controllers(config, quorum_settings(config), ClientSettings())
    assert client.sasl == SaslCredentials("PLAIN", "b", "p")


def test_node_that_is_no_controller_is_named():
    assert reason_against({1: (4, 18), 59: (0, 1)}) == ""
    assert "is no listener of a controller" in reason_against({1: (4, 18), 3: (0, 13)})
    assert "older than Kafka 3.3" in reason_against({1: (4, 12), 59: (0, 0)})


# --- what is refused ---------------------------------------------------------------------------------------------------


class BeginningLater(Unreliable):
    """A quorum of which nothing listens for the first `refusals` requests."""

    refusals = 0

    async def ask(self, address, make):
        if self.refusals:
            self.refusals -= 1
            raise RefusedError("nothing listens there")
        return await super().ask(address, make)


def follow(program, *, disk=None, seed=1, settings=SETTINGS, change=None, refusals=0):
    """Run a program with a follower beside a calm quorum, which begins to listen after some requests."""

    async def main(world):
        quorum = SimulatedQuorum(world.random, is_dynamic=False)
        while quorum.leader is None:
            quorum.elect()
        if change is not None:
            change(quorum)
        commit(quorum, NoOpRecord())
        way = BeginningLater(quorum, world.random)
        way.is_calm, way.refusals = True, refusals
        environment = world.environment("observer", disk or formatted_disk())
        async with observing(settings, environment, ClientSettings(), controllers=way) as follower:
            return await program(follower, quorum)

    return run_world(seed, main, seconds_max=600)


async def wait_forever(*_):
    await trio.sleep_forever()


def commit(quorum, *messages):
    quorum._write([(None, encode_record(message, 0)) for message in messages])
    while quorum.committed_end < quorum.leader.end_offset:
        quorum.replicate()


@pytest.mark.parametrize(
    ("meta", "text"),
    [
        (None, "/data/meta.properties is missing: format the directory first"),
        (MetaProperties(1, CLUSTER, 11, bytes(16)), "says node.id=11, and node.id=10 is set"),
        (MetaProperties(1, CLUSTER, 10), "is not of a KRaft cluster"),
        (MetaProperties(0, CLUSTER, 10, bytes(16)), "is not of a KRaft cluster"),
        (MetaProperties(1, "another", 10, bytes(16)), "of another cluster .* cluster.id=another"),
    ],
)
def test_directory_of_another_node_or_cluster_is_refused(meta, text):
    disk = formatted_disk()
    if meta is None:
        disk.remove(f"{DIR}/meta.properties")
    else:
        disk.replace(f"{DIR}/meta.properties", meta.encode(), sync=True)
    with pytest.raises(MetadataLogError, match=text):
        follow(wait_forever, disk=disk)


def test_unknown_metadata_version_is_refused():
    with pytest.raises(
        MetadataLogError, match=r"metadata.version is 34, and this release knows the records up to 33"
    ):
        follow(wait_forever, change=lambda quorum: commit(quorum, FeatureLevelRecord("metadata.version", 34)))


def test_two_leaders_of_one_epoch_are_refused():
    observer, leader = Observer(), SimulatedLeader(1)
    observer.take(leader.answer(observer.request(max_wait_ms=0)))
    response = leader.response(leader.partition())
    response.responses[0].partitions[0].current_leader = FetchResponse.LeaderIdAndEpoch(2, EPOCH)
    with pytest.raises(MetadataLogError, match="two leaders of epoch 2, 1 and 2"):
        observer.take(response)


# --- what is delivered ---------------------------------------------------------------------------------------------------


class Recorder:
    def __init__(self, follower):
        self.follower = follower
        self.calls = []

    async def prepare(self, delta):
        self.calls.append(("prepare", self.follower.image is delta.after, len(delta.changes)))
        await trio.sleep(0.1)

    def publish(self, delta):
        self.calls.append(("publish", self.follower.image is delta.after, len(delta.changes)))

    async def clean_up(self, delta):
        self.calls.append(("clean up", self.follower.image is delta.after, len(delta.changes)))


def test_delta_is_prepared_published_and_cleaned_up():
    async def program(follower, quorum):
        early = Recorder(follower)
        follower.subscribe(early)
        await follower.wait_for_image()
        commit(quorum, TopicRecord("a", b"a" * 16), PartitionRecord(0, b"a" * 16, [1], [1]))
        late = Recorder(follower)
        while follower.image.topic("a") is None:
            await trio.sleep(0.1)
        follower.subscribe(late)
        await trio.sleep(1)
        return early.calls, late.calls

    early, late = follow(program)
    assert early[-3:] == [("prepare", False, 2), ("publish", True, 2), ("clean up", True, 2)]
    assert [name for name, _, _ in late] == ["prepare", "publish", "clean up"]


def test_fault_leaves_the_image_and_ends_snapshots():
    async def program(follower, quorum):
        image = await follower.wait_for_image()
        batch = encode_batch(
            [Record(quorum.leader.end_offset, 1, None, b"\1\x7f\0")], leader_epoch=quorum.epoch
        )  # a record that no release has
        quorum.leader.log.append(
            quorum.leader.log[-1]._replace(
                base_offset=quorum.leader.end_offset,
                next_offset=quorum.leader.end_offset + 1,
                data=bytes(batch),
            )
        )
        quorum.high_watermark = quorum.leader.end_offset
        while not follower.fault:
            await trio.sleep(0.1)
        return follower, image

    follower, image = follow(program)
    assert follower.image.topics == image.topics
    assert "there is no metadata record with key 127" in follower.fault


def test_large_batch_is_applied_in_short_steps():
    count = 5 * CHANGES_MAX
    topic_id = b"t" * 16
    messages = [
        TopicRecord("t", topic_id),
        *(PartitionRecord(index, topic_id, [1], [1]) for index in range(count)),
    ]
    records = [Record(offset, 1, None, encode_record(message, 0)) for offset, message in enumerate(messages)]
    batches = bytes(encode_batch(records[:1], leader_epoch=1) + encode_batch(records[1:], leader_epoch=1))
    loader = Loader()
    (first,) = [delta for delta in loader.take() if delta is not None]
    assert first.changes == ()
    assert sum(1 for _ in loader.apply(batches, upper_offset=count + 1)) == count // RECORDS_PER_STEP
    assert loader.is_due
    (delta,) = [delta for delta in loader.take() if delta is not None]
    assert len(delta.changes) == count + 1
    assert len(delta.after.partitions) == count


@pytest.mark.parametrize(
    ("refusals", "levels"),
    [(1, ["INFO"]), (REPORT_FAILURES, ["INFO"]), (REPORT_FAILURES + 1, ["INFO", "WARNING"])],
)
def test_controllers_that_begin_later_are_no_warning_at_first(caplog, refusals, levels):
    async def program(follower, _):
        await follower.wait_for_image()

    with caplog.at_level("INFO"):
        follow(program, refusals=refusals)
    assert [record.levelname for record in caplog.records if "nothing listens" in record.message] == levels


# --- who is asked --------------------------------------------------------------------------------------------------------


def test_leader_is_asked_until_it_fails():
    contacts = Contacts([("a", 1), ("b", 2)], backoff_ms=20, fetch_timeout_ms=2_000)
    leader = Leader(3, 1, "c", 3)
    assert contacts.choose(Leader(), 0) == ("a", 1)
    contacts.answered(Taken(asks_elsewhere=True, must_wait=True), 0)
    assert (contacts.choose(Leader(), 0), contacts.ready_at_ms) == (("b", 2), 20)
    contacts.answered(Taken(asks_elsewhere=True), 30)
    assert (contacts.choose(leader, 30), contacts.ready_at_ms) == (("c", 3), 30)
    contacts.failed(100)
    assert contacts.choose(leader, 100) == ("b", 2)
    contacts.answered(Taken(asks_elsewhere=True), 200)  # which names the same leader
    assert contacts.choose(leader, 200) == ("c", 3)


def test_pauses_grow_until_an_answer_is_of_use():
    contacts = Contacts([("a", 1)], backoff_ms=20)
    pauses = []
    for _ in range(8):
        contacts.failed(0)
        pauses.append(contacts.ready_at_ms)
    assert pauses == [20, 40, 80, 160, 320, 640, 1_000, 1_000]
    others = Contacts([("a", 1), ("b", 2), ("c", 3)], backoff_ms=20)
    pauses = []
    for _ in range(8):
        others.failed(0)
        pauses.append(others.ready_at_ms)
    assert pauses == [20, 20, 20, 40, 40, 40, 80, 80], "the same for all in turn"
    contacts.answered(Taken(), 5_000)
    contacts.failed(5_000)
    assert contacts.ready_at_ms == 5_020


def test_leader_without_a_useful_answer_is_doubted():
    contacts = Contacts([("a", 1), ("b", 2)], fetch_timeout_ms=2_000)
    leader = Leader(3, 1, "c", 3)
    contacts.choose(leader, 0)
    contacts.answered(Taken(must_wait=True), 1_000)
    assert contacts.choose(leader, 2_000) == ("c", 3)
    assert contacts.choose(leader, 2_001) == ("b", 2)


def test_leader_that_makes_itself_known_is_asked_immediately():
    contacts = Contacts([("a", 1), ("b", 2)], backoff_ms=20)
    for now_ms in range(8):
        contacts.failed(now_ms)
    contacts.elected(10)
    assert (contacts.choose(Leader(3, 2, "c", 3), 10), contacts.ready_at_ms) == (("c", 3), 10)
    contacts.failed(10)
    assert contacts.ready_at_ms == 30


def test_leader_of_the_last_life_is_asked_first():
    election = QuorumState(0, 2, 7, voters=(1, 2, 3))
    voters = {number + 1: address for number, address in enumerate(ADDRESSES)}
    stored = StoredLog(end_offset=5, epochs=((6, 0),), election=election)
    observer = Observer(Identity(10, bytes(16), CLUSTER), stored, static_voters=voters)
    assert observer.leader == Leader(2, 7, *ADDRESSES[1])
    later = Observer(stored=stored._replace(epochs=((6, 0), (9, 4))), static_voters=voters)
    assert later.leader == Leader(-1, 9)
