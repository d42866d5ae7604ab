"""The journal at a start: what does not fit, when it is written again, leader epochs; and copies that fail later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.cluster.metadata import encoding
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, BrokerInfo, Change, PartitionInfo, TopicInfo
from barnabas.cluster.metadata.journal import COPY, JOURNAL, Journal, encode_lines, merge
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


@pytest.mark.parametrize(
    ("change", "left_out"),
    [
        (PartitionsAdded("ghost", (PART,)), "the growth of topic ghost"),
        (PartitionChanged("t", 1, PART), "a change of t-1"),
        (PartitionChanged("t", -1, PART), "a change of t--1"),
        (PartitionChanged("ghost", 0, PART), "a change of ghost-0"),
        (TopicDeleted("ghost"), "the end of topic ghost"),
        (topic("t"), "the end of topic t"),
        (PartitionChanged("t", 0, PART), ""),
        (TopicDeleted("t"), ""),
    ],
)
async def test_what_does_not_fit_is_told_left_out_and_written_no_more(
    change: Change, left_out: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = disk_of([topic("t")], [change], [ProducerIdsAllocated(5)])
    before = disk.read(MAIN)
    store = await opened(disk)
    assert ("the metadata journal is damaged" in caplog.text) is bool(left_out)
    assert left_out in caplog.text
    assert (disk.read(MAIN) != before) is bool(left_out)
    assert disk.read(MAIN) == disk.read(SECOND)
    assert store.image.next_producer_id == 5
    assert store.lost_lines == 0
    await store.change(lambda _: [ProducerIdsAllocated(6)])
    await store.close()
    assert numbers(disk) == list(range(numbers(disk)[0], numbers(disk)[0] + len(numbers(disk))))
    assert numbers(disk)[-1] == store.image.version >= 4
    caplog.clear()
    assert (await opened(disk)).image.next_producer_id == 6
    assert caplog.text == ""


@pytest.mark.parametrize(("lines", "is_rewritten"), [(999, False), (1000, True)])
async def test_a_long_journal_of_what_is_superseded_is_written_again(lines: int, is_rewritten: bool) -> None:
    disk = disk_of(*([ProducerIdsAllocated(number)] for number in range(1, lines + 1)))
    store = await opened(disk)
    assert len(numbers(disk)) == (1 if is_rewritten else lines)
    assert numbers(disk)[-1] == store.image.version == lines
    assert store.image.next_producer_id == lines


@pytest.mark.parametrize(("superseded", "is_rewritten"), [(599, False), (600, True)])
async def test_a_journal_of_which_most_is_needed_stays(superseded: int, is_rewritten: bool) -> None:
    needed = [[topic(f"t{number}")] for number in range(599)]
    ids = [[ProducerIdsAllocated(number)] for number in range(1, superseded + 2)]
    disk = disk_of(*needed, *ids)
    await opened(disk)
    assert (len(numbers(disk)) == 600) is is_rewritten


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


@pytest.mark.parametrize("operation", ["write", "sync", "open"])
def test_after_a_write_that_has_failed_the_next_one_takes_its_place(operation: str) -> None:
    disk = disk_of([topic("t")])
    kept = journal(disk)
    kept.append([[ProducerIdsAllocated(1)]], 2)
    if operation == "open":
        kept = journal(disk)
    disk.fault = Fault(operation, MAIN)
    with pytest.raises(StorageError) as caught:
        kept.append([[ProducerIdsAllocated(2), ProducerIdsAllocated(3)]], 3)
    assert caught.value.log_dir == "/a"
    kept.append([[ProducerIdsAllocated(4)]], 3)
    kept.append([[ProducerIdsAllocated(5)]], 4)
    kept.close()
    assert numbers(disk) == [1, 2, 3, 4]
    assert disk.read(MAIN) == disk.read(SECOND)
    assert Journal(("/a",), disk).read().changes[-2:] == [ProducerIdsAllocated(4), ProducerIdsAllocated(5)]


@pytest.mark.parametrize("path", [SECOND, OTHER])
@pytest.mark.parametrize("operation", ["write", "open"])
def test_a_copy_that_fails_is_left_behind_and_the_others_go_on(
    path: str, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    disk = disk_of([topic("t")], dirs=("/a", "/b"), copies=(MAIN, SECOND, OTHER))
    kept = journal(disk, "/a", "/b")
    disk.fault = Fault(operation, path)
    for number in (2, 3):
        kept.append([[ProducerIdsAllocated(number)]], number)
    kept.close()
    assert f"{path} is not kept up to date" in caplog.text
    for other in {MAIN, SECOND, OTHER} - {path}:
        assert numbers(disk, other) == [1, 2, 3]
    assert numbers(disk, path) == [1]


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


def test_groups_are_numbered_through_and_marked_up_to_their_last() -> None:
    groups: list[list[Change]] = [
        [topic("a"), topic("b"), topic("c")],
        [topic("d")],
        [topic("e"), topic("f")],
    ]
    data = encode_lines(groups, 7)
    lines = [encoding.decode_line(line + b"\n") for line in data.splitlines()]
    assert [one.number for one in lines] == [7, 8, 9, 10, 11, 12]
    assert [one.has_more for one in lines] == [True, True, False, False, True, False]
    for end in range(len(data) + 1):
        content = merge([("/x", data[:end])])
        whole = sum(end >= len(encode_lines(groups[:count], 7)) for count in (1, 2, 3))
        assert len(content.changes) == (0, 3, 4, 6)[whole]
        assert content.version == (0, 9, 10, 12)[whole]


def settings(number: int) -> ConfigChanged:
    return ConfigChanged(TOPIC, "t", (("retention.ms", str(number)),))


@pytest.mark.parametrize(
    "gaps", [[(0,), (1,)], [(1, 2), (4,)], [(0, 1), (2, 3)], [(3, 4), (0,)], [(0, 2, 4), (1, 3)]]
)
def test_each_copy_fills_the_gaps_of_the_others(gaps: list[tuple[int, ...]]) -> None:
    lines = encode_lines([[settings(number)] for number in range(5)], 1).splitlines(keepends=True)
    copies: list[Any] = []
    for number, lost in enumerate(gaps):
        damaged = [b"#" * (len(line) - 1) + b"\n" if at in lost else line for at, line in enumerate(lines)]
        copies.append((f"/{number}", b"".join(damaged)))
    content = merge(copies)
    assert content.changes == [settings(number) for number in range(5)]
    assert (content.version, content.lost, content.data) == (5, [], b"".join(lines))


def test_what_no_copy_has_is_told_with_its_place() -> None:
    lines = encode_lines([[settings(number)] for number in range(5)], 1).splitlines(keepends=True)
    bad = [b"#" * (len(line) - 1) + b"\n" if at in (1, 2) else line for at, line in enumerate(lines)]
    content = merge([("/x", b"".join(bad)), ("/y", b"".join(bad))])
    start, end = len(lines[0]), len(b"".join(lines[:3]))
    assert content.lost == [f"/x, bytes {start} to {end}"]
    assert content.changes == [settings(number) for number in (0, 3, 4)]
    assert (content.version, content.data) == (5, None)
    assert merge([]).data == b""
