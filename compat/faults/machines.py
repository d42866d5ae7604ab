"""The cluster: ZooKeepers and brokers as processes on separate hosts, and their state in ZooKeeper.

The rule: a machine keeps its address and its disks, whatever happens to its process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from compat.cluster.nodes import ClusterError, wait_until
from compat.faults.hosts import Disk, Network, address, die_with_parent
from compat.faults.pauses import Registrations
from compat.kafka import release
from compat.kafka.process import java_command
from compat.matrix.brokers import Barnabas

BROKERS = (1, 2, 3)
ZOOKEEPERS = (21, 22, 23)
PORT = 9092
ZOOKEEPER_PORT = 2181
SESSION_S = 3.0
LOG_DIRS = 2
DISK_MB = 96
START_S = 60.0
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(SESSION_S * 1000)),
    "zookeeper.connection.timeout.ms": "60000",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.wait.max.ms": "200",
    "replica.socket.timeout.ms": "3000",
    "controller.socket.timeout.ms": "3000",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    "auto.leader.rebalance.enable": "false",
    "log.segment.bytes": "1048576",
    "log.index.size.max.bytes": "4096",
}


class ZooKeeper:
    """One of the servers of the ensemble; ZooKeeper of Kafka 3.9, Maven's."""

    def __init__(self, network: Network, host: int, directory: Path) -> None:
        self._network = network
        self._host = host
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        (directory / "data").mkdir(parents=True)
        (directory / "data" / "myid").write_text(f"{host}\n")
        lines = [
            f"dataDir={directory / 'data'}",
            f"clientPort={ZOOKEEPER_PORT}",
            f"clientPortAddress={address(host)}",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "tickTime=500",
            "initLimit=20",
            "syncLimit=6",
            "4lw.commands.whitelist=srvr",
            *(f"server.{number}={address(number)}:2888:3888" for number in ZOOKEEPERS),
        ]
        (directory / "zoo.cfg").write_text("\n".join(lines) + "\n")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; it serves once there is a quorum."""
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        command = java_command(release("3.9"), main, str(self._directory / "zoo.cfg"), options=options)
        with (self._directory / "zookeeper.out").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._network.prefix(self._host), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=die_with_parent,
            )

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class BrokerMachine:
    """A broker of ours with two log dirs, each on a disk of its own."""

    def __init__(self, network: Network, broker_id: int, directory: Path, connect: str) -> None:
        self.broker_id = broker_id
        self.host = broker_id
        directory.mkdir(parents=True)
        self.disks = [Disk(directory / f"disk{n}", DISK_MB) for n in range(LOG_DIRS)]
        self.log_dirs = [disk.path / "logs" for disk in self.disks]
        settings = {
            **SETTINGS,
            "broker.id": str(broker_id),
            "broker.rack": f"rack-{broker_id}",
            "zookeeper.connect": connect,
            "log.dirs": ",".join(map(str, self.log_dirs)),
        }
        self._barnabas = Barnabas(
            directory, settings, before=network.prefix(self.host), in_child=die_with_parent
        )
        self._barnabas.bootstrap = self.bootstrap = f"{address(self.host)}:{PORT}"

    @property
    def pid(self) -> int | None:
        """The pid of the process while it runs."""
        return self._barnabas.pid

    @property
    def has_ended(self) -> bool:
        """Return whether the process has ended by itself."""
        return self._barnabas.has_ended

    def start(self) -> None:
        """Start it and wait until it serves. Raises BrokerError."""
        self._barnabas.start()

    def stop(self) -> None:
        """Stop it by SIGTERM. Raises BrokerError if it does not end cleanly."""
        self._barnabas.stop()

    def kill(self) -> None:
        """Kill it by SIGKILL, if it still runs."""
        self._barnabas.end()

    def suspend(self) -> None:
        """SIGSTOP."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGCONT)

    def partition_dir(self, name: str) -> Path:
        """The directory of a partition's log."""
        for log_dir in self.log_dirs:
            if (log_dir / name).is_dir():
                return log_dir / name
        return self.log_dirs[0] / name

    def complaints(self) -> list[str]:
        """Return the lines of its log about internal errors."""
        return self._barnabas.complaints()


