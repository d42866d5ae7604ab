"""A broker as a process: signals, the ready line, exit codes.

The rule: a failure to start is one line for the operator.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import nullcontext
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING, Protocol, TextIO

import trio

from barnabas.broker import interpreter
from barnabas.broker.assembly import assembled
from barnabas.broker.startup import StartupError, exposures
from barnabas.config.authorizer import has_authorizer
from barnabas.config.keeper import is_clustered
from barnabas.ending import DONE, FAILED, end_signals
from barnabas.environment.output import explain as explain_output
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError, leaves
from barnabas.serving import connection
from barnabas.serving.seams import NO_SEAMS, Seams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from barnabas.broker.app import Broker, Companion
    from barnabas.config.loading import BrokerConfig
    from barnabas.serving.seams import Watcher

    Prepare = Callable[[Broker], Awaitable[None]]

log = logging.getLogger(__name__)


def run(
    config: BrokerConfig,
    prepare: Prepare | None = None,
    watcher: Watcher | None = None,
    companions: Companions | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the process's exit code.

    `prepare` is awaited before the broker serves, and may raise StartupError. `watcher` sees all requests; `companions`
    serve beside the broker.
    """
    interpreter.prepare()
    return exit_code(
        lambda: trio.run(
            _run_until_signalled,
            config,
            prepare,
            watcher,
            companions or Companions(),
            restrict_keyboard_interrupt_to_checkpoints=True,
        )
    )


def exit_code(work: Callable[[], int]) -> int:
    """Return the exit code of work; an error of the start or of a disk is a line for the operator, and a failure."""
    code = FAILED
    try:
        code = work()
    except* (StartupError, StorageError) as group:
        for error in leaves(group):
            print(f"barnabas: {error}", file=sys.stderr)
    return code


async def _run_until_signalled(
    config: BrokerConfig, prepare: Prepare | None, watcher: Watcher | None, companions: Companions
) -> int:
    """Run a broker; returns the exit code: a start that a signal breaks off was wished too."""
    code = DONE
    seams = NO_SEAMS if watcher is None else Seams(interceptor=watcher.around(None))
    beside = nullcontext() if watcher is None else watcher.running()
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as listening:
            stopper = Stopper(may_break_off_start=is_clustered(config))
            listening.start_soon(stopper.run, signals)
            with stopper.starting:
                async with (
                    beside,
                    assembled(config, real_environment(), seams=seams) as broker,
                    trio.open_nursery() as nursery,
                ):
                    stopper.has_started(broker)
                    if watcher is not None:
                        watcher.attach(broker)
                    if prepare is not None:
                        await prepare(broker)
                    words = companions.begin()
                    companions.attach(broker)
                    await nursery.start(_serve, broker, nursery.cancel_scope)
                    await companions.start(nursery)
                    interpreter.settle_garbage_collector()
                    if (
                        not broker.stopping.was_asked
                    ):  # a signal may have come before the cluster knew of the broker
                        say_ready(broker, words)
                code = FAILED if broker.stopping.has_failed else DONE
            listening.cancel_scope.cancel()
    return code


async def _serve(broker: Broker, beside: trio.CancelScope, *, task_status: trio.TaskStatus[Broker]) -> None:
    """Serve until the broker is stopped, and then end what runs beside it."""
    await broker.serve(task_status=task_status)
    beside.cancel()


class Companions:
    """All servers beside one broker, in the order in which they begin."""

    def __init__(self, all_of_them: Sequence[Companion] = ()) -> None:
        self._all = all_of_them

    def begin(self) -> str:
        """Have all bind their addresses; returns words for the ready line. Raises StartupError."""
        return "".join(companion.begin() for companion in self._all)

    def attach(self, broker: Broker) -> None:
        """Have all show this broker from now on."""
        for companion in self._all:
            companion.attach(broker)

    async def start(self, nursery: trio.Nursery) -> None:
        """Serve beside the broker, which serves by now, until cancelled. Raises StartupError."""
        for companion in self._all:
            await nursery.start(companion.run)


class Stoppable(Protocol):
    """Anything that a signal can stop."""

    def stop(self) -> None:
        """Ask for a clean stop."""


class Stopper:
    """Stops the broker at a signal, also one that comes while it starts.

    A broker that is alone finishes its start first, so that its logs are closed cleanly. One of a cluster may wait for
    other machines: its start is broken off, which counts as a crash with ZooKeeper.
    """

    def __init__(self, *, may_break_off_start: bool) -> None:
        self.starting = trio.CancelScope()
        self._may_break_off = may_break_off_start
        self._broker: Stoppable | None = None
        self._started = trio.Event()

    def has_started(self, broker: Stoppable) -> None:
        """Stop this broker from now on, instead of its start."""
        self._broker = broker
        self._started.set()

    async def run(self, signals: AsyncIterator[int]) -> None:
        """Wait for signals until cancelled."""
        async for number in signals:
            name = signal.Signals(number).name
            if self._broker is None and self._may_break_off:
                log.warning("stopping on %s, before the broker was ready", name)
                self.starting.cancel()
                continue
            await self._started.wait()
            assert self._broker is not None
            log.info("stopping on %s", name)
            self._broker.stop()


def code_of(file: str) -> str:
    """Say what a module is, by its file."""
    return "compiled" if file.endswith(tuple(EXTENSION_SUFFIXES)) else "interpreted"


def say_ready(broker: Broker, others: str = "", *, output: TextIO | None = None) -> None:
    """Print the ready line, with the data last since a path may hold spaces. Raises StartupError.

    `others` are more words for it, each with a blank before it; `output` replaces standard output.
    """
    output = output or sys.stdout
    for warning in exposures(broker.listeners, has_authorizer=has_authorizer(broker.services.config)):
        log.warning("%s", warning)
    metrics = f" metrics={broker.metrics_address.url}" if broker.metrics_address is not None else ""
    code = code_of(connection.__file__)
    data = ",".join(broker.services.config.log_dirs)
    member = ""
    if broker.participation is not None:
        member = f" cluster={broker.services.metadata.image.cluster_id} broker.id={broker.services.broker_id}"
    try:
        print(
            f"barnabas is ready: bootstrap.servers={broker.bootstrap}{metrics}{others}{member} code={code} data={data}",
            file=output,
            flush=True,
        )
        if output.isatty():
            print(f"Clients connect to {broker.bootstrap}; Ctrl-C stops the broker.", file=output, flush=True)
    except OSError as error:
        raise StartupError(
            explain_output(error) or f"cannot say that the broker is ready: {error}"
        ) from error
