"""A broker's image follows the quorum's: whatever the steps, it is what the quorum's image says."""

import random as randoms

import pytest

from barnabas.cluster.kraft.directory import END, MetadataLog
from barnabas.cluster.kraft.image import EMPTY, Position, diff
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.translation import UntranslatableError, translate
from barnabas.cluster.metadata.image import BROKER, TOPIC, ClusterImage, Delta
from barnabas.log.disk import OsDisk
from barnabas.security.acls import Permission
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.wire.metadata_records import record_codec, record_keys, record_name
from tests.support.pages import ROOT
from tests.support.simulated_quorum import SimulatedQuorum

CLASSES = {record_name(key): record_codec(key).message for key in record_keys()}
GOLDEN = sorted((ROOT / "tests" / "golden" / "metadata").glob("kafka-*"))


def translated(image, changes, after):
    """The next image of a broker, without what counts changes."""
    return image.apply(translate(image, changes, after)).at_version(0)._replace(features_epoch=0)


def whole(after):
    return translated(ClusterImage("c"), diff(EMPTY, after), after)


def assert_same(image, after):
    """Compare with the translation of the whole image; names may be listed in another order."""
    expected = whole(after)
    for field in set(ClusterImage._fields) - {"latest_epoch"}:  # of a broker that is alone
        mine, other = getattr(image, field), getattr(expected, field)
        if field == "similar":
            mine, other = ({key: set(names) for key, names in by_key.items()} for by_key in (mine, other))
        if field == "acls":
            mine, other = set(mine), set(other)
        if field == "features":
            mine, other = mine or {}, other or {}
        assert mine == other, field


def images_of(golden):
    log = MetadataLog(OsDisk(read_only=True), str(golden))
    for step in log.steps(END):
        yield step.changes, log.state.image


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_steps_of_kafkas_log_lead_to_its_image(golden):
    image, pending = ClusterImage("c"), []
    seen, alive = set(), set()
    for changes, after in images_of(golden):
        image = translated(image, [*pending, *changes], after)
        seen |= {change.kind for change in changes}
        alive |= image.brokers.keys()
    assert seen >= {"feature", "broker", "topic", "partition", "setting", "acl", "quota", "user"}
    assert_same(image, after)
    assert image.topics
    assert alive


@pytest.mark.parametrize("seed", range(20))
def test_deltas_of_any_length_lead_to_the_image(seed):
    random = randoms.Random(seed)
    quorum = SimulatedQuorum(random, is_dynamic=False)
    for _ in range(400):
        quorum.advance()
    offsets = sorted(quorum.images)
    image, before = ClusterImage("c"), EMPTY
    while offsets:
        del offsets[: random.randrange(1, 6)]
        if not offsets:
            break
        after = quorum.images[offsets[0]]
        image = translated(image, diff(before, after), after)
        assert_same(image, after)
        before = after


def replayed(*records):
    replay = Replay()
    return [change for record in records for change in replay.apply(record)], replay.publish(
        Position(9, 1, 0)
    )


AccessControlEntryRecord = CLASSES["AccessControlEntry"]
ConfigRecord = CLASSES["Config"]
PartitionChangeRecord = CLASSES["PartitionChange"]
PartitionRecord = CLASSES["Partition"]
RegisterBrokerRecord = CLASSES["RegisterBroker"]
RemoveTopicRecord = CLASSES["RemoveTopic"]
TopicRecord = CLASSES["Topic"]
ClientQuotaRecord = CLASSES["ClientQuota"]

ID, OTHER_ID = bytes(15) + b"\7", bytes(15) + b"\x08"
PARTITION = PartitionRecord(0, ID, [1, 2], [1, 2], leader=1, leader_epoch=3, partition_epoch=5)


def broker(broker_id, *, fenced, leaving=False):
    return RegisterBrokerRecord(
        broker_id, incarnation_id=bytes(16), broker_epoch=40, fenced=fenced, in_controlled_shutdown=leaving,
        end_points=[RegisterBrokerRecord.BrokerEndpoint("PLAIN", "host", 9092, 0)],
    )  # fmt: skip


