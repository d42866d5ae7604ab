"""A broker with faults, a clock and recorded requests, in a thread of the test's process, for stock clients that block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import trio

from barnabas.config.loading import BrokerConfig
from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.faulting import Faulting
from barnabas.tools.control.host import Host
from barnabas.tools.control.keep_clients import keep_clients
from barnabas.tools.control.recorder import Filter, Recorded, Recorder

T = TypeVar("T")

START_SECONDS_MAX = 60.0
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
}


class Hosted:
    """A test's handle of a broker: its calls run in the broker's thread."""

    def __init__(self, host: Host, token: trio.lowlevel.TrioToken) -> None:
        self.host = host
        self.bootstrap = host.bootstrap
        self._token = token

    def do(self, work: Callable[[], T]) -> T:
        """Call a function in the broker's thread; returns its result."""
        return trio.from_thread.run_sync(work, trio_token=self._token)

    def fault(self, rule: str | Mapping[str, Any]) -> str:
        """Add a rule; returns its name."""
        return self.do(lambda: self.host.faulting.faults.add(rule)).name

    def hits(self, name: str) -> int:
        """Return how often a rule has applied."""
        return self.do(lambda: self.host.faulting.faults.rules[name].hits)

    def clear(self) -> None:
        """Remove all rules."""
        self.do(self.host.faulting.faults.clear)

    def asked(self, **conditions: Any) -> list[Recorded]:
        """Return recorded requests."""
        assert self.host.recorder is not None
        recorder = self.host.recorder
        return self.do(lambda: recorder.find(Filter(**conditions)))

    def wait_asked(self, *, timeout_s: float = 30.0, **conditions: Any) -> Recorded:
        """Wait until such a request was recorded and answered; returns it. Raises AssertionError after `timeout_s`."""
        assert self.host.recorder is not None
        recorder = self.host.recorder

        async def wait() -> Recorded | None:
            return await recorder.wait(Filter(**conditions), timeout_s=timeout_s)

        recorded = trio.from_thread.run(wait, trio_token=self._token)
        assert recorded is not None, f"no request {conditions} in {timeout_s} s"
        return recorded

    def advance(self, seconds: float, *, is_kept: bool = False) -> None:
        """Advance the broker's clock; with `is_kept`, clients keep their sessions."""

        def step() -> None:
            assert self.host.clock is not None
            if is_kept:
                assert self.host.broker is not None
                keep_clients(self.host.broker, int(seconds * 1000))
            self.host.clock.advance(seconds)

        self.do(step)

    def restart(self, **how: Any) -> None:
        """Restart the broker."""

        async def restart() -> None:
            await self.host.restart(**how)

        trio.from_thread.run(restart, trio_token=self._token)


@contextmanager
def hosted(
    data: Path,
    settings: Mapping[str, str] | None = None,
    *,
    clock: VirtualClock | None = None,
    kill: Callable[[], None] | None = None,
) -> Iterator[Hosted]:
    """Run a broker for the length of a block."""
    values = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        **QUICK_GROUPS,
        **(settings or {}),
    }
    faulting = Faulting() if kill is None else Faulting(kill=kill)
    host = Host(BrokerConfig(values), faulting=faulting, recorder=Recorder(), clock=clock)
    started = threading.Event()
    tokens: list[trio.lowlevel.TrioToken] = []
    failures: list[BaseException] = []

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(host.run)
            tokens.append(trio.lowlevel.current_trio_token())
            started.set()

    def in_thread() -> None:
        try:
            trio.run(run, clock=clock)
        except BaseException as error:
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=in_thread, daemon=True)
    thread.start()
    started.wait(START_SECONDS_MAX)
    if failures:
        raise failures[0]
    assert tokens, "the broker did not start"
    broker = Hosted(host, tokens[0])
    try:
        yield broker
    finally:
        broker.do(host.stop)
        thread.join(START_SECONDS_MAX)
    if failures:
        raise failures[0]
