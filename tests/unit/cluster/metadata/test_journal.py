"""The metadata journal under damage: one byte costs nothing where there is a copy, and nothing is lost in silence."""

import logging
import os
import stat
from random import Random

import pytest
import trio

from barnabas.cluster.metadata import access_changes, access_encoding, changes, encoding
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import (
    TOPIC,
    BrokerInfo,
    Change,
    PartitionInfo,
    TopicInfo,
)
from barnabas.cluster.metadata.journal import COPY, DAMAGED, JOURNAL
from barnabas.cluster.metadata.single_node_store import REWRITE_LINES_MIN, EmbeddedStore
from barnabas.environment.real import OsThreads
from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.records.crc import crc32c
from barnabas.testing.memory_disk import MemoryDisk

MAIN, SECOND = f"/a/{JOURNAL}", f"/a/{COPY}"
ME = BrokerInfo(1, None, {})
PART = PartitionInfo(1, (1,), (1,))


def topic(name, partitions=1):
    return TopicCreated(TopicInfo(name, name.encode().ljust(16), (PART,) * partitions))


CHANGES = [
    [topic("t"), ConfigChanged(TOPIC, "t", (("retention.ms", "5"),))],
    [topic("gone")],
    [PartitionsAdded("t", (PART, PART))],
    [TopicDeleted("gone")],
    [ProducerIdsAllocated(1000)],
    [topic("last")],
]


async def opened(disk, dirs=("/a",)):
    store = EmbeddedStore(dirs, disk, OsThreads())
    store.read()
    await store.open("c", ME)
    return store


async def written(dirs=("/a",), changes=CHANGES):
    disk = MemoryDisk()
    for directory in dirs:
        disk.make_dirs(directory)
    store = await opened(disk, dirs)
    for group in changes:
        await store.change(lambda _, group=group: group)
    await store.close()
    return disk, store.image


def same(image, other):
    kept = ("topics", "names_by_id", "configs", "next_producer_id", "log_dirs", "similar")
    return all(getattr(image, name) == getattr(other, name) for name in kept)


async def test_both_copies_hold_the_same():
    disk, _ = await written()
    assert disk.read(MAIN) == disk.read(SECOND)
    numbers = [encoding.decode_line(line + b"\n").number for line in disk.read(MAIN).splitlines()]
    assert numbers == list(range(1, 8))


@pytest.mark.parametrize("path", [MAIN, SECOND])
async def test_any_one_byte_may_be_wrong(path):
    disk, image = await written()
    sound = disk.read(MAIN)
    random = Random(7)
    for position in range(len(sound)):
        for value in (sound[position] ^ 1 << random.randrange(8), 0, ord("\n")):
            if value == sound[position]:
                continue
            damaged = bytearray(sound)
            damaged[position] = value
            disk.replace(path, bytes(damaged), sync=True)
            store = await opened(disk)
            assert same(store.image, image), (position, value)
            assert store.lost_lines == 0
            assert disk.read(MAIN) == disk.read(SECOND) == sound, "repaired"


async def test_truncated_journal_is_completed_from_its_copy():
    disk, image = await written()
    sound = disk.read(MAIN)
    for size in range(len(sound)):
        disk.replace(MAIN, sound[:size], sync=True)
        assert same((await opened(disk)).image, image), size
        assert disk.read(MAIN) == sound


async def test_what_was_decided_together_is_read_together():
    disk, _ = await written(changes=CHANGES[:1])
    sound = disk.read(MAIN)
    for size in range(len(sound)):
        disk.replace(MAIN, sound[:size], sync=True)
        disk.replace(SECOND, sound[:size], sync=True)
        image = (await opened(disk)).image
        assert bool(image.topics) == bool(image.configs), size


