"""Follows a KRaft quorum: fetches from its controllers, keeps the log, and delivers each change of the image to
subscribers.

The rule: one task fetches and is the only one that changes the log's records; the tasks of `applying` apply committed
records and remove old files. A disk failure, or an answer that only a broken cluster can give, ends all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import trio

from barnabas.cluster.kraft.applying import CLEAN_SECONDS, AppliedImage, ImageApplier
from barnabas.cluster.kraft.contacts import Contacts
from barnabas.cluster.kraft.durable_log import DurableLog
from barnabas.cluster.kraft.keeping import LogKeeper
from barnabas.cluster.kraft.observer import FETCH_WAIT_MS, Observer
from barnabas.cluster.kraft.quorum import Leadership
from barnabas.cluster.kraft.replica_values import WrongAnswerError
from barnabas.cluster.kraft.state import MetadataLogError
from barnabas.config.metadata_log import LogSettings
from barnabas.config.quorum import Address
from barnabas.environment import Threads
from barnabas.errors import StorageError

log = logging.getLogger(__name__)
T = TypeVar("T")

REPORT_FAILURES: Final = 10
"""One in this many consecutive failures is logged, beginning with the first."""


class ControllerError(Exception):
    """A controller was not reached, did not answer in time, or the node is no controller; another may answer."""


class RefusedError(ControllerError):
    """Nothing listens at the address: the process has ended, or has not started."""


class Controllers(Protocol):
    """Sends requests to controllers over persistent connections."""

    async def ask(self, address: Address, make: Callable[[int], Any]) -> Any:
        """Return the answer to a request, made for the version of Fetch that both sides support. Raises ControllerError."""


class MetadataFollower(AppliedImage):
    """A running observer. Lifecycle: `run` in a task until cancelled; `subscribe` before or while it runs."""

    def __init__(
        self,
        observer: Observer,
        contacts: Contacts,
        controllers: Controllers,
        stored: DurableLog,
        *,
        settings: LogSettings,
        wall_clock_ms: Callable[[], int],
        threads: Threads,
        clean_seconds: float = CLEAN_SECONDS,
    ) -> None:
        """`stored` is open, and `observer` was created with its content."""
        self.observer = observer
        self._contacts = contacts
        self._controllers = controllers
        self._applier = ImageApplier(
            stored,
            settings=settings,
            wall_clock_ms=wall_clock_ms,
            threads=threads,
            clean_seconds=clean_seconds,
        )
        self._keeper = LogKeeper(stored, self._applier, wall_clock_ms=wall_clock_ms, threads=threads)
        self._failures = 0
        self._has_followed = False

    # --- for subscribers ------------------------------------------------------------------------------------

    @property
    def leadership(self) -> Leadership:
        """Voters and kraft.version at the published image."""
        return self._applier.leadership

    # --- running --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Follow the quorum until cancelled. Raises MetadataLogError, StorageError and OSError, not in a group."""
        failures: list[Exception] = []
        async with trio.open_nursery() as nursery:

            async def until_it_fails(work: Callable[[], Any]) -> None:
                try:
                    await work()
                except (MetadataLogError, StorageError, OSError) as error:
                    failures.append(error)
                    nursery.cancel_scope.cancel()

            def start(work: Callable[[], Any], name: str) -> None:
                nursery.start_soon(until_it_fails, work, name=name)

            start(self._follow, "metadata fetch")
            self._applier.begin(nursery, start)
        if failures:
            raise failures[0]

    @staticmethod
    def _now_ms() -> int:
        return int(trio.current_time() * 1000)

    async def _follow(self) -> None:
        observer, contacts = self.observer, self._contacts
        while True:
            address = contacts.choose(observer.leader, self._now_ms())
            await trio.sleep(max(contacts.ready_at_ms - self._now_ms(), 0) / 1000)
            try:
                response = await self._controllers.ask(
                    address,
                    lambda version: observer.request(max_wait_ms=FETCH_WAIT_MS, fetch_version=version),
                )
                taken = observer.take(response)
            except (ControllerError, WrongAnswerError) as error:
                self._report(address, error)
                contacts.failed(self._now_ms())
                continue
            for decision in taken.decisions:
                if not await self._keeper.carry_out(decision, observer):
                    contacts.failed(self._now_ms())
            if not taken.asks_elsewhere and not taken.must_wait:
                self._failures, self._has_followed = 0, True
            contacts.answered(taken, self._now_ms())

    def _report(self, address: Address, error: Exception) -> None:
        if self._failures % REPORT_FAILURES == 0:
            begins_later = (
                isinstance(error, RefusedError) and not self._has_followed and self._failures == 0
            )  # expected when nodes start together
            level = logging.INFO if begins_later else logging.WARNING
            log.log(level, "controller at %s:%d: %s; asking another one", *address, error)
        self._failures += 1
