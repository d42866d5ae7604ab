"""The metadata store of a single broker in tests: opened on a disk, with a change of each stored kind."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from barnabas.cluster.kraft.own_log_place import LogPlace, Node
from barnabas.cluster.kraft.own_store import OwnStore
from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import TOPIC, BrokerInfo, Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.config.metadata_log import LogSettings
from barnabas.log.disk import Disk
from barnabas.security import scram
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import Token
from barnabas.serving.quotas.entities import QuotaEntity
from barnabas.testing.memory_disk import MemoryDisk

T = TypeVar("T")
LOG_DIR: Final = "/a"
METADATA: Final = f"{LOG_DIR}/__cluster_metadata-0"
SEGMENT: Final = f"{METADATA}/{0:020d}.log"
ME: Final = BrokerInfo(1, None, {"PLAINTEXT": ("localhost", 9092)})
DIRECTORY_ID: Final = b"d" * 16
NOW_MS: Final = 1_700_000_000_000
PART: Final = PartitionInfo(1, (1,), (1,))
BOB: Final = AclBinding(
    ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, "t"),
    AccessControlEntry("User:bob", "*", Operation.READ, Permission.DENY),
)
CAROL: Final = BOB._replace(entry=BOB.entry._replace(principal="User:carol"))
CREDENTIAL: Final = scram.credential(scram.SCRAM_SHA_256, "secret", b"salt", 4096)
TOKEN: Final = Token("id-1", "User:alice", "User:bob", ("User:carol",), 1_000, 2_000, 3_000)
ALICE: Final = QuotaEntity("alice", "")


class InlineThreads:
    """Stands for threads: work runs immediately in the calling task."""

    async def run(self, work: Callable[[], T], *, limiter: object = None) -> T:
        """Return the result of the work."""
        return work()

    def check_cancelled(self) -> None:
        """Do nothing: no task waits."""


def topic(name: str, partitions: int = 1) -> TopicCreated:
    """A new topic; its id is its name."""
    return TopicCreated(TopicInfo(name, name.encode().ljust(16), (PART,) * partitions))


GROUPS: Final[Sequence[Sequence[Change]]] = (
    (topic("t", 2), ConfigChanged(TOPIC, "t", (("a", "1"), ("retention.ms", "5")))),
    (topic("gone"), ConfigChanged(TOPIC, "gone", (("a", "1"),))),
    (PartitionsAdded("t", (PART, PART._replace(leader_epoch=3))),),
    (EpochBegun(4), EpochBegun(7)),
    (PartitionChanged("t", 3, PART._replace(leader_epoch=9, partition_epoch=12)),),
    (TopicDeleted("gone"),),
    (ConfigChanged(TOPIC, "t", (("b", "2"), ("retention.ms", "5"))), ConfigChanged(4, "1", (("x", "y"),))),
    (ProducerIdsAllocated(1000), LogDirsRegistered(1, frozenset({b"a" * 16, b"b" * 16}))),
    (
        ScramCredentialChanged("alice", "SCRAM-SHA-256", CREDENTIAL),
        ScramCredentialChanged("alice", "SCRAM-SHA-512", CREDENTIAL),
        ScramCredentialChanged("alice", "SCRAM-SHA-512", None),
    ),
    (DelegationTokenChanged(TOKEN), DelegationTokenChanged(replace(TOKEN, token_id="id-2"))),
    (DelegationTokenRemoved("id-2"),),
    (ClientQuotaChanged(ALICE, (("producer_byte_rate", 1000.0), ("request_percentage", 12.5))),),
    (ClientQuotaChanged(ALICE, (("request_percentage", 7.5),)),),
    (AclAdded(BOB), AclAdded(CAROL)),
    (AclRemoved(CAROL),),
    (topic("a.b"), topic("last")),
)
"""Changes of each stored kind, in groups that are made together."""


def kept(image: ClusterImage) -> dict[str, Any]:
    """Return the parts of an image that survive a restart, by name."""
    names = (
        "topics",
        "names_by_id",
        "configs",
        "next_producer_id",
        "log_dirs",
        "similar",
        "scram",
        "tokens",
        "quotas",
    )
    content = {
        name: dict(value) if hasattr(value := getattr(image, name), "items") else value for name in names
    }
    return {**content, "acls": frozenset(image.acls)}


def kept_after(groups: Sequence[Sequence[Change]]) -> dict[str, Any]:
    """Return the same parts after these groups of changes to an empty image."""
    return kept(ClusterImage("c").apply(change for group in groups for change in group))


def new_disk() -> MemoryDisk:
    """Return a disk with an empty log dir, synced in its parent directory."""
    disk = MemoryDisk()
    disk.make_dirs(LOG_DIR)
    disk.sync_dir("/")
    return disk


async def opened(
    disk: Disk, *, log_dir: str = LOG_DIR, may_lose: bool = True, threads: Any = None, **settings: Any
) -> OwnStore:
    """A store that leads; `settings` are those of its log."""
    place = LogPlace(disk, log_dir, LogSettings(**settings), lambda: NOW_MS)
    store = OwnStore(place, threads or InlineThreads())
    store.read(may_lose=may_lose)
    await store.open("c", ME, Node(ME.id, DIRECTORY_ID))
    return store


@asynccontextmanager
async def running(disk: Disk, **options: Any) -> AsyncIterator[OwnStore]:
    """A store that is closed at the end."""
    store = await opened(disk, **options)
    try:
        yield store
    finally:
        await store.close()


async def make(store: OwnStore, *groups: Sequence[Change]) -> None:
    """Make changes, one group after the other."""
    for group in groups:
        await store.change(lambda _, group=group: group)


async def written(*groups: Sequence[Change], **options: Any) -> MemoryDisk:
    """Return a disk on which a single broker has made these changes, and was stopped."""
    disk = new_disk()
    async with running(disk, **options) as store:
        await make(store, *(groups or GROUPS))
    return disk


async def killed(*groups: Sequence[Change], **options: Any) -> MemoryDisk:
    """Return a disk on which a single broker has made these changes, and was killed."""
    disk = new_disk()
    async with running(disk, **options) as store:
        await make(store, *groups)
        return disk.fork()


async def content(disk: Disk, **options: Any) -> dict[str, Any]:
    """Return the parts of the image that the next start loads from a disk."""
    async with running(disk, **options) as store:
        return kept(store.image)
