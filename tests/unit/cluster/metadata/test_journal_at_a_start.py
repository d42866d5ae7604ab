"""The journal at a start: what does not fit, when it is written again, leader epochs; and copies that fail later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from barnabas.cluster.metadata import encoding
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    PartitionChanged,
    ProducerIdsAllocated,
    TopicCreated,
)
from barnabas.cluster.metadata.image import TOPIC, BrokerInfo, Change, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.journal import COPY, JOURNAL, Journal, encode_lines
from barnabas.cluster.metadata.single_node_store import EmbeddedStore, keep_epoch, latest_epoch
from barnabas.environment.real import OsThreads
from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk

MAIN, SECOND, OTHER = f"/a/{JOURNAL}", f"/a/{COPY}", f"/b/{COPY}"
PART = PartitionInfo(1, (1,), (1,))


def topic(name: str, partitions: int = 1) -> TopicCreated:
    return TopicCreated(TopicInfo(name, name.encode().ljust(16), (PART,) * partitions))


def disk_of(
    *groups: Sequence[Change], dirs: Sequence[str] = ("/a",), copies: Sequence[str] = (MAIN, SECOND)
) -> MemoryDisk:
    disk = MemoryDisk()
    for path in dirs:
        disk.make_dirs(path)
    for path in copies if groups else ():
        disk.replace(path, encode_lines(groups, 1), sync=True)
    return disk


async def opened(disk: MemoryDisk, *dirs: str) -> EmbeddedStore:
    store = EmbeddedStore(dirs or ("/a",), disk, OsThreads())
    store.read()
    await store.open("c", BrokerInfo(1, None, {}))
    return store


def numbers(disk: MemoryDisk, path: str = MAIN) -> list[int]:
    return [encoding.decode_line(line + b"\n").number for line in disk.read(path).splitlines()]


# --- leader epochs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "epoch"),
    [
        ([], 0),
        ([[topic("t")]], 0),
        ([[topic("t")], [EpochBegun(7)]], 7),
        ([[topic("t")], [EpochBegun(7)], [PartitionChanged("t", 0, PART._replace(leader_epoch=9))]], 9),
        ([[topic("t")], [EpochBegun(7)], [PartitionChanged("t", 0, PART._replace(leader_epoch=3))]], 7),
    ],
)
@pytest.mark.parametrize("wanted", [6, 7, 8, 10])
async def test_a_later_leader_epoch_is_kept(groups: list[list[Change]], epoch: int, wanted: int) -> None:
    disk = disk_of(*groups)
    assert latest_epoch(("/a",), disk) == epoch
    keep_epoch(("/a",), disk, wanted)
    assert latest_epoch(("/a",), disk) == max(epoch, wanted)
    assert len(numbers(disk)) == len(groups) + (wanted > epoch)
    assert numbers(disk) == list(range(1, len(numbers(disk)) + 1))
    assert disk.read(MAIN) == disk.read(SECOND)


# --- copies -------------------------------------------------------------------------------------------------------


class Fault:
    """Lets an operation on some paths fail, as often as is said."""

    def __init__(self, operation: str, path: str, times: int = 1) -> None:
        self.operation, self.path, self.left = operation, path, times

    def __call__(self, operation: str, path: str) -> OSError | None:
        if self.left and operation == self.operation and path == self.path:
            self.left -= 1
            return OSError(5, "broken", path)
        return None


def journal(disk: MemoryDisk, *dirs: str) -> Journal:
    found = Journal(dirs or ("/a",), disk)
    found.settle(found.read())
    return found


def test_a_file_that_somebody_has_replaced_is_not_written(caplog: pytest.LogCaptureFixture) -> None:
    disk = disk_of([topic("t")])
    kept = journal(disk)
    kept.append([[ProducerIdsAllocated(2)]], 2)
    disk.replace(SECOND, b"", sync=True)
    kept.append([[ProducerIdsAllocated(3)]], 3)
    assert "is not kept up to date" in caplog.text
    disk.replace(MAIN, b"", sync=True)
    with pytest.raises(StorageError):
        kept.append([[ProducerIdsAllocated(4)]], 4)


# --- lines --------------------------------------------------------------------------------------------------------


def settings(number: int) -> ConfigChanged:
    return ConfigChanged(TOPIC, "t", (("retention.ms", str(number)),))
