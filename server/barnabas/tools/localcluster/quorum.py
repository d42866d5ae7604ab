"""Nodes of a KRaft quorum on this machine: their numbers, ports and settings, and their first formatting.

The rule: controllers are chosen at the first start of a directory, and kept with the cluster's id in one file, as static
voters must be the same on all nodes; a port is kept as long as no other process has taken it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.config.loading import BrokerConfig
from barnabas.config.properties import format_properties, parse_lines
from barnabas.config.setting import SettingError
from barnabas.environment.real import OsEntropy
from barnabas.errors import StorageError
from barnabas.log.format.names import META_PROPERTIES
from barnabas.tools.localcluster.children import ChildError
from barnabas.tools.localcluster.ports import free_port, is_free
from barnabas.wire.ids import new_uuid, uuid_text

FILE = "cluster.properties"
COMBINED_MAX = 3
"""Brokers that are controllers too: one of three may fail, and more would only copy more."""
FIRST_CONTROLLER = 101
"""The number of the first controller that is no broker: above those of all brokers."""
HOST = "127.0.0.1"
LISTENER = "CONTROLLER"
_PROTOCOLS = "listener.security.protocol.map"


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
    """Return the quorum of a directory, None if there is none yet. Raises ChildError."""
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
    """Raise SettingError unless a directory's quorum can be started with so many nodes."""
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


def prepare(directory: Path, brokers: int, controllers: int | None) -> Quorum:
    """Return the quorum of a directory, with ports that are free; a new one if there is none. Raises ChildError."""
    kept = read(directory)
    if kept is None:
        cluster_id = uuid_text(new_uuid(OsEntropy()))
        kept = Quorum(cluster_id, dict.fromkeys(controller_ids(brokers, controllers), 0))
    ports: dict[int, int] = {}
    for node_id, port in kept.ports.items():
        ports[node_id] = port if port and is_free(port) else free_port(but=ports.values())
    quorum = kept._replace(ports=ports)
    if ports != kept.ports:
        text = format_properties({"cluster.id": quorum.cluster_id, "controller.quorum.voters": quorum.voters})
        _write(directory / FILE, text)
    return quorum


def settings_of_node(
    quorum: Quorum, node_id: int, data: Path, shared: Mapping[str, str], *, port: int, rack: str | None
) -> dict[str, str]:
    """Return the settings of a node: those of all, and its own; `port` is that of its clients."""
    roles, listeners = [], []
    if node_id < FIRST_CONTROLLER:
        roles.append("broker")
        listeners.append(f"PLAINTEXT://localhost:{port}")
    if node_id in quorum.ports:
        roles.append("controller")
        listeners.append(f"{LISTENER}://{HOST}:{quorum.ports[node_id]}")
    node = {
        **shared,
        "process.roles": ",".join(roles),
        "node.id": str(node_id),
        "controller.quorum.voters": quorum.voters,
        "controller.listener.names": LISTENER,
        "listeners": ",".join(listeners),
        "log.dirs": str(data),
    }
    protocols = shared.get(_PROTOCOLS)
    if protocols and f"{LISTENER}:" not in protocols.upper():
        node[_PROTOCOLS] = f"{protocols},{LISTENER}:PLAINTEXT"
    if rack is not None:
        node["broker.rack"] = rack
    return node


def format_and_write(settings: Mapping[str, str], cluster_id: str, file: Path) -> None:
    """Write the file of a node's settings, and format its log dirs before its first start. Raises ChildError."""
    _write(file, format_properties(settings))
    if Path(settings["log.dirs"], META_PROPERTIES).exists():
        return
    from barnabas.tools.logtool.errors import RefusedError  # not on the way of a later start
    from barnabas.tools.logtool.storage_command import format_node

    try:
        format_node(BrokerConfig(dict(settings), dict.fromkeys(settings, str(file))), cluster_id)
    except (RefusedError, SettingError, StorageError) as error:
        raise ChildError(f"{settings['log.dirs']} cannot be formatted: {error}") from error


def _write(file: Path, text: str) -> None:
    """Write a file that no other user reads, whole or not at all. Raises ChildError."""
    new = file.with_name(f"{file.name}.new")
    try:
        new.touch(mode=0o600)
        new.write_text(text, encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise ChildError(f"{file} cannot be written: {error.strerror}") from error
