"""Logs of a broker in a quorum: deleted when their deletion is followed, set aside when they are strays, never replaced.

The image of a quorum is complete, and says in which log dir each replica is (KIP-858).
"""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.cluster.kraft.values import LOST, MIGRATING, UNASSIGNED
from barnabas.cluster.metadata.changes import PartitionChanged, TopicCreated, TopicDeleted
from barnabas.cluster.metadata.image import Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.config.keeper import Keeper
from barnabas.errors import StorageError
from barnabas.log.format.properties import MetaProperties
from tests.support.logs import NOW_MS, TOPIC_ID
from tests.support.replicas import Node

OTHER_ID = b"another topic id"
GONE_DIR = b"a dir that is no"
DIRS = ("/a", "/b")
ALONE = PartitionInfo(1, (1,), (1,), 5, 7, directories=(UNASSIGNED,))
BEHIND = PartitionInfo(2, (1, 2), (2,), 5, 7, directories=(UNASSIGNED, GONE_DIR))
IN_SYNC = BEHIND._replace(isr=(1, 2))


def topic(*partitions: PartitionInfo, name: str = "t", id: bytes = TOPIC_ID) -> TopicCreated:
    return TopicCreated(TopicInfo(name, id, partitions))


class Member(Node):
    """A broker of a quorum with two log dirs."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(1, dirs=DIRS, keeper=Keeper.QUORUM, **fields)

    def start(self) -> None:
        for path in DIRS:
            meta = MetaProperties(1, "c", 1, f"the log dir is {path}".encode()[-16:])
            self.disk.replace(f"{path}/meta.properties", meta.encode(), sync=True)
        super().start()

    def directory_id(self, path: str) -> bytes:
        directory_id = self.logs.meta[path].directory_id
        assert directory_id is not None
        return directory_id

    def directories(self) -> list[str]:
        """The names of the directories of logs, of strays the partition and the mark alone."""
        names = [entry.name for path in DIRS for entry in self.disk.list(path) if entry.is_dir]
        return sorted(
            f"{name.split('.')[0]}-{name.rpartition('-')[2]}" if "." in name else name for name in names
        )

    async def restart(self, *changes: Change, removed: str = "") -> None:
        """Start again with an image of these changes, as the broker opens its storage; `removed` is gone by then."""
        self.logs.close()
        if removed:
            self.disk.remove_tree(removed)
        self.start()
        self.image = ClusterImage("c")
        self.replicas.own_logs.set_aside_strays(self.image.apply(changes))
        await self.apply(changes)

    def fail(self, path: str) -> None:
        self.storage_failed(StorageError(path, OSError(5, "Input/output error")))

    async def assign(self, info: PartitionInfo, directory_id: bytes) -> PartitionInfo:
        info = info._replace(
            directories=(directory_id, *info.directories[1:]), partition_epoch=info.partition_epoch + 1
        )
        await self.change(info)
        return info

    def home(self) -> str:
        """The log dir with the log of t-0."""
        partition_log = self.logs.get("t", 0)
        assert partition_log is not None
        return partition_log.log_dir


# --- deletions that the broker follows --------------------------------------------------------------------------------


async def test_logs_go_with_a_topic_that_is_deleted_meanwhile():
    node = Member()
    await node.apply([topic(ALONE, ALONE)])
    await node.apply([TopicDeleted("t")])
    assert node.directories() == ["t-0-delete", "t-1-delete"]


async def test_log_goes_with_a_replica_that_moves_to_another_broker():
    node = Member()
    await node.apply([topic(ALONE, ALONE)])
    await node.apply(
        [PartitionChanged("t", 1, BEHIND._replace(replicas=(2,), directories=(GONE_DIR,), partition_epoch=8))]
    )
    assert node.directories() == ["t-0", "t-1-delete"]


async def test_topic_made_again_in_one_change_begins_empty():
    node = Member()
    await node.apply([topic(ALONE)])
    node.produce(b"old")
    await node.apply([TopicDeleted("t"), topic(ALONE, id=OTHER_ID)])
    assert (node.replica.log.topic_id, node.replica.log.log_end_offset) == (OTHER_ID, 0)
    assert node.directories() == ["t-0", "t-0-delete"]


# --- stray logs of a start -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([], "the cluster has no such topic"),
        ([topic(ALONE._replace(leader=2, replicas=(2,), isr=(2,)))], "has no replica on this broker"),
        ([topic(ALONE, id=OTHER_ID)], "topic t has the id"),
        ([topic()], "has no replica on this broker"),
    ],
    ids=["deleted", "moved", "made again", "fewer partitions"],
)
async def test_stray_log_is_set_aside_and_never_served(now, why, caplog):
    node = Member()
    await node.apply([topic(ALONE)])
    node.produce(b"old")
    await node.restart(*now)
    partition_log = node.logs.get("t", 0)
    assert partition_log is None or partition_log.log_end_offset == 0
    assert "t-0-stray" in node.directories()
    assert not [name for name in node.directories() if name.endswith("-delete")]
    assert why in caplog.text


async def test_stray_log_does_not_become_a_later_topic_of_its_name():
    node = Member()
    await node.apply([topic(ALONE)])
    node.produce(b"old")
    for path in DIRS:
        if any(entry.name == "t-0" for entry in node.disk.list(path)):
            node.disk.remove(f"{path}/t-0/partition.metadata")
    await node.restart()  # without its id the log could be of any topic of that name
    await node.apply([topic(ALONE, id=OTHER_ID)])
    assert node.replica.log.log_end_offset == 0
    assert node.directories() == ["t-0", "t-0-stray"]


async def test_log_without_its_id_stays_that_of_its_topic():
    node = Member()
    await node.apply([topic(ALONE)])
    node.produce(b"kept")
    node.disk.remove(f"{node.home()}/t-0/partition.metadata")
    await node.restart(topic(ALONE))
    assert (node.replica.log.log_end_offset, node.replica.log.topic_id) == (1, TOPIC_ID)


# --- log dirs that are not there ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", [UNASSIGNED, MIGRATING])
async def test_new_replica_without_a_dir_is_made_in_any(directory):
    node = Member()
    await node.apply([topic(ALONE._replace(directories=(directory,)))])
    assert node.replica.is_leader


@pytest.mark.parametrize("directory", [GONE_DIR, LOST])
@pytest.mark.parametrize("info", [ALONE, IN_SYNC], ids=["alone", "in sync"])
async def test_replica_of_a_dir_that_is_not_here_gets_no_empty_log(directory, info, caplog):
    node = Member()
    await node.apply([topic(info._replace(directories=(directory, *info.directories[1:])))])
    assert node.directories() == []
    assert node.replicas.why_offline("t", 0)
    assert "t-0 stays offline: its log is in log dir" in caplog.text
    for epoch in (8, 9):
        await node.change(
            info._replace(directories=(directory, *info.directories[1:]), partition_epoch=epoch)
        )
    assert caplog.text.count("t-0 stays offline") == 1


async def test_replica_of_a_missing_dir_is_copied_if_others_have_it():
    node = Member()
    info = BEHIND._replace(directories=(GONE_DIR, GONE_DIR))
    node.fail("/b")  # as at a start: what is in it is not known
    await node.apply([topic(info)])
    assert node.directories() == []
    await node.restart(topic(info))
    assert node.directories() == ["t-0"]


@pytest.mark.parametrize("info", [ALONE, BEHIND], ids=["alone", "others have it"])
async def test_lost_log_is_not_replaced_while_its_dir_is_offline(info):
    node = Member()
    await node.apply([topic(info)])
    home = node.home()
    info = await node.assign(info, node.directory_id(home))
    directory_id = node.directory_id(home)
    node.fail(home)
    other = next(path for path in DIRS if path != home)
    for directory in (directory_id, UNASSIGNED, node.directory_id(other)):
        info = await node.assign(info, directory)
        assert node.logs.get("t", 0) is None
    await node.apply([topic(ALONE, name="u", id=OTHER_ID)])
    partition_log = node.logs.get("u", 0)
    assert partition_log is not None, "new topics go to the dir that works"
    assert partition_log.log_dir == other


async def test_topic_made_again_after_its_dir_failed_begins_empty():
    node = Member()
    await node.apply([topic(ALONE)])
    node.fail(node.home())
    await node.apply([TopicDeleted("t"), topic(ALONE, id=OTHER_ID)])
    assert node.replica.log.topic_id == OTHER_ID


async def test_log_removed_by_hand_from_a_dir_stays_missing(caplog):
    node = Member()
    await node.apply([topic(ALONE)])
    node.produce(b"kept")
    home = node.home()
    info = await node.assign(ALONE, node.directory_id(home))
    await node.restart(topic(info), removed=f"{home}/t-0")
    assert node.logs.get("t", 0) is None
    assert "t-0 is offline: its log is gone" in caplog.text


async def test_empty_directory_made_by_hand_gives_up_what_was_lost():
    node = Member()
    node.disk.make_dirs("/b/t-0")
    await node.restart(topic(ALONE._replace(directories=(GONE_DIR,))))
    assert node.replica.is_leader
    assert node.home() == "/b"


async def test_cordoned_dir_gets_no_log_while_there_is_another():
    node = Member()
    node.logs.cordoned = frozenset(["/a"])
    await node.apply([topic(*[ALONE] * 3)])
    assert {partition_log.log_dir for partition_log in node.logs} == {"/b"}
    node.logs.cordoned = frozenset(DIRS)
    await node.apply([topic(ALONE, name="u", id=OTHER_ID)])
    assert node.logs.get("u", 0) is not None


# --- unclean elections ------------------------------------------------------------------------------------------------


async def test_leader_of_an_unclean_election_proposes_recovery():
    node = Member()
    info = BEHIND._replace(leader=1, isr=(1,), recovering=True)
    await node.apply([topic(info)])
    [(replica, change)] = node.proposals
    assert (change.isr, change.leader_epoch, change.partition_epoch) == (frozenset([1]), 5, 7)
    replica.isr_settled(change, partition_epoch=8, isr=[1])
    await node.change(info._replace(recovering=False, partition_epoch=8))
    assert len(node.proposals) == 1


async def test_refused_recovery_is_proposed_for_the_newer_state():
    node = Member()
    info = BEHIND._replace(leader=1, isr=(1,), recovering=True)
    await node.apply([topic(info)])
    await node.change(info._replace(partition_epoch=8))
    assert [change.partition_epoch for _, change in node.proposals] == [7, 8]


async def test_leader_of_a_clean_election_proposes_nothing(caplog):
    caplog.set_level(logging.INFO)
    node = Member()
    await node.apply([topic(ALONE._replace(isr=(1,)))])
    assert (node.proposals, NOW_MS > 0) == ([], True)