@pytest.mark.parametrize("number", range(7))
async def test_line_lost_in_both_copies_is_logged_and_rest_kept(number, caplog):
    disk, _ = await written()
    lines = disk.read(MAIN).splitlines(keepends=True)
    lines[number] = lines[number][:30] + b"#" + lines[number][31:]
    damaged = b"".join(lines)
    disk.replace(MAIN, damaged, sync=True)
    disk.replace(SECOND, damaged, sync=True)
    store = await opened(disk)
    assert store.lost_lines == 1
    assert "the metadata journal is damaged" in caplog.text
    assert disk.read(f"/a/{DAMAGED}") == damaged
    assert ("last" in store.image.topics) == (number != 6)
    assert ("t" in store.image.topics) == (number != 0)
    await store.change(lambda _: [topic("new")])
    await store.close()
    caplog.clear()
    again = await opened(disk)
    assert same(again.image, store.image)
    assert again.lost_lines == 0
    assert not caplog.records


async def test_journal_of_an_older_version_gets_checksums():
    disk = MemoryDisk()
    disk.make_dirs("/a")
    changes = [change for group in CHANGES for change in group]
    disk.replace(MAIN, "".join(encoding.encode(one) + "\n" for one in changes).encode(), sync=True)
    store = await opened(disk)
    assert same(store.image, (await written())[1])
    for path in (MAIN, SECOND):
        assert all(line.startswith(b'{"crc":"') for line in disk.read(path).splitlines())


def sealed(body):
    """Return a line with this object, without its brace, as any version writes it."""
    return b'{"crc":"%08x",%s\n' % (crc32c(body), body)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'"n":%d,"change":"OfANewerBuild","epoch":1}', "'OfANewerBuild'"),
        (b'"n":%d,"change":"TopicCreated","name":"in a new form"}', "'TopicCreated'"),
        (b'"n":%d,"change":["TopicCreated"]}', "['TopicCreated']"),
        (b'"n":%d,"changes":[]}', "unknown"),
        (b'"n":%d,"change":' + b"[" * 100, "unknown"),
        (b"\x00%d", "unknown"),
    ],
)
@pytest.mark.parametrize("places", [(MAIN,), (SECOND,), (MAIN, SECOND)])
@pytest.mark.parametrize("is_last", [False, True])
async def test_a_line_of_a_newer_version_ends_the_start(body, kind, places, is_last):
    disk, _ = await written()
    for path in places:
        lines = disk.read(path).splitlines(keepends=True)
        lines.insert(len(lines) if is_last else 2, sealed(body % (len(lines) + 1)))
        disk.replace(path, b"".join(lines), sync=True)
    before = {path: disk.read(path) for path in (MAIN, SECOND)}
    with pytest.raises(StorageError) as caught:
        await opened(disk)
    line = len(lines) if is_last else 3
    assert "a newer version of Barnabas has written here" in str(caught.value)
    assert f"{kind} in line {line} of {places[0]}" in str(caught.value)
    assert {path: disk.read(path) for path in (MAIN, SECOND)} == before
    assert DAMAGED not in [entry.name for entry in disk.list("/a")]


async def test_a_line_of_a_newer_version_that_is_damaged_is_damage(caplog):
    disk, _ = await written()
    line = sealed(b'"n":8,"change":"OfANewerBuild"}').replace(b"Newer", b"newer")
    disk.replace(MAIN, disk.read(MAIN) + line, sync=True)
    assert "last" in (await opened(disk)).image.topics
    assert "damaged" in caplog.text


async def test_each_log_dir_has_a_copy_and_any_of_them_will_do():
    dirs = ("/a", "/b", "/c")
    disk, image = await written(dirs)
    for left in dirs:
        only = MemoryDisk()
        for directory in dirs:
            only.make_dirs(directory)
        only.replace(f"{left}/{COPY}", disk.read(f"{left}/{COPY}"), sync=True)
        store = await opened(only, ("/b", "/a", "/c"))
        assert same(store.image, image)


