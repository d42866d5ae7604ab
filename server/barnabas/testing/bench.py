"""A bench of brokers in the running Trio loop, each with its host, its initial snapshot, and optionally a control API.

The rule: modules that only test programs need are not imported here, so that `barnabas test-server` starts quickly.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.config.keeper import is_clustered, is_controller
from barnabas.config.loading import BrokerConfig
from barnabas.network.visitors import url_of
from barnabas.tools.control.host import Host
from barnabas.tools.control.recorder import Recorder
from barnabas.tools.control.server import bind, serve
from barnabas.tools.control.state import INITIAL, state_of

if TYPE_CHECKING:
    from barnabas.broker.app import Broker
    from barnabas.environment import Environment
    from barnabas.tools.control.clock import VirtualClock
    from barnabas.tools.seeding.looking import JsonObject
    from barnabas.tools.seeding.seeds import Seeds

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
"""Defaults of every test broker: few internal partitions, and groups do not wait for more members."""
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
        environment: Environment | None = None,
    ) -> Host:
        """Start a broker that holds the seeds; `on_end` is called when it has ended. Raises StartupError, StorageError."""
        host = Host(
            config, recorder=Recorder(), clock=self._clock, prepare=_preparing(seeds), environment=environment
        )

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            try:
                sockets = bind(*control, token=self._token) if self._serves_control else []
                async with trio.open_nursery() as nursery:
                    await nursery.start(_run_then_cancel, host, nursery.cancel_scope)
                    if not _is_of_cluster(config):
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
        """Stop all brokers."""
        for host in self.hosts.values():
            if _is_of_cluster(host.config):  # a clean stop would move leaders to nodes that end, too
                host.abandon()
            else:
                host.stop()


def _is_of_cluster(config: BrokerConfig) -> bool:
    return is_clustered(config) or is_controller(config)


def _preparing(seeds: Seeds | None) -> Callable[[Broker], Awaitable[None]] | None:
    """Return the function that applies the seeds to a broker; None without seeds."""
    if not seeds:
        return None
    from barnabas.tools.seeding.planting import preparing

    return preparing(seeds)


async def _run_then_cancel(
    host: Host, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Host]
) -> None:
    """Run a broker until it is stopped for good, then cancel `scope`."""
    await host.run(task_status=task_status)
    scope.cancel()


def config_of(
    settings: Mapping[str, str] | None, directory: str, listen: str = "127.0.0.1:0"
) -> BrokerConfig:
    """Return the settings of a test broker with its data below `directory`. Raises SettingError."""
    own = {"listeners": f"PLAINTEXT://{listen}", **(settings or {})}
    return BrokerConfig({**SETTINGS, "log.dirs": f"{directory}/{DATA}", **own})


@asynccontextmanager
async def open_bench(
    *, clock: VirtualClock | None = None, serves_control: bool = False, token: str = ""
) -> AsyncIterator[Bench]:
    """Open a bench in the running Trio loop, with `clock` if the loop has a virtual one; its brokers end with the block."""
    async with trio.open_nursery() as nursery:
        bench = Bench(nursery, clock=clock, serves_control=serves_control, token=token)
        try:
            yield bench
        finally:
            bench.stop()
            if clock is not None:
                clock.let_go()
