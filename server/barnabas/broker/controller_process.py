"""A controller as a process: signals, the ready line, exit codes.

The rule: as in `signals`: a failure to start is one line for the operator, and a signal is a clean end at any time.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import trio

from barnabas.broker import interpreter
from barnabas.broker.controller_node import ControllerNode, controller
from barnabas.broker.signals import code_of, exit_code, explained_output, until_signalled
from barnabas.config import broker as settings
from barnabas.config.setting import SettingError
from barnabas.ending import DONE, FAILED
from barnabas.environment.real import real_environment
from barnabas.serving import connection

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig

OF_BROKERS = (
    settings.REGISTRY_LISTENER,
    settings.HTTP_LISTENER,
    settings.CONSOLE_LISTENER,
)
"""Servers beside a broker, which a controller does not have."""


def check_options(options: argparse.Namespace, config: BrokerConfig) -> None:
    """Raise SettingError for an option of `barnabas serve` that only a broker has."""
    asked = [f"--{name}" for name in ("tap", "topic", "seed_file") if getattr(options, name)]
    if options.workers > 1:
        asked.append("--workers")
    asked += [setting.name for setting in OF_BROKERS if config.get(setting)]
    if asked:
        raise SettingError(
            f"{asked[0].replace('_', '-')}: that is for a broker, and process.roles=controller"
        )


def run(config: BrokerConfig) -> int:
    """Run a controller until SIGTERM or SIGINT; returns the process's exit code."""
    interpreter.prepare()
    return exit_code(
        lambda: trio.run(_run_until_signalled, config, restrict_keyboard_interrupt_to_checkpoints=True)
    )


async def _run_until_signalled(config: BrokerConfig) -> int:
    has_failed = False
    async with until_signalled(may_break_off_start=True) as stopper:
        async with controller(config, real_environment()) as node, trio.open_nursery() as nursery:
            stopper.has_started(node)
            await nursery.start(node.serve)
            interpreter.settle_garbage_collector()
            say_ready(node)
            await node.stopping.wait()
        has_failed = node.stopping.has_failed
    return FAILED if has_failed else DONE


def say_ready(node: ControllerNode, others: str = "") -> None:
    """Print the ready line, with the data last since a path may hold spaces. Raises StartupError.

    `others` are more words for it, each with a blank before it.
    """
    config = node.config
    data = config.get(settings.METADATA_LOG_DIR) or config.log_dirs[0]
    metrics = f" metrics={node.metrics_address.url}" if node.metrics_address is not None else ""
    with explained_output("controller"):
        print(
            f"barnabas is ready: bootstrap.controllers={node.bootstrap}{metrics}{others} cluster={node.cluster_id} "
            f"node.id={config.get(settings.NODE_ID)} code={code_of(connection.__file__)} data={data}",
            flush=True,
        )
