"""The time limit of one turn of the event loop, and the tasks that must yield when it is used up.

The rule: a turn is everything that runs between two waits for input or output, in any task. Work of a length that depends
on a client or on the broker's state is done in small pieces with `LoopBudget.checkpoint()` between them: while the turn is
young that costs one read of the clock, and once its budget is used up every task at a checkpoint yields. So the latency of
a client that sends little does not grow with the number of clients that request much.

A task that has yielded waits in one of three queues, each first come first served, and some tasks of each are resumed in
every turn: requests on recently active connections, requests on all others, and long work. So a large number of tasks of
one kind cannot delay the other kinds, and no task waits for ever. Long work is a task with two steps of more than a
millisecond, and the next request of the same task. It may use the first half of a turn, and steps of a millisecond while
requests on active connections wait; those may use all of the turn. Of the other two queues only one task each runs in a
turn that is used up; a task that was resumed and is too late is first in the next turn.

Turns that are too long nevertheless are counted, with the task that had the longest step of the turn.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple, cast
from weakref import WeakKeyDictionary

import trio

BUDGET_SECONDS: Final = 0.002
"""A client that sends little waits for a turn or two. An empty turn takes a twentieth of it."""
LONG_WORK_SHARE: Final = 0.5
"""Share of the budget that long work may use up before it yields."""
LONG_SECONDS: Final = 0.001
SCORE_OF_LONG_STEP: Final = 2
SCORE_OF_LONG_WORK: Final = 3
SCORE_MAX: Final = 4
"""A step that took longer counts 2, a request takes 1 away, and a task with 3 is long work: a single long step says little,
since the system may have run another process."""
AT_ONCE_SECONDS: Final = 0.000_5
"""For how long after the beginning of a turn a task may begin its next request without another turn."""
CROWD: Final = 8
CROWD_SECONDS: Final = 0.5
"""Time after which a crowd, of active connections that found a turn used up, is over."""
UNKNOWN: Final = 1 << 30
STALL_SECONDS: Final = 0.2
"""From this length on a turn is reported, not only counted."""
CPU_ASKED_SECONDS: Final = 0.02
"""Turns that begin sooner after another do not ask for the thread's CPU time, which takes a microsecond: that since then is
an upper bound, too."""

BOUNDS_SECONDS = (0.005, 0.02, 0.05, 0.2, 1.0)

LET_THROUGH_MAX: Final = 32
"""Most requests of each queue that are resumed in a turn.

