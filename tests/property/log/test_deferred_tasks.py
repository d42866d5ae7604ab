"""Deferred tasks against everything that may come in between: each is planned, run and finished at its own time.

A task runs as in a thread: at any of its operations on the disk the thread that owns the logs may make a change. The
disk never fails here, so no log may go offline unless the test has removed its files, or has taken its log dir offline.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOENT

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from barnabas.errors import StorageError
from barnabas.log.creating import Wanted
from barnabas.log.format import names
from barnabas.log.format.names import DirKind
from barnabas.records.steps import Steps
from tests.support.effort import examples
from tests.support.logs import TOPIC_ID, read_all

from .changed_logs import DELAY_MS, DIRS, LOST_DIR, MANY_TOPICS, TOPICS, ChangedLogs, Model, Task


class DeferredTasks(ChangedLogs):
    """Tasks for threads: each is planned, runs, and is finished, in any order with everything else."""

    # --- many logs made or deleted ----------------------------------------------------------------------------------

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
        errors: list[StorageError] = []

        def finish() -> None:
            for error in errors:
                with self.served():
                    raise error

        self.plan("search", lambda: errors.extend(self.manager.find_missing(also_logs=True)), finish)

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
        steps_left = data.draw(st.integers(0, 30))
        task.has_run = True

        def fault(_operation: str, _path: str) -> None:
            nonlocal steps_left
            steps_left -= 1
            # For checkpoints that are written the owner of the logs would wait.
            if steps_left < 0 and not self.manager.checkpoints._writing.locked():
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
            actual = {record.offset: (record.key, record.value) for record in read_all(log)}
            expected = {at: record for at, record in model.records.items() if at >= log.log_start_offset}
            if self.compacted:
                assert actual.items() <= expected.items()
                expected = dict({key: at for at, (key, _) in expected.items()}.items())
                expected = {at: model.records[at] for at in expected.values()}
                assert actual.items() >= expected.items()
            else:
                assert actual == expected

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
                parsed = names.parse_dir_name(entry.name) if entry.is_dir else None
                if parsed is None:
                    continue
                strays += parsed.kind is DirKind.STRAY
                log = self.log(parsed.topic)
                if parsed.kind is DirKind.CURRENT and log is None:
                    assert (parsed.topic, 0) in self.manager.missing or self.models[parsed.topic].is_removed
                    continue
                if parsed.kind is DirKind.FUTURE and log is None and entry.name in self.orphans:
                    assert f"{path}/{entry.name}" in self.manager.cut_off.left_alone  # and named
                    assert entry.name in self.kept
                    continue
                if parsed.kind is DirKind.FUTURE and log is None and self.manager.offline:
                    # The log itself was in the lost dir: the next start decides about its copy.
                    assert parsed.topic in self.offline or self.models[parsed.topic].is_removed
                    continue
                assert parsed.kind is DirKind.STRAY or (log is not None and log.dir == f"{path}/{entry.name}")
                if parsed.kind is DirKind.STRAY and entry.name in self.kept:
                    continue
                files = [file.name for file in self.disk.list(f"{path}/{entry.name}")]
                assert not [name for name in files if name.endswith((names.DELETED, names.SWAP, ".tmp"))]
                assert parsed.kind is DirKind.STRAY or not [
                    name for name in files if name.endswith(names.CLEANED)
                ]
        if not self.manager.offline:
            assert self.set_aside_count <= strays
        assert strays <= self.set_aside_count + self.removed_count + len(self.orphans)


DeferredTasks.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50, deadline=None)
TestDeferredTasks = DeferredTasks.TestCase


@pytest.mark.parametrize("starts", [0, 1])
def test_copy_of_a_log_in_a_lost_dir_goes_with_the_next_start(starts: int) -> None:
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
    parsed = [names.parse_dir_name(entry.name) for entry in state.disk.list("/a") if entry.is_dir]
    assert [dir_.topic for dir_ in parsed if dir_ and dir_.kind is DirKind.FUTURE] == [topic][starts:]


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("ending", ["delete", "set_aside", "plan_deletion"])
def test_copy_in_a_lost_dir_of_a_deleted_log_is_skipped(ending: str, is_made_anew: bool, starts: int) -> None:
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
    parsed = [names.parse_dir_name(entry.name) for entry in state.disk.list("/b") if entry.is_dir]
    kinds = [dir_.kind for dir_ in parsed if dir_ and dir_.kind is not DirKind.CURRENT]
    assert kinds == [DirKind.STRAY if is_made_anew else DirKind.FUTURE]
