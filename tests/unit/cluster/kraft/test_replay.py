"""Effects of records on the image: partitions and brokers, transactions, snapshots, and records that do not fit."""

from contextlib import suppress

import pytest

from barnabas.cluster.kraft.image import EMPTY, TOPIC, Change, Position, diff
from barnabas.cluster.kraft.replay import Replay
from barnabas.cluster.kraft.transitions import MetadataRecordError
from barnabas.cluster.kraft.values import MIGRATING, UNASSIGNED
from barnabas.wire.generated.data.leader_change_message import LeaderChangeMessage
from barnabas.wire.metadata_records import record_codec, record_keys, record_name

CLASSES = {record_name(key): record_codec(key).message for key in record_keys()}
ID, OTHER = bytes(range(16)), bytes(range(16, 32))
DIRS = [bytes([number]) * 16 for number in range(1, 5)]


def record(kind, /, **fields):
    return CLASSES[kind](**fields)


def broker(broker_id=1, epoch=10, **fields):
    return record("RegisterBroker", broker_id=broker_id, broker_epoch=epoch, incarnation_id=ID, **fields)


def partition(index=0, **fields):
    values = {"replicas": [1, 2], "isr": [1, 2], "leader": 1, "leader_epoch": 5, "partition_epoch": 7}
    return record("Partition", partition_id=index, topic_id=ID, **{**values, **fields})


def change(index=0, **fields):
    return record("PartitionChange", partition_id=index, topic_id=ID, **fields)


def replayed(*records):
    replay = Replay()
    for item in records:
        replay.apply(item)
    return replay.publish(Position(len(records), 1, 0))


ORDERS = record("Topic", name="orders", topic_id=ID)
START = (ORDERS, partition(directories=DIRS[:2]))


def after(**fields):
    return replayed(*START, change(**fields)).partitions[ID, 0]


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_every_record_has_a_transition(kind):
    replay = Replay()
    if kind in ("EndTransaction", "AbortTransaction"):
        replay.apply(record("BeginTransaction"))
    with suppress(MetadataRecordError):
        replay.apply(record(kind))
        return
    with pytest.raises(MetadataRecordError, match=r"is not registered|there is no|cannot have"):
        replay.apply(record(kind))


def test_message_that_is_no_metadata_record_is_an_error():
    with pytest.raises(MetadataRecordError, match="a LeaderChangeMessage has no meaning here"):
        Replay().apply(LeaderChangeMessage())


@pytest.mark.parametrize(
    ("fields", "leader", "leader_epoch"),
    [({}, 1, 5), ({"leader": -1}, -1, 6), ({"leader": 2}, 2, 6), ({"leader": 1}, 1, 6), ({"isr": [1]}, 1, 5)],
)
def test_partition_change_raises_epochs_as_kafka_does(fields, leader, leader_epoch):
    partition = after(**fields)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (leader, leader_epoch, 8)


def test_absent_fields_of_a_partition_change_are_unchanged():
    before = replayed(*START).partitions[ID, 0]
    assert after() == before._replace(partition_epoch=8)
    assert after(isr=[]) == before._replace(partition_epoch=8, isr=())
    elr = after(eligible_leader_replicas=[2], last_known_elr=[1], leader_recovery_state=1)
    assert (elr.elr, elr.last_known_elr, elr.leader_recovery_state) == ((2,), (1,), 1)


def test_new_replicas_without_directories_are_unassigned():
    assert after(replicas=[2, 3, 1]).directories == (DIRS[1], UNASSIGNED, DIRS[0])
    assert after(replicas=[2, 3], directories=DIRS[2:]).directories == (DIRS[2], DIRS[3])


def test_partition_without_directories_is_migrating():
    assert replayed(ORDERS, partition()).partitions[ID, 0].directories == (MIGRATING, MIGRATING)


def test_clear_elr_raises_the_epoch_where_there_was_one():
    image = replayed(
        *START,
        partition(1, eligible_leader_replicas=[2]),
        partition(2, last_known_elr=[2]),
        record("ClearElr", topic_name="orders"),
    )
    assert [part.partition_epoch for _, part in image.partitions_of(image.topic("orders"))] == [7, 8, 8]
    assert not any(part.elr or part.last_known_elr for part in image.partitions.values())
    assert (
        replayed(*START, partition(1, eligible_leader_replicas=[2]), record("ClearElr")).partitions[ID, 1].elr
        == ()
    )


