"""Nodes of a KRaft quorum on this machine: their numbers, ports and settings, their first formatting, and their command.

The rule: controllers are chosen at the first start of a directory, and recorded with the cluster's id in one file, as
static voters must be the same on all nodes; a port is kept as long as no other process uses it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.config.loading import BrokerConfig
from barnabas.config.properties import format_properties, parse_lines
from barnabas.config.setting import SettingError
from barnabas.environment.real import OsEntropy
from barnabas.errors import StorageError
from barnabas.log.format.names import META_PROPERTIES
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.defaults import OF_CONTROLLERS
from barnabas.tools.localcluster.ports import free_port, is_free
from barnabas.wire.ids import new_uuid, uuid_text

FILE = "cluster.properties"
COMBINED_MAX = 3
"""Brokers that are controllers too: one of three may fail, and more would only copy more."""
FIRST_CONTROLLER = 101
"""The number of the first controller that is no broker: above those of all brokers."""
HOST = "127.0.0.1"
LISTENER = "CONTROLLER"
OWN_SETTINGS = (
    "broker.id",
    "node.id",
    "log.dirs",
    "log.dir",
    "listeners",
    "advertised.listeners",
    "process.roles",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
    "zookeeper.connect",
)
"""Settings that each node has its own value of, or that all get from the command."""
_PROTOCOLS = "listener.security.protocol.map"


class Node(NamedTuple):
    """A node's place on this machine."""

    node_id: int
    log_dirs: tuple[str, ...]
    listeners: tuple[str, ...] = ()
    """NAME://HOST:PORT for clients; none of a controller that is no broker."""


class Quorum(NamedTuple):
    """A cluster's id, and the ports of its controllers by number."""

    cluster_id: str
    ports: Mapping[int, int]

    @property
    def voters(self) -> str:
        """The value of `controller.quorum.voters`."""
        return ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in sorted(self.ports.items()))

    @property
    def addresses(self) -> str:
        """Host and port of each controller."""
        return ",".join(f"{HOST}:{port}" for _, port in sorted(self.ports.items()))

    @property
    def dedicated(self) -> list[int]:
        """The controllers that are no brokers."""
        return [node_id for node_id in sorted(self.ports) if node_id >= FIRST_CONTROLLER]


def controller_ids(brokers: int, controllers: int | None) -> range:
    """Return numbers of controllers: as many beside the brokers, or the first brokers, an odd number up to three."""
    if controllers is not None:
        return range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers)
    return range(1, (COMBINED_MAX if brokers >= COMBINED_MAX else 1) + 1)


def read(directory: Path) -> Quorum | None:
    """Return the quorum of a directory, None if it has none yet. Raises ChildError."""
    path = directory / FILE
    try:
        kept = {name: value for _, name, value in parse_lines(path.read_text(encoding="utf-8"))}
        voters = (voter.partition("@") for voter in kept["controller.quorum.voters"].split(","))
        ports = {int(node_id): int(address.rpartition(":")[2]) for node_id, _, address in voters}
        return Quorum(kept["cluster.id"], ports)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, SettingError) as error:
        raise ChildError(f"{path} cannot be read: {error}") from error


def check(quorum: Quorum, directory: Path, brokers: int, controllers: int | None) -> None:
    """Raise SettingError unless a directory's quorum can be started with this number of nodes."""
    combined, dedicated = max(quorum.ports), len(quorum.dedicated)
    if dedicated:
        if controllers is not None and controllers != dedicated:
            raise SettingError(
                f"--controllers {controllers}: the cluster in {directory} has {dedicated} since its first start; start it "
                "without --controllers, or name another --dir"
            )
        return
    if controllers is not None:
        raise SettingError(
            f"--controllers {controllers}: in the cluster in {directory} the first brokers are the controllers since its "
            "first start; start it without --controllers, or name another --dir"
        )
    if brokers < combined:
        raise SettingError(
            f"--brokers {brokers}: the first {combined} brokers of the cluster in {directory} are its controllers too; "
            f"start it with --brokers {combined} or more, or name another --dir"
        )


def prepare(directory: Path, node_ids: Iterable[int], taken: Collection[int] = ()) -> Quorum:
    """Return the quorum of a directory, by default a new one of these controllers.

    Its ports are free, and not among `taken`, which other listeners will use. Raises ChildError.
    """
    kept = read(directory)
    if kept is None:
        kept = Quorum(uuid_text(new_uuid(OsEntropy())), dict.fromkeys(node_ids, 0))
    ports: dict[int, int] = {}
    for node_id, port in kept.ports.items():
        is_usable = port and port not in taken and is_free(port)
        ports[node_id] = port if is_usable else free_port(but=[*ports.values(), *taken])
    quorum = kept._replace(ports=ports)
    if ports != kept.ports:
        text = format_properties({"cluster.id": quorum.cluster_id, "controller.quorum.voters": quorum.voters})
        write(directory / FILE, text)
    return quorum


def settings_of_node(quorum: Quorum, node: Node, shared: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a node: those of all, and its own."""
    is_controller = node.node_id in quorum.ports
    roles = ["broker"] * bool(node.listeners) + ["controller"] * is_controller
    listeners = [*node.listeners]
    if is_controller:
        listeners.append(f"{LISTENER}://{HOST}:{quorum.ports[node.node_id]}")
    settings = {
        **(OF_CONTROLLERS if is_controller else {}),
        **shared,
        "process.roles": ",".join(roles),
        "node.id": str(node.node_id),
        "controller.quorum.voters": quorum.voters,
        "controller.listener.names": LISTENER,
        "listeners": ",".join(listeners),
        "log.dirs": ",".join(node.log_dirs),
    }
    protocols = shared.get(_PROTOCOLS)
    if protocols and f"{LISTENER}:" not in protocols.upper():
        settings[_PROTOCOLS] = f"{protocols},{LISTENER}:PLAINTEXT"
    return settings


def format_and_write(settings: Mapping[str, str], cluster_id: str, file: Path) -> None:
    """Write the file of a node's settings, and format its log dirs before its first start. Raises ChildError."""
    write(file, format_properties(settings))
    log_dirs = settings["log.dirs"]
    if Path(log_dirs.partition(",")[0], META_PROPERTIES).exists():
        return
    from barnabas.tools.logtool.errors import RefusedError  # not needed by a later start
    from barnabas.tools.logtool.storage_command import format_node

    try:
        format_node(BrokerConfig(dict(settings), dict.fromkeys(settings, str(file))), cluster_id)
    except (RefusedError, SettingError, StorageError) as error:
        raise ChildError(f"{log_dirs} cannot be formatted: {error}") from error


def command_of(file: Path, log_level: str) -> tuple[str, ...]:
    """Return the command that starts the node that has its settings in a file."""
    return (sys.executable, "-m", "barnabas", "serve", "--config", str(file), "--log-level", log_level)


def write(file: Path, text: str) -> None:
    """Write a file that only its owner can read, completely or not at all. Raises ChildError."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.touch(mode=0o600)
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise ChildError(f"{file} cannot be written: {error.strerror}") from error
