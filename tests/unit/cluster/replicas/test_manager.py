"""The replicas of a broker beside the metadata: what is made, kept, given up, and what requests for the others meet."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cluster.metadata.changes import PartitionChanged, PartitionsAdded, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import NO_TOPIC_ID, Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.cluster.replication.roles import Role
from barnabas.config.keeper import Keeper
from barnabas.errors import RequestError, StorageError
from barnabas.wire.generated.errors import ErrorCode
from tests.support.logs import NOW_MS, TOPIC_ID
from tests.support.replicas import Node

OTHER_ID = b"another topic id"
LED = PartitionInfo(1, (1, 2), (1, 2), 5, 7)
FOLLOWED = PartitionInfo(2, (1, 2), (1, 2), 5, 7)
BEHIND = PartitionInfo(2, (1, 2), (2,), 5, 7)
ELSEWHERE = PartitionInfo(2, (2, 3), (2, 3), 5, 7)
SOLE = PartitionInfo(1, (1,), (1,), 5, 7)


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = TOPIC_ID) -> TopicCreated:
    return TopicCreated(TopicInfo(name, id, partitions))


def newer(info: PartitionInfo, **fields: Any) -> PartitionInfo:
    return info._replace(
        **{"leader_epoch": info.leader_epoch + 1, "partition_epoch": info.partition_epoch + 1} | fields
    )


def code_of(ask: Any, *arguments: Any) -> int:
    """The error with which a replica is refused, 0 for none."""
    try:
        ask(*arguments)
    except RequestError as error:
        return error.code
    return 0


async def restarted(node: Node, *changes: Change) -> None:
    """Start the broker again, and let it hear of everything at once."""
    node.logs.close()
    image, node.image = node.image, ClusterImage("c")
    node.start()
    again: list[Change] = [TopicCreated(topic) for topic in image.topics.values()]
    await node.apply([*again, *changes])


# --- what requests meet -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "role", "leads", "is_here"),
    [
        (LED, Role.LEADER, 0, 0),
        (FOLLOWED, Role.FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0),
        (ELSEWHERE, Role.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
async def test_each_role_has_its_errors(info: PartitionInfo, role: Role, leads: int, is_here: int) -> None:
    node = Node(1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(node.replicas.leader, "t", 0) == unknown  # before anything is known
    assert node.replicas.current_leader("t", 0) == (-1, -1)
    await node.create(info)
    replicas = node.replicas
    assert replicas.role("t", 0) is role
    assert (code_of(replicas.leader, "t", 0), code_of(replicas.local, "t", 0)) == (leads, is_here)
    for key in (("t", 1), ("u", 0)):
        assert (code_of(replicas.leader, *key), code_of(replicas.local, *key)) == (unknown, unknown)
        assert replicas.role(*key) is Role.NONE
        assert replicas.current_leader(*key) == (-1, -1)
    assert replicas.current_leader("t", 0) == (info.leader, 5)
    assert (replicas.find("t", 0) is not None) is (not is_here)
    assert len(replicas) == len(list(replicas)) == (0 if is_here else 1)
    assert not replicas.is_offline("t", 0, info)


@pytest.mark.parametrize("info", [LED, FOLLOWED])
async def test_a_replica_whose_disk_has_failed_is_offline(info: PartitionInfo) -> None:
    node = Node(1)
    await node.create(info)
    replica, replicas = node.replica, node.replicas
    node.storage_failed(StorageError("/d", OSError(5, "broken")))
    for ask in (replicas.leader, replicas.local):
        assert code_of(ask, "t", 0) == ErrorCode.KAFKA_STORAGE_ERROR
    assert replicas.role("t", 0) is Role.OFFLINE
    assert replica.is_offline
    assert replicas.is_offline("t", 0, info) is (info is LED)
    assert replicas.replicated() == ()
    assert node.fetched[-1] == ("stop", replica)
    assert replicas.why_offline("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    await node.change(newer(info, isr=(2,)))  # and the metadata do not bring it back
    assert replicas.role("t", 0) is Role.OFFLINE


async def test_a_log_is_that_of_a_replica_as_long_as_it_is_served() -> None:
    node = Node(1)
    await node.create(LED)
    log = node.replica.log
    assert node.replicas.is_served(log)
    await node.change(newer(ELSEWHERE))
    assert not node.replicas.is_served(log)
    await node.change(newer(newer(LED)))
    assert not node.replicas.is_served(log)


# --- following the metadata ---------------------------------------------------------------------------------------


async def test_fetching_begins_and_ends_with_the_role() -> None:
    node = Node(1)
    await node.create(FOLLOWED)
    replica = node.replica
    assert node.fetched == [("start", replica)]
    await node.change(FOLLOWED._replace(isr=(2,), partition_epoch=8))
    assert len(node.fetched) == 1
    await node.change(newer(FOLLOWED))
    assert node.fetched[1:] == [("stop", replica), ("start", replica)]
    await node.change(newer(newer(LED)))
    assert node.fetched[3:] == [("stop", replica)]
    assert (replica.role, replica.leader_epoch) == (Role.LEADER, 7)
    await node.change(newer(newer(newer(FOLLOWED))))
    assert node.fetched[4:] == [("start", replica)]
    assert (replica.role, replica.leader_epoch, replica.leader_id) == (Role.FOLLOWER, 8, 2)
    await node.change(newer(newer(newer(newer(ELSEWHERE)))))
    assert node.fetched[-1] == ("stop", replica)
    assert replica.is_offline


async def test_metadata_that_are_older_than_what_is_known_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node(1)
    await node.create(LED)
    replica = node.replica
    for stale in (FOLLOWED._replace(leader_epoch=4), LED._replace(isr=(1,), partition_epoch=6)):
        await node.change(stale)
        assert (replica.role, replica.leader_epoch, replica.in_sync_replicas) == (Role.LEADER, 5, {1, 2})
        assert "older than what is known" in caplog.text
        caplog.clear()
        await node.change(LED)
        caplog.clear()


async def test_replicas_that_others_have_too_are_told_apart() -> None:
    node = Node(1)
    await node.apply([topic(SOLE, LED, FOLLOWED, ELSEWHERE)])
    assert [replica.index for replica in node.replicas.replicated()] == [1, 2]
    await node.apply([PartitionChanged("t", 0, newer(LED)), PartitionChanged("t", 1, newer(SOLE))])
    assert sorted(replica.index for replica in node.replicas.replicated()) == [0, 2]
    await node.apply([PartitionChanged("t", 2, newer(ELSEWHERE)), PartitionChanged("t", 3, newer(FOLLOWED))])
    assert sorted(replica.index for replica in node.replicas.replicated()) == [0, 3]
    assert sorted(replica.index for replica in node.replicas) == [0, 1, 3]


# --- logs that come and go ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeper", Keeper)
async def test_deleted_topic_takes_its_logs_but_on_zookeeper(keeper: Keeper) -> None:
    node = Node(1, keeper=keeper)
    for index in (0, 1):
        node.replicas.begin_empty("t", index)
    await node.apply([topic(LED, FOLLOWED)])
    replica = node.replica
    await node.apply([TopicDeleted("t")])
    assert replica.is_offline
    assert len(node.replicas) == 0
    stays = keeper is Keeper.ZOOKEEPER
    assert [node.logs.get("t", index) is not None for index in (0, 1)] == [stays] * 2
    if stays:
        assert await node.replicas.delete_logs([("t", 0), ("t", 1)], NOW_MS, TOPIC_ID) == {}
        assert node.logs.get("t", 0) is node.logs.get("t", 1) is None


@pytest.mark.parametrize("keeper", Keeper)
async def test_removed_replica_takes_its_log_but_on_zookeeper(keeper: Keeper) -> None:
    node = Node(1, keeper=keeper)
    for index in (0, 1):
        node.replicas.begin_empty("t", index)
    await node.apply([topic(LED, LED)])
    await node.change(newer(ELSEWHERE))
    assert node.replicas.find("t", 0) is None
    assert [node.logs.get("t", index) is not None for index in (0, 1)] == [keeper is Keeper.ZOOKEEPER, True]
    assert node.replicas.role("t", 1) is Role.LEADER


async def test_new_replica_of_a_quorum_begins_beside_an_offline_dir() -> None:
    node = Node(1, dirs=("/d", "/e"), keeper=Keeper.QUORUM)
    await node.create(LED)
    failed = node.replica.log.log_dir
    node.replicas.lose(node.logs.take_offline(failed, StorageError(failed, OSError("gone"))))
    await node.change(newer(newer(LED)))
    assert node.replicas.role("t", 0) is Role.OFFLINE
    await node.apply([PartitionsAdded("t", (FOLLOWED,))])
    assert node.replicas.role("t", 1) is Role.FOLLOWER


async def test_a_topic_with_another_id_begins_anew() -> None:
    node = Node(1)
    await node.create(SOLE)
    node.produce(b"x")
    old = node.replica
    await node.apply([topic(SOLE, id=OTHER_ID)])
    assert old.is_offline
    assert node.replica is not old
    assert (node.replica.log.log_end_offset, node.replica.log.topic_id) == (0, OTHER_ID)


OF_BROKER_0 = PartitionInfo(0, (0, 1), (0,), 5, 7)


@pytest.mark.parametrize(
    ("info", "is_served"), [(LED, False), (FOLLOWED, False), (BEHIND, True), (OF_BROKER_0, True)]
)
async def test_missing_log_is_copied_again_or_offline_after_a_start(
    info: PartitionInfo, is_served: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(1, keeper=Keeper.ZOOKEEPER)
    node.replicas.begin_empty("t", 0)
    await node.create(info)
    directory = node.replica.log.dir
    node.logs.close()
    node.start()
    node.logs.missing["t", 0] = directory
    node.logs._logs.remove(node.logs.get("t", 0))
    node.image = ClusterImage("c")
    await node.apply([topic(info)])
    assert (node.replicas.find("t", 0) is not None) is is_served
    assert (f"copied again from broker {info.leader}" in caplog.text) is is_served
    assert (f"is offline: its log is gone from {directory}" in caplog.text) is not is_served
    caplog.clear()
    await node.change(info._replace(partition_epoch=8))
    assert "gone" not in caplog.text  # it is told once


# --- ids of topics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "begins", "is_set_aside"),
    [(LED, False, False), (FOLLOWED, False, False), (BEHIND, False, True), (LED, True, True)],
)
async def test_log_of_another_topic_is_set_aside_if_not_needed(
    info: PartitionInfo, begins: bool, is_set_aside: bool, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(1, keeper=Keeper.ZOOKEEPER)
    node.replicas.begin_empty("t", 0)
    await node.create(LED)
    node.produce(b"x", acks=1)
    node.logs.close()
    node.image = ClusterImage("c")
    node.start()
    if begins:
        node.replicas.begin_empty("t", 0)
    await node.apply([topic(info, id=OTHER_ID)])
    replica = node.replicas.find("t", 0)
    kept = [file.name for file in node.disk.list("/d") if file.name.endswith("-stray")]
    assert "kafka-leader-election" not in caplog.text, "that is for a broker that is alone"
    if is_set_aside:
        assert replica is not None
        assert (replica.log.topic_id, replica.log.log_end_offset, len(kept)) == (OTHER_ID, 0, 1)
        assert "it is kept as" in caplog.text
    else:
        assert (replica, kept) == (None, [])
        assert node.replicas.why_offline("t", 0) is ErrorCode.INCONSISTENT_TOPIC_ID
        assert caplog.text.count("is offline: topic t has the id") == 1
        assert 'write "topic_id":"' in caplog.text
        assert "move /d/t-0 away" in caplog.text
        await node.change(info._replace(partition_epoch=8))
        assert caplog.text.count("is offline: topic t has the id") == 1
        log = node.logs.get("t", 0)
        assert log is not None
        assert (log.topic_id, log.log_end_offset) == (TOPIC_ID, 1)


async def test_alone_another_topics_log_is_given_up_by_an_election(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(1)
    await node.create(SOLE)
    await restarted(node, topic(SOLE, id=OTHER_ID))
    assert node.replicas.role("t", 0) is Role.OFFLINE
    assert "remove /d/t-0/partition.metadata" in caplog.text
    assert "kafka-leader-election --election-type unclean" in caplog.text
    assert "znode" not in caplog.text


@pytest.mark.parametrize("deleted", [TOPIC_ID, OTHER_ID, NO_TOPIC_ID], ids=["its own", "another", "none"])
@pytest.mark.parametrize("noted", [None, TOPIC_ID, OTHER_ID], ids=["nothing", "its own", "another"])
async def test_only_the_log_of_the_topic_that_was_deleted_goes(deleted: bytes, noted: bytes | None) -> None:
    node = Node(1)
    await node.create(SOLE)
    if noted is not None:
        node.replicas.own_logs.note_deletions([(("t", 0), noted), (("t", 1), noted)])
    assert await node.replicas.delete_logs([("t", 0)], NOW_MS, deleted) == {}
    assert node.logs.get("t", 0) is None
    kinds = {file.name.rpartition("-")[2] for file in node.disk.list("/d") if file.name.startswith("t-0.")}
    assert kinds == ({"stray"} if (noted or deleted) == OTHER_ID else {"delete"})


async def test_the_id_of_a_topic_may_be_known_to_a_log_that_is_in_sync() -> None:
    node = Node(1)
    assert node.replicas.topic_id("t") is None
    await node.apply([topic(ELSEWHERE, LED, name="t")])
    assert node.replicas.topic_id("t") == TOPIC_ID
    assert node.replicas.topic_id("u") is None
    await restarted(node, topic(ELSEWHERE, LED, id=NO_TOPIC_ID))
    assert node.replicas.topic_id("t") == TOPIC_ID
    await restarted(node, topic(ELSEWHERE, BEHIND, id=NO_TOPIC_ID))
    assert node.replicas.topic_id("t") is None
