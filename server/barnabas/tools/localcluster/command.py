"""The `barnabas cluster` command: options in, several processes out, and reports of their events.

The rule: a directory is started with the kind of its creation, with separate controllers or on ZooKeeper; incompatible
options are refused before anything starts.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

from barnabas.broker.serve_options import SET_OPTION, collect_shared
from barnabas.config.loading import BrokerConfig, explain_unknown
from barnabas.config.setting import SettingError
from barnabas.config.without_effect import judge
from barnabas.ending import FAILED, USAGE_ERROR
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.cluster import Cluster, say
from barnabas.tools.localcluster.defaults import MAVEN_CENTRAL
from barnabas.tools.localcluster.in_quorum import QuorumCluster
from barnabas.tools.localcluster.quorum import (
    OWN_SETTINGS,
    Node,
    Quorum,
    check,
    controller_ids,
    read,
    settings_of_node,
)


def main(arguments: Sequence[str]) -> int:
    """Run `barnabas cluster`; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        directory = None if options.ephemeral else directory_of(options)
        on_zookeeper = is_on_zookeeper(options, directory)
        shared = check_settings(options.config, options.set, on_zookeeper=on_zookeeper)
        with made(directory) as place:
            cluster: Cluster
            if on_zookeeper:
                from barnabas.tools.localcluster.on_zookeeper import ZooKeeperCluster

                cluster = ZooKeeperCluster(options, place)
            else:
                cluster = QuorumCluster(options, place, shared)
            return trio.run(cluster.run, restrict_keyboard_interrupt_to_checkpoints=True)
    except (SettingError, ChildError) as error:
        print(f"barnabas cluster: {error}", file=sys.stderr)
        return USAGE_ERROR if isinstance(error, SettingError) else FAILED


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    parser = argparse.ArgumentParser(
        prog="barnabas cluster",
        description="Start a cluster of brokers on this machine, the first three of which are its controllers too.",
    )
    parser.add_argument("--brokers", type=_count, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument(
        "--controllers", type=_count, metavar="N",
        help="keep the controllers in as many processes of their own, beside the brokers",
    )  # fmt: skip
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--dir", metavar="DIR", help="where to keep everything (default: ~/.local/state/barnabas-cluster)"
    )
    where.add_argument(
        "--ephemeral", action="store_true", help="keep everything in memory, and remove it at the end"
    )
    parser.add_argument(
        "--port", type=_port, default=9092, metavar="P",
        help="port of the first broker, the next ones count up (default: 9092); 0 for any free ones",
    )  # fmt: skip
    parser.add_argument("--racks", default="", metavar="A,B,...", help="racks of the brokers, in turn")
    parser.add_argument("--config", metavar="FILE", help="a server.properties file for all brokers")
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="set one setting of all brokers; may be repeated",
    )
    parser.add_argument(
        "--log-level", default="warning", choices=("debug", "info", "warning", "error"),
        help="how much brokers write to their logs (default: %(default)s)",
    )  # fmt: skip
    zookeeper = parser.add_argument_group("ZooKeeper in place of controllers, as up to Apache Kafka 3.9")
    zookeeper.add_argument(
        "--zookeeper", nargs="?", const="", metavar="HOST:PORT,.../CHROOT",
        help="use one that runs already; without a value one of our own, in this process",
    )  # fmt: skip
    zookeeper.add_argument(
        "--apache-zookeeper",
        action="store_true",
        help="start Apache ZooKeeper, which is found on this machine",
    )
    zookeeper.add_argument(
        "--zookeeper-jars", metavar="DIR", help="start Apache ZooKeeper from the jars in this directory"
    )
    zookeeper.add_argument(
        "--fetch",
        action="store_true",
        help="fetch Apache ZooKeeper from Maven Central if it is not here, and start it",
    )
    zookeeper.add_argument(
        "--maven", default=MAVEN_CENTRAL, metavar="URL", help="the Maven repository (default: %(default)s)"
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 100:
        raise argparse.ArgumentTypeError(f"{text}: a number from 1 to 100 expected")
    return int(text)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text}: a port from 0 to 65535 expected")
    return int(text)


def is_on_zookeeper(options: argparse.Namespace, directory: Path | None) -> bool:
    """Return whether the cluster is one on ZooKeeper, by the options or by its directory.

    Raises SettingError if the options contradict each other, or the directory.
    """
    is_asked = options.zookeeper is not None or bool(
        options.apache_zookeeper or options.zookeeper_jars or options.fetch
    )
    was_made = False
    if directory is not None:
        quorum = read(directory)
        if quorum is not None and is_asked:
            raise SettingError(
                f"the cluster in {directory} has controllers of its own: start it without ZooKeeper, or name another --dir"
            )
        if quorum is not None:
            check(quorum, directory, options.brokers, options.controllers)
            return False
        was_made = (directory / "zookeeper").exists()
        if not is_asked and not was_made and any(directory.glob("broker-*/meta.properties")):
            raise SettingError(
                f"the brokers in {directory} are on a ZooKeeper that --zookeeper named: name it again, or another --dir"
            )
        if was_made and not is_asked:
            say(f"the cluster in {directory} is on ZooKeeper since its first start, and starts so again")
    if (is_asked or was_made) and options.controllers is not None:
        raise SettingError("--controllers: a cluster on ZooKeeper has none; leave one of the options out")
    return is_asked or was_made


_OWN_ON_ZOOKEEPER = ("broker.id", "node.id", "log.dirs", "log.dir", "listeners", "zookeeper.connect")
"""Settings that each broker on ZooKeeper has its own value of, or that all get from the command."""


def check_settings(file: str | None, pairs: Sequence[str], *, on_zookeeper: bool) -> dict[str, str]:
    """Return the settings of all nodes; reports those of a file without effect.

    Raises SettingError unless every node can have them.
    """
    collected = collect_shared(file, pairs)
    own = [
        name for name in (_OWN_ON_ZOOKEEPER if on_zookeeper else OWN_SETTINGS) if name in collected.settings
    ]
    for name in own:
        if collected.origins[name] == SET_OPTION:
            raise SettingError(
                f"--set {name}: each broker has its own; --dir, --port and --zookeeper say where they are"
            )
    if own:
        names = ", ".join(f"{name} ({collected.origins[name]})" for name in own)
        print(f"barnabas cluster: each broker has its own value of these settings: {names}", file=sys.stderr)
    shared = {name: text for name, text in collected.settings.items() if name not in own}
    if on_zookeeper:
        every = {**shared, "zookeeper.connect": "localhost:2181"}
    else:
        quorum = Quorum("", dict.fromkeys(controller_ids(3, None), 1))
        every = settings_of_node(quorum, Node(1, ("/",), ("PLAINTEXT://localhost:1",)), shared)
    config = BrokerConfig(every, collected.origins)
    for name in config.unknown:
        if collected.origins[name] == SET_OPTION:
            raise SettingError(f"{SET_OPTION}: {explain_unknown(name)}")
    refusals = judge(config, collected.origins).refusals
    if refusals:
        raise SettingError(refusals[0])
    return shared


def directory_of(options: argparse.Namespace) -> Path:
    """Return the directory of a cluster's files."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(options.dir or os.path.join(base, "barnabas-cluster")).absolute()


@contextmanager
def made(directory: Path | None) -> Iterator[Path]:
    """Create the directory, or a temporary one in memory if it has no name. Raises ChildError."""
    if directory is None:
        from barnabas.environment.ephemeral import ephemeral_directory

        with ephemeral_directory() as path:
            yield Path(path)
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ChildError(f"{directory}: {error.strerror}") from error
    yield directory
