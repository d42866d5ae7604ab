"""A cluster's brokers, of either kind, and its ZooKeeper.

The rule: every broker has its own directory and address, which stay the same when it is restarted, or replaced by a
broker of the other kind.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from compat.kafka import KafkaError, RealKafka, ZooKeeperServer, free_port, release
from compat.kit.certificates import CertificateError
from compat.kit.wire import WireError
from compat.matrix.brokers import Barnabas, BrokerError

KAFKA = "kafka"
OLD = "kafka-2.6"
"""Release without topic ids, in which leaders write the ISR into ZooKeeper."""
OURS = "ours"
KINDS = (KAFKA, OLD, OURS)
VERSION = "3.9"
SESSION_MS = 6000
# A broker that is killed is noticed soon, and a follower that hangs too; otherwise Kafka's defaults.
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "inter.broker.protocol.version": "3.9",
}
WAIT_S = 60.0
ZOOKEEPER_SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"
POLL_S = 0.1


class ClusterError(Exception):
    """A check has failed; the message has the reason."""


class Node(Protocol):
    """A broker as the checks need it."""

    bootstrap: str

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def log_dir(self) -> Path: ...

    @property
    def log_dirs(self) -> list[Path]: ...

    def complaints(self) -> list[str]: ...


class KafkaNode:
    """Apache Kafka in ZooKeeper mode."""

    version = VERSION

    def __init__(
        self, broker_id: int, port: int, directory: Path, settings: Mapping[str, str], zookeeper: str
    ) -> None:
        own = {**settings, "broker.id": str(broker_id), "broker.id.generation.enable": "false"}
        self._kafka = RealKafka(
            self.version, port, data=directory, settings=own, mode="zookeeper", zookeeper=zookeeper
        )
        self.bootstrap = self._kafka.bootstrap

    def start(self) -> None:
        self._kafka.start()

    def stop(self) -> None:
        self._kafka.stop()

    def kill(self) -> None:
        self._kafka.kill()

    @property
    def pid(self) -> int | None:
        return self._kafka.pid

    @property
    def log_dir(self) -> Path:
        return self._kafka.log_dir

    @property
    def log_dirs(self) -> list[Path]:
        return [self.log_dir]

    def complaints(self) -> list[str]:
        lines = self._kafka.output.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or " FATAL " in line]


class OldKafkaNode(KafkaNode):
    """Apache Kafka 2.6."""

    version = "2.6"


class OurNode:
    """`barnabas serve` from this checkout."""

    def __init__(
        self, broker_id: int, port: int, directory: Path, settings: Mapping[str, str], zookeeper: str
    ) -> None:
        own = {**settings, "broker.id": str(broker_id), "zookeeper.connect": zookeeper}
        directory.mkdir(parents=True, exist_ok=True)
        self._broker = Barnabas(directory, own)
        self._broker.bootstrap = self.bootstrap = f"127.0.0.1:{port}"
        self._data = directory / "data"

    def start(self) -> None:
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
        return self._data

    @property
    def log_dirs(self) -> list[Path]:
        return [self.log_dir]

    def complaints(self) -> list[str]:
        return self._broker.complaints()


MAKERS: Mapping[str, Callable[..., Node]] = {KAFKA: KafkaNode, OLD: OldKafkaNode, OURS: OurNode}


class Brokers:
    """Brokers of a cluster, each with its directory and address; a subclass keeps the cluster. A context manager."""

    version = VERSION
    """Release of the tools that are run."""
    zookeeper_connect = ""
    keeper_tool: Sequence[str] = ()
    """A tool of Kafka's, with arguments, that queries ZooKeeper or the controllers."""
    directory: Path
    settings: dict[str, str]
    kinds: dict[int, str]
    ports: dict[int, int]
    nodes: dict[int, Node]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def __enter__(self) -> Self:
        try:
            self.begin_keeper()
            for broker_id in self.kinds:
                self.start(broker_id)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop everything; data stay where they are."""
        for node in self.nodes.values():
            with contextlib.suppress(BrokerError):  # it has ended already
                node.kill()
        self.end_keeper()

    def of_kind(self, kind: str) -> list[int]:
        """The ids of the brokers of a kind."""
        return [broker_id for broker_id, its in self.kinds.items() if its == kind]

    # --- for subclasses -------------------------------------------------------------------------------------

    def begin_keeper(self) -> None:
        """Start ZooKeeper or the controllers, before any broker."""
        raise NotImplementedError

    def end_keeper(self) -> None:
        """Stop ZooKeeper or the controllers, after the brokers; they may not have started."""
        raise NotImplementedError

    def start(self, broker_id: int) -> Node:
        """Start a broker, with the data that it had."""
        raise NotImplementedError

    def new_node(self, broker_id: int, kind: str) -> Node:
        """Make a broker of a kind; it does not run yet."""
        raise NotImplementedError

    def live(self) -> set[int]:
        """The ids of brokers that are alive."""
        raise NotImplementedError

    def controller(self) -> int:
        """The controller's id, -1 for none."""
        raise NotImplementedError

    def make_controller(self, broker_id: int) -> None:
        """Have a broker become the controller."""
        raise NotImplementedError

    def topics(self) -> list[str]:
        """All topics."""
        raise NotImplementedError

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition of a topic."""
        raise NotImplementedError

    def adding(self, topic: str) -> dict[int, list[int]]:
        """Replicas that a reassignment adds, by partition."""
        raise NotImplementedError

    def topic_id(self, topic: str) -> str:
        """The id of a topic, empty for none."""
        raise NotImplementedError

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """The state of each partition: leader, isr, leader_epoch."""
        raise NotImplementedError

    # --- the same for all -----------------------------------------------------------------------------------

    def replace(self, broker_id: int, kind: str) -> None:
        """Stop a broker cleanly, and start one of the other kind on its log dir, which moves with its partitions."""
        old = self.nodes.pop(broker_id)
        old.stop()
        wait_until(lambda: broker_id not in self.live(), f"broker {broker_id} goes")
        self.kinds[broker_id] = kind
        new = self.new_node(broker_id, kind)
        new.log_dir.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(old.log_dir, new.log_dir)
        self.nodes[broker_id] = new
        self.start(broker_id)

    def replicas(self, topic: str) -> int:
        """Smallest number of replicas among the partitions of a topic."""
        return min(map(len, self.assignment(topic).values()))

    def wait_in_sync(self, topic: str, count: int) -> None:
        """Wait until each partition of a topic has a leader and `count` replicas in sync."""

        def is_so() -> bool:
            states = self.states(topic)
            return bool(states) and all(
                state.get("leader", -1) >= 0 and len(state.get("isr", ())) == count
                for state in states.values()
            )

        wait_until(
            is_so, f"every partition of {topic} has {count} replicas in sync", lambda: str(self.states(topic))
        )

    def complaints(self) -> dict[int, list[str]]:
        """Return the errors that our brokers have logged."""
        return {
            broker_id: lines
            for broker_id in self.of_kind(OURS)
            if (lines := self.nodes[broker_id].complaints())
        }


class Cluster(Brokers):
    """Several brokers on one ZooKeeper, ids 1, 2, ... as in `kinds`; a context manager. Raises ClusterError, KafkaError."""

    def __init__(
        self,
        directory: Path,
        kinds: Sequence[str],
        settings: Mapping[str, str] | None = None,
        *,
        own: Mapping[int, Mapping[str, str]] | None = None,
        zookeeper_tls: Mapping[str, str] | None = None,
        kazoo: Mapping[str, Any] | None = None,
        prepare: Callable[[Cluster], None] | None = None,
    ) -> None:
        """`own` are settings of single brokers; `kazoo` are options of this program's connection besides the address.

        `prepare` is called once ZooKeeper runs, before any broker.
        """
        self._prepare = prepare
        self.own = own or {}
        self.directory = directory
        protocol = {"inter.broker.protocol.version": "2.6"} if OLD in kinds else {}
        self.settings = {**SETTINGS, **protocol, **(settings or {})}
        self.zookeeper = ZooKeeperServer(release(VERSION), directory / "zookeeper", zookeeper_tls)
        self._kazoo = dict(kazoo or {})
        self.connect = self.zookeeper_connect = f"{self.zookeeper.address}/kafka"
        self.keeper_tool = (ZOOKEEPER_SHELL, "get", "/controller")
        self.ports = {broker_id: free_port() for broker_id in range(1, len(kinds) + 1)}
        self.kinds = dict(enumerate(kinds, 1))
        self.nodes: dict[int, Node] = {}
        self._client: KazooClient | None = None

    def begin_keeper(self) -> None:
        """Start ZooKeeper, and call `prepare`."""
        self.zookeeper.start()
        self._client = KazooClient(self.connect, **self._kazoo)
        self._client.start(30)
        if self._prepare is not None:
            self._prepare(self)

    def end_keeper(self) -> None:
        """Stop ZooKeeper and the connection to it."""
        if self._client is not None:
            self._client.stop()
            self._client.close()
        self.zookeeper.stop()

    def start(self, broker_id: int) -> Node:
        """Start a broker, with the data that it had."""
        kind = self.kinds[broker_id]
        node = self.nodes.get(broker_id) or self.new_node(broker_id, kind)
        self.nodes[broker_id] = node
        if kind != OURS:  # Kafka exits if its own old session still has the id
            wait_until(lambda: broker_id not in self.live(), f"the old session of broker {broker_id} ends")
        try:
            node.start()
        except BrokerError as error:
            raise ClusterError(f"broker {broker_id} ({kind}): {error}") from error
        wait_until(lambda: broker_id in self.live(), f"broker {broker_id} registers")
        return node

    def new_node(self, broker_id: int, kind: str) -> Node:
        """Make a broker of a kind; it does not run yet."""
        return MAKERS[kind](
            broker_id,
            self.ports[broker_id],
            self.directory / f"{kind}-{broker_id}",
            {**self.settings, "broker.rack": f"rack-{broker_id}", **self.own.get(broker_id, {})},
            self.connect,
        )

    # --- state in ZooKeeper ----------------------------------------------------------------------------------

    def read(self, path: str) -> Any:
        """The JSON of a znode, None if there is none."""
        assert self._client is not None
        try:
            data, _ = self._client.get(path)
        except NoNodeError:
            return None
        return json.loads(data) if data else None

    def live(self) -> set[int]:
        """The ids of registered brokers."""
        assert self._client is not None
        try:
            return {int(name) for name in self._client.get_children("/brokers/ids")}
        except NoNodeError:
            return set()

    def controller(self) -> int:
        """The controller's id, -1 for none."""
        znode = self.read("/controller")
        return int(znode["brokerid"]) if znode else -1

    def make_controller(self, broker_id: int) -> None:
        """Have a broker become the controller: the znode goes until it is the quickest."""
        assert self._client is not None
        for _ in range(60):
            if self.controller() == broker_id:
                return
            with contextlib.suppress(NoNodeError):
                self._client.delete("/controller")
            wait_until(lambda: self.controller() != -1, "a controller is elected")
        raise ClusterError(f"broker {broker_id} does not become the controller")

    def states(self, topic: str) -> dict[int, dict[str, Any]]:
        """The state of each partition: leader, isr, leader_epoch, ..."""
        assert self._client is not None
        base = f"/brokers/topics/{topic}/partitions"
        try:
            names = self._client.get_children(base)
        except NoNodeError:
            return {}
        return {int(name): self.read(f"{base}/{name}/state") or {} for name in names}

    def topics(self) -> list[str]:
        """All topics."""
        assert self._client is not None
        return sorted(self._client.get_children("/brokers/topics"))

    def assignment(self, topic: str) -> dict[int, list[int]]:
        """The replicas of each partition of a topic."""
        partitions: dict[str, list[int]] = self.read(f"/brokers/topics/{topic}")["partitions"]
        return {int(index): replicas for index, replicas in partitions.items()}

    def adding(self, topic: str) -> dict[int, list[int]]:
        """Replicas that a reassignment adds, by partition."""
        adding: dict[str, list[int]] = self.read(f"/brokers/topics/{topic}").get("adding_replicas", {})
        return {int(index): replicas for index, replicas in adding.items()}

    def topic_id(self, topic: str) -> str:
        """The id of a topic, empty for none."""
        text: str = self.read(f"/brokers/topics/{topic}").get("topic_id", "")
        return text