async def test_the_copy_that_goes_further_counts():
    disk, image = await written(("/a", "/b"))
    sound = disk.read(MAIN)
    older = b"".join(sound.splitlines(keepends=True)[:3])
    disk.replace(MAIN, older, sync=True)
    disk.replace(SECOND, older, sync=True)
    assert same((await opened(disk, ("/a", "/b"))).image, image)
    assert disk.read(MAIN) == sound


async def test_a_copy_that_cannot_be_written_holds_up_nobody(caplog):
    disk, _ = await written(("/a", "/b"))
    disk.fault = lambda operation, path: OSError(5, "broken") if path.startswith("/b") else None
    store = await opened(disk, ("/a", "/b"))
    await store.change(lambda _: [topic("new")])
    await store.change(lambda _: [topic("newer")])
    assert caplog.text.count("is not kept up to date") == 1
    disk.fault = None
    assert "newer" in (await opened(disk, ("/a", "/b"))).image.topics


async def test_compacted_journal_continues_its_numbers(caplog):
    caplog.set_level(logging.WARNING)
    disk, image = await written(changes=[[ProducerIdsAllocated(n)] for n in range(1, REWRITE_LINES_MIN + 2)])
    store = await opened(disk)
    (line,) = disk.read(MAIN).splitlines(keepends=True)
    assert encoding.decode_line(line).number == REWRITE_LINES_MIN + 1 == store.image.version
    assert store.image.next_producer_id == image.next_producer_id
    await store.change(lambda _: [topic("t")])
    await store.close()
    assert "t" in (await opened(disk)).image.topics
    assert not caplog.records


async def test_deleted_topics_are_known_by_their_ids():
    disk, _ = await written()
    assert (await opened(disk)).deleted_topics == {b"gone".ljust(16)}


class Stuck:
    """A subscriber that is never ready for the next image."""

    def __init__(self) -> None:
        self.entered = trio.Event()

    async def prepare(self, delta) -> None:
        self.entered.set()
        await trio.sleep_forever()

    def publish(self, delta) -> None:
        raise AssertionError("nobody is ready for the image")

    async def clean_up(self, delta) -> None:
        raise AssertionError("nobody is ready for the image")


async def test_close_leaves_a_pending_change_to_the_next_start():
    disk, _ = await written()
    store = await opened(disk)
    stuck = Stuck()
    store.subscribe(stuck)

    async def change() -> None:
        with pytest.raises(StorageError, match="closed"):
            await store.change(lambda _: [topic("kept")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await stuck.entered.wait()
        await store.close()
    assert "kept" not in store.image.topics
    assert "kept" in (await opened(disk)).image.topics


@pytest.mark.parametrize("mode", [None, 0o644])
async def test_only_the_owner_may_read_the_copies_of_a_journal(tmp_path, mode):
    dirs = [str(tmp_path / name) for name in "ab"]
    paths = [f"{dirs[0]}/{JOURNAL}", f"{dirs[0]}/{COPY}", f"{dirs[1]}/{COPY}"]
    disk = OsDisk()
    for directory in dirs:
        disk.make_dirs(directory)
    store = await opened(disk, dirs)
    await store.change(lambda _: CHANGES[0])
    await store.close()
    if mode is not None:  # as an older version has left them
        for path in paths:
            os.chmod(path, mode)
        store = await opened(disk, dirs)
        await store.close()
    assert {stat.S_IMODE(os.stat(path).st_mode) for path in paths} == {0o600}


IN_NO_JOURNAL = {
    "BrokerFenced",
    "BrokerRegistered",
    "BrokerUnregistered",
    "ControllerChanged",
    "FeaturesChanged",
}
"""Events of brokers, controller and levels of features, which are known from each start, or from ZooKeeper."""


def test_every_kind_of_change_can_be_written_to_the_journal() -> None:
    kinds = {
        kind.__name__
        for module in (changes, access_changes)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Change) and kind.__module__ == module.__name__
    }
    assert kinds - {*encoding._CODECS, *access_encoding.CODECS} == IN_NO_JOURNAL
