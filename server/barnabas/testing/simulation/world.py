"""One simulated run: a virtual clock, an order of tasks, and an environment for each host, all from one seed.

The rule: the same seed and the same program give the same history on every machine. Tasks in a simulated world must not
wait for the real one: trio's clock jumps to the next deadline as soon as no task can run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import trio

from barnabas.environment import Environment
from barnabas.testing.simulation.clock import SimulatedIO, VirtualClock
from barnabas.testing.simulation.network import SimulatedNetwork, Weather

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.log.disk import Disk

T = TypeVar("T")

BEGIN_MS = 1_700_000_000_000
"""Time of the wall clocks, in ms since 1970, when a world begins."""
THREAD_SECONDS_MAX = 0.002


class SimulatedEntropy:
    """Random numbers that the seed decides."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""
        return self._random.randbytes(size)

    def below(self, limit: int, /) -> int:
        """Return a random number from 0 to `limit` - 1."""
        return self._random.randrange(limit)


class SimulatedThreads:
    """Threads that take a random time and do all of their work in one moment, while no task runs."""

    def __init__(self, random: Random, sleep: Callable[[float], Awaitable[object]] | None = None) -> None:
        """`sleep` waits for a number of seconds, even if cancelled; trio's by default."""
        self._random = random
        self._sleep = sleep or _shielded_sleep

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Do `work` after a delay, and return its result after another."""
        if limiter is not None:
            async with limiter:
                return await self.run(work)
        await self._sleep(self._random.uniform(0, THREAD_SECONDS_MAX))
        result = work()
        await self._sleep(self._random.uniform(0, THREAD_SECONDS_MAX))
        await trio.lowlevel.checkpoint_if_cancelled()
        return result

    def check_cancelled(self) -> None:
        """Return: a simulated thread does not notice, and is waited for."""


async def _shielded_sleep(seconds: float) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(seconds)


class InlineExecutor(Executor):
    """An executor that runs each call immediately."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call `fn`, and return a future with its outcome."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class SimulatedWorkers:
    """Threads of synchronous code, in which no simulated time can pass; their clock counts sleeps nevertheless."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._slept_s = 0.0

    def executor(self, threads: int) -> Executor:
        """Return an executor that runs calls one after the other."""
        del threads
        return InlineExecutor()

    def sleep(self, seconds: float) -> None:
        """Count the time as slept."""
        self._slept_s += seconds

    def monotonic(self) -> float:
        """Return the simulated time plus the sleeps."""
        return self._clock.now_s + self._slept_s


class WallClock:
    """A host's wall clock, which can be stepped."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._offset_ms = 0

    def __call__(self) -> int:
        """Return milliseconds since 1970."""
        return BEGIN_MS + self._offset_ms + int(self._clock.now_s * 1000)

    def step(self, by_ms: int) -> None:
        """Step the clock."""
        self._offset_ms += by_ms


class World:
    """State shared by all hosts of a run. Lifecycle: created by `run_world`."""

    def __init__(self, seed: int, clock: VirtualClock, weather: Weather | None = None) -> None:
        self.seed = seed
        self.clock = clock
        self.random = Random(seed)
        self.network = SimulatedNetwork(self._branch("network"), clock, weather)

    def _branch(self, name: str) -> Random:
        """Return a separate random generator for a part, so that its use does not shift the numbers of others."""
        return Random(f"{self.seed}/{name}")

    def environment(self, host: str, disk: Disk, clock: WallClock | None = None) -> Environment:
        """Return the environment of a program on a host, which has its disk and its clock."""
        return Environment(
            wall_clock_ms=clock or WallClock(self.clock),
            monotonic=self.clock.current_time,
            entropy=SimulatedEntropy(self._branch(f"{host}/entropy/{self.random.random()}")),
            threads=SimulatedThreads(
                self._branch(f"{host}/threads/{self.random.random()}"), self.clock.shielded_sleep
            ),
            workers=SimulatedWorkers(self.clock),
            disk=disk,
            network=self.network.host(host),
        )


def run_world(
    seed: int,
    program: Callable[[World], Awaitable[T]],
    *,
    weather: Weather | None = None,
    seconds_max: float = 3600.0,
) -> T:
    """Run `program` in a new world and return its result.

    Raises TimeoutError if it takes longer than `seconds_max` of the simulated clock.
    """

    clock = VirtualClock()

    async def main() -> Any:
        _take_events_of(clock)
        with trio.move_on_after(seconds_max):
            return await program(World(seed, clock, weather))
        raise TimeoutError(f"seed {seed}: not done after {seconds_max} simulated seconds")

    with _order_of_tasks(seed):
        result: T = trio.run(main, clock=clock)
        return result


def _take_events_of(clock: VirtualClock) -> None:
    """Make the running loop handle the clock's events, and poll for real ones only every `TURNS_PER_LOOK` turns."""
    from trio._core import _run

    runner = _run.GLOBAL_RUN_CONTEXT.runner
    runner.io_manager = SimulatedIO(runner.io_manager, clock)  # type: ignore[assignment]


@contextmanager
def _order_of_tasks(seed: int) -> Iterator[None]:
    """Draw the order of tasks that are ready in the same turn of trio's loop from the seed."""
    from trio._core import _run

    before = _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r
    _run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    _run._r = Random(f"{seed}/tasks")
    try:
        yield
    finally:
        _run._ALLOW_DETERMINISTIC_SCHEDULING, _run._r = before  # type: ignore[misc]
