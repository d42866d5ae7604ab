"""A whole broker with tiered storage in a directory; its store fails on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import trio

from barnabas.cluster.tiering.manager import TieredStorage
from barnabas.log.partition_log import PartitionLog
from barnabas.serving.seams import Seams
from barnabas.tiered.segment import RemoteSegment, TopicIdPartition
from barnabas.tiered.storage import IndexKind, RemoteStorage, RemoteStorageError, SegmentFiles
from tests.support.broker import Asked, ask_for_topic, broker_to_ask
from tests.support.logs import batch

STORE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
VALUE = b"v" * 300
SEGMENT_BYTES = 2000
NEVER_MS = 1 << 40


class KilledError(BaseException):
    """Simulates the end of the process during a call of the store."""


class ScriptedStore:
    """Wraps a store; calls named in `failing` fail, those in `killing` raise KilledError."""

    def __init__(self, inner: RemoteStorage) -> None:
        self._inner = inner
        self.failing: set[str] = set()
        self.killing: set[str] = set()
        self.custom_metadata: bytes | None = None
        self.on_copied: Callable[[RemoteSegment], None] = lambda _: None
        """Called after the copy of a segment, in the same thread."""
        self.gate: Event | None = None
        """If set, reads wait for this event."""
        self.reads = 0

    def _meet(self, call: str) -> None:
        if call in self.killing:
            raise KilledError(call)
        if call in self.failing:
            raise RemoteStorageError(f"{call} fails as the test says")

    def copy(self, segment: RemoteSegment, files: SegmentFiles) -> bytes | None:
        self._meet("copy")
        self._inner.copy(segment, files)
        self._meet("copied")
        self.on_copied(segment)
        return self.custom_metadata

    def read(self, segment: RemoteSegment, start: int, length: int) -> bytes:
        self.reads += 1
        if self.gate is not None:
            self.gate.wait(10)
        self._meet("read")
        return self._inner.read(segment, start, length)

    def read_index(self, segment: RemoteSegment, kind: IndexKind) -> bytes:
        self._meet("read_index")
        return self._inner.read_index(segment, kind)

    def delete(self, segment: RemoteSegment) -> None:
        self._meet("delete")
        self._inner.delete(segment)
        self._meet("deleted")

    def objects(self, partition: TopicIdPartition) -> Iterator[tuple[str, int, str]]:
        return self._inner.objects(partition)

    def close(self) -> None:
        self._inner.close()


class Tier:
    """A broker to ask, its tiered storage and its store."""

    def __init__(self, asked: Asked, tiered: TieredStorage, store: ScriptedStore, directory: Path) -> None:
        self.asked = asked
        self.tiered = tiered
        self.store = store
        self.directory = directory

    def log(self, topic: str = "t") -> PartitionLog:
        return self.asked.services.replicas.leader(topic, 0).log

    async def make(self, topic: str = "t", **settings: str) -> PartitionLog:
        """Create a tiered topic with small segments and minimal local retention; returns the log of its partition."""
        texts = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": "1",
            "retention.ms": "-1",
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        await ask_for_topic(self.asked, topic, partitions=1, settings=texts)
        await self.idle()
        return self.log(topic)

    async def idle(self) -> None:
        """Wait until the tasks that leadership starts are done."""
        with trio.fail_after(10):
            while any(
                partition.is_copying or partition.is_expiring or not partition.is_seen
                for partition in self.tiered.seen()
            ):
                await trio.sleep(0.01)

    def append(self, count: int, topic: str = "t", **options: Any) -> None:
        """Append records, each in a batch, and force the log to disk."""
        replica = self.asked.services.replicas.leader(topic, 0)
        for _ in range(count):
            options.setdefault("timestamp", self.asked.clock.now_ms)
            result = replica.log.append_as_leader(
                batch(VALUE, **options), leader_epoch=replica.leader_epoch, now_ms=self.asked.clock.now_ms
            )
            replica.appended(result)
        replica.log.flush(self.asked.clock.now_ms)

    async def rounds(self, count: int = 3) -> None:
        """Run copies, expiry and local deletion several times."""
        await self.idle()
        for _ in range(count):
            for partition in [*self.tiered.seen()]:
                await self.tiered.round_of(partition)
            for partition_log in self.asked.services.logs:
                partition_log.apply_retention(self.asked.clock.now_ms)

    async def store_all(self, topic: str = "t", count: int = 30, **settings: str) -> PartitionLog:
        """Create a topic, append records, and copy all closed segments to the store; returns the log."""
        log = await self.make(topic, **settings)
        self.append(count, topic)
        await self.rounds()
        return log

    def stored(self) -> list[int]:
        """Base offsets of the segments in the store."""
        return sorted(int(path.name[:20]) for path in self.directory.rglob("*.log"))


@asynccontextmanager
async def tiered_broker(
    directory: Path, *, held: Collection[str] = (), **settings: str
) -> AsyncIterator[Tier]:
    """Yield a broker with its data in a directory, and its store in another one below it; calls in `held` fail at first."""
    texts = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": STORE,
        "rsm.config.dir": str(directory / "tier"),
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "remote.log.manager.task.interval.ms": str(NEVER_MS),
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    stores: list[ScriptedStore] = []

    def around(inner: RemoteStorage) -> RemoteStorage:
        stores.append(ScriptedStore(inner))
        stores[0].failing = set(held)
        return stores[0]

    async with broker_to_ask(directory, texts, seams=Seams(around_store=around)) as asked:
        tiered = asked.services.tiered
        assert tiered is not None
        while not tiered.is_ready:
            await trio.sleep(0.01)
        yield Tier(asked, tiered, stores[0], directory / "tier")
