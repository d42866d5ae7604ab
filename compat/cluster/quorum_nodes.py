"""Brokers of either kind, and a cluster of them, under controllers of Kafka 4."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.commands.connection import Connecting
from barnabas.commands.metadata_live import state_of
from barnabas.log.format.properties import encode_uuid
from compat.cluster.nodes import KAFKA, OURS, Brokers, ClusterError, Node, wait_until
from compat.kafka import free_port
from compat.matrix.brokers import Barnabas, BrokerError
from compat.metadata.quorum import HOST, Quorum, format_ours
from compat.metadata.quorum import Node as KafkaProcess

VERSION = "4.4.0"
SETTINGS_OF = "4.4."
"""Releases with the settings that our brokers have."""
FIRST_BROKER = 4
"""Controllers have ids 1 to 3."""
SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "5000",
}
CONTROLLER_SETTINGS = {
    "broker.session.timeout.ms": "6000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
}


class Place(NamedTuple):
    """Address of a broker, and words that start its command there."""

    host: str
    port: int
    before: Sequence[str] = ()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def _log_dirs(settings: Mapping[str, str], default: Path) -> list[Path]:
    """Return the log dirs of a broker."""
    return [Path(name) for name in settings.get("log.dirs", str(default)).split(",")]


class KafkaNode:
    """Apache Kafka with the broker role."""

    def __init__(
        self, broker_id: int, place: Place, directory: Path, settings: Mapping[str, str], version: str
    ) -> None:
        self._node = KafkaProcess(
            version, directory, broker_id, "broker", host=place.host, port=place.port, before=place.before
        )
        self._node.configure(settings)
        self.log_dirs = _log_dirs(settings, self._node.log_dir)
        self.bootstrap = place.address

    def start(self) -> None:
        if not (self.log_dir / "meta.properties").exists():
            self._node.format()
        self._node.start()

    def stop(self) -> None:
        self._node.process.stop()

    def kill(self) -> None:
        self._node.process.kill()

    @property
    def pid(self) -> int | None:
        return self._node.process.pid()

    @property
    def log_dir(self) -> Path:
        return self.log_dirs[0]

    def complaints(self) -> list[str]:
        lines = self._node.process.output.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or " FATAL " in line]


class OurNode:
    """`barnabas serve` from this checkout, formatted by `barnabas storage format`."""

    def __init__(
        self, broker_id: int, place: Place, directory: Path, settings: Mapping[str, str], version: str
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        own = {
            **settings,
            "process.roles": "broker",
            "node.id": str(broker_id),
            "controller.listener.names": "CONTROLLER",
        }
        self._broker = Barnabas(directory, own, before=place.before)
        self._broker.bootstrap = self.bootstrap = place.address
        self.log_dirs = _log_dirs(settings, directory / "data")

    def start(self) -> None:
        if not (self.log_dir / "meta.properties").exists():
            pairs = (f"{name}={value}" for name, value in self._broker.settings.items())
            data = () if "log.dirs" in self._broker.settings else ("--data", str(self.log_dir))
            format_ours(*data, *(word for pair in pairs for word in ("--set", pair)))
        self._broker.start()

    def stop(self) -> None:
        if self.pid is not None:
            self._broker.stop()

    def kill(self) -> None:
        if self.pid is not None:
            self._broker.stop("kill")

    @property
    def pid(self) -> int | None:
        return self._broker.pid

    @property
    def log_dir(self) -> Path:
        return self.log_dirs[0]

    def complaints(self) -> list[str]:
        return self._broker.complaints()


MAKERS: Mapping[str, Callable[..., Node]] = {KAFKA: KafkaNode, OURS: OurNode}


class QuorumCluster(Brokers):
    """Controllers of Kafka's or ours, and brokers as in `kinds`; a context manager. Raises ClusterError, KafkaError."""

    keeper_tool = ("metadata-quorum", "describe", "--status")

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        *,
        version: str = VERSION,
        controllers: int = 1,
        is_dynamic: bool = True,
        settings: Mapping[str, str] | None = None,
        controller_settings: Mapping[str, str] | None = None,
        has_admin: bool = False,
        format_arguments: Sequence[str] = (),
        prepare: Callable[[QuorumCluster], None] | None = None,
        controllers_host: str = HOST,
        our_controllers: Collection[int] = (),
        place: Callable[[int, int], Place] = lambda _broker_id, port: Place(HOST, port),
    ) -> None:
        """`prepare` is called before the first broker starts; `place` returns the place of a broker with an id and port.

        With `has_admin` each controller has a listener without security, for the checks. `our_controllers` are the ids of
        our controllers.
        """
        self.version = version
        self.directory = directory
        self.settings = {**SETTINGS, **(settings or {})}
        self.own: Mapping[int, Mapping[str, str]] = {}
        """Settings of single brokers."""
        self._prepare = prepare
        self.quorum = Quorum(
            version, directory, controllers, is_dynamic=is_dynamic,
            settings={**CONTROLLER_SETTINGS, **(controller_settings or {})}, host=controllers_host,
            has_admin=has_admin, ours=our_controllers,
            format_arguments=format_arguments,
        )  # fmt: skip
        self.kinds = dict(enumerate(kinds, FIRST_BROKER))
        self.ports = {broker_id: free_port() for broker_id in self.kinds}
        self._places = {broker_id: place(broker_id, port) for broker_id, port in self.ports.items()}
        self.nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(place.address for place in self._places.values())

    def begin_keeper(self) -> None:
        """Start the controllers, and call `prepare`."""
        self.quorum.start()
        if self._prepare is not None:
            self._prepare(self)

    def end_keeper(self) -> None:
        """Stop the controllers."""
        self.quorum.stop()

    def start(self, broker_id: int) -> Node:
        """Start a broker, with the data that it had."""
        kind = self.kinds[broker_id]
        node = self.nodes[broker_id] = self.nodes.get(broker_id) or self.new_node(broker_id, kind)
        try:
            node.start()
        except BrokerError as error:
            raise ClusterError(f"broker {broker_id} ({kind}): {error}") from error
        wait_until(lambda: broker_id in self.live(), f"broker {broker_id} is unfenced")
        return node

    def new_node(self, broker_id: int, kind: str) -> Node:
        """Make a broker of a kind; it does not run yet."""
        return MAKERS[kind](
            broker_id,
            self._places[broker_id],
            self.directory / f"{kind}-{broker_id}",
            {
                **self.settings,
                "broker.rack": f"rack-{broker_id}",
                **self.quorum.settings,
                **self.own.get(broker_id, {}),
            },
            self.version,
        )

    # --- state of the quorum --------------------------------------------------------------------------------

    def image(self) -> QuorumImage:
        """All that the quorum has committed."""
        addresses = parse_bootstrap(self.quorum.admin_addresses)
        image, _ = state_of(Connecting(addresses, ClientSettings(client_id="checks"), {}))
        return image

    def live(self) -> set[int]:
        """The ids of brokers that are not fenced."""
        return {broker.id for broker in self.image().brokers.values() if not broker.fenced}

    def controller(self) -> int:
        """The id of the controller that leads the quorum."""
        return self.quorum.leader().id

    def make_controller(self, broker_id: int) -> None:
        """Do nothing: no broker is a controller."""

    def topics(self) -> list[str]:
        """All topics."""
        return sorted(self.image().topic_ids)

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition of a topic."""
        return {index: list(partition.replicas) for index, partition in self._partitions(topic)}

    def adding(self, topic: str) -> dict[int, list[int]]:
        """Replicas that a reassignment adds, by partition."""
        return {index: list(partition.adding) for index, partition in self._partitions(topic)}

    def topic_id(self, topic: str) -> str:
        """The id of a topic, empty for none."""
        info = self.image().topic(topic)
        return encode_uuid(info.id) if info is not None else ""

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """The state of each partition: leader, isr, leader_epoch."""
        return {
            index: {
                "leader": partition.leader,
                "isr": list(partition.isr),
                "leader_epoch": partition.leader_epoch,
            }
            for index, partition in self._partitions(topic)
        }

    def _partitions(self, topic: str) -> list[tuple[int, Any]]:
        image = self.image()
        info = image.topic(topic)
        return list(image.partitions_of(info)) if info is not None else []