class FaultyCluster:
    """All machines; a context manager. Raises ClusterError, BrokerError, HostError."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.network = Network()
        servers = ",".join(f"{address(host)}:{ZOOKEEPER_PORT}" for host in ZOOKEEPERS)
        for host in (*BROKERS, *ZOOKEEPERS):
            self.network.add(host)
        self.zookeepers = {
            host: ZooKeeper(self.network, host, directory / f"zookeeper-{host}") for host in ZOOKEEPERS
        }
        self.brokers = {
            broker_id: BrokerMachine(
                self.network, broker_id, directory / f"broker-{broker_id}", f"{servers}/kafka"
            )
            for broker_id in BROKERS
        }
        self.bootstrap = ",".join(broker.bootstrap for broker in self.brokers.values())
        self._client = KazooClient(servers, timeout=30, connection_retry={"max_tries": -1, "max_delay": 0.5})
        self.registrations = Registrations(
            self._client, {broker_id: f"/kafka/brokers/ids/{broker_id}" for broker_id in BROKERS}
        )

    def __enter__(self) -> FaultyCluster:
        try:
            for zookeeper in self.zookeepers.values():
                zookeeper.start()
            self._client.start(START_S)
            for broker in self.brokers.values():
                broker.start()
            wait_until(lambda: self.live() == set(BROKERS), "all brokers are registered")
            self.registrations.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the data are kept until the disks are removed."""
        for broker in self.brokers.values():
            for disk in broker.disks:
                disk.thaw()
            broker.kill()
        self.registrations.stop()
        self._client.stop()
        self._client.close()
        for zookeeper in self.zookeepers.values():
            zookeeper.kill()
        for broker in self.brokers.values():
            for disk in broker.disks:
                disk.close()
        self.network.close()

    def read(self, path: str) -> Any:
        """The JSON of a znode below the chroot, None if there is none or no ZooKeeper answers."""
        try:
            data, _ = self._client.get(f"/kafka{path}")
        except KazooException:
            return None
        return json.loads(data) if data else None

    def children(self, path: str) -> list[str]:
        """The names of a znode's children."""
        try:
            return sorted(self._client.get_children(f"/kafka{path}"))
        except KazooException:
            return []

    def live(self) -> set[int]:
        """The ids of registered brokers."""
        return {int(name) for name in self.children("/brokers/ids")}

    def controller(self) -> int:
        """The controller's id, -1 for none."""
        znode = self.read("/controller")
        return int(znode["brokerid"]) if znode else -1

    def states(self) -> dict[str, Mapping[str, Any]]:
        """The state of each partition of all topics, by its name."""
        partition_states = {}
        for topic in self.children("/brokers/topics"):
            for index in self.children(f"/brokers/topics/{topic}/partitions"):
                partition_states[f"{topic}-{index}"] = (
                    self.read(f"/brokers/topics/{topic}/partitions/{index}/state") or {}
                )
        return partition_states

    def led_by(self, broker_id: int, topics: set[str] | None = None) -> list[str]:
        """The partitions that a broker leads."""
        return [
            name
            for name, state in self.states().items()
            if state.get("leader") == broker_id and (topics is None or name.rpartition("-")[0] in topics)
        ]

    def out_of_sync(self) -> dict[str, Mapping[str, Any]]:
        """Return the partitions without a leader or with replicas that are not in sync."""
        return {
            name: state
            for name, state in self.states().items()
            if state.get("leader", -1) < 0 or len(state.get("isr", ())) < len(BROKERS)
        }

    def wait_in_sync(self, seconds: float) -> float:
        """Wait until all brokers are registered and all replicas in sync; returns the seconds. Raises ClusterError."""
        begun = time.monotonic()
        for broker in self.brokers.values():
            if broker.has_ended:
                raise ClusterError(f"broker {broker.broker_id} has ended by itself; see {self.directory}")
        wait_until(
            lambda: self.live() == set(BROKERS),
            "all brokers are registered",
            lambda: f"{self.live()} are",
            seconds=seconds,
        )
        wait_until(
            lambda: bool(self.states()) and not self.out_of_sync(),
            "all replicas are in sync",
            lambda: str(self.out_of_sync()),
            seconds=seconds,
        )
        return time.monotonic() - begun
