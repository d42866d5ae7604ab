"""Changes of an image: what they do, how they are kept, and what is left of them when one is lost."""

from __future__ import annotations

from typing import Any

from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    EpochBegun,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import NO_TOPIC_ID, BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.replay import replay
from tests.support.effort import drawing

ID, OTHER_ID = b"i" * 16, b"o" * 16
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)


def image(*topics: TopicInfo, brokers: int = 3) -> ClusterImage:
    there = [BrokerRegistered(BrokerInfo(id_, None, {})) for id_ in range(1, brokers + 1)]
    return ClusterImage("c").apply([*there, *map(TopicCreated, topics)])


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = ID) -> TopicInfo:
    return TopicInfo(name, id, partitions or (LED,))


# --- images -------------------------------------------------------------------------------------------------------


def test_partitions_are_found_by_their_index_alone() -> None:
    now = image(topic(LED, LED._replace(leader=2)))
    partitions = [now.partition("t", index) for index in (-1, 0, 1, 2)]
    assert [part.leader if part else None for part in partitions] == [None, 1, 2, None]
    assert now.partition("u", 0) is None
    assert (now.topic_id("t"), now.topic_id("u"), now.topic_name(ID), now.topic_name(OTHER_ID)) == (
        ID,
        None,
        "t",
        None,
    )
    assert image(topic(id=NO_TOPIC_ID)).topic_id("t") is None
    back = now.apply([BrokerRegistered(BrokerInfo(2, None, {}, 44))])
    assert (back.broker_epoch(2), back.broker_epoch(1), back.broker_epoch(9)) == (44, -1, -1)
    assert (topic(name="__consumer_offsets").internal, topic().internal) == (True, False)


def test_a_sole_leader_begins_a_new_epoch() -> None:
    assert LED.with_sole_leader(2) == PartitionInfo(2, (1, 2), (2,), 6, 8)
    assert LED.with_sole_replica(2) == PartitionInfo(2, (2,), (2,), 6, 8)


# --- changes that are read back -----------------------------------------------------------------------------------


def test_changes_after_one_that_is_lost_are_made_to_fit() -> None:
    first, again = topic(LED), topic(LED, LED, id=OTHER_ID)
    read = replay([
        PartitionsAdded("t", (LED,)), PartitionChanged("t", 0, LED), TopicDeleted("t"), TopicCreated(first),
        PartitionChanged("t", 1, LED), PartitionsAdded("t", (LED,)), PartitionChanged("t", 1, LED),
        PartitionChanged("t", -1, LED), TopicCreated(again), PartitionChanged("t", 1, LED), EpochBegun(3),
    ])  # fmt: skip
    assert read.left_out == [
        "the growth of topic t", "a change of t-0", "the end of topic t", "a change of t-1", "a change of t--1",
        "the end of topic t",
    ]  # fmt: skip
    assert read.deleted == {ID}
    assert read.changes == [
        TopicCreated(first), PartitionsAdded("t", (LED,)), PartitionChanged("t", 1, LED), TopicDeleted("t"),
        TopicCreated(again), PartitionChanged("t", 1, LED), EpochBegun(3),
    ]  # fmt: skip
    back = replay([TopicCreated(first), TopicDeleted("t"), TopicCreated(first)])
    assert (back.deleted, back.left_out) == (set(), [])


# --- many changes at once -------------------------------------------------------------------------------------------


def test_many_changes_at_once_are_the_same_as_one_by_one() -> None:
    random = drawing()
    for _ in range(200):
        now = base = image()
        changes: list[Any] = []
        for number in range(random.randrange(1, 20)):
            name = random.choice(("t", "u", "v"))
            topic_before = now.topics.get(name)
            there = topic_before is not None
            change = random.choice([
                EpochBegun(now.latest_epoch + random.randrange(1, 4)),
                EpochBegun(now.latest_epoch + 1),
                TopicDeleted(name) if there else TopicCreated(topic(LED, LED, name=name, id=bytes([number]) * 16)),
                PartitionsAdded(name, (LED,)) if there else EpochBegun(now.latest_epoch + 1),
                PartitionChanged(name, 1, LED._replace(leader_epoch=random.randrange(40)))
                if there else TopicCreated(topic(LED, LED, name=name, id=bytes([number]) * 16)),
            ])  # fmt: skip
            changes.append(change)
            now = now.apply([change])
        assert base.apply(changes) == now


def test_epochs_in_a_row_go_through_each_partition_once() -> None:
    now = image(topic()).apply([EpochBegun(epoch) for epoch in range(10, 60)])
    info = now.partition("t", 0)
    assert info == LED._replace(leader_epoch=59, partition_epoch=LED.partition_epoch + 50)
