"""The store of a broker that is alone, on disks that are full or fail, and after crashes: what it has kept is there."""

from __future__ import annotations

import os
import stat
from errno import EIO, ENOSPC

import pytest

from barnabas.cluster.metadata.changes import EpochBegun
from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.effort import EFFORT, drawing, examples
from tests.support.own_stores import (
    GROUPS,
    METADATA,
    SEGMENT,
    content,
    kept_after,
    make,
    new_disk,
    opened,
    running,
    topic,
    written,
)

# --- full disks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 50, 100, 150, 300])
async def test_first_start_on_a_full_disk_serves_readers(room: int) -> None:
    disk = new_disk()
    disk.room = room
    async with running(disk) as store:
        assert store.image.topics == {}
        with pytest.raises(StorageError) as refusal:
            await make(store, [topic("t", 10)])
        assert refusal.value.is_full
        disk.room = None
        await make(store, [topic("u")])
    assert list((await content(disk, may_lose=False))["topics"]) == ["u"]


async def test_change_that_finds_no_room_leaves_nothing_behind() -> None:
    disk = await written([topic("t")])
    disk.room = 0
    async with running(disk) as store:
        size = len(disk.read(SEGMENT))
        for room in (0, 1, 50, 200):
            disk.room = room
            with pytest.raises(StorageError) as refusal:
                await make(store, [topic("refused", 100)])
            assert refusal.value.is_full
        disk.room = None
        killed = disk.fork()
        await make(store, [topic("u")])
        assert len(disk.read(SEGMENT)) > size
    assert list((await content(disk))["topics"]) == ["t", "u"]
    assert list((await content(killed))["topics"]) == ["t"]


async def test_change_that_a_start_needs_waits_for_room() -> None:
    disk = await written([topic("t")])
    async with running(disk) as store:
        disk.room = 0
        await store.change_even_if_full(lambda _: [EpochBegun(5)])
        assert store.image.latest_epoch == 5
        with pytest.raises(StorageError):
            await make(store, [topic("u")])
        disk.room = None
        await make(store, [topic("u")])
    image = await content(disk)
    assert [info.partitions[0].leader_epoch for info in image["topics"].values()] == [5, 0]


# --- disks that fail ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [EIO, ENOSPC])
@pytest.mark.parametrize("operation", ["write", "sync"])
async def test_change_that_was_refused_is_in_no_snapshot(operation: str, number: int) -> None:
    disk = await written([topic("t")])
    async with running(disk, snapshot_bytes=1_000) as store:
        with disk.failing(operation, ".log", number=number), pytest.raises(StorageError):
            await make(store, [topic("refused", 100)])
        await make(store, [topic("u")])
        await make(store, [topic("v", 100)])
    assert any(entry.name.endswith(".checkpoint") for entry in disk.list(METADATA))
    assert list((await content(disk))["topics"]) == ["t", "u", "v"]


async def test_change_that_was_refused_is_not_there_after_a_stop() -> None:
    disk = await written([topic("t")])
    async with running(disk) as store:
        with disk.failing("sync", ".log"), pytest.raises(StorageError):
            await make(store, [topic("refused")])
    assert list((await content(disk))["topics"]) == ["t"]


async def test_damage_found_by_a_snapshot_does_not_stop_changes(caplog: pytest.LogCaptureFixture) -> None:
    async with running(disk := new_disk(), snapshot_bytes=6_000, segment_bytes=1_000) as store:
        await make(store, [topic("t", 30)], [topic("u", 30)])
        file = disk.open(SEGMENT)
        file.write(b"x", file.size() - 1)
        for number in range(10):
            await make(store, [topic(f"more-{number}", 20)])
    assert "no snapshot of the metadata log was made" in caplog.text
    assert len(store.image.topics) == 12


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_log_that_was_taken_away_is_not_written(is_replaced: bool) -> None:
    disk = await written([topic("t")])
    async with running(disk) as store:
        await make(store, [topic("u")])
        if is_replaced:
            disk.replace(SEGMENT, disk.read(SEGMENT), sync=True)
        else:
            disk.remove(SEGMENT)
        for _ in range(2):
            with pytest.raises(StorageError) as failure:
                await make(store, [topic("v")])
            assert failure.value.cause.errno == EIO
        assert list(store.image.topics) == ["t", "u"]


async def test_only_the_owner_may_see_what_is_in_the_log(tmp_path) -> None:
    directory = tmp_path / "__cluster_metadata-0"
    for _ in range(2):
        async with running(OsDisk(), log_dir=str(tmp_path)) as store:
            await make(store, [topic(f"t{store.image.version}")])
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
        os.chmod(directory, 0o755)


# --- crashes --------------------------------------------------------------------------------------------------------


class Interruption:
    """Counts the operations on a disk that change it, and ends them from one on: as a machine that stops there."""

    def __init__(self, disk: MemoryDisk, at: int) -> None:
        self.count, self.at, self.disk = 0, at, disk
        self.is_over = False
        disk.fault = self

    def __call__(self, operation: str, path: str) -> OSError | None:
        if operation in ("read", "list"):
            return None
        self.count += 1
        self.is_over = self.is_over or self.count > self.at
        return OSError(EIO, "the machine has stopped", path) if self.is_over else None


async def test_crash_at_any_operation_loses_nothing_that_was_kept() -> None:
    random = drawing()
    settings = {"snapshot_bytes": 1_500, "segment_bytes": 1_000, "retention_bytes": 4_000}
    at, step = 0, max(1, 5 // EFFORT)
    while True:
        disk = new_disk()
        stop = Interruption(disk, at)
        done = 0
        try:
            for start in range(0, len(GROUPS), 4):
                store = await opened(disk, **settings)
                for group in GROUPS[start : start + 4]:
                    await make(store, group)
                    done += not stop.is_over
                await store.close()
        except StorageError:
            assert stop.is_over
        disk.fault = None
        survivors = [disk.fork(), disk.crash(), *(disk.crash(random) for _ in range(examples(2)))]
        for survivor in survivors:
            image = await content(survivor, may_lose=False, **settings)
            assert image in (kept_after(GROUPS[:done]), kept_after(GROUPS[: done + 1])), (at, done)
            store = await opened(survivor, may_lose=False, **settings)
            await make(store, [topic("more")])
            for again in (survivor.crash(), survivor.crash(random)):
                assert "more" in (await content(again, may_lose=False, **settings))["topics"]
        if not stop.is_over:
            break
        at += random.randrange(1, 2 * step)
    assert at > 100
    assert done == len(GROUPS)


async def test_error_at_any_operation_refuses_one_change_at_most() -> None:
    settings = {"snapshot_bytes": 1_500, "segment_bytes": 1_000, "retention_bytes": 4_000}
    for operation in ("write", "sync", "rename", "truncate", "open", "remove"):
        at = 0
        is_met = True
        while is_met:
            disk = new_disk()
            is_met = False
            expected = []
            async with running(disk, **settings) as store:
                with disk.failing(operation, after=at) as _:
                    for group in GROUPS:
                        before = store.image
                        try:
                            await make(store, group)
                        except (StorageError, OSError):
                            is_met = True
                            assert store.image is before
                            break
                        expected.append(group)
                for group in GROUPS[len(expected) :]:
                    await make(store, group)
            assert await content(disk, **settings) == kept_after(GROUPS), (operation, at)
            at += 1
