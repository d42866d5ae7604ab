"""Logs without a topic become topics, with leaders, epochs, and producer ids that count as taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from barnabas.broker.adoption import (
    KEPT_WHOLE,
    adopt_logs,
    begin_epoch,
    lead_all,
    set_aside_copies,
    set_aside_deleted,
)
from barnabas.cluster.metadata.changes import (
    BrokerRegistered,
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import BrokerInfo, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.replicas.lost_dirs import LOST
from barnabas.config.loading import BrokerConfig
from barnabas.coordinators.transactions.producer_ids import BLOCK_SIZE

ME, OTHER = 1, 2
A, B, C = (name * 16 for name in (b"a", b"b", b"c"))
CONFIG = BrokerConfig({"log.dirs": "/x", "listeners": "PLAINTEXT://:0"})


class Logs(list[Any]):
    """Stands for the logs of a broker, in one log dir."""

    meta: ClassVar = {"/a": SimpleNamespace(directory_id=b"d" * 16)}


def log(
    topic: str, partition: int, topic_id: bytes | None = A, *, ids: tuple[int, ...] = (), epoch: int = 0
) -> Any:
    producers = SimpleNamespace(snapshot=lambda: [SimpleNamespace(producer_id=id_) for id_ in ids])
    return SimpleNamespace(
        topic=topic, partition=partition, topic_id=topic_id, producers=producers,
        epochs=SimpleNamespace(latest=epoch),
    )  # fmt: skip


def led(*leaders: int, epoch: int = 0) -> tuple[PartitionInfo, ...]:
    return tuple(PartitionInfo(leader, (leader,), (leader,), epoch, epoch) for leader in leaders)


def image_of(*topics: TopicInfo, next_producer_id: int = 0) -> ClusterImage:
    changes = [BrokerRegistered(BrokerInfo(ME, None, {})), *map(TopicCreated, topics)]
    return ClusterImage("c").apply([*changes, ProducerIdsAllocated(next_producer_id)])


def adopted(image: ClusterImage, *logs: Any, lost_lines: int = 0) -> list[Any]:
    entropy: Any = SimpleNamespace(token_bytes=lambda count: b"n" * count)
    return adopt_logs(Logs(logs), ME, CONFIG, image, lost_lines, entropy=entropy)  # type: ignore[arg-type]


# --- who leads, and in which epoch ----------------------------------------------------------------------------


def test_partitions_of_an_absent_broker_are_led_by_this_one():
    image = image_of(TopicInfo("t", A, led(ME, OTHER, -1, epoch=4)))
    changes = lead_all(ME, image)
    assert [(change.name, change.index) for change in changes] == [("t", 1), ("t", 2)]
    assert all(isinstance(change, PartitionChanged) for change in changes)
    for partition in image.apply(changes).topics["t"].partitions[1:]:
        assert (partition.leader, partition.replicas, partition.isr) == (ME, (ME,), (ME,))
        assert (partition.leader_epoch, partition.partition_epoch) == (4, 5)
    assert lead_all(ME, image.apply(changes)) == []


@pytest.mark.parametrize(
    ("latest", "of_partitions", "of_logs", "begun"),
    [
        (0, (), (), None),
        (9, (), (), None),
        (0, (0,), (), 1),
        (0, (), (0,), 1),
        (9, (3,), (5,), 10),
        (3, (2, 9), (5,), 10),
        (3, (2,), (5, 9, 1), 10),
    ],
)
def test_all_begin_an_epoch_that_none_has_had(latest, of_partitions, of_logs, begun):
    topics = [
        TopicInfo(f"t{n}", bytes([n]) * 16, led(ME, epoch=epoch)) for n, epoch in enumerate(of_partitions)
    ]
    image = image_of(*topics)._replace(latest_epoch=latest)
    changes = begin_epoch(Logs(log("t", n, epoch=epoch) for n, epoch in enumerate(of_logs)), image)  # type: ignore[arg-type]
    assert [c.epoch for c in changes if isinstance(c, EpochBegun)] == ([] if begun is None else [begun])


# --- what is set aside ----------------------------------------------------------------------------------------


class OwnLogs:
    def __init__(self) -> None:
        self.aside: list[tuple[str, int, str]] = []

    def set_aside(self, partition_log: Any, why: str) -> None:
        self.aside.append((partition_log.topic, partition_log.partition, why))


def test_only_what_is_left_of_deleted_topics_is_set_aside():
    own: Any = OwnLogs()
    set_aside_deleted(Logs([log("t", 0, A), log("u", 1, B), log("v", 2, None)]), own, {B, C})  # type: ignore[arg-type]
    assert own.aside == [("u", 1, "that topic was deleted")]


def test_copy_under_another_name_is_set_aside_and_the_topic_kept():
    own: Any = OwnLogs()
    logs = [log("x", 0, A), log("t", 0, A), log("z", 1, B), log("z", 0, B), log("y", 0, B), log("v", 0, None)]
    set_aside_copies(Logs(logs), own, image_of(TopicInfo("t", A, led(ME))))  # type: ignore[arg-type]
    assert own.aside == [
        ("x", 0, "that is the id of topic t"), ("z", 0, "that is the id of topic y"),
        ("z", 1, "that is the id of topic y"),
    ]  # fmt: skip


# --- topics ---------------------------------------------------------------------------------------------------


def test_topic_has_as_many_partitions_as_its_highest_log(caplog):
    changes = adopted(image_of(), log("t", 3), log("t", 0), log("t", 1, None))
    image = image_of().apply(changes)
    topic = image.topics["t"]
    assert (topic.id, len(topic.partitions)) == (A, 4)
    assert {(part.leader, part.replicas, part.isr) for part in topic.partitions} == {(ME, (ME,), (ME,))}
    assert image.log_dirs == {ME: {b"d" * 16, LOST}}
    assert "no log was found of partitions 2 of topic t: they are offline" in caplog.text


def test_log_dirs_are_named_where_something_is_missing_only():
    changes = adopted(image_of(), log("t", 0), log("t", 1))
    assert not any(isinstance(change, LogDirsRegistered) for change in changes)
    known_dirs = image_of().apply([LogDirsRegistered(ME, frozenset({b"k" * 16}))])
    [dirs] = [change for change in adopted(known_dirs, log("t", 1)) if isinstance(change, LogDirsRegistered)]
    assert (dirs.broker_id, dirs.directory_ids) == (ME, {b"d" * 16, b"k" * 16, LOST})


@pytest.mark.parametrize(
    ("ids", "chosen"), [((A, B, B), B), ((None, A), A), ((A, None, None), A), ((None,), b"n" * 16)]
)
def test_topic_id_is_that_of_most_logs_and_new_without_any(ids, chosen):
    changes = adopted(image_of(), *(log("t", n, topic_id) for n, topic_id in enumerate(ids)))
    assert image_of().apply(changes).topics["t"].id == chosen


def test_user_topics_are_adopted_whole_internal_ones_as_created():
    changes = adopted(image_of(), log("t", 0, A), log("__consumer_offsets", 0, B))
    settings = {c.resource_name: dict(c.settings) for c in changes if isinstance(c, ConfigChanged)}
    assert settings["t"] == KEPT_WHOLE
    assert settings["__consumer_offsets"]["cleanup.policy"] == "compact"
    assert [c.topic.name for c in changes if isinstance(c, TopicCreated)] == ["__consumer_offsets", "t"]


@pytest.mark.parametrize(
    ("logs", "added"),
    [
        ([(1, A)], 0),
        ([(2, A)], 1),
        ([(4, A), (2, A)], 3),
        ([(2, A), (4, A)], 3),
        ([(4, B)], 0),
        ([(4, None)], 0),
    ],
)
def test_a_topic_grows_by_logs_with_its_id_and_by_no_others(logs, added, caplog):
    image = image_of(TopicInfo("t", A, led(ME, ME)))
    changes = adopted(image, *(log("t", partition, topic_id) for partition, topic_id in logs))
    grown = [change for change in changes if isinstance(change, PartitionsAdded)]
    assert changes == grown, "it is no new topic"
    assert [(c.name, c.partitions) for c in grown] == ([("t", led(*[ME] * added))] if added else [])
    assert (f"topic t has {2 + added} partitions, not 2" in caplog.text) is bool(added)


# --- producer ids ---------------------------------------------------------------------------------------------


def next_id(changes: list[Any]) -> int | None:
    return next((change.next_id for change in changes if isinstance(change, ProducerIdsAllocated)), None)


@pytest.mark.parametrize(
    ("of_adopted", "next_at", "lost_lines", "expected"),
    [
        ((), 0, 0, None),
        ((0,), 0, 0, 1),
        ((7, 3), 0, 0, 8),
        ((7,), 8, 0, None),
        ((7,), 7, 0, 8),
        ((7,), 9, 0, None),
        ((), 0, 2, 51 + 2 * BLOCK_SIZE),
        ((70,), 0, 1, 71 + BLOCK_SIZE),
        ((7,), 100, 1, 100 + BLOCK_SIZE),
    ],
)
def test_no_producer_id_that_may_be_in_use_is_handed_out_again(of_adopted, next_at, lost_lines, expected):
    """Those of topics that are known are known, too, unless places of the metadata cannot be read."""
    image = image_of(TopicInfo("known", A, led(ME)), next_producer_id=next_at)
    logs = log("known", 0, A, ids=(50,)), log("t", 0, B, ids=of_adopted)
    assert next_id(adopted(image, *logs, lost_lines=lost_lines)) == expected
