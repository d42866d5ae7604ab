"""The process of a node with faults, a control API or its own clock: `serve --control`, `--faults`, `--virtual-clock`.

The rule: errors in a rule, a file or an address are reported before anything is served.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

import trio

from barnabas.broker import interpreter
from barnabas.broker.app import Broker
from barnabas.broker.process import Companions, say_ready
from barnabas.broker.signals import Stopper, exit_code, until_signalled
from barnabas.broker.startup import StartupError
from barnabas.config import broker as settings
from barnabas.config.keeper import is_clustered
from barnabas.ending import DONE, FAILED, USAGE_ERROR
from barnabas.network.transport import host_and_port
from barnabas.network.visitors import url_of
from barnabas.tools.control.clock import VirtualClock
from barnabas.tools.control.faulting import Faulting
from barnabas.tools.control.host import Host
from barnabas.tools.control.recorder import Recorder
from barnabas.tools.faults import file
from barnabas.tools.faults.errors import FaultError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.seams import Watcher


def run(
    config: BrokerConfig,
    faults: Sequence[str] = (),
    *,
    prepare: Callable[[Broker], Awaitable[None]] | None = None,
    watcher: Watcher | None = None,
    companions_of: Callable[[Host], Companions] | None = None,
) -> int:
    """Run a node with the parts that its settings enable, until SIGTERM or SIGINT; returns the process's exit code.

    `faults` are rules in their short form; `prepare` is awaited before the broker serves; `watcher` observes all requests.
    `companions_of` returns the servers beside the broker.
    """
    interpreter.prepare()
    try:
        faulting = faulting_of(config, faults)
    except FaultError as wrong:
        print(f"barnabas: {wrong}", file=sys.stderr)
        return USAGE_ERROR
    clock = VirtualClock() if config.get(settings.CLOCK_VIRTUAL) else None
    return exit_code(
        lambda: trio.run(
            _run_until_signalled, config, faulting, clock, prepare, watcher, companions_of,
            clock=clock, restrict_keyboard_interrupt_to_checkpoints=True,
        )
    )  # fmt: skip


def faulting_of(config: BrokerConfig, faults: Sequence[str] = ()) -> Faulting:
    """Return the faults of the settings and of the command line. Raises FaultError, which names the place."""
    faulting = Faulting()
    faulting.faults.reset(config.get(settings.FAULTS_SEED))
    path = config.get(settings.FAULTS_FILE)
    if path:
        try:
            with open(path, encoding="utf-8") as source:
                text = source.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FaultError(f"--faults {path}: {reason}") from error
        try:
            file.read(text, faulting.faults)
        except FaultError as error:
            line = f":{error.line}" if error.line is not None else ""
            raise FaultError(
                f"{path}{line}: {error.place + ': ' if error.place else ''}{error.text}"
            ) from error
    for rule in faults:
        try:
            faulting.faults.add(rule)
        except FaultError as error:
            raise FaultError(f"--fault {rule!r}: {error}") from error
    return faulting


async def _run_until_signalled(
    config: BrokerConfig,
    faulting: Faulting,
    clock: VirtualClock | None,
    prepare: Callable[[Broker], Awaitable[None]] | None,
    watcher: Watcher | None,
    companions_of: Callable[[Host], Companions] | None,
) -> int:
    address = config.get(settings.CONTROL_LISTENER)
    host = Host(
        config, faulting=faulting, recorder=Recorder() if address else None, clock=clock, prepare=prepare,
        watcher=watcher,
    )  # fmt: skip
    companions = Companions() if companions_of is None else companions_of(host)
    host.attached = companions.attach
    async with (
        until_signalled(may_break_off_start=is_clustered(config)) as stopper,
        nullcontext() if watcher is None else watcher.running(),
    ):
        await _serve(host, address, stopper, companions)
    return FAILED if host.has_failed else DONE


async def _serve(host: Host, address: str, stopper: Stopper, companions: Companions) -> None:
    """Serve until the host is stopped. Raises StartupError, StorageError."""
    async with trio.open_nursery() as nursery:
        words = ""
        if address:
            from barnabas.tools.control.forks import Forks
            from barnabas.tools.control.server import bind, serve
            from barnabas.tools.control.state import state_of

            token = host.config.get(settings.CONTROL_TOKEN)
            where, port = _address(address)
            sockets = bind(where, port, token=token)
            forks = Forks(nursery, control_host=where, token=token, clock=host.clock)
            state_of(host).start_fork = forks.start
            await nursery.start(serve, host, sockets, token)
            words = f" control={url_of(sockets)}"
        await _run_host(host, stopper, companions, words + companions.begin())
        nursery.cancel_scope.cancel()


def _address(text: str) -> tuple[str, int]:
    """Return host and port of the setting control.listener. Raises StartupError."""
    where = host_and_port(text.strip())
    if where is None:
        raise StartupError(f"{settings.CONTROL_LISTENER.name}={text} is not of the form HOST:PORT")
    return where


async def _run_host(host: Host, stopper: Stopper, companions: Companions, words: str) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(_run, host, nursery.cancel_scope)
        stopper.has_started(host)
        if host.broker is not None:
            await companions.start(nursery)
        interpreter.settle_garbage_collector()
        if isinstance(host.node, Broker):
            say_ready(host.node, words)
        elif host.node is not None:
            from barnabas.broker import controller_process  # not on the way of a broker

            controller_process.say_ready(host.node, words)


async def _run(host: Host, beside: trio.CancelScope, *, task_status: trio.TaskStatus[Host]) -> None:
    """Run until the host is stopped, and then cancel the tasks beside it."""
    await host.run(task_status=task_status)
    if host.clock is not None:
        host.clock.let_go()
    beside.cancel()
