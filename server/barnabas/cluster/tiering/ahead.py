"""Read-ahead of remote segments for sequential readers.

The rule: a read that continues an earlier read starts a run of further reads, in one thread. All runs are bounded in bytes
and seconds, a piece answers one fetch, and an error of the store is reported by the fetch that encounters it.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from barnabas.cluster.tiering.lineage import end_of_use, segment_at
from barnabas.cluster.tiering.partition import key_of
from barnabas.cluster.tiering.reading import read_ahead
from barnabas.records.errors import CorruptRecordsError
from barnabas.tiered.storage import RemoteStorageError

if TYPE_CHECKING:
    from barnabas.cluster.replicas.replica import Replica
    from barnabas.cluster.tiering.counts import BytesLimit, TierCounts
    from barnabas.cluster.tiering.metadata import RemoteMetadata
    from barnabas.cluster.tiering.reading import RemoteIndexes, RemoteRecords
    from barnabas.environment import Environment
    from barnabas.tiered.segment import RemoteSegment, TopicIdPartition
    from barnabas.tiered.storage import RemoteStorage

log = logging.getLogger(__name__)

RUN_BYTES: Final = 4 << 20
"""Most bytes of a run. A reader has two: the run that answers it, and the next."""
RUN_PIECES_MAX: Final = 16
RUN_SECONDS: Final = 0.1
"""No further piece is read after this time, so that the first pieces of a slow store do not wait for the last."""
AHEAD_BYTES_MAX: Final = 32 << 20
"""Most bytes of all runs; beyond it fetches are read on arrival."""
AHEAD_SECONDS_MAX: Final = 10.0
READERS_MAX: Final = 1000
FREE_THREADS_MIN: Final = 2
"""Threads that must be free before a run begins: the last thread is reserved for fetches."""

Place = tuple["TopicIdPartition", int]
"""A partition, and the offset of a fetch."""


class Run:
    """Consecutive pieces, each for a fetch of `max_bytes`; `offset` and `position` are those after the last piece."""

    __slots__ = ("is_continued", "max_bytes", "offset", "position", "read_s", "segment")

    def __init__(self, segment: RemoteSegment, offset: int, position: int, max_bytes: int) -> None:
        self.segment = segment
        self.offset = offset
        self.position = position
        self.max_bytes = max_bytes
        self.is_continued = False
        self.read_s = 0.0


class Piece(NamedTuple):
    """The records for one fetch, and their run."""

    place: Place
    records: RemoteRecords
    run: Run


class ReadAhead:
    """Pieces that were read ahead, by their places."""

    def __init__(
        self,
        storage: RemoteStorage,
        indexes: RemoteIndexes,
        metadata: RemoteMetadata,
        counts: TierCounts,
        limit: BytesLimit,
        environment: Environment,
        limiter: trio.CapacityLimiter,
        background: trio.Nursery,
        bytes_max: int = AHEAD_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._storage = storage
        self._indexes = indexes
        self._metadata = metadata
        self._counts = counts
        self._limit = limit
        self._threads = environment.threads
        self._now_s = environment.monotonic
        self._limiter = limiter
        self._background = background
        self._pieces: dict[Place, Piece] = {}  # in the order in which they were read
        self._reading: dict[Place, trio.Event] = {}
        self._readers: OrderedDict[Place, None] = OrderedDict()
        self._bytes = 0
        self._is_timed = False

    @property
    def size(self) -> int:
        """Upper bound of the bytes of all pieces, including the runs that are being read."""
        return self._bytes + len(self._reading) * RUN_BYTES

    def find(self, replica: Replica, offset: int, max_bytes: int) -> Piece | None:
        """Return the piece at an offset if its records are still those of the log, and have at most `max_bytes`."""
        key = key_of(replica)
        piece = self._pieces.get((key, offset))
        if piece is None or not self._metadata.is_ready_for(key):
            return None
        if piece.records.next_offset > self._end_of(replica, key, offset, piece.run.segment):
            self._drop(piece)
            return None
        return piece if len(piece.records.data) <= max_bytes else None

    async def wait(self, replica: Replica, offset: int) -> None:
        """Wait for the run that begins at an offset, if it is being read."""
        reading = self._reading.get((key_of(replica), offset))
        if reading is not None:
            await reading.wait()

    def take(self, replica: Replica, piece: Piece) -> None:
        """Remove a piece that answers a fetch; begin the run after that of the piece."""
        self._drop(piece)
        run, (key, _) = piece.run, piece.place
        self._note((key, piece.records.next_offset))
        if not run.is_continued:
            run.is_continued = True
            self._begin(replica, key, Run(run.segment, run.offset, run.position, run.max_bytes))

    def was_read(
        self, replica: Replica, offset: int, max_bytes: int, segment: RemoteSegment, records: RemoteRecords
    ) -> None:
        """Note a read for a fetch; begin a run after it if it continues an earlier one."""
        if records.next_position < 0:
            return
        key = key_of(replica)
        is_sequential = (key, offset) in self._readers
        self._note((key, records.next_offset))
        if is_sequential:
            self._begin(replica, key, Run(segment, records.next_offset, records.next_position, max_bytes))

    def _note(self, place: Place) -> None:
        self._readers[place] = None
        self._readers.move_to_end(place)
        if len(self._readers) > READERS_MAX:
            self._readers.popitem(last=False)

    def _end_of(self, replica: Replica, key: TopicIdPartition, offset: int, segment: RemoteSegment) -> int:
        """Return the end of the log's records in a segment from an offset on; the offset itself without such records."""
        epochs = replica.log.epochs
        if segment_at(self._metadata.of(key), epochs, offset) is not segment:
            return offset
        return end_of_use(segment, offset, epochs, replica.log.log_end_offset)

    def _begin(self, replica: Replica, key: TopicIdPartition, run: Run) -> None:
        """Begin a run if it has a thread, memory and records that are in the store only, and the limit is not reached."""
        place, offset = (key, run.offset), run.offset
        if (
            place in self._pieces
            or place in self._reading
            or offset >= replica.log.local_log_start_offset
            or run.max_bytes > RUN_BYTES
            or self._limiter.available_tokens < FREE_THREADS_MIN
            or self._limit.throttle_ms() > 0
        ):
            return
        if run.position >= run.segment.size:
            segment = segment_at(self._metadata.of(key), replica.log.epochs, offset)
            if segment is None or segment.start_offset != offset:
                return
            run.segment, run.position = segment, 0
        if self._end_of(replica, key, offset, run.segment) <= run.segment.end_offset:
            return
        self._drop_old()
        if self.size + RUN_BYTES <= self._bytes_max:
            self._reading[place] = trio.Event()
            self._background.start_soon(self._read, place, run)

    async def _read(self, place: Place, run: Run) -> None:
        key, _ = place
        pieces: list[RemoteRecords] = []
        try:
            pieces = await self._threads.run(partial(self._read_pieces, run), limiter=self._limiter)
        except (RemoteStorageError, CorruptRecordsError) as error:
            log.debug("nothing was read ahead of %s-%d: %s", key.topic, key.partition, error)
        except Exception:
            log.exception("reading ahead of %s-%d failed", key.topic, key.partition)
        finally:
            self._reading.pop(place).set()
        run.read_s = self._now_s()
        for records in pieces:
            size = len(records.data)
            self._counts.of(key.topic).read_bytes += size
            self._limit.record(size)
            if place in self._pieces:
                self._drop(self._pieces[place])
            self._pieces[place] = Piece(place, records, run)
            self._bytes += size
            run.offset, run.position = records.next_offset, records.next_position
            place = key, records.next_offset
        if not self._is_timed:
            self._is_timed = True
            while self._pieces:
                await trio.sleep(AHEAD_SECONDS_MAX)
                self._drop_old()
            self._is_timed = False

    def _read_pieces(self, run: Run) -> list[RemoteRecords]:
        deadline_s = self._now_s() + RUN_SECONDS
        count = min(RUN_BYTES // max(run.max_bytes, 1), RUN_PIECES_MAX)
        return read_ahead(
            self._storage, self._indexes, run.segment, run.position, run.max_bytes, count,
            lambda: self._now_s() < deadline_s,
        )  # fmt: skip

    def _drop_old(self) -> None:
        oldest = self._now_s() - AHEAD_SECONDS_MAX
        while self._pieces:
            piece = next(iter(self._pieces.values()))
            if piece.run.read_s > oldest:
                return
            self._drop(piece)

    def _drop(self, piece: Piece) -> None:
        del self._pieces[piece.place]
        self._bytes -= len(piece.records.data)
