"""Logs under every change that their owner makes, and the content that each is expected to have."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from barnabas.errors import StorageError
from barnabas.log.background_write import BackgroundWrite
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.log.partition_log import PartitionLog
from barnabas.log.workers import OsWorkers
from barnabas.records.steps import run
from barnabas.records.validated import ValidatedBatches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import InlineExecutor
from tests.support.logs import NOW_MS, TOPIC_ID, Broker, append, batch

DIRS = ("/a", "/b")
LOST_DIR = "/b"
TOPICS = st.sampled_from(["s", "t"])
MANY_TOPICS = st.sets(st.sampled_from(["s", "t", "u", "v", "w", "x"]), min_size=1).map(sorted)
"""Made or deleted together: more than there are threads for."""
DELAY_MS = 1_000


@dataclass
class Model:
    """The expected content of a topic: values by offset from `start` on, the last of each key if it is compacted."""

    records: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)  # offset -> key, value
    start: int = 0
    is_removed: bool = False  # by somebody, from under the broker


@dataclass
class Task:
    """A deferred task: what runs in a thread, and what the owner of the logs does then."""

    name: str
    run: Callable[[], None]
    finish: Callable[[Exception | None], None]
    has_run: bool = False
    error: Exception | None = None
    written: tuple[PartitionLog, BackgroundWrite, ValidatedBatches, tuple[bytes, bytes]] | None = None


class InlineWorkers(OsWorkers):
    """Threads that do one thing after the other, so that a history repeats itself."""

    def executor(self, threads: int) -> Executor:
        del threads
        return InlineExecutor()


class ChangedLogs(RuleBasedStateMachine):
    """Logs, what is expected of them, and everything that their owner may do with them."""

    @initialize(
        compacted=st.booleans(), preallocate=st.booleans(), segments_open=st.sampled_from([1, 2, 100])
    )
    def begin(self, compacted: bool, preallocate: bool, segments_open: int) -> None:
        self.disk = MemoryDisk()
        self.compacted = compacted
        self.broker = Broker(
            *DIRS,
            disk=self.disk,
            workers=InlineWorkers(),
            segment_bytes=400,
            index_interval_bytes=50,
            preallocate=preallocate,
            file_delete_delay_ms=DELAY_MS,
            retention_ms=-1,
            cleanup_policy=frozenset({"compact", "delete"} if compacted else {"delete"}),
            min_cleanable_dirty_ratio=0.0,
        )
        self.segments_open = segments_open
        self.now = NOW_MS
        self.models: dict[str, Model] = {}
        self.offline: dict[str, Model] = {}
        """Content of the log dir that was taken offline, until the next start."""
        self.set_aside_count = 0
        self.removed_count = 0  # what is left of these may have been set aside too
        self.orphans: set[str] = set()
        """Copies of logs that may have gone while the copies could not be removed: a start leaves them alone."""
        # What was there before the last start, which leaves stray directories alone.
        self.kept: set[str] = set()
        self.values = 0
        self.started()

    def started(self) -> None:
        self.manager = self.broker.manager
        self.manager.pool.count_max = self.segments_open
        self.cleaner = LogCleaner(lambda: self.manager)
        self.tasks: list[Task] = []
        self.being_made: set[str] = set()
        self.being_deleted: set[str] = set()

    def log(self, topic: str) -> PartitionLog | None:
        return self.manager.get(topic, 0)

    @contextmanager
    def served(self):
        """Do as the broker does with a StorageError; nothing that is there may go offline."""
        failure = None
        try:
            yield
        except StorageError as error:
            failure = error
        if failure is not None and failure.log_dir not in self.manager.offline:
            assert failure.is_missing, failure
            lost = self.manager.lose_missing(failure)
            assert all(self.models[log.topic].is_removed for log in lost), failure

    # --- changes --------------------------------------------------------------------------------------------

    @rule(topic=TOPICS)
    def create(self, topic: str) -> None:
        if self.may_be_made(topic):
            with self.served():
                self.manager.create(topic, 0, TOPIC_ID, now_ms=self.now)
            self.models[topic] = Model()

    def may_be_made(self, topic: str) -> bool:
        """Say whether there is no such log, and none is being made or deleted: changes of metadata wait for each other."""
        taken = self.models.keys() | self.offline.keys() | self.being_made | self.being_deleted
        return topic not in taken

    @rule(topic=TOPICS, count=st.integers(1, 12), size=st.integers(0, 150))
    def append(self, topic: str, count: int, size: int) -> None:
        log = self.log(topic)
        for _ in range(count):
            if log is None or log.is_closed:
                return
            self.values += 1
            key, value = b"%d" % (self.values % 3), b"%d " % self.values + bytes(size)
            with self.served():
                offset = append(log, batch(value, key=key, timestamp=self.now), now_ms=self.now).base_offset
                self.models[topic].records[offset] = key, value

    @rule(topic=TOPICS, size=st.integers(0, 300))
    def plan_background_write(self, topic: str, size: int) -> None:
        log = self.log(topic)
        if log is None or log.is_closed:
            return
        self.values += 1
        key, value = b"%d" % (self.values % 3), b"%d " % self.values + bytes(size)
        valid = run(log.validation(batch(value, key=key, timestamp=self.now), now_ms=self.now))
        write = None
        with self.served():
            write = log.begin_background_write(valid, leader_epoch=0, now_ms=self.now)
        if write is None:
            return

        def work() -> None:
            self.disk.fault = None  # in the middle of it whoever changes the log waits
            write.run()

        def finish(error: Exception | None) -> None:
            assert error is None
            try:
                if not log.is_closed:
                    result = log.append_valid(valid, leader_epoch=0, now_ms=self.now)
                    log.advance_high_watermark(log.log_end_offset)
                    self.models[topic].records[result.base_offset] = key, value
            finally:
                log.end_background_write(write)

        self.tasks.append(Task("background write", work, finish))
        self.tasks[-1].written = log, write, valid, (key, value)

    @rule(topic=TOPICS)
    def roll(self, topic: str) -> None:
        log = self.log(topic)
        if log is not None:
            with self.served():
                log.roll()

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        if self.models.pop(topic, None) is not None:
            self.note_orphans(topic)
            with self.served():
                self.manager.delete(topic, 0, self.now)

    def note_orphans(self, topic: str) -> None:
        """Remember the copies that are in the lost dir, of a log that goes."""
        if LOST_DIR in self.manager.offline:
            self.orphans |= self.copies(topic, LOST_DIR)

    def copies(self, topic: str, path: str) -> set[str]:
        parsed = {entry.name: names.parse_dir_name(entry.name) for entry in self.disk.list(path)}
        return {name for name, dir_ in parsed.items() if dir_ == (topic, 0, DirKind.FUTURE)}

    @rule(topic=TOPICS)
    def create_again(self, topic: str) -> None:
        self.delete(topic)
        self.create(topic)

    @rule(topic=TOPICS)
    def set_aside(self, topic: str) -> None:
        if self.log(topic) is not None:
            is_there = not self.models.pop(topic).is_removed
            self.note_orphans(topic)
            with self.served():
                self.manager.set_aside(topic, 0)
            self.set_aside_count += is_there

    @rule(topic=TOPICS, share=st.floats(0, 1))
    def truncate(self, topic: str, share: float) -> None:
        log = self.log(topic)
        if log is not None:
            offset = log.log_start_offset + int((log.log_end_offset - log.log_start_offset) * share)
            model = self.models[topic]
            with self.served():
                log.truncate_to(offset, now_ms=self.now)
                model.records = {at: record for at, record in model.records.items() if at < offset}

    @rule(topic=TOPICS)
    def begin_again(self, topic: str) -> None:
        """As a follower does that is too far behind."""
        log = self.log(topic)
        if log is not None:
            with self.served():
                log.truncate_fully_and_start_at(log.log_end_offset)
                self.models[topic] = Model(start=log.log_start_offset)

    @rule(topic=TOPICS, share=st.sampled_from([0.5, 1.0]), is_full=st.booleans())
    def retire(self, topic: str, share: float, is_full: bool) -> None:
        """Have segments of a topic wait to be removed."""
        if is_full:
            self.append(topic, 6, 100)
        self.delete_records(topic, share)
        self.apply_retention(100)

    def delete_records(self, topic: str, share: float) -> None:
        log = self.log(topic)
        if log is not None:
            with self.served():
                self.models[topic].start = log.delete_records_before(int(log.high_watermark * share))

    def apply_retention(self, count_max: int) -> None:
        for log in self.manager:
            with self.served():
                log.apply_retention(self.now, count_max)

    @rule(topic=TOPICS, path=st.sampled_from(DIRS))
    def begin_move(self, topic: str, path: str) -> None:
        if self.log(topic) is not None and path in self.manager.online:
            with self.served():
                self.manager.begin_move(topic, 0, path, self.now)

    @rule()
    def kill(self) -> None:
        """End as after kill -9: what was written is there, what was planned is not done."""
        gone = {topic for topic, model in (self.models | self.offline).items() if model.is_removed}
        for topic in gone:
            self.orphans.update(*(self.copies(topic, path) for path in DIRS))
        unsure = {topic for topic, model in self.offline.items() if not model.records} - gone
        being_made, being_deleted = self.being_made | unsure, self.being_deleted
        self.models |= {topic: model for topic, model in self.offline.items() if topic not in unsure}
        self.offline.clear()
        for task in self.tasks:
            if task.written is not None and task.has_run:
                log, write, valid, record = task.written
                if log.active._background is write and log.topic in self.models:
                    self.models[log.topic].records[valid.base_offset] = record  # not answered, but there
        self.broker.crash()
        self.kept = {entry.name for path in DIRS for entry in self.disk.list(path)}
        self.broker.start(self.now)
        self.started()
        for topic, model in list(self.models.items()):
            log = self.log(topic)
            if topic in gone:
                del self.models[topic]
                if log is not None:
                    self.manager.delete(topic, 0, self.now)
                continue
            assert log is not None, f"{topic} is gone"
            log.advance_high_watermark(log.log_end_offset)
            assert log.log_start_offset <= model.start or not model.records
            model.start = log.log_start_offset  # what was not checkpointed yet
        for topic in being_made:
            if self.log(topic) is None:
                self.create(topic)
            else:
                self.models[topic] = Model()
        for topic in being_deleted:
            if self.log(topic) is not None:
                self.manager.delete(topic, 0, self.now)
        assert {log.topic for log in self.manager} <= self.models.keys()  # no copy brings a deleted log back

    @rule(topic=TOPICS, only_file=st.booleans())
    def remove_from_under_it(self, topic: str, only_file: bool) -> None:
        """A partition's directory is removed, or its active segment."""
        log = self.log(topic)
        if log is not None and not self.tasks:
            self.models[topic].is_removed = True
            self.removed_count += 1
            if only_file:
                self.disk.remove(log.active.path(names.LOG))
            else:
                self.disk.remove_tree(log.dir)

    @rule()
    def lose_dir(self) -> None:
        """Take a log dir offline; what is in it is there again after the next start."""
        self.manager.take_offline(LOST_DIR, StorageError(LOST_DIR, OSError(EIO, "the test says so")))
        # Also of logs that somebody removed a file of.
        remaining = {entry.name for entry in self.disk.list(LOST_DIR)}
        for topic in list(self.models):
            if self.log(topic) is None and (
                not self.models[topic].is_removed or names.dir_name(topic, 0) in remaining
            ):
                self.offline[topic] = self.models.pop(topic)