def test_removed_topic_takes_partitions_and_settings_along():
    setting = record("Config", resource_type=TOPIC, resource_name="orders", name="retention.ms", value="1")
    replay = Replay()
    for item in (*START, setting):
        replay.apply(item)
    changes = replay.apply(record("RemoveTopic", topic_id=ID))
    assert [(item.kind, item.after) for item in changes] == [
        ("partition", None),
        ("setting", None),
        ("topic", None),
    ]
    assert replay.publish(Position()) == EMPTY


def test_topic_created_again_in_one_batch_is_the_new_one():
    again = record("Topic", name="orders", topic_id=OTHER)
    image = replayed(*START, record("RemoveTopic", topic_id=ID), again)
    assert image.topic("orders").id == OTHER
    assert list(image.partitions) == []


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        ({"fenced": -1}, {"fenced": False}),
        ({"fenced": 1}, {"fenced": True}),
        ({"in_controlled_shutdown": 1}, {"in_controlled_shutdown": True}),
        ({"fenced": -1, "in_controlled_shutdown": 0}, {"fenced": False}),
        ({"log_dirs": [DIRS[2], DIRS[0]]}, {"log_dirs": (DIRS[0], DIRS[2])}),
        ({"cordoned_log_dirs": []}, {"cordoned_log_dirs": ()}),
    ],
)
def test_broker_change_changes_what_it_names(fields, expected):
    registered = broker(log_dirs=DIRS[:2])
    before = replayed(registered).brokers[1]
    changed = record("BrokerRegistrationChange", broker_id=1, broker_epoch=10, **fields)
    assert replayed(registered, changed).brokers[1] == before._replace(**expected)


def test_unfence_leaves_controlled_shutdown():
    unfence = record("BrokerRegistrationChange", broker_id=1, broker_epoch=10, fenced=-1)
    assert replayed(broker(in_controlled_shutdown=True), unfence).brokers[1].in_controlled_shutdown


def test_log_dirs_are_sorted_as_signed_numbers():
    high, low = b"\xff" * 16, b"\1" * 16
    assert replayed(broker(log_dirs=[low, high])).brokers[1].log_dirs == (high, low)
    first, second = bytes(8) + b"\x80" + bytes(7), bytes(8) + b"\x7f" + bytes(7)
    assert replayed(broker(log_dirs=[second, first])).brokers[1].log_dirs == (first, second)


def test_old_fence_records_are_read():
    unfenced = replayed(broker(), record("UnfenceBroker", id=1, epoch=10))
    assert not unfenced.brokers[1].fenced
    assert replayed(broker(fenced=False), record("FenceBroker", id=1, epoch=10)).brokers[1].fenced


def test_feature_at_level_0_and_kraft_version_are_absent():
    features = [
        record("FeatureLevel", name=name, feature_level=level)
        for name, level in (
            ("metadata.version", 30),
            ("kraft.version", 1),
            ("share.version", 1),
            ("share.version", 0),
        )
    ]
    image = replayed(*features)
    assert image.features == {"metadata.version": 30}
    assert image.metadata_version == 30


