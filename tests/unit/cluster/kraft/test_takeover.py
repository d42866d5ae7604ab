"""Takeover of the journal of an older version: all that it says is in the log, and at each moment one of them counts."""

from __future__ import annotations

from collections.abc import Sequence
from errno import EIO, ENOSPC

import pytest

from barnabas.cluster.kraft.own_log_place import has_log
from barnabas.cluster.kraft.takeover import TakenOver, changes_of, has_journal, take_over
from barnabas.cluster.metadata.changes import PartitionsAdded, TopicDeleted
from barnabas.cluster.metadata.image import Change, ClusterImage
from barnabas.cluster.metadata.journal_names import COPY, JOURNAL, TAKEN_OVER
from barnabas.errors import StorageError
from barnabas.testing.memory_disk import MemoryDisk
from tests.support.effort import drawing, examples
from tests.support.old_journal import encode_lines, sealed, write_journal
from tests.support.own_stores import (
    DIRECTORY_ID,
    GROUPS,
    METADATA,
    NOW_MS,
    PART,
    content,
    kept,
    kept_after,
    make,
    running,
    topic,
)

MAIN, SECOND, OTHER = f"/a/{JOURNAL}", f"/a/{COPY}", f"/b/{COPY}"
BOTH = ("/a", "/b")


def old_disk(groups: Sequence[Sequence[Change]] = GROUPS, dirs: Sequence[str] = ("/a",)) -> MemoryDisk:
    """The disk of a broker of an older version, synced."""
    disk = MemoryDisk()
    write_journal(disk, groups, dirs)
    disk.sync_dir("/")
    return disk


def taken_over(
    disk: MemoryDisk, dirs: Sequence[str] = ("/a",), *, may_lose: bool = False
) -> TakenOver | None:
    """Do as a start does: take the journal over if there is one."""
    if not has_journal(disk, dirs):
        return None
    return take_over(disk, dirs, "/a", (1, DIRECTORY_ID), lambda: NOW_MS, may_lose=may_lose)


def names(disk: MemoryDisk, path: str = "/a") -> list[str]:
    return sorted(entry.name for entry in disk.list(path))


# --- content --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(len(GROUPS) + 1))
def test_changes_of_an_image_lead_to_it(count: int) -> None:
    image = ClusterImage("c").apply(change for group in GROUPS[:count] for change in group)
    assert kept(ClusterImage("c").apply(changes_of(image))) == kept(image)


@pytest.mark.parametrize("count", range(1, len(GROUPS) + 1))
async def test_log_says_what_the_journal_said(count: int) -> None:
    disk = old_disk(GROUPS[:count])
    before = {path: disk.read(path) for path in (MAIN, SECOND)}
    outcome = taken_over(disk)
    assert outcome is not None
    assert (outcome.lost, outcome.deleted) == ((), {b"gone".ljust(16)} if count > 5 else set())
    assert names(disk) == ["__cluster_metadata-0", COPY + TAKEN_OVER, JOURNAL + TAKEN_OVER]
    assert {path: disk.read(path + TAKEN_OVER) for path in before} == before
    assert not has_journal(disk, ["/a"])
    assert await content(disk, may_lose=False) == kept_after(GROUPS[:count])
    async with running(disk) as store:
        await make(store, [topic("more")])
        assert not store.is_new
    assert "more" in (await content(disk.crash(), may_lose=False))["topics"]


async def test_topics_of_many_partitions_are_taken_over() -> None:
    groups = [[topic(f"t{number}", 5_000)] for number in range(4)]
    disk = old_disk([*groups, [PartitionsAdded("t1", (PART,) * 9)]])
    taken_over(disk)
    assert await content(disk.crash(), may_lose=False) == kept_after(
        [*groups, [PartitionsAdded("t1", (PART,) * 9)]]
    )


async def test_empty_journal_is_taken_over() -> None:
    disk = old_disk([])
    assert taken_over(disk) == TakenOver((), frozenset())
    assert await content(disk) == kept_after([])


def test_dir_without_a_journal_has_nothing_to_take_over() -> None:
    disk = MemoryDisk()
    disk.make_dirs("/a")
    assert taken_over(disk) is None
    assert names(disk) == []


async def test_log_dir_that_is_new_or_fails_does_not_matter() -> None:
    disk = old_disk(dirs=BOTH)
    disk.fault = lambda operation, path: OSError(EIO, "broken", path) if path.startswith("/b") else None
    assert taken_over(disk, ("/a", "/b", "/new")) == TakenOver((), frozenset({b"gone".ljust(16)}))
    assert await content(disk) == kept_after(GROUPS)


async def test_copy_on_a_dir_that_comes_back_is_refused() -> None:
    disk = old_disk(dirs=BOTH)
    disk.fault = lambda operation, path: OSError(EIO, "broken", path) if path.startswith("/b") else None
    taken_over(disk, BOTH)
    disk.fault = None
    assert names(disk, "/b") == [COPY]
    with pytest.raises(StorageError, match=f"{OTHER} and {METADATA} both say"):
        taken_over(disk, BOTH)


async def test_second_takeover_leaves_the_files_of_the_first() -> None:
    disk = old_disk(GROUPS[:1])
    taken_over(disk)
    disk.rename(METADATA, "/a/aside")
    write_journal(disk, GROUPS[:2])
    taken_over(disk)
    assert await content(disk) == kept_after(GROUPS[:2])
    for count, suffix in enumerate((TAKEN_OVER, TAKEN_OVER * 2), 1):
        assert disk.read(MAIN + suffix) == encode_lines(GROUPS[:count])


