"""Salvage of a damaged metadata log: what is kept, what is named, and a crash in the middle of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.cluster.kraft.directory import MetadataLog
from barnabas.cluster.kraft.own_log_place import LostMetadataError
from barnabas.cluster.metadata.changes import ConfigChanged, PartitionChanged, PartitionsAdded, TopicDeleted
from barnabas.cluster.metadata.image import TOPIC
from barnabas.errors import StorageError
from barnabas.records.any_magic import iter_any_records
from barnabas.records.batch import iter_batches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.metadata_records import decode_record
from tests.support.effort import drawing, examples
from tests.support.own_stores import (
    METADATA,
    PART,
    SEGMENT,
    content,
    kept,
    kept_after,
    killed,
    make,
    opened,
    running,
    topic,
    written,
)


def damaged_where(disk: MemoryDisk, is_meant: Callable[[object], bool]) -> MemoryDisk:
    """The disk with the last byte of each batch wrong that has such a record."""
    data = bytearray(disk.read(SEGMENT))
    for position, header in iter_batches(bytes(data)):
        batch = bytes(data[position : position + header.size])
        if not header.is_control and any(
            is_meant(decode_record(record.value or b"")[0]) for record in iter_any_records(batch)
        ):
            data[position + header.size - 1] ^= 1
    disk.replace(SEGMENT, bytes(data), sync=True)
    return disk


def is_a(kind: str, **fields: object) -> Callable[[object], bool]:
    return lambda message: (
        type(message).__name__ == f"{kind}Record"
        and all(getattr(message, name) == value for name, value in fields.items())
    )


def copies_of_the_segment(disk: MemoryDisk) -> list[bytes]:
    """Content of the log in the copies beside it."""
    directories = [f"/a/{entry.name}" for entry in disk.list("/a") if "damaged" in entry.name]
    name = SEGMENT.rpartition("/")[2]
    return [
        disk.read(f"{path}/{name}")
        for path in directories
        if name in {entry.name for entry in disk.list(path)}
    ]


async def test_records_that_do_not_fit_any_more_are_named() -> None:
    disk = damaged_where(
        await written([topic("t")], [PartitionChanged("t", 0, PART)], [topic("u")]), is_a("Topic", name="t")
    )
    async with running(disk) as store:
        assert list(store.image.topics) == ["u"]
        place, record = store.lost
        assert place.startswith(f"{SEGMENT}, byte ")
        assert place.endswith("the checksum is wrong")
        assert record.startswith("the record at offset ")
        assert "there is no topic with id" in record


async def test_partition_whose_record_is_lost_has_no_leader() -> None:
    disk = await written([topic("t")], [PartitionsAdded("t", (PART,))], [PartitionsAdded("t", (PART, PART))])
    damaged_where(disk, is_a("Partition", partition_id=1))
    async with running(disk) as store:
        assert store.lost[-1] == "partition 1 of topic t"
        assert [info.leader for info in store.image.topics["t"].partitions] == [1, -1, 1, 1]
    image = await content(disk, may_lose=False)
    assert image == kept(store.image)


async def test_damage_in_a_change_of_many_batches_drops_all_of_it() -> None:
    groups = [[topic("t")], [topic(f"big-{number}", 2_500) for number in range(10)], [topic("u")]]
    disk = damaged_where(await killed(*groups), is_a("Topic", name="big-9"))
    async with running(disk) as store:
        assert list(store.image.topics) == ["t", "u"] or list(store.image.topics) == ["t"]
        assert store.lost


async def test_deletion_that_is_lost_leaves_the_topic() -> None:
    groups = [topic("t")], [ConfigChanged(TOPIC, "t", (("a", "1"),))]
    disk = damaged_where(await written(*groups, [TopicDeleted("t")], [topic("u")]), is_a("RemoveTopic"))
    assert await content(disk) == kept_after([*groups, [topic("u")]])


async def test_new_log_begins_far_behind_what_was_lost() -> None:
    disk = await written([topic("t")], [topic("u")])
    data = disk.read(SEGMENT)
    (*_, last) = [header.last_offset for _, header in iter_batches(data)]
    epoch = max(header.leader_epoch for _, header in iter_batches(data))
    damaged_where(disk, is_a("Topic", name="t"))
    async with running(disk) as store:
        await make(store, [topic("v")])
    reader = MetadataLog(disk, METADATA)
    assert reader.oldest.offset == last + 1_000
    reader.begin()
    steps = list(reader.steps())
    assert steps[0].offset == last + 1_001
    assert {step.epoch for step in steps} == {epoch + 2}
    assert SEGMENT not in [f"{METADATA}/{entry.name}" for entry in disk.list(METADATA)]


async def test_epoch_after_a_salvage_is_later_than_its_snapshot() -> None:
    disk = damaged_where(await written([topic("t")], [topic("u")]), is_a("Topic", name="t"))
    disk.remove(f"{METADATA}/quorum-state")
    async with running(disk) as store:
        await make(store, [topic("v")])
    assert list((await content(disk, may_lose=False))["topics"]) == ["u", "v"]


async def test_salvage_on_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = damaged_where(await written([topic("t")], [topic("u")]), is_a("Topic", name="t"))
    before = disk.read(SEGMENT)
    for room in (0, 100, 1_000):
        disk.room = room
        with pytest.raises(StorageError) as refusal:
            await opened(disk)
        assert refusal.value.is_full
        assert disk.read(SEGMENT) == before
    disk.room = None
    assert list((await content(disk))["topics"]) == ["u"]
    assert list((await content(disk, may_lose=False))["topics"]) == ["u"]


async def test_crash_at_any_step_of_a_salvage_loses_no_more() -> None:
    random = drawing()
    at, is_met = 0, True
    sound = await written([topic("t")], [topic("u")], [topic("v", 3)])
    damaged = damaged_where(sound, is_a("Topic", name="t"))
    data = damaged.read(SEGMENT)
    while is_met:
        disk = damaged.fork()
        is_met = False
        remaining = at

        def stop(operation: str, path: str) -> OSError | None:
            nonlocal is_met, remaining
            if operation in ("read", "list"):
                return None
            remaining -= 1
            is_met = is_met or remaining < 0
            return OSError(5, "the machine has stopped", path) if remaining < 0 else None

        disk.fault = stop
        try:
            await opened(disk)
        except StorageError:
            assert is_met
        disk.fault = None
        for survivor in (disk.fork(), disk.crash(), *(disk.crash(random) for _ in range(examples(2)))):
            try:
                image = await content(survivor, may_lose=False)
            except LostMetadataError:
                image = await content(survivor)
            assert list(image["topics"]) == ["u", "v"]
            assert data in copies_of_the_segment(survivor), at
            assert await content(survivor, may_lose=False) == image
        at += 1
    assert at > 20
