"""Brokers beside one that `serve` runs, with copies of its data: each has separate ports, a log dir and a control API.

The rule: a fork that fails ends alone; when the first broker ends, so do its forks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from barnabas.errors import StorageError
from barnabas.network.visitors import url_of
from barnabas.tools.control.host import Host
from barnabas.tools.control.recorder import Recorder
from barnabas.tools.control.server import bind, serve
from barnabas.tools.control.state import state_of

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig
    from barnabas.tools.control.clock import VirtualClock
    from barnabas.tools.seeding.looking import JsonObject

log = logging.getLogger(__name__)


class Forks:
    """Starts forks in a nursery; `start` gets a BrokerState."""

    def __init__(
        self, nursery: trio.Nursery, *, control_host: str, token: str, clock: VirtualClock | None
    ) -> None:
        """`control_host` is the address of control APIs, `clock` the shared clock."""
        self._nursery = nursery
        self._control_host = control_host
        self._token = token
        self._clock = clock

    async def start(self, config: BrokerConfig, on_end: Callable[[], None]) -> JsonObject:
        """Start a broker, and call `on_end` when it has ended; returns its addresses. Raises StartupError, StorageError."""
        answer: JsonObject = await self._nursery.start(self._run, config, on_end)
        return answer

    async def _run(
        self,
        config: BrokerConfig,
        on_end: Callable[[], None],
        *,
        task_status: trio.TaskStatus[JsonObject],
    ) -> None:
        host = Host(config, recorder=Recorder(), clock=self._clock)
        is_ready = False
        try:
            sockets = bind(self._control_host, 0, token=self._token)
            async with trio.open_nursery() as nursery:
                await nursery.start(serve, host, sockets, self._token)
                await nursery.start(self._serve_then_cancel, host, nursery.cancel_scope)
                state_of(host).start_fork = self.start
                is_ready = True
                task_status.started({"bootstrap": host.bootstrap, "control_url": url_of(sockets)})
        except* StorageError as group:
            if not is_ready:
                raise
            log.error("a fork has ended: %s", group.exceptions[0])
        finally:
            on_end()

    @staticmethod
    async def _serve_then_cancel(
        host: Host, scope: trio.CancelScope, *, task_status: trio.TaskStatus[Host]
    ) -> None:
        await host.run(task_status=task_status)
        scope.cancel()
