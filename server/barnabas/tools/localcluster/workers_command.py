"""`barnabas serve --workers N` as a command: the kind of workers for a directory, and the exit code.

The rule: a directory is started with the kind of its creation: workers that began on ZooKeeper stay there.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from barnabas.broker.serve_options import WORKER_DIRECTORY
from barnabas.config.setting import SettingError
from barnabas.ending import FAILED, USAGE_ERROR
from barnabas.log.format.names import META_PROPERTIES
from barnabas.tools.localcluster import quorum
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.workers import ZOOKEEPER_DIRECTORY, Workers, warn
from barnabas.tools.localcluster.workers_in_quorum import QuorumWorkers

if TYPE_CHECKING:
    from barnabas.config.loading import BrokerConfig


def run(config: BrokerConfig, shared_settings: Mapping[str, str], count: int, log_level: str) -> int:
    """Run `count` workers with these settings until a signal; returns the exit code."""
    try:
        workers = workers_of(config, shared_settings, count, log_level)
    except (SettingError, ChildError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, SettingError) else FAILED
    return exit_code(workers)


def workers_of(
    config: BrokerConfig, shared_settings: Mapping[str, str], count: int, log_level: str
) -> Workers:
    """Return workers of the kind of their directory. Raises SettingError, ChildError."""
    directory = Path(config.log_dirs[0])
    if quorum.read(directory) is None:
        if (directory / ZOOKEEPER_DIRECTORY).exists():
            from barnabas.tools.localcluster.workers_on_zookeeper import ZooKeeperWorkers

            warn(f"the workers in {directory} are on ZooKeeper since their first start, and start so again")
            return ZooKeeperWorkers(config, shared_settings, count, log_level)
        for path in config.log_dirs:
            if any(Path(path).glob(f"{WORKER_DIRECTORY}*/{META_PROPERTIES}")):
                raise SettingError(
                    f"{path} holds the data of workers, and {directory / quorum.FILE}, the file of their cluster, is "
                    "missing: put it back, or name the log dirs in the order of their first start"
                )
    return QuorumWorkers(config, shared_settings, count, log_level)


def exit_code(workers: Workers) -> int:
    """Run workers until a signal; returns the exit code."""
    try:
        workers.check()
        return trio.run(workers.run, restrict_keyboard_interrupt_to_checkpoints=True)
    except (SettingError, ChildError) as error:
        print(f"barnabas: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, SettingError) else FAILED
