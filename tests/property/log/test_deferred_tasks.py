"""Deferred tasks against everything that may come in between: each is planned, run and finished at its own time.

A task runs as in a thread: at any of its operations on the disk the thread that owns the logs may make a change. The
disk never fails here, so no log may go offline unless the test has removed its files, or has taken its log dir offline.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EIO, ENOENT

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.errors import StorageError
from barnabas.log.background_write import BackgroundWrite
from barnabas.log.cleaner.cleaner import LogCleaner
from barnabas.log.creating import Wanted
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.log.partition_log import PartitionLog
from barnabas.log.workers import OsWorkers
from barnabas.records.steps import Steps, run
from barnabas.records.validated import ValidatedBatches
from barnabas.testing.memory_disk import MemoryDisk
from barnabas.testing.simulation.world import InlineExecutor
from tests.support.effort import examples
from tests.support.logs import NOW_MS, TOPIC_ID, Broker, append, batch, read_all

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


class DeferredTasks(RuleBasedStateMachine):
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
        """Copies whose log may have gone while nobody could remove them: a start leaves them alone."""
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
            write = log.begin_background_write(valid, leader_epoch=0, now_ms=self.now, api_version=13)
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
        found = {entry.name: names.parse_dir_name(entry.name) for entry in self.disk.list(path)}
        return {name for name, one in found.items() if one == (topic, 0, DirKind.FUTURE)}

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
        """Somebody removes a partition's directory, or its active segment."""
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
        left = {entry.name for entry in self.disk.list(LOST_DIR)}
        for topic in list(self.models):
            if self.log(topic) is None and (
                not self.models[topic].is_removed or names.dir_name(topic, 0) in left
            ):
                self.offline[topic] = self.models.pop(topic)

    # --- deferred tasks: many logs made or deleted ----------------------------------------------------------

    @rule(topics=MANY_TOPICS)
    def plan_creation(self, topics: list[str]) -> None:
        topics = [topic for topic in topics if self.may_be_made(topic)]
        with self.served():
            creation = self.manager.begin_creation([Wanted(topic, 0, TOPIC_ID) for topic in topics], self.now)
            self.being_made.update(topics)

            def finish() -> None:
                for new in creation.logs:
                    topic = new.key[0]
                    with self.served():
                        self.manager.finish_creation(new, self.now)
                        self.models[topic] = Model()
                    if new.log_dir in self.manager.offline:
                        self.offline[topic] = Model()
                    self.being_made.remove(topic)

            self.plan("creation", creation.run, finish)

    @rule(topics=MANY_TOPICS)
    def plan_deletion(self, topics: list[str]) -> None:
        topics = [topic for topic in topics if self.models.pop(topic, None) is not None]
        for topic in topics:
            self.note_orphans(topic)
        with self.served():
            deletion = self.manager.begin_deletion([(topic, 0) for topic in topics], self.now)
            self.being_deleted.update(topics)

            def finish() -> None:
                self.being_deleted.difference_update(topics)
                deletion.finish()

            self.plan("deletion", deletion.run, finish)

    # --- deferred tasks: planned ----------------------------------------------------------------------------

    @rule(topic=TOPICS, is_due=st.booleans())
    def plan_flush(self, topic: str, is_due: bool) -> None:
        log = self.log(topic)
        if log is not None:
            with self.served():
                flush = log.begin_due_flush(self.now) if is_due else log.begin_flush()
                if flush is not None:
                    self.plan("flush", flush.run, lambda: flush.finish(self.now))

    @rule(waited_ms=st.sampled_from([0, DELAY_MS // 2, DELAY_MS]))
    def plan_removal(self, waited_ms: int) -> None:
        self.now += waited_ms
        removal = self.manager.begin_removal(self.now)
        if removal is not None:
            self.plan("removal", removal.run, removal.finish)

    @rule(is_dir_lost=st.booleans())
    def plan_checkpoints(self, is_dir_lost: bool) -> None:
        manager, plan = self.manager, self.manager.begin_checkpoints()
        for number, log in enumerate(manager):
            if number == 1 and is_dir_lost:  # logs are added in several turns of the event loop
                self.lose_dir()
            plan.add(log)
        self.plan(
            "checkpoints", lambda: manager.checkpoints.write(plan), lambda: manager.checkpoints.written(plan)
        )

    @rule()
    def plan_cleaning(self) -> None:
        cleaner = self.cleaner
        with self.served():
            cleaning = cleaner.next_task(self.now)
            if cleaning is not None:

                def finish(error: Exception | None) -> None:
                    if error is None:
                        self.go_on(cleaner.done_steps(cleaning, self.now))
                    else:
                        cleaner.failed(cleaning, error)

                self.tasks.append(Task("cleaning", cleaning.run, finish))

    def go_on(self, steps: Steps[bool]) -> None:
        """Do a step of what others may interrupt; the next one is done when this task is finished."""
        try:
            next(steps)
        except StopIteration:
            return
        self.tasks.append(Task("step", lambda: None, lambda _: self.go_on(steps), has_run=True))

    @precondition(lambda self: len(self.manager.moves) > 0)
    @rule(is_last=st.booleans(), data=st.data())
    def plan_copy(self, is_last: bool, data: st.DataObject) -> None:
        manager = self.manager
        move = data.draw(st.sampled_from(list(manager.moves)))
        with self.served():
            try:
                copies = move.plan()
            except OSError as error:
                raise StorageError(move.partition_log.log_dir, error) from error

            def finish(error: Exception | None) -> None:
                if move.is_cancelled:
                    return
                try:
                    if error is not None:
                        raise error
                    if is_last:
                        manager.finish_move(move, self.now)
                except StorageError:
                    manager.moves.cancel(move, self.now)
                    raise

            self.tasks.append(Task("copy", lambda: move.run(copies), finish))

    @rule()
    def plan_search_for_missing_files(self) -> None:
        found: list[StorageError] = []

        def finish() -> None:
            for error in found:
                with self.served():
                    raise error

        self.plan("search", lambda: found.extend(self.manager.find_missing(also_logs=True)), finish)

    def plan(self, name: str, run: Callable[[], object], finish: Callable[[], object]) -> None:
        def finish_or_fail(error: Exception | None) -> None:
            if error is not None:
                raise error
            finish()

        self.tasks.append(Task(name, run, finish_or_fail))

    # --- deferred tasks: run, finished ----------------------------------------------------------------------

    @precondition(lambda self: any(not task.has_run for task in self.tasks))
    @rule(data=st.data(), is_finished=st.booleans())
    def run(self, data: st.DataObject, is_finished: bool) -> None:
        """Run a task, with a change in the middle of it."""
        task = data.draw(st.sampled_from([task for task in self.tasks if not task.has_run]))
        changes = (
            self.delete, self.create_again, self.set_aside, self.roll, self.begin_again,
            lambda topic: self.append(topic, 5, 100),
            lambda topic: self.truncate(topic, 0.5),
            lambda topic: self.retire(topic, 1.0, False),
            lambda topic: [self.begin_move(topic, path) for path in DIRS],
            lambda topic: self.finish_first_but(task),
            lambda topic: self.lose_dir(),
            lambda topic: self.plan_creation([topic, "u", "v"]),
            lambda topic: self.plan_deletion([topic, "u", "v"]),
        )  # fmt: skip
        change, topic = data.draw(st.sampled_from(changes)), data.draw(TOPICS)
        left = data.draw(st.integers(0, 30))
        task.has_run = True

        def fault(_operation: str, _path: str) -> None:
            nonlocal left
            left -= 1
            # For checkpoints that are written the owner of the logs would wait.
            if left < 0 and not self.manager.checkpoints._writing.locked():
                self.disk.fault = None
                change(topic)

        self.disk.fault = fault
        try:
            task.run()
        except Exception as error:
            if isinstance(error, AssertionError):
                raise
            task.error = error
        finally:
            self.disk.fault = None
        if is_finished:
            self.finish_task(task)

    def finish_first_but(self, running: Task) -> None:
        """Finish another task that has run."""
        done = [task for task in self.tasks if task.has_run and task is not running]
        if done:
            self.finish_task(done[0])

    @precondition(lambda self: any(task.has_run for task in self.tasks))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self.finish_task(data.draw(st.sampled_from([task for task in self.tasks if task.has_run])))

    def finish_task(self, task: Task) -> None:
        self.tasks.remove(task)
        with self.served():
            task.finish(task.error)

    # --- what must hold -------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_offline_or_lost(self) -> None:
        if not hasattr(self, "manager"):
            return
        assert self.manager.offline.keys() <= {LOST_DIR}
        for topic, model in self.models.items():
            log = self.log(topic)
            if model.is_removed:
                continue
            assert log is not None, f"{topic} is not there"
            assert log.missing_file(all_segments=True) is None
            found = {record.offset: (record.key, record.value) for record in read_all(log)}
            wanted = {at: record for at, record in model.records.items() if at >= log.log_start_offset}
            if self.compacted:
                assert found.items() <= wanted.items()
                wanted = dict({key: at for at, (key, _) in wanted.items()}.items())
                wanted = {at: model.records[at] for at in wanted.values()}
                assert found.items() >= wanted.items()
            else:
                assert found == wanted

    def teardown(self) -> None:
        if hasattr(self, "manager"):
            while self.tasks:
                task = self.tasks[0]
                if not task.has_run:
                    try:
                        task.run()
                    except Exception as error:
                        task.error = error
                self.finish_task(task)
            self.check_that_what_is_removed_is_noticed()
            self.check_that_nothing_leaks()

    def check_that_what_is_removed_is_noticed(self) -> None:
        for error in self.manager.find_missing(also_logs=True):
            with self.served():
                raise error
        for topic, model in self.models.items():
            log = self.log(topic)
            if log is not None and model.is_removed:  # an older segment is noticed when it is read
                with self.served():
                    raise StorageError(log.log_dir, FileNotFoundError(ENOENT, "gone", log.dir))
            log = self.log(topic)
            assert model.is_removed or log is not None
            assert log is None or log.missing_file(all_segments=True) is None

    def check_that_nothing_leaks(self) -> None:
        for move in self.manager.moves:
            self.manager.moves.cancel(move, self.now)
        for _ in range(2):
            with self.served():
                self.manager.remove_due(self.now + 10 * DELAY_MS)
        assert len(self.manager.trash) == 0
        strays = 0
        for path in self.manager.online:
            for entry in self.disk.list(path):
                found = names.parse_dir_name(entry.name) if entry.is_dir else None
                if found is None:
                    continue
                strays += found.kind is DirKind.STRAY
                log = self.log(found.topic)
                if found.kind is DirKind.CURRENT and log is None:
                    assert (found.topic, 0) in self.manager.missing or self.models[found.topic].is_removed
                    continue
                if found.kind is DirKind.FUTURE and log is None and entry.name in self.orphans:
                    assert f"{path}/{entry.name}" in self.manager.cut_off.left_alone  # and named
                    assert entry.name in self.kept
                    continue
                if found.kind is DirKind.FUTURE and log is None and self.manager.offline:
                    # The log itself was in the lost dir: the next start decides about its copy.
                    assert found.topic in self.offline or self.models[found.topic].is_removed
                    continue
                assert found.kind is DirKind.STRAY or (log is not None and log.dir == f"{path}/{entry.name}")
                if found.kind is DirKind.STRAY and entry.name in self.kept:
                    continue
                files = [file.name for file in self.disk.list(f"{path}/{entry.name}")]
                assert not [name for name in files if name.endswith((names.DELETED, names.SWAP, ".tmp"))]
                assert found.kind is DirKind.STRAY or not [
                    name for name in files if name.endswith(names.CLEANED)
                ]
        if not self.manager.offline:
            assert self.set_aside_count <= strays
        assert strays <= self.set_aside_count + self.removed_count + len(self.orphans)


DeferredTasks.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
TestDeferredTasks = DeferredTasks.TestCase


@pytest.mark.parametrize("starts", [0, 1])
def test_a_copy_stays_while_its_log_is_in_a_lost_dir_and_goes_with_the_next_start(starts: int) -> None:
    state = DeferredTasks()
    state.begin(compacted=False, preallocate=False, segments_open=1)
    state.plan_creation(topics=["s", "t"])
    state.kill()
    (topic,) = [topic for topic in ("s", "t") if state.log(topic).log_dir == LOST_DIR]
    state.begin_move(path="/a", topic=topic)
    state.lose_dir()
    for _ in range(starts):
        state.kill()
    state.teardown()
    found = [names.parse_dir_name(entry.name) for entry in state.disk.list("/a") if entry.is_dir]
    assert [one.topic for one in found if one and one.kind is DirKind.FUTURE] == [topic][starts:]


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("ending", ["delete", "set_aside", "plan_deletion"])
def test_a_copy_in_a_lost_dir_of_a_log_that_goes_meanwhile_is_left_alone(
    ending: str, is_made_anew: bool, starts: int
) -> None:
    state = DeferredTasks()
    state.begin(compacted=False, preallocate=False, segments_open=1)
    state.create(topic="s")
    state.append(topic="s", count=12, size=100)
    assert state.log("s").log_dir == "/a"
    state.begin_move(path="/b", topic="s")
    (move,) = state.manager.moves
    move.run(move.plan())
    state.lose_dir()
    if ending == "plan_deletion":
        state.plan_deletion(topics=["s"])
        state.tasks[0].run()
        state.finish_task(state.tasks[0])
    else:
        getattr(state, ending)(topic="s")
    for _ in range(starts):
        state.kill()
    if is_made_anew:
        state.create(topic="s")
    state.teardown()
    found = [names.parse_dir_name(entry.name) for entry in state.disk.list("/b") if entry.is_dir]
    kinds = [one.kind for one in found if one and one.kind is not DirKind.CURRENT]
    assert kinds == [DirKind.STRAY if is_made_anew else DirKind.FUTURE]