The actual number adapts: it doubles after a turn that took less than half of its budget, and is halved after one that
took more.
"""
REQUESTS_PER_LONG_WORK: Final = 8
"""Requests that are resumed for each piece of long work; one piece of it in every turn at least."""

_Queue = OrderedDict[trio.lowlevel.Task, None]


class Stall(NamedTuple):
    """A turn that was too long: its steps, and the longest of these with its task.

    `cpu_seconds` is an upper bound of the processor time of the loop's thread in it.
    """

    seconds: float
    cpu_seconds: float
    steps: int
    step_seconds: float
    task: trio.lowlevel.Task | None


class TaskTime:
    """Seconds that a task has run, from `LoopBudget.begin_counting` on until `stop`; waiting does not count."""

    __slots__ = ("_budget", "_taken", "_task", "seconds")

    def __init__(self, budget: LoopBudget, task: trio.lowlevel.Task, seconds: float) -> None:
        self._budget = budget
        self._task = task
        self._taken = 0.0
        self.seconds = seconds
        """Seconds of the finished steps."""

    def take(self) -> float:
        """Return the seconds since the last call. The task itself calls it."""
        total = self.seconds + self._budget.step_seconds
        taken, self._taken = self._taken, total
        return max(total - taken, 0.0)

    def stop(self) -> None:
        """Count no longer."""
        self._budget.end_counting(self._task)


class LoopBudget:
    """Measures the turns of an event loop, as an instrument of Trio (which calls the methods, and needs no base class).

    Lifecycle: `with budget:` inside `trio.run` for as long as turns are to be measured. Outside of it nothing is
    measured, and `checkpoint` yields each time that the budget has passed since the last yield.

    `longest_seconds` is the longest turn so far. `long_turns[n]` counts the turns longer than `BOUNDS_SECONDS[n]` and
    not longer than the next bound. `on_long_turn` is called after each of them.
    """

    def __init__(
        self,
        *,
        budget_seconds: float = BUDGET_SECONDS,
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] | None = None,
        measures: bool = True,
        at_once_seconds: float = AT_ONCE_SECONDS,
    ) -> None:
        """Without `measures` nothing is measured inside of `with` either.

        `cpu_clock` returns the processor time of the running thread; without it that is `clock`.
        """
        self._measures = measures
        self._clock = clock
        self._cpu_clock = cpu_clock or clock
        self._cpu_asked = -math.inf
        self._cpu_then = 0.0
        self._budget_seconds = budget_seconds
        self._at_once_seconds = at_once_seconds
        self._ends = self._long_work_ends = clock() + budget_seconds
        self._is_measured = False
        self._turn_began = self._step_began = clock()
        self._steps = 0
        self._runnable = UNKNOWN
        """Number of tasks that have been scheduled and have not run since."""
        self._task: trio.lowlevel.Task | None = None
        self._longest_step = 0.0
        self._longest_task: trio.lowlevel.Task | None = None
        self._crowd_ends = -math.inf
        self._turn_seconds = 0.0  # of the last turn that has ended
        self._counted: dict[trio.lowlevel.Task, TaskTime] = {}
        self._active: _Queue = OrderedDict()
        self._inactive: _Queue = OrderedDict()
        self._long_work: _Queue = OrderedDict()
        self._has_run: list[_Queue] = []  # of these two, those with a task that has run in this turn
        self._lets_through = False
        self._scores: WeakKeyDictionary[trio.lowlevel.Task, int] = WeakKeyDictionary()
        """Scores for the recent steps of each task: one grows with each long step, and shrinks with each request."""
        self.longest_seconds = 0.0
        self.long_turns = [0] * len(BOUNDS_SECONDS)
        self.on_long_turn: Callable[[Stall], object] = bool

    def __enter__(self) -> LoopBudget:
        if not self._measures:
            return self
        self._begin_turn()
        self._task, self._steps = trio.lowlevel.current_task(), 1  # the task of the current step
        self._runnable = UNKNOWN  # until the loop has nothing to do
        trio.lowlevel.add_instrument(cast("trio.abc.Instrument", self))
        self._is_measured = True
        return self

    def __exit__(self, *_: object) -> None:
        if not self._measures:
            return
        trio.lowlevel.remove_instrument(cast("trio.abc.Instrument", self))
        self._is_measured = False
        self._runnable = UNKNOWN
        self._task = self._longest_task = None

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 (the signature is trio's)
        """A turn begins."""
        self._begin_turn()

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002
        """Trio's event: a task is scheduled, for the next turn if this turn is in progress."""
        self._runnable += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Trio's event: a step of a task begins, which ends the step before it."""
        self._runnable -= 1
        self._begin_step(task)

    def _begin_step(self, task: trio.lowlevel.Task | None) -> None:
        now = self._clock()
        took = now - self._step_began
        if took > self._longest_step:
            self._longest_step = took
            self._longest_task = self._task
        if self._counted:
            self._count(took)
        self._step_began = now
        self._task = task
        self._steps += 1

    def before_io_wait(self, timeout: float) -> None:
        """A turn has ended."""
        if timeout > 0.0:
            self._runnable = 0
        now = self._clock()
        if self._counted:
            self._count(now - self._step_began)
        took = self._turn_seconds = now - self._turn_began
        if took > BOUNDS_SECONDS[0]:
            self._end_long_turn(took, now - self._step_began)

    def _begin_turn(self) -> None:
        now = self._clock()
        self._ends = now + self._budget_seconds
        self._long_work_ends = now + self._budget_seconds * LONG_WORK_SHARE
        self._turn_began = self._step_began = now
        self._longest_step = 0.0
        self._longest_task = self._task = None
        self._steps = 0
        self._has_run.clear()
        if now - self._cpu_asked >= CPU_ASKED_SECONDS:
            self._cpu_asked = now
            self._cpu_then = self._cpu_clock()

    def _end_long_turn(self, seconds: float, last_step: float) -> None:
        if last_step > self._longest_step:
            self._longest_step = last_step
            self._longest_task = self._task
        self.longest_seconds = max(self.longest_seconds, seconds)
        self.long_turns[bisect_right(BOUNDS_SECONDS, seconds) - 1] += 1
        cpu_seconds = min(self._cpu_clock() - self._cpu_then, seconds)
        self.on_long_turn(Stall(seconds, cpu_seconds, self._steps, self._longest_step, self._longest_task))

    # --- the time of one task -------------------------------------------------------------------------------

    @property
    def step_seconds(self) -> float:
        """Seconds that the running step has taken so far."""
        return self._clock() - self._step_began

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the running thread in seconds, from an arbitrary start; reading it takes a microsecond."""
        return self._cpu_clock()

    def begin_counting(self) -> TaskTime:
        """Begin to count the time of the running task."""
        task = trio.lowlevel.current_task()
        time = self._counted[task] = TaskTime(self, task, -self.step_seconds)
        return time

    def end_counting(self, task: trio.lowlevel.Task) -> None:
        """Count the time of a task no longer."""
        self._counted.pop(task, None)

    def _count(self, seconds: float) -> None:
        """Count the step that has ended."""
        time = self._counted.get(self._task) if self._task is not None else None
        if time is not None:
            time.seconds += seconds

    @property
    def is_used_up(self) -> bool:
        """True if this turn has taken so long that a task with more work must yield."""
        return self._clock() >= self._ends

    @property
    def is_crowded(self) -> bool:
        """True if many active connections have been late for a turn: only as many should wake up as it has time for."""
        return self._turn_began < self._crowd_ends

    @property
    def may_go_on(self) -> bool:
        """True if the running task may check for its next request now: no other task can run, and the turn is young."""
        return self._runnable == 0 and self._clock() - self._turn_began < self._at_once_seconds

    @property
    def may_go_on_after_a_turn(self) -> bool:
        """True if the running task may resume after one more turn: no other can run, but this turn is no longer young."""
        return self._runnable == 0 and self._clock() - self._turn_began >= self._at_once_seconds

    def begin_next(self, task: trio.lowlevel.Task | None = None) -> None:
        """Count from here on as a separate step: the next request of the running task, or of `task`."""
        self._begin_step(task or self._task)

    async def checkpoint(self) -> None:
        """Yield to other tasks if this turn has used up its budget, or long work its share; otherwise return immediately.

        State that other tasks may change must be read again afterwards.
        """
        now = self._clock()
        is_long = now - self._step_began >= LONG_SECONDS
        if now >= self._ends or (is_long and (self._active or now >= self._long_work_ends)):
            task = trio.lowlevel.current_task()
            score = self._scores.get(task, 0)
            if is_long:
                score = self._scores[task] = min(score + SCORE_OF_LONG_STEP, SCORE_MAX)
            await self._give_way(self._long_work if score >= SCORE_OF_LONG_WORK else self._inactive)

    async def admit(self, *, is_active: bool) -> None:
        """Make a new request wait for a turn with time for it; called if `is_used_up`.

        `is_active`: whether its connection was active shortly before; such connections and all others have separate queues.
        """
        task = trio.lowlevel.current_task()
        score = self._scores.pop(task, 0)
        if score > 1:
            self._scores[task] = score - 1
        if score >= SCORE_OF_LONG_WORK:
            await self._give_way(self._long_work)
        elif is_active:
            if self.is_crowded or len(self._active) >= CROWD:
                self._crowd_ends = self._clock() + CROWD_SECONDS
            await self._give_way(self._active)
        else:
            await self._give_way(self._inactive)

    async def _give_way(self, queue: _Queue) -> None:
        if not self._is_measured:
            await trio.lowlevel.checkpoint()
            self._ends = self._long_work_ends = self._clock() + self._budget_seconds
            return
        task = trio.lowlevel.current_task()
        queue[task] = None

        def leave(_: object) -> trio.lowlevel.Abort:
            del queue[task]
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if not self._lets_through:
                self._lets_through = True
                trio.lowlevel.spawn_system_task(self._let_through)
            await trio.lowlevel.wait_task_rescheduled(leave)
            if queue is self._active or not self._is_measured:
                return
            if not any(queue is other for other in self._has_run):
                self._has_run.append(queue)
                return
            if self._clock() < self._ends:
                return
            queue[task] = None
            queue.move_to_end(task, last=False)

    async def _let_through(self) -> None:
        """Resume some tasks of each queue in each turn, until all queues are empty."""
        count = 1
        try:
            while self._active or self._inactive or self._long_work:
                if self._turn_seconds < self._budget_seconds / 2:
                    count = min(count * 2, LET_THROUGH_MAX)
                elif self._turn_seconds > self._budget_seconds:
                    count = max(count // 2, 1)
                _wake(self._active, count)
                _wake(self._inactive, count)
                _wake(self._long_work, max(count // REQUESTS_PER_LONG_WORK, 1))
                await trio.lowlevel.checkpoint()
        finally:
            self._lets_through = False


def _wake(queue: _Queue, count: int) -> None:
    """Resume the first tasks of a queue in the next turn."""
    for task in list(islice(queue, count)):
        del queue[task]
        trio.lowlevel.reschedule(task)