def test_fenced_broker_is_registered_until_it_is_let_in():
    changes, after = replayed(broker(1, fenced=True))
    image = translated(ClusterImage("c"), changes, after)
    assert (set(image.brokers), set(image.fenced)) == (set(), {1})
    changes, after = replayed(broker(1, fenced=True), broker(1, fenced=False))
    image = translated(image, changes, after)
    assert (set(image.brokers), set(image.fenced)) == ({1}, set())


def test_only_brokers_that_are_not_fenced_are_alive():
    changes, after = replayed(broker(1, fenced=True), broker(2, fenced=False, leaving=True))
    image = translated(ClusterImage("c"), changes, after)
    assert image.brokers.keys() == {2}
    assert image.brokers[2].in_controlled_shutdown
    assert image.brokers[2].endpoints == {"PLAIN": ("host", 9092)}
    assert image.broker_epoch(2) == 40


def test_topic_created_again_is_deleted_first():
    changes, after = replayed(TopicRecord("t", ID), PARTITION)
    before = translated(ClusterImage("c"), changes, after)
    replay = Replay(after)
    again = PartitionRecord(0, OTHER_ID, [2], [2], leader=2, leader_epoch=0, partition_epoch=0)
    records = (RemoveTopicRecord(ID), TopicRecord("t", OTHER_ID), again)
    changes = [change for record in records for change in replay.apply(record)]
    steps = list(translate(before, changes, replay.publish(Position(20, 1, 0))))
    delta = Delta.of(before, before.apply(steps), steps)
    assert delta.deleted == {"t"}
    assert delta.replaced("t")
    assert delta.new.topics["t"].partitions[0].replicas == (2,)


def test_partition_that_changed_twice_is_published_once():
    changes, after = replayed(TopicRecord("t", ID), PARTITION)
    before = translated(ClusterImage("c"), changes, after)
    replay = Replay(after)
    changes = [
        change for leader in (2, 1) for change in replay.apply(PartitionChangeRecord(0, ID, leader=leader))
    ]
    [step] = translate(before, changes, replay.publish(Position(20, 1, 0)))
    assert (step.partition.leader, step.partition.leader_epoch, step.partition.partition_epoch) == (1, 5, 7)


def test_settings_are_those_of_the_whole_resource():
    changes, after = replayed(
        TopicRecord("t", ID), PARTITION, ConfigRecord(TOPIC, "t", "a", "1"), ConfigRecord(TOPIC, "t", "b", "2"),
        ConfigRecord(BROKER, "", "c", "3"),
    )  # fmt: skip
    image = translated(ClusterImage("c"), changes, after)
    assert image.settings_of(TOPIC, "t") == {"a": "1", "b": "2"}
    replay = Replay(after)
    changes = replay.apply(ConfigRecord(TOPIC, "t", "a", None))
    image = translated(image, changes, replay.publish(Position(20, 1, 0)))
    assert image.settings_of(TOPIC, "t") == {"b": "2"}
    assert image.settings_of(BROKER, "") == {"c": "3"}


def test_quotas_of_a_default_entity_are_those_of_its_type():
    record = ClientQuotaRecord(
        [ClientQuotaRecord.EntityData("user", None)], "producer_byte_rate", 5.0, remove=False
    )
    changes, after = replayed(record)
    assert translated(ClusterImage("c"), changes, after).quotas == {
        QuotaEntity(user=""): {"producer_byte_rate": 5.0}
    }


def test_acl_of_an_unknown_operation_is_not_guessed():
    entry = AccessControlEntryRecord(bytes(16), 2, "t", 3, "User:a", "*", 99, int(Permission.ALLOW))
    changes, after = replayed(entry)
    with pytest.raises(UntranslatableError, match="99"):
        list(translate(ClusterImage("c"), changes, after))
