"""Brokers in the process of a test: in its own Trio loop, or in a thread with a separate loop.

The rule: data is in memory and lost at the end, ports are free ones, and the test gets a broker that already serves.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import trio

from barnabas.environment.ephemeral import owned_directory
from barnabas.testing.bench import Bench, config_of, open_bench
from barnabas.testing.broker import AsyncKafkaBroker, Control, KafkaBroker
from barnabas.testing.cluster import KafkaCluster
from barnabas.testing.running import BrokerFailedError
from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.routes import dispatch

if TYPE_CHECKING:
    from barnabas.tools.control.host import Host
    from barnabas.tools.seeding.seeds import Seeds


@asynccontextmanager
async def open_broker(
    settings: Mapping[str, str] | None = None, *, seeds: Mapping[str, Any] | None = None
) -> AsyncIterator[AsyncKafkaBroker]:
    """A broker in the running Trio loop, for the length of the block. Raises BrokerFailedError."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(owned_directory())
        bench = await stack.enter_async_context(open_bench())
        try:
            host = await bench.start(config_of(settings, directory), seeds=_seeds_of(seeds))
        except Exception as error:
            raise BrokerFailedError(_text_of(error)) from error
        yield AsyncKafkaBroker(KafkaBroker(host.bootstrap, _LoopControl(bench, host)))


def _seeds_of(seeds: Mapping[str, Any] | None) -> Seeds | None:
    if not seeds:
        return None
    from barnabas.tools.seeding.reading import read_seeds

    return read_seeds(dict(seeds))


def _text_of(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return str(error)


class _LoopControl:
    """The way to a broker from threads that this very loop has started."""

    def __init__(self, bench: Bench, host: Host, token: trio.lowlevel.TrioToken | None = None) -> None:
        self._bench = bench
        self._host = host
        self._token = token

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Any) -> tuple[int, Any]:
        """Return status and JSON value of an answer. Raises BrokerFailedError when the broker has ended."""
        try:
            return trio.from_thread.run(
                dispatch, self._host, method, path, query, body, trio_token=self._token
            )
        except (trio.RunFinishedError, trio.Cancelled) as error:
            if self._token is None:  # the caller, in this very loop, was cancelled
                raise
            raise BrokerFailedError("the broker has ended") from error

    def reach(self, answer: Mapping[str, Any]) -> Control:
        """Return the way to another broker."""
        return _LoopControl(self._bench, self._bench.hosts[answer["bootstrap"]], self._token)

    def close(self) -> None:
        """Stop the broker; it ends with its bench at the latest."""
        if self._token is None:
            trio.from_thread.run_sync(self._host.stop)
        else:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._host.stop)


Start = Callable[[Bench, str], Awaitable["Host"]]
"""Starts brokers on a bench with their data in a directory; returns the host with the control API."""


class _ThreadControl(_LoopControl):
    """Control of brokers in a separate thread, which `close` ends."""

    def __init__(self, start: Start) -> None:
        self._ready = threading.Event()
        self._failures: list[BaseException] = []
        self._closing: trio.Event
        self._thread = threading.Thread(target=self._run, args=(start,), name="barnabas", daemon=True)
        self._thread.start()
        self._ready.wait()
        for failure in self._failures:
            self._thread.join()
            raise BrokerFailedError(_text_of(failure)) from failure

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker."""
        return self._host.bootstrap

    def _run(self, start: Start) -> None:
        clock = VirtualClock()
        try:
            trio.run(self._serve, clock, start, clock=clock)
        except BaseException as error:
            self._failures.append(error)
        finally:
            self._ready.set()

    async def _serve(self, clock: VirtualClock, start: Start) -> None:
        with owned_directory() as directory:
            async with open_bench(clock=clock) as bench:
                self._closing = trio.Event()
                host = await start(bench, directory)
                super().__init__(bench, host, trio.lowlevel.current_trio_token())
                self._ready.set()
                await self._closing.wait()

    def close(self) -> None:
        """End the brokers and their thread."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._closing.set)  # type: ignore[union-attr]
        self._thread.join()


def start_thread(
    settings: Mapping[str, str] | None = None, *, seeds: Mapping[str, Any] | None = None
) -> KafkaBroker:
    """Start a broker in a thread of this process. Raises BrokerFailedError, SeedError."""
    planted = _seeds_of(seeds)

    async def start(bench: Bench, directory: str) -> Host:
        return await bench.start(config_of(settings, directory), seeds=planted)

    control = _ThreadControl(start)
    return KafkaBroker(control.bootstrap, control)


def start_cluster(
    brokers: int = 3, *, controllers: int | None = None, settings: Mapping[str, str] | None = None
) -> KafkaCluster:
    """Start a cluster in a thread of this process.

    The first three brokers are also controllers (of fewer than three only the first), unless `controllers` are started
    beside them. Raises BrokerFailedError.
    """

    async def start(bench: Bench, directory: str) -> Host:
        from barnabas.testing.nodes import start_nodes  # not on the way of a broker

        group = await start_nodes(bench, directory, brokers, controllers, settings)
        return group.nodes[1].host

    return KafkaCluster(_ThreadControl(start))