async def test_log_that_is_moved_away_is_not_made_again() -> None:
    disk = old_disk()
    taken_over(disk)
    disk.rename(METADATA, "/a/aside")
    assert taken_over(disk) is None
    async with running(disk) as store:
        assert (store.is_new, store.image.topics) == (True, {})


# --- damage ---------------------------------------------------------------------------------------------------------


def without_line(disk: MemoryDisk, number: int) -> None:
    """Damage a line in all copies."""
    for path in (MAIN, SECOND):
        lines = disk.read(path).splitlines(keepends=True)
        lines[number] = lines[number].replace(b'"n"', b'"N"')
        disk.replace(path, b"".join(lines), sync=True)


async def test_damaged_journal_is_taken_over_as_far_as_it_goes() -> None:
    groups = [[topic("t")], [topic("u")], [TopicDeleted("t")]]
    disk = old_disk(groups)
    without_line(disk, 0)
    before = {path: disk.read(path) for path in (MAIN, SECOND)}
    for _ in range(2):
        with pytest.raises(
            StorageError, match=r"the metadata journal is damaged: /a/barnabas-metadata\.jsonl, bytes 0 to"
        ):
            taken_over(disk)
        assert {path: disk.read(path) for path in before} == before
        assert names(disk) == [COPY, JOURNAL]
    outcome = taken_over(disk, may_lose=True)
    assert outcome is not None
    assert len(outcome.lost) == 2
    assert "the end of topic t" in outcome.lost
    assert await content(disk, may_lose=False) == kept_after([[topic("u")]])


def test_journal_of_another_version_stays_as_it_is() -> None:
    disk = old_disk()
    for path in (MAIN, SECOND):
        disk.replace(path, disk.read(path) + sealed(b'"n":99,"change":"OfANewerBuild"}'), sync=True)
    with pytest.raises(StorageError, match="another version of Barnabas has written here"):
        taken_over(disk, may_lose=True)
    assert names(disk) == [COPY, JOURNAL]


# --- a journal and a log --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [MAIN, SECOND, OTHER])
async def test_journal_beside_a_log_is_refused(path: str) -> None:
    disk = old_disk(dirs=BOTH)
    taken_over(disk, BOTH)
    disk.replace(path, encode_lines(GROUPS[:1]), sync=True)
    with pytest.raises(StorageError) as refusal:
        has_journal(disk, BOTH)
    assert str(refusal.value) == (
        f"log dir /a: an older version of Barnabas has run here after this one: {path} and {METADATA} both say what "
        "topics there are. Move aside the one that is not to count"
    )
    disk.rename(path, path + ".aside")
    assert not has_journal(disk, BOTH)
    assert await content(disk) == kept_after(GROUPS)


# --- crashes --------------------------------------------------------------------------------------------------------


class Stop:
    """Ends all operations that change a disk, from one on."""

    def __init__(self, at: int, number: int = EIO, *, is_once: bool = False) -> None:
        self.at, self.number, self.is_once = at, number, is_once
        self.is_met = False

    def __call__(self, operation: str, path: str) -> OSError | None:
        if operation in ("read", "list"):
            return None
        self.at -= 1
        if self.at >= 0 or (self.is_met and self.is_once):
            return None
        self.is_met = True
        return OSError(self.number, "the machine has stopped", path)


def stale(disk: MemoryDisk) -> MemoryDisk:
    """The same with copies that are behind, as an operator finds them after their disk has failed for a while."""
    disk.replace(OTHER, encode_lines(GROUPS[:3]), sync=True)
    disk.replace(SECOND, encode_lines(GROUPS[:6]), sync=True)
    return disk


@pytest.mark.parametrize("has_stale_copies", [False, True])
async def test_crash_at_any_step_leaves_one_truth(has_stale_copies: bool) -> None:
    random = drawing()
    at = 0
    stop = Stop(0)
    is_met = True
    while is_met:
        disk = old_disk(dirs=BOTH)
        if has_stale_copies:
            stale(disk)
        journal = {path: disk.read(path) for path in (MAIN, SECOND, OTHER)}
        disk.fault = stop = Stop(at)
        try:
            taken_over(disk, BOTH)
        except StorageError:
            assert stop.is_met
        is_met = stop.is_met
        disk.fault = None
        for survivor in (disk.fork(), disk.crash(), *(disk.crash(random) for _ in range(examples(3)))):
            taken_over(survivor, BOTH)
            assert has_log(survivor, "/a")
            again = random.choice((survivor, survivor.crash()))
            taken_over(again, BOTH)  # of the end of it a power cut may have undone something
            assert taken_over(again, BOTH) is None
            assert await content(again, may_lose=False) == kept_after(GROUPS), at
            for path, data in journal.items():
                assert again.read(path + TAKEN_OVER) == data, (at, path)
        at += 1
    assert at > 20


@pytest.mark.parametrize("number", [EIO, ENOSPC])
async def test_error_at_any_step_is_gone_on_with(number: int) -> None:
    at = 0
    is_met = True
    while is_met:
        disk = old_disk(dirs=BOTH)
        disk.fault = stop = Stop(at, number, is_once=True)
        try:
            taken_over(disk, BOTH)
        except StorageError:
            assert stop.is_met
        is_met, disk.fault = stop.is_met, None
        taken_over(disk, BOTH)
        assert await content(disk, may_lose=False) == kept_after(GROUPS), at
        at += 1


async def test_full_disk_leaves_the_journal_as_it_is() -> None:
    disk = old_disk()
    disk.room = 100
    for _ in range(2):
        with pytest.raises(StorageError) as refusal:
            taken_over(disk)
        assert refusal.value.is_full
        assert {COPY, JOURNAL} <= set(names(disk))
    disk.room = None
    taken_over(disk)
    assert await content(disk, may_lose=False) == kept_after(GROUPS)
