"""Brokers in the process of a test: in its own Trio loop, or in a thread with a loop of theirs.

The rule: data is in memory and gone at the end, ports are free ones, and the broker answers when it is given to the test.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import trio

from barnabas.config.loading import BrokerConfig
from barnabas.control.clock import VirtualClock
from barnabas.control.host import Host
from barnabas.control.recorder import Recorder
from barnabas.control.routes import dispatch
from barnabas.control.server import bind, serve, url_of
from barnabas.control.state import INITIAL, state_of
from barnabas.ephemeral import owned_directory
from barnabas.seeding.planting import preparing
from barnabas.testing.broker import AsyncKafkaBroker, Control, KafkaBroker
from barnabas.testing.running import BrokerFailedError

if TYPE_CHECKING:
    from barnabas.seeding.looking import JsonObject
    from barnabas.seeding.seeds import Seeds

SETTINGS: Mapping[str, str] = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
}
"""Of every test broker, unless its own say something else: few internal partitions, and nobody waits for a first member."""
DATA = "data"
"""The log dir in a directory of a test broker; snapshots lie beside it."""


class Bench:
    """Brokers in one nursery, each with its state. Lifecycle: within `open_bench`."""

    def __init__(
        self, nursery: trio.Nursery, *, clock: VirtualClock | None, serves_control: bool, token: str = ""
    ) -> None:
        self.hosts: dict[str, Host] = {}
        """All that run, by bootstrap address."""
        self.control_urls: dict[str, str] = {}
        self._nursery = nursery
        self._clock = clock
        self._serves_control = serves_control
        self._token = token

    async def start(
        self,
        config: BrokerConfig,
        *,
        seeds: Seeds | None = None,
        control: tuple[str, int] = ("127.0.0.1", 0),
        on_end: Callable[[], object] = bool,
    ) -> Host:
        """Start a broker that holds the seeds; `on_end` is called when it has ended. Raises StartupError, StorageError."""
        host = Host(
            config, recorder=Recorder(), clock=self._clock, prepare=preparing(seeds) if seeds else None
        )

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            try:
                sockets = bind(*control, token=self._token) if self._serves_control else []
                async with trio.open_nursery() as nursery:
                    await nursery.start(_run_then_cancel, host, nursery.cancel_scope)
                    await state_of(host).snapshot(INITIAL, replace=True)
                    state_of(host).start_fork = self._start_fork
                    if sockets:
                        await nursery.start(serve, host, sockets, self._token)
                        self.control_urls[host.bootstrap] = url_of(sockets)
                    self.hosts[host.bootstrap] = host
                    task_status.started()
            finally:
                self.hosts.pop(host.bootstrap, None)
                on_end()

        await self._nursery.start(run)
        return host

    async def _start_fork(self, config: BrokerConfig, on_end: Callable[[], None]) -> JsonObject:
        host = await self.start(config, on_end=on_end)
        answer = {"bootstrap": host.bootstrap}
        if self._serves_control:
            answer["control_url"] = self.control_urls[host.bootstrap]
        return answer

    def stop(self) -> None:
        """Stop all of them."""
        for host in self.hosts.values():
            host.stop()


async def _run_then_cancel(
    host: Host, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Host]
) -> None:
    """Run a broker until it is stopped for good, and end then what stands around it."""
    await host.run(task_status=task_status)
    scope.cancel()


def config_of(
    settings: Mapping[str, str] | None, directory: str, listen: str = "127.0.0.1:0"
) -> BrokerConfig:
    """Return the settings of a test broker whose data is below `directory`. Raises SettingError."""
    own = {"listeners": f"PLAINTEXT://{listen}", **(settings or {})}
    return BrokerConfig({**SETTINGS, "log.dirs": f"{directory}/{DATA}", **own})


@asynccontextmanager
async def open_bench(
    *, clock: VirtualClock | None = None, serves_control: bool = False, token: str = ""
) -> AsyncIterator[Bench]:
    """A bench in the running Trio loop, whose clock is given if it is a virtual one; its brokers end with the block."""
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, clock=clock, serves_control=serves_control, token=token)
        try:
            yield bench
        finally:
            bench.stop()


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
    from barnabas.seeding.reading import read_seeds

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
            if self._token is None:  # whoever waits in this very loop was cancelled
                raise
            raise BrokerFailedError("the broker has ended") from error

    def reach_fork(self, answer: Mapping[str, Any]) -> Control:
        """Return the way to a fork of the broker."""
        return _LoopControl(self._bench, self._bench.hosts[answer["bootstrap"]], self._token)

    def close(self) -> None:
        """Stop the broker; it ends with its bench at the latest."""
        if self._token is None:
            trio.from_thread.run_sync(self._host.stop)
        else:
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._host.stop)


class _ThreadControl(_LoopControl):
    """The way to a broker in a thread of its own, which `close` ends."""

    def __init__(self, settings: Mapping[str, str] | None, seeds: Seeds | None) -> None:
        self._ready = threading.Event()
        self._failures: list[BaseException] = []
        self._closing: trio.Event
        self._thread = threading.Thread(
            target=self._run, args=(settings, seeds), name="barnabas", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        for failure in self._failures:
            self._thread.join()
            raise BrokerFailedError(_text_of(failure)) from failure

    @property
    def bootstrap(self) -> str:
        """`host:port` of the broker."""
        return self._host.bootstrap

    def _run(self, settings: Mapping[str, str] | None, seeds: Seeds | None) -> None:
        clock = VirtualClock()
        try:
            trio.run(self._serve, clock, settings, seeds, clock=clock)
        except BaseException as error:
            self._failures.append(error)
        finally:
            self._ready.set()

    async def _serve(
        self, clock: VirtualClock, settings: Mapping[str, str] | None, seeds: Seeds | None
    ) -> None:
        with owned_directory() as directory:
            async with open_bench(clock=clock) as bench:
                self._closing = trio.Event()
                host = await bench.start(config_of(settings, directory), seeds=seeds)
                super().__init__(bench, host, trio.lowlevel.current_trio_token())
                self._ready.set()
                await self._closing.wait()

    def close(self) -> None:
        """End the broker and its thread."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._closing.set)  # type: ignore[union-attr]
        self._thread.join()


def start_thread(
    settings: Mapping[str, str] | None = None, *, seeds: Mapping[str, Any] | None = None
) -> KafkaBroker:
    """Start a broker in a thread of this process. Raises BrokerFailedError, SeedError."""
    control = _ThreadControl(settings, _seeds_of(seeds))
    return KafkaBroker(control.bootstrap, control)
