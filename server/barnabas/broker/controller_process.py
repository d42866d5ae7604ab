"""A controller as a process: signals, the ready line, exit codes.

The rule: as in `process`: a failure to start is one line for the operator, and a signal is a clean end at any time.
"""

from __future__ import annotations

import argparse
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from typing import TYPE_CHECKING

import trio

from barnabas.broker import interpreter
from barnabas.broker.controller_node import ControllerNode, controller
from barnabas.broker.process import Stopper
from barnabas.broker.startup import StartupError
from barnabas.config import broker as settings
from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED, end_signals
from barnabas.environment import output
from barnabas.environment.real import real_environment
from barnabas.errors import StorageError, leaves
from barnabas.serving import connection

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

OF_BROKERS = (
    settings.REGISTRY_LISTENER,
    settings.CONSOLE_LISTENER,
    settings.CONTROL_LISTENER,
    settings.FAULTS_FILE,
    settings.METRICS_LISTENER,
)
"""Servers beside a broker, of which a controller has none."""


def check_options(options: argparse.Namespace, config: BrokerConfig) -> None:
    """Raise SettingError for an option of `barnabas serve` that only a broker has."""
    asked = [f"--{name}" for name in ("tap", "topic", "seed_file", "fault") if getattr(options, name)]
    if options.workers > 1:
        asked.append("--workers")
    asked += [setting.name for setting in OF_BROKERS if config.get(setting)]
    if asked:
        raise SettingError(
            f"{asked[0].replace('_', '-')}: that is for a broker, and process.roles=controller"
        )


def run(config: BrokerConfig) -> int:
    """Run a controller until SIGTERM or SIGINT; returns the process's exit code."""
    code = FAILED
    interpreter.prepare()
    try:
        code = trio.run(_run_until_signalled, config, restrict_keyboard_interrupt_to_checkpoints=True)
    except* (StartupError, StorageError) as group:
        for error in leaves(group):
            print(f"barnabas: {error}", file=sys.stderr)
    return code


async def _run_until_signalled(config: BrokerConfig) -> int:
    code = DONE
    with trio.open_signal_receiver(*end_signals()) as signals:
        async with trio.open_nursery() as listening:
            stopper = Stopper(may_break_off_start=True)
            listening.start_soon(stopper.run, signals)
            with stopper.starting:
                async with controller(config, real_environment()) as node, trio.open_nursery() as nursery:
                    stopper.has_started(node)
                    await nursery.start(node.serve)
                    interpreter.settle_garbage_collector()
                    say_ready(node)
                    await node.stopping.wait()
                code = FAILED if node.stopping.has_failed else DONE
            listening.cancel_scope.cancel()
    return code


def say_ready(node: ControllerNode) -> None:
    """Print the ready line, with the data last since a path may hold spaces. Raises StartupError."""
    code = "compiled" if connection.__file__.endswith(tuple(EXTENSION_SUFFIXES)) else "interpreted"
    config = node.config
    data = config.get(settings.METADATA_LOG_DIR) or config.log_dirs[0]
    try:
        print(
            f"barnabas is ready: bootstrap.controllers={node.bootstrap} cluster={node.cluster_id} "
            f"node.id={config.get(settings.NODE_ID)} code={code} data={data}",
            flush=True,
        )
    except OSError as error:
        raise StartupError(
            output.explain(error) or f"cannot say that the controller is ready: {error}"
        ) from error
