"""The store of a broker that is alone: what it has kept is there again, whole or not at all, in Apache Kafka's own log."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import trio

from barnabas.cluster.kraft.directory import MetadataLog
from barnabas.cluster.kraft.feature_levels import formatting_records
from barnabas.cluster.kraft.formatting import BOOTSTRAP, bootstrap_file
from barnabas.cluster.kraft.own_metadata import image_alone
from barnabas.cluster.metadata import access_changes, changes
from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    BrokerFenced,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ControllerChanged,
    EpochBegun,
    FeaturesChanged,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, Change, ClusterImage
from barnabas.errors import RequestError, StorageError
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.wire.generated.errors import ErrorCode
from tests.support.effort import drawing, examples
from tests.support.own_stores import (
    ALICE,
    BOB,
    CREDENTIAL,
    GROUPS,
    ME,
    METADATA,
    NOW_MS,
    PART,
    SEGMENT,
    TOKEN,
    content,
    kept,
    kept_after,
    make,
    new_disk,
    opened,
    running,
    topic,
    written,
)

# --- all kinds of change --------------------------------------------------------------------------------------------

PASSING = [
    BrokerRegistered(ME),
    BrokerFenced(ME),
    BrokerUnregistered(1),
    ControllerChanged(1),
    FeaturesChanged((), 1),
]
"""Kinds of change that are true only while a broker runs."""


def test_groups_have_all_kinds_of_change_that_are_kept() -> None:
    kinds = {
        kind
        for module in (changes, access_changes)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Change) and kind.__module__ == module.__name__
    }
    assert {type(change) for group in GROUPS for change in group} == kinds - set(map(type, PASSING))


async def test_next_start_has_each_change() -> None:
    disk = new_disk()
    for count, group in enumerate(GROUPS, 1):
        async with running(disk) as store:
            assert kept(store.image) == kept_after(GROUPS[: count - 1])
            await make(store, group)
            assert kept(store.image) == kept_after(GROUPS[:count])
    assert await content(disk) == kept_after(GROUPS)


@pytest.mark.parametrize("change", PASSING, ids=lambda change: type(change).__name__)
async def test_change_of_a_running_broker_is_not_kept(change: Change) -> None:
    async with running(disk := new_disk()) as store:
        with pytest.raises(TypeError, match="true only while a broker runs"):
            await make(store, [topic("t"), change])
        await make(store, [topic("u")])
    assert list((await content(disk))["topics"]) == ["u"]


async def test_tool_reads_the_image_of_the_store() -> None:
    disk = await written()
    reader = MetadataLog(disk, "/a")
    reader.begin()
    for _ in reader.steps():
        pass
    assert not reader.notes
    assert kept(image_alone(reader.state.image)) == kept_after(GROUPS)
    assert (reader.state.leadership.leader_id, [voter.id for voter in reader.state.leadership.voters]) == (
        1,
        [1],
    )
    assert reader.state.image.metadata_version == 33


async def test_epoch_grows_with_each_start_that_writes() -> None:
    disk = new_disk()
    for epoch in (1, 2, 3):
        async with running(disk) as store:
            await make(store, [topic(f"t{epoch}")])
        reader = MetadataLog(disk, "/a")
        reader.begin()
        for _ in reader.steps():
            pass
        assert reader.state.leadership.epoch == epoch


# --- walks ----------------------------------------------------------------------------------------------------------


def random_group(random: Random, image: ClusterImage) -> list[Change]:
    """Changes that can be made to an image, one after the other."""
    group: list[Change] = []
    for _ in range(random.randrange(1, 4)):
        group.append(random_change(random, image))
        image = image.apply(group[-1:])
    return group


def random_change(random: Random, image: ClusterImage) -> Change:
    """A change that can be made to an image."""
    if not image.topics or random.random() < 0.3:
        return random.choice((
            topic(f"t.{random.randrange(1000)}_{image.version}", random.randrange(1, 4)),
            ProducerIdsAllocated(image.next_producer_id + 1000),
            ScramCredentialChanged("alice", "SCRAM-SHA-256", random.choice((CREDENTIAL, None))),
            DelegationTokenChanged(replace(TOKEN, expires_ms=random.randrange(1 << 40))),
            ClientQuotaChanged(ALICE, ((random.choice("ab"), random.random()),)),
            (AclRemoved if BOB in set(image.acls) else AclAdded)(BOB),
        ))  # fmt: skip
    name = random.choice(list(image.topics))
    info = image.topics[name].partitions[0]
    settings = tuple((f"k{key}", str(random.random())) for key in range(random.randrange(3)))
    return random.choice((
        ConfigChanged(TOPIC, name, settings),
        PartitionsAdded(name, (PART,) * random.randrange(1, 4)),
        PartitionChanged(name, 0, info.with_sole_leader(random.randrange(3))),
        EpochBegun(image.latest_epoch + random.randrange(1, 3)),
        TopicDeleted(name),
    ))  # fmt: skip


@pytest.mark.parametrize("snapshot_bytes", [1 << 30, 2_000])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 1_000])
async def test_walk_of_changes_is_read_again(snapshot_bytes: int, segment_bytes: int) -> None:
    for run in range(examples(5)):
        random, disk, image = drawing(run), new_disk(), None
        for _ in range(8):
            settings = {
                "snapshot_bytes": snapshot_bytes,
                "segment_bytes": segment_bytes,
                "retention_bytes": 5_000,
            }
            async with running(disk, **settings) as store:
                if image is not None:
                    assert kept(store.image) == kept(image)
                for _ in range(random.randrange(8)):
                    group = random_group(random, store.image)
                    await make(store, group)
                image = store.image
            if random.random() < 0.3:
                disk = disk.crash(random)
        if snapshot_bytes == 2_000:
            assert any(entry.name.endswith(".checkpoint") for entry in disk.list(METADATA))


# --- levels ---------------------------------------------------------------------------------------------------------


def formatted(level: int) -> MemoryDisk:
    """A disk with a log dir that is formatted with a metadata.version."""
    disk = new_disk()
    disk.replace(f"/a/{BOOTSTRAP}", bootstrap_file(formatting_records(level), NOW_MS), sync=True)
    return disk


@pytest.mark.parametrize("level", [7, 11, 14, 17, 21, 23, 30, 33])
async def test_log_of_any_level_keeps_what_it_has_records_for(level: int) -> None:
    disk = formatted(level)
    kinds_since = {"ScramCredentialChanged": 11, "DelegationTokenChanged": 14, "DelegationTokenRemoved": 14}
    expected = []
    async with running(disk) as store:
        for group in GROUPS:
            if level >= max(kinds_since.get(type(change).__name__, 0) for change in group):
                await make(store, group)
                expected.append(group)
            else:
                with pytest.raises(RequestError) as refusal:
                    await make(store, group)
                assert refusal.value.code == ErrorCode.UNSUPPORTED_VERSION
    image = kept_after(expected)
    if level < 17:
        image["log_dirs"] = {}  # no record has them
    assert await content(disk) == image
    reader = MetadataLog(disk, "/a")
    reader.begin()
    versions = {
        (step.name, step.version) for step in reader.steps() if step.name in ("Partition", "RegisterBroker")
    }
    assert versions == {
        ("Partition", 0 if level < 17 else 1 if level < 23 else 2),
        ("RegisterBroker", 1 if level < 8 else 2 if level < 17 else 3 if level < 30 else 4),
    }


async def test_users_of_a_formatted_dir_are_there_at_once() -> None:
    from barnabas.wire.generated.metadata_records.user_scram_credential import UserScramCredentialRecord

    user = UserScramCredentialRecord(
        "alice", 1, CREDENTIAL.salt, CREDENTIAL.stored_key, CREDENTIAL.server_key, CREDENTIAL.iterations
    )
    disk = new_disk()
    disk.replace(f"/a/{BOOTSTRAP}", bootstrap_file([*formatting_records(21), user], NOW_MS), sync=True)
    expected = kept_after([[ScramCredentialChanged("alice", "SCRAM-SHA-256", CREDENTIAL)]])
    for _ in range(2):
        assert await content(disk) == expected
    async with running(disk) as store:
        await make(store, [topic("t")])
    disk.remove(f"/a/{BOOTSTRAP}")
    assert (await content(disk))["scram"] == expected["scram"]


# --- big changes ----------------------------------------------------------------------------------------------------

BIG = [topic("before"), *(topic(f"big-{number}", 2_000) for number in range(10)), topic("after")]


@pytest.mark.parametrize("level", [7, 33])
async def test_change_of_many_batches_is_whole_or_not_there(level: int) -> None:
    disk = formatted(level)
    async with running(disk) as store:
        await make(store, [topic("t")])
    size = len(disk.read(SEGMENT))
    async with running(disk) as store:
        await make(store, BIG)
        disk = disk.fork()  # killed: a clean end would make a snapshot
    data = disk.read(SEGMENT)
    assert len(data) - size > 1 << 20
    random = drawing()
    cuts = [*(random.randrange(size, len(data)) for _ in range(examples(2))), len(data) - 1]
    for cut in cuts:
        after = disk.fork()
        after.replace(SEGMENT, data[:cut], sync=True)
        async with running(after) as store:
            assert list(store.image.topics) == ["t"], cut
            await make(store, [topic("u")])
        assert list((await content(after))["topics"]) == ["t", "u"], cut
    assert len((await content(disk))["topics"]) == len(BIG) + 1


async def test_start_on_a_full_disk_serves_what_a_cut_change_left() -> None:
    disk = await written([topic("t")])
    async with running(disk) as store:
        disk.room = 5 << 18
        with pytest.raises(StorageError) as refusal:
            await make(store, BIG)
        assert refusal.value.is_full
        killed = disk.fork()
    killed.room = 0
    async with running(killed) as store:
        assert list(store.image.topics) == ["t"]
        killed.room = None
        await make(store, [topic("u")])
    assert list((await content(killed))["topics"]) == ["t", "u"]


# --- closing --------------------------------------------------------------------------------------------------------


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


async def test_close_leaves_a_pending_change_to_the_next_start() -> None:
    disk = await written([topic("t")])
    store = await opened(disk)
    stuck = Stuck()
    store.subscribe(stuck)

    async def change() -> None:
        with pytest.raises(StorageError, match="closed"):
            await make(store, [topic("kept")])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        await stuck.entered.wait()
        await store.close()
    assert "kept" not in store.image.topics
    assert "kept" in (await content(disk))["topics"]


async def test_deleted_topics_are_known_by_their_ids() -> None:
    async with running(await written()) as store:
        assert store.deleted_topics == {b"gone".ljust(16)}


async def test_token_that_is_renewed_is_read_again() -> None:
    later = replace(TOKEN, expires_ms=2_500)
    disk = await written([DelegationTokenChanged(TOKEN)], [DelegationTokenChanged(later)])
    assert (await content(disk))["tokens"] == {TOKEN.token_id: later}


async def test_topic_deleted_and_made_again_has_its_new_id() -> None:
    again = TopicCreated(topic("t").topic._replace(id=b"other".ljust(16)))
    disk = await written([topic("t")], [TopicDeleted("t"), again])
    assert (await content(disk))["names_by_id"] == {b"other".ljust(16): "t"}
