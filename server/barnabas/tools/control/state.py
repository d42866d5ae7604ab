"""State of a broker under test, as a whole: snapshots, restoring one, other brokers with the same data.

The rule: addresses stay. Restoring restarts the broker in its process, so that no state in memory survives:
connections are cut, and clients connect again.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import trio

from barnabas.config.loading import BrokerConfig
from barnabas.tools.control import copying
from barnabas.tools.control.snapshots import SnapshotError, Snapshots

if TYPE_CHECKING:
    from barnabas.tools.control.host import Host
    from barnabas.tools.seeding.looking import JsonObject

INITIAL = "initial"
"""The snapshot that `reset` goes back to."""
FORKS = ".forks"
"""Suffix of a log dir's own path that gives the directory of the forks' log dirs."""
StartFork = Callable[[BrokerConfig, Callable[[], None]], Awaitable["JsonObject"]]
"""Starts a broker with settings, calls the function when it has ended, and returns where the broker is."""


class BrokerState:
    """State of one broker."""

    def __init__(self, host: Host) -> None:
        self.snapshots = Snapshots(host.config.log_dirs)
        self.start_fork: StartFork | None = None
        """Set by a host that can run other brokers beside this one."""
        self._host = host
        self._lock = trio.Lock()
        self._fork_count = 0
        self._of_baseline = frozenset(self.snapshots.names())
        """Snapshots that were there before the one that `reset` goes back to: they stay."""

    async def snapshot(self, name: str, *, replace: bool = False) -> None:
        """Take a snapshot of the broker's present data. Raises SnapshotError, NotRunningError, StorageError, OSError."""
        async with self._lock:
            await self._take(name, replace=replace)

    async def _take(self, name: str, *, replace: bool = False) -> None:
        broker = await self._host.running()
        if broker.participation is not None:
            raise SnapshotError("a broker of a cluster shares its state with others: it has no snapshots")
        others = frozenset(self.snapshots.names())
        await self.snapshots.take(name, broker.services, replace=replace)
        if name == INITIAL:
            self._of_baseline = others
        if replace:
            await trio.to_thread.run_sync(self.snapshots.tidy_up)

    async def restore(self, name: str) -> None:
        """Restore the broker's state of a snapshot. Raises SnapshotError, StorageError, OSError."""
        async with self._lock:
            if name not in self.snapshots:
                raise SnapshotError(
                    f"there is no snapshot {name}; there are: {', '.join(self.snapshots.names()) or 'none'}"
                )
            await self._host.restart(partial(self.snapshots.put_back, name), is_clean=False)
        await trio.to_thread.run_sync(self.snapshots.tidy_up)

    async def reset(self) -> None:
        """Restore the broker's state at its start, and drop recorded requests and faults.

        Later snapshots are removed, so that nothing of one test reaches the next.
        """
        if INITIAL not in self.snapshots:
            raise SnapshotError(
                f"there is nothing to go back to: take a snapshot with the name {INITIAL} first"
            )
        clock = self._host.clock
        if clock is not None:  # it never goes back; but it runs again, as fast as others do
            clock.resume()
            clock.run_at(1.0)
        for name in self.snapshots.names():
            if name != INITIAL and name not in self._of_baseline:
                self.snapshots.remove(name)
        await self.restore(INITIAL)
        self._host.faulting.faults.clear()
        if self._host.recorder is not None:
            self._host.recorder.clear()

    async def remove(self, name: str) -> None:
        """Remove a snapshot. Raises SnapshotError."""
        self.snapshots.remove(name)
        await trio.to_thread.run_sync(self.snapshots.tidy_up)

    async def fork(self, snapshot: str | None = None) -> JsonObject:
        """Start another broker with the data of this one, or of a snapshot; returns its addresses."""
        if self.start_fork is None:
            raise SnapshotError("this broker was not started by something that can start others beside it")
        async with self._lock:
            self._fork_count += 1
            name = snapshot or f"fork-{os.getpid()}-{self._fork_count}"
            dirs = [f"{path.rstrip('/')}{FORKS}/{self._fork_count}" for path in self._host.config.log_dirs]
            if snapshot is None:
                await self._take(name)
            try:
                self.snapshots.fork(name, dirs)
            finally:
                if snapshot is None:
                    self.snapshots.remove(name)
        return await self.start_fork(_config_of_fork(self._host.config, dirs), partial(copying.remove, dirs))


def _config_of_fork(config: BrokerConfig, log_dirs: list[str]) -> BrokerConfig:
    """Return the same settings with other log dirs, and with ports that the system chooses."""
    settings = {name: config.texts_of(name)[-1][0] for name in config.names_set()}
    for name in ("log.dir", "advertised.listeners", "metrics.listener"):
        settings.pop(name, None)
    settings["log.dirs"] = ",".join(log_dirs)
    settings["listeners"] = ",".join(f"{address.rpartition(':')[0]}:0" for address in config.listeners())
    return BrokerConfig(settings)


_states: WeakKeyDictionary[Host, BrokerState] = WeakKeyDictionary()


def state_of(host: Host) -> BrokerState:
    """Return the state of a broker, the same each time."""
    state = _states.get(host)
    if state is None:
        state = _states[host] = BrokerState(host)
    return state
