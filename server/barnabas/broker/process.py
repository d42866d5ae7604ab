"""A broker as a process: signals, the ready line, exit codes.

The rule: a failure to start is one line for the operator.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, TextIO

import trio

from barnabas.broker import interpreter
from barnabas.broker.assembly import assembled
from barnabas.broker.signals import code_of, exit_code, explained_output, until_signalled
from barnabas.broker.startup import exposures
from barnabas.config.authorizer import has_authorizer
from barnabas.config.keeper import is_clustered
from barnabas.ending import DONE, FAILED
from barnabas.environment.real import real_environment
from barnabas.serving import connection
from barnabas.serving.seams import NO_SEAMS, Seams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

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

    `prepare` is awaited before the broker serves, and may raise StartupError. `watcher` observes all requests; `companions`
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


async def _run_until_signalled(
    config: BrokerConfig, prepare: Prepare | None, watcher: Watcher | None, companions: Companions
) -> int:
    """Run a broker; returns the exit code: a start that a signal breaks off was wished too."""
    seams = NO_SEAMS if watcher is None else Seams(interceptor=watcher.around(None))
    beside = nullcontext() if watcher is None else watcher.running()
    has_failed = False
    async with until_signalled(may_break_off_start=is_clustered(config)) as stopper:
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
            if not broker.stopping.was_asked:  # a signal may have come before the cluster knew of the broker
                say_ready(broker, words)
        has_failed = broker.stopping.has_failed
    return FAILED if has_failed else DONE


async def _serve(broker: Broker, beside: trio.CancelScope, *, task_status: trio.TaskStatus[Broker]) -> None:
    """Serve until the broker is stopped, and then cancel the tasks beside it."""
    await broker.serve(task_status=task_status)
    beside.cancel()


class Companions:
    """All servers beside one broker, in the order of their start."""

    def __init__(self, all_of_them: Sequence[Companion] = ()) -> None:
        self._all = all_of_them

    def begin(self) -> str:
        """Bind the addresses of all companions; returns their part of the ready line. Raises StartupError."""
        return "".join(companion.begin() for companion in self._all)

    def attach(self, broker: Broker) -> None:
        """Attach all companions to this broker."""
        for companion in self._all:
            companion.attach(broker)

    async def start(self, nursery: trio.Nursery) -> None:
        """Serve beside the broker, which already serves, until cancelled. Raises StartupError."""
        for companion in self._all:
            await nursery.start(companion.run)


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
    with explained_output("broker"):
        print(
            f"barnabas is ready: bootstrap.servers={broker.bootstrap}{metrics}{others}{member} code={code} data={data}",
            file=output,
            flush=True,
        )
        if output.isatty():
            print(f"Clients connect to {broker.bootstrap}; Ctrl-C stops the broker.", file=output, flush=True)