def test_quota_entity_is_the_same_in_any_order():
    part = CLASSES["ClientQuota"].EntityData
    parts = [part("user", None), part("client-id", "app")]
    first = record("ClientQuota", entity=parts, key="producer_byte_rate", value=1.0)
    assert len(replayed(first).quotas) == 1
    removal = record("ClientQuota", entity=parts[::-1], key="producer_byte_rate", remove=True)
    assert replayed(first, removal).quotas == {}


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (change(1), "no partition 1 of orders"),
        (record("PartitionChange", partition_id=0, topic_id=OTHER), f"no topic with id {OTHER.hex()}"),
        (record("Partition", partition_id=0, topic_id=OTHER), "no topic"),
        (partition(-1), "cannot have a partition -1"),
        (partition(1, directories=DIRS[:1]), "not as many log dirs as replicas"),
        (change(directories=DIRS[:3]), "not as many log dirs as replicas"),
        (record("RemoveTopic", topic_id=OTHER), "no topic"),
        (record("ClearElr", topic_name="other"), "no topic other"),
        (ORDERS, "already"),
        (record("UnregisterBroker", broker_id=1, broker_epoch=9), "broker 1 has epoch 10, not 9"),
        (record("BrokerRegistrationChange", broker_id=2, broker_epoch=9), "broker 2 is not registered"),
        (record("BrokerRegistrationChange", broker_id=1, broker_epoch=10, fenced=2), "such a state"),
        (record("UnregisterController", controller_id=3), "controller 3 is not registered"),
        (record("RemoveAccessControlEntry", id=ID), "no ACL"),
        (record("EndTransaction"), "has not begun"),
        (record("AbortTransaction"), "has not begun"),
    ],
)
def test_record_that_does_not_fit_is_an_error(item, text):
    replay = Replay()
    for earlier in (*START, broker()):
        replay.apply(earlier)
    before = replay.publish(Position(1, 1, 1))
    with pytest.raises(MetadataRecordError, match=text):
        replay.apply(item)
    assert replay.publish(Position(1, 1, 1)) == before


def test_transaction_applies_at_its_end():
    replay = Replay()
    replay.apply(broker())
    assert replay.apply(record("BeginTransaction", name="two")) == ()
    assert replay.apply(ORDERS) == ()
    assert replay.apply(partition()) == ()
    assert replay.in_transaction
    assert replay.publish(Position(3, 1, 1)).topics == {}
    changes = replay.apply(record("EndTransaction"))
    assert [item.kind for item in changes] == ["topic", "partition"]
    image = replay.publish(Position(4, 1, 1))
    assert (image.position.offset, list(image.topic_ids), list(image.brokers)) == (4, ["orders"], [1])


def test_aborted_transaction_is_dropped():
    replay = Replay()
    replay.apply(broker())
    before = replay.publish(Position(0, 1, 1))
    for item in (record("BeginTransaction"), ORDERS, broker(2), record("AbortTransaction", reason="no")):
        assert replay.apply(item) == ()
    assert replay.publish(Position(0, 1, 1)) == before
    assert [item.kind for item in replay.apply(ORDERS)] == ["topic"]


def test_transaction_inside_of_another_is_an_error():
    replay = Replay()
    replay.apply(record("BeginTransaction"))
    with pytest.raises(MetadataRecordError, match="begins inside"):
        replay.apply(record("BeginTransaction"))


def test_records_before_an_aborted_transaction_survive():
    replay = Replay()
    for item in (ORDERS, record("BeginTransaction"), broker(), record("AbortTransaction")):
        replay.apply(item)
    image = replay.publish(Position(3, 1, 1))
    assert (list(image.topic_ids), dict(image.brokers)) == (["orders"], {})


def test_snapshot_is_taken_as_a_difference():
    replay = Replay()
    for item in (*START, broker()):
        replay.apply(item)
    before = replay.publish(Position(2, 1, 1))
    snapshot = replayed(broker(), broker(2, 20))
    changes = list(replay.load(snapshot))
    assert {(item.kind, item.after is None) for item in changes} == {
        ("topic", True),
        ("partition", True),
        ("broker", False),
    }
    assert replay.image is snapshot
    assert sorted(item.kind for item in diff(snapshot, before)) == ["broker", "partition", "topic"]


def test_images_keep_what_they_had_while_the_next_is_made():
    replay = Replay()
    for item in START:
        replay.apply(item)
    first = replay.publish(Position(1, 1, 1))
    replay.apply(change(isr=[1]))
    second = replay.publish(Position(2, 1, 1))
    assert (first.partitions[ID, 0].isr, second.partitions[ID, 0].isr) == ((1, 2), (1,))
    assert list(diff(first, second)) == [
        Change("partition", (ID, 0), first.partitions[ID, 0], second.partitions[ID, 0])
    ]


def test_values_of_settings_are_in_no_repr():
    setting = record("Config", resource_type=4, resource_name="", name="ssl.key.password", value="hush")
    replay = Replay()
    (item,) = replay.apply(setting)
    assert "hush" not in repr(item)
    assert "hush" not in repr(replay.publish(Position()))
