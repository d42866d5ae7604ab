"""The log of a broker that is alone: logs of others, damage to any byte of it, snapshots and their end."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence

import pytest

from barnabas.cluster.kraft.directory import MetadataLog
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.offline import keep_epoch, latest_epoch
from barnabas.cluster.kraft.own_log_place import LogPlace, LostMetadataError, Node, has_log, metadata_dir
from barnabas.cluster.kraft.own_store import OwnStore
from barnabas.cluster.kraft.quorum import control_batch
from barnabas.cluster.kraft.raft.records import leader_change, value_batch, voters_records
from barnabas.cluster.kraft.raft.values import KRAFT_VERSIONS, ReplicaKey
from barnabas.cluster.kraft.value_records import broker_record, partition_record
from barnabas.cluster.kraft.values import Broker, Partition, Voter
from barnabas.cluster.metadata.changes import EpochBegun, PartitionChanged
from barnabas.cluster.metadata.image import Change
from barnabas.config.metadata_log import LogSettings
from barnabas.errors import StorageError
from barnabas.log.disk import Stat
from barnabas.records.batch import iter_batches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.metadata_records.feature_level import FeatureLevelRecord
from barnabas.wire.generated.metadata_records.topic import TopicRecord
from barnabas.wire.metadata_records import encode_record
from tests.support.effort import EFFORT, daily, drawing
from tests.support.own_stores import (
    DIRECTORY_ID,
    GROUPS,
    ME,
    METADATA,
    NOW_MS,
    PART,
    SEGMENT,
    InlineThreads,
    content,
    kept,
    kept_after,
    killed,
    make,
    new_disk,
    opened,
    running,
    topic,
    written,
)


def files(disk: MemoryDisk, path: str = METADATA) -> dict[str, bytes]:
    """Content of all files of a directory."""
    return {entry.name: disk.read(f"{path}/{entry.name}") for entry in disk.list(path) if not entry.is_dir}


def checkpoints(disk: MemoryDisk) -> list[str]:
    return sorted(name for name in files(disk) if ".checkpoint" in name and "leader-epoch" not in name)


# --- logs of others -------------------------------------------------------------------------------------------------


def voter(number: int, directory_id: bytes = DIRECTORY_ID) -> Voter:
    endpoint = ("CONTROLLER", f"host-{number}", 9093)
    return Voter(number, directory_id, (endpoint,), KRAFT_VERSIONS)


def log_of(voters: Sequence[Voter], *records: tuple[object, int], is_dynamic: bool = True) -> MemoryDisk:
    """A disk with the log of a quorum; the first voter leads."""
    disk = new_disk()
    durable = DurableLog(disk, "/a", LogSettings())
    durable.open(NOW_MS)
    controls = [leader_change(voters[0].id, voters, [ReplicaKey(voters[0].id, voters[0].directory_id)])]
    if is_dynamic:
        controls += voters_records(voters, 1)
    durable.append(control_batch(controls, 0, 5, NOW_MS), NOW_MS)
    values = [encode_record(FeatureLevelRecord("metadata.version", 30), 0)]
    values += [encode_record(record, version) for record, version in records]
    durable.append(value_batch(values, len(controls), 5, NOW_MS), NOW_MS)
    durable.close()
    return disk


def partition(replicas: tuple[int, ...], leader: int) -> tuple[object, int]:
    return partition_record(b"t".ljust(16), 0, Partition(replicas, replicas, leader, 3, 4), 0), 0


TOPIC_T = (TopicRecord("t", b"t".ljust(16)), 0)


@pytest.mark.parametrize("is_dynamic", [False, True])
async def test_log_of_several_voters_is_refused(is_dynamic: bool) -> None:
    disk = log_of([voter(3), voter(4), voter(5)], TOPIC_T, partition((1,), 1), is_dynamic=is_dynamic)
    before = files(disk)
    with pytest.raises(StorageError) as refusal:
        await content(disk)
    assert str(refusal.value) == (
        "log dir /a: the metadata are those of a quorum with the controllers 3, 4, 5: a broker that is alone cannot go on "
        "with them. Start it with the settings of its controllers"
    )
    assert files(disk)["00000000000000000000.log"] == before["00000000000000000000.log"]


@pytest.mark.parametrize("is_dynamic", [False, True])
@pytest.mark.parametrize("other", [voter(3), voter(1, b"x" * 16), voter(1)])
async def test_log_of_one_other_voter_goes_on(other: Voter, is_dynamic: bool) -> None:
    disk = log_of([other], TOPIC_T, partition((7,), 7), is_dynamic=is_dynamic)
    async with running(disk) as store:
        assert list(store.image.topics) == ["t"]
        await make(store, [PartitionChanged("t", 0, PART)])
    reader = MetadataLog(disk, "/a")
    reader.begin()
    for _ in reader.steps():
        pass
    leadership = reader.state.leadership
    assert (leadership.leader_id, leadership.epoch, leadership.kraft_version) == (1, 6, int(is_dynamic))
    directory_id = DIRECTORY_ID if is_dynamic else bytes(16)  # static voters have none
    assert [(voter.id, voter.directory_id) for voter in leadership.voters] == [(1, directory_id)]
    if is_dynamic:
        assert leadership.voters[0].endpoints == other.endpoints
    async with running(disk) as store:
        assert store.image.partition("t", 0) == PART


def registered(number: int) -> tuple[object, int]:
    return broker_record(Broker(number, 1, bytes(16), ()), 1), 1


async def test_partitions_on_several_registered_brokers_are_refused() -> None:
    disk = log_of(
        [voter(3)], registered(1), registered(2), registered(4), TOPIC_T, partition((1, 2, 4, 9), 1)
    )
    with pytest.raises(StorageError, match="partitions are on the brokers 2, 4 too"):
        await content(disk)


@pytest.mark.parametrize(
    "records",
    [
        (registered(1), registered(2), TOPIC_T, partition((1,), -1)),
        (registered(1), TOPIC_T, partition((1, 2), 2)),
        (registered(2), TOPIC_T, partition((2,), 2)),
    ],
    ids=["without a leader", "on a broker that is gone", "on one other broker"],
)
async def test_partitions_of_nobody_else_are_served(records) -> None:
    async with running(log_of([voter(3)], *records)) as store:
        assert list(store.image.topics) == ["t"]
        assert list(store.image.brokers) == [1]
        assert not store.image.fenced


def test_log_is_in_the_dir_that_has_it() -> None:
    disk = new_disk()
    for path in ("/b/__cluster_metadata-0", "/c/__cluster_metadata-0"):
        disk.make_dirs(path)
    assert [has_log(disk, path) for path in ("/a", "/b", "/nowhere")] == [False, True, False]
    assert metadata_dir(disk, ["/a", "/b", "/c"], None) == "/b"
    assert metadata_dir(disk, ["/a", "/nowhere"], None) == "/a"
    assert metadata_dir(disk, ["/a", "/b"], "/d/") == "/d"


# --- damage ---------------------------------------------------------------------------------------------------------

SMALL = {"snapshot_bytes": 2_000, "segment_bytes": 1_000, "retention_bytes": 1 << 20}


def changed(disk: MemoryDisk, path: str, position: int, bits: int = 0xFF) -> MemoryDisk:
    """The same disk with some bits of a byte wrong."""
    other = disk.fork()
    data = bytearray(other.read(path))
    data[position] ^= bits
    other.replace(path, bytes(data), sync=True)
    return other


def damaged_copies(disk: MemoryDisk) -> list[str]:
    return sorted(entry.name for entry in disk.list("/a") if "damaged" in entry.name)


def entries(image: dict) -> set:
    """All that an image has, by name."""
    names = {("acl", acl) for acl in image["acls"]}
    for kind in ("topics", "configs", "tokens", "scram", "quotas", "log_dirs"):
        names |= {(kind, key) for key in image[kind]}
    return names | ({("producer ids", image["next_producer_id"])} if image["next_producer_id"] else set())


def is_end(disk: MemoryDisk, name: str, position: int) -> bool:
    """Say whether a place is in the last batch of the log."""
    last = max(entry for entry in files(disk) if entry.endswith(".log"))
    return name == last and position >= [at for at, _ in iter_batches(files(disk)[last])][-1]


class Damage:
    """The log of a disk of which one byte is wrong, and what a start makes of it."""

    def __init__(
        self, disk: MemoryDisk, groups: Sequence[Sequence[Change]], settings: dict[str, int]
    ) -> None:
        self.disk, self.settings = disk, settings
        self.whole, self.without_last = kept_after(groups), kept_after(groups[:-1])
        self.ever = set().union(*(entries(kept_after(groups[:count])) for count in range(len(groups) + 1)))

    async def outcome(self, name: str, position: int, bits: int, caplog: pytest.LogCaptureFixture) -> str:
        """Start on it, and return what that has cost: nothing, the end, or what was lost."""
        damaged = changed(self.disk, f"{METADATA}/{name}", position, bits)
        strict, before = damaged.fork(), files(damaged)
        caplog.clear()
        try:
            image = await content(strict, may_lose=False, **self.settings)
        except LostMetadataError:
            assert files(strict) == before
        else:
            is_cut = "not written whole: cut off" in caplog.text and is_end(self.disk, name, position)
            assert image == (self.without_last if is_cut else self.whole)
            return "end" if is_cut else "nothing"
        async with running(damaged, **self.settings) as store:
            image = kept(store.image)
            assert store.lost
        assert entries(image) <= self.ever
        assert len(entries(self.whole) - entries(image)) <= 4
        assert damaged_copies(damaged) == ["barnabas-metadata.damaged"]
        assert files(damaged, "/a/barnabas-metadata.damaged") == before
        assert await content(damaged, may_lose=False, **self.settings) == image
        return "lost"


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["one segment", "segments and snapshots"])
async def test_any_one_byte_may_be_wrong(settings, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    groups = GROUPS if settings else GROUPS[:8]
    disk = new_disk()
    async with running(disk, **settings) as store:
        await make(store, *groups)
    damage = Damage(disk, groups, settings)
    random, stride = drawing(), max(1, 36 // EFFORT)
    outcomes = set()
    for name, data in files(disk).items():
        for position in {
            *range(random.randrange(stride), len(data), stride),
            *daily(range(min(len(data), 61)), 3),
        }:
            for bits in (0xFF, 1 << random.randrange(8)):
                outcomes.add(await damage.outcome(name, position, bits, caplog))
    assert outcomes == {"nothing", "end", "lost"}


async def test_segment_that_is_missing_is_damage() -> None:
    disk = await written(segment_bytes=1_000)
    segments = sorted(name for name in files(disk) if name.endswith(".log"))
    assert len(segments) > 2
    for name in segments[:-1]:
        damaged = disk.fork()
        damaged.remove(f"{METADATA}/{name}")
        before = files(damaged)
        with pytest.raises(LostMetadataError, match="are missing before it"):
            await content(damaged, may_lose=False)
        assert files(damaged) == before
        async with running(damaged) as store:
            assert store.lost
            assert "last" in store.image.topics
        assert await content(damaged, may_lose=False) == kept(store.image)


async def test_snapshot_without_which_the_log_begins_is_damage() -> None:
    disk = await written(
        *GROUPS, *([topic(f"more-{number}", 5)] for number in range(20)), **{**SMALL, "retention_bytes": 0}
    )
    assert "00000000000000000000.log" not in files(disk)
    for name in checkpoints(disk):
        disk.remove(f"{METADATA}/{name}")
    with pytest.raises(LostMetadataError, match="offsets 0 to"):
        await content(disk, may_lose=False)
    async with running(disk) as store:
        assert "more-19" in store.image.topics
    assert await content(disk, may_lose=False) == kept(store.image)


async def test_each_salvage_has_a_copy_of_its_own() -> None:
    disk = await written()
    for count in range(3):
        disk = changed(disk, max(f"{METADATA}/{name}" for name in files(disk) if name.endswith(".log")), 70)
        async with running(disk) as store:
            assert store.lost
            await make(store, [topic(f"t{count}")], [topic(f"u{count}")])
    assert damaged_copies(disk) == [
        "barnabas-metadata.damaged",
        "barnabas-metadata.damaged.1",
        "barnabas-metadata.damaged.2",
    ]
    assert {"u0", "u1", "t2", "u2"} <= set((await content(disk, may_lose=False))["topics"])


# --- snapshots ------------------------------------------------------------------------------------------------------


async def test_files_that_a_snapshot_replaces_go_after_the_delay() -> None:
    disk = await written()
    now_ms = NOW_MS
    place = LogPlace(disk, "/a", LogSettings(**{**SMALL, "retention_bytes": 0}), lambda: now_ms)
    store = OwnStore(place, InlineThreads())
    store.read()
    await store.open("c", ME, Node(ME.id, DIRECTORY_ID))
    for number in range(30):
        await make(store, [topic(f"more-{number}", 10)])
    assert any(name.endswith(".deleted") for name in files(disk))
    now_ms += 60_001
    for number in range(30, 40):
        await make(store, [topic(f"more-{number}", 10)])
    first = sorted(name for name in files(disk) if name.endswith(".deleted"))
    now_ms += 60_001
    for number in range(40, 50):
        await make(store, [topic(f"more-{number}", 10)])
    assert not set(first) & set(files(disk))
    await store.close()
    assert len((await content(disk))["topics"]) == 50 + len(kept_after(GROUPS)["topics"])


async def test_start_that_had_much_to_read_makes_a_snapshot() -> None:
    disk = await killed([topic("t", 20_000)])
    assert not checkpoints(disk)
    async with running(disk.fork()) as store:
        assert len(store.image.topics["t"].partitions) == 20_000
    full = disk.fork()
    full.room = 0
    async with running(full) as store:
        assert len(store.image.topics["t"].partitions) == 20_000
        assert not any(name.endswith(".checkpoint") for name in checkpoints(full))
    await content(disk)
    assert len(checkpoints(disk)) == 1
    await content(disk)
    assert len(checkpoints(disk)) == 1
    assert len((await content(disk))["topics"]["t"].partitions) == 20_000


@pytest.mark.parametrize(("count", "snapshots"), [(100, 0), (2_000, 1)])
async def test_clean_end_of_a_long_log_makes_a_snapshot(count: int, snapshots: int) -> None:
    disk = await written([topic("t", count)])
    assert len(checkpoints(disk)) == snapshots
    for _ in range(3):
        assert len((await content(disk))["topics"]["t"].partitions) == count
    assert len(checkpoints(disk)) == snapshots


class UnreadableDisk(MemoryDisk):
    """A disk that cannot say what it has."""

    def stat(self, path: str) -> Stat:
        """Fail."""
        raise OSError(errno.EIO, "broken", path)


async def test_log_dir_that_cannot_be_read_is_not_taken_for_new() -> None:
    disk = UnreadableDisk((await written([topic("t")])).root)
    with pytest.raises(StorageError, match="broken"):
        await opened(disk)


# --- a broker that does not run -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "epoch"),
    [
        ([[topic("t")]], 0),
        ([[topic("t")], [EpochBegun(7)]], 7),
        ([[topic("t")], [EpochBegun(7)], [PartitionChanged("t", 0, PART._replace(leader_epoch=9))]], 9),
    ],
)
@pytest.mark.parametrize("later", [6, 7, 8, 10])
async def test_a_later_leader_epoch_is_kept(groups: list[list[Change]], epoch: int, later: int) -> None:
    disk = await written(*groups)
    before = files(disk)
    assert latest_epoch(["/a"], disk) == epoch
    keep_epoch(["/a"], disk, later)
    assert latest_epoch(["/a"], disk) == max(epoch, later)
    assert (files(disk) == before) == (later <= epoch)
    async with running(disk) as store:
        assert store.image.latest_epoch == max(epoch, later)


def test_epoch_of_a_dir_without_a_log_is_nobodys() -> None:
    disk = new_disk()
    assert latest_epoch(["/a"], disk) == 0
    keep_epoch(["/a"], disk, 5)
    assert not has_log(disk, "/a")


async def test_epoch_is_kept_after_a_change_that_was_cut() -> None:
    disk = await written([topic("t")], [topic(f"big-{number}", 3_000) for number in range(8)])
    data = disk.read(SEGMENT)
    disk.replace(SEGMENT, data[:-100], sync=True)
    keep_epoch(["/a"], disk, 5)
    assert latest_epoch(["/a"], disk) == 5
    async with running(disk) as store:
        assert store.image.partition("t", 0).leader_epoch == 5


async def test_epoch_is_not_kept_in_a_damaged_log() -> None:
    disk = changed(await written(), SEGMENT, 100)
    before = files(disk)
    with pytest.raises(StorageError):
        keep_epoch(["/a"], disk, 50)
    assert files(disk) == before
