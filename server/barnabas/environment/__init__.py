"""Environment of a broker: clocks, entropy, threads, disk and network, real or simulated.

The rule: nothing else reads a clock, draws a random number, starts a thread, opens a file or a socket. Deadlines and
sleeps are trio's, by the clock passed to `trio.run`; `monotonic` is for measuring, and agrees with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from barnabas.environment.clocks import in_milliseconds

if TYPE_CHECKING:
    import trio

    from barnabas.log.disk import Disk
    from barnabas.log.workers import Workers
    from barnabas.network.transport import Network

T = TypeVar("T")


class Entropy(Protocol):
    """Random bytes and numbers."""

    def token_bytes(self, size: int, /) -> bytes:
        """Return `size` random bytes."""

    def below(self, limit: int, /) -> int:
        """Return a random number from 0 to `limit` - 1."""


class Threads(Protocol):
    """Runs blocking work beside the event loop."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        """Run `work` in a thread and return its result; a caller that is cancelled meanwhile waits for its end."""

    def check_cancelled(self) -> None:
        """Call in such a thread: raises trio.Cancelled if the waiting task was cancelled."""


class Environment(NamedTuple):
    """All of the environment in one value."""

    wall_clock_ms: Callable[[], int]
    """Milliseconds since 1970; may step in both directions."""
    monotonic: Callable[[], float]
    """Seconds since some moment; never goes back."""
    entropy: Entropy
    threads: Threads
    workers: Workers
    """Threads and time for the log, which is synchronous."""
    disk: Disk
    network: Network

    @property
    def monotonic_ms(self) -> Callable[[], int]:
        """Function that returns the monotonic clock's time in whole milliseconds."""
        return in_milliseconds(self.monotonic)