def wait_until(
    is_so: Callable[[], bool], what: str, state: Callable[[], str] | None = None, seconds: float = WAIT_S
) -> float:
    """Wait for a condition; returns after how many seconds it held. Raises ClusterError."""
    begun = time.monotonic()
    while not is_so():
        if time.monotonic() - begun > seconds:
            raise ClusterError(
                f"after {seconds:.0f} s it is not so that {what}" + (f": {state()}" if state else "")
            )
        time.sleep(POLL_S)
    return time.monotonic() - begun


__all__ = [
    "KAFKA",
    "KINDS",
    "OLD",
    "OURS",
    "Brokers",
    "Cluster",
    "ClusterError",
    "KafkaError",
    "Node",
    "wait_until",
]


def chosen_names(parser: ArgumentParser, text: str, known_names: Collection[str]) -> list[str]:
    """Return the names in an option, with commas between them; ends with an error of the parser for an unknown one."""
    names = [name for name in text.split(",") if name]
    unknown = set(names) - set(known_names)
    if unknown:
        parser.error(f"no such name: {', '.join(sorted(unknown))}; there are {', '.join(known_names)}")
    return names


def in_directory(prefix: str, parent: Path | None, run: Callable[[Path], None]) -> int:
    """Run a comparison in a new directory and print the outcome; returns the exit code.

    The directory is kept if the comparison fails, or if a `parent` is given.
    """
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        run(directory)
    except (CertificateError, ClusterError, KafkaError, WireError) as error:
        print(f"FAIL {error} (everything is in {directory})")
        return 1
    if not parent:
        shutil.rmtree(directory, ignore_errors=True)
    print("PASS")
    return 0
