"""Notifications between Kafka's brokers: numbered znodes below one znode; their data names the change.

The rule: after each connect all state is read once, and then the notified changes; so no change is missed while there is no
connection. Old notifications are removed, as by Kafka's brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

import trio

from barnabas.cluster.zookeeper.registration import make_persistent
from barnabas.cluster.zookeeper.session import (
    ConnectionLostError,
    NoNodeError,
    SessionExpiredError,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
LIFETIME_MS = 15 * 60 * 1000
"""Notifications that are older are removed."""


class Notifications:
    """Follows the notifications below one znode, which is created if it is missing. Lifecycle: `run` in a separate task."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        prefix: str,
        clock_ms: Callable[[], int],
        *,
        read_all: Callable[[], Awaitable[None]],
        read_named: Callable[[Sequence[str]], Awaitable[None]],
        what: str,
    ) -> None:
        """`read_named` gets the names of new notifications; both may raise ZooKeeperError. `what` is for the log."""
        self._zookeeper = zookeeper
        self._root = root
        self._prefix = prefix
        self._clock_ms = clock_ms
        self._read_all = read_all
        self._read_named = read_named
        self._what = what
        self._breaks = 0
        zookeeper.watch_session(self._session_is)

    def _session_is(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._breaks += 1

    async def run(self) -> None:
        """Follow until the session is closed, or cancelled."""
        while True:
            breaks = self._breaks
            try:
                await self._follow_while(lambda: self._breaks == breaks)  # noqa: B023
            except NoNodeError:
                await make_persistent(self._zookeeper, self._root)
            except (ConnectionLostError, SessionExpiredError):
                if self._zookeeper.is_closed:
                    return
            except ZooKeeperError as error:
                log.error("%s cannot be read, which is tried again: %s", self._what, error)
                await trio.sleep(RETRY_SECONDS)
            await self._zookeeper.wait_connected()

    async def _follow_while(self, is_connected: Callable[[], bool]) -> None:
        changed = trio.Event()
        names = await self._zookeeper.children(self._root, changed.set)
        last = max(map(self._number_of, names), default=-1)
        await self._read_all()
        while is_connected():
            await self._remove_old(names)
            await changed.wait()
            if not is_connected():
                return
            changed = trio.Event()
            names = await self._zookeeper.children(self._root, changed.set)
            new = [name for name in names if self._number_of(name) > last]
            last = max(map(self._number_of, names), default=last)
            if new:
                await self._read_named(new)

    async def _remove_old(self, names: Sequence[str]) -> None:
        """Remove the notifications that all brokers have seen by now."""
        now_ms = self._clock_ms()
        paths = [f"{self._root}/{name}" for name in names]
        for path, node in zip(paths, await self._zookeeper.get_many(paths), strict=True):
            if node is not None and now_ms - node[1].created_ms > LIFETIME_MS:
                try:
                    await self._zookeeper.delete(path)
                except NoNodeError:
                    continue  # another broker was quicker

    def _number_of(self, name: str) -> int:
        """Return the number of a notification, -1 for another znode."""
        digits = name.removeprefix(self._prefix)
        return int(digits) if digits != name and digits.isdecimal() else -1
