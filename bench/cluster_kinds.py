"""Kinds of measured clusters: three brokers of ours or of Apache Kafka, with ZooKeeper or controllers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.peers.barnabas import Barnabas
from bench.peers.base import Peer, Running, free_port, spawn
from bench.peers.kafka import JVM_OPTIONS
from compat.kafka.broker import CLUSTER_ID
from compat.kafka.releases import fetch, release

BROKERS = (1, 2, 3)
JOINING = 4
"""A broker that joins later, in a quorum."""
SESSION_S = 6.0
"""Timeout after which a killed broker is fenced: of ZooKeeper's session, or of KRaft's heartbeats."""
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
}
ON_ZOOKEEPER = {"zookeeper.session.timeout.ms": str(int(SESSION_S * 1000))}
WITH_KRAFT = {"broker.session.timeout.ms": str(int(SESSION_S * 1000)), "broker.heartbeat.interval.ms": "2000"}


class Kafka(Peer):
    """One of three Apache Kafka brokers, on ZooKeeper or with KRaft, with the heap and flags of Kafka's own scripts."""

    def __init__(self, label: str, version: str, settings: dict[str, str], port: int) -> None:
        super().__init__(label)
        self._release = release(version)
        self._settings, self._port = settings, port

    def describe(self) -> str:
        return f"Apache Kafka {self._release.version}, {JVM_OPTIONS[0]} each"

    def _conf(self, data: Path) -> str:
        path = data.with_name(f"{data.name}.properties")
        path.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        return str(path)

    def format(self, data: Path) -> None:
        super().format(data)
        if "process.roles" in self._settings:
            classpath = f"{fetch(self._release)}/*"
            tool = ("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", self._conf(data))
            subprocess.run(["java", "-Xmx256m", "-cp", classpath, *tool], check=True, capture_output=True)

    def start(self, data: Path) -> Running:
        command = ["java", *JVM_OPTIONS, "-cp", f"{fetch(self._release)}/*", "kafka.Kafka", self._conf(data)]
        return spawn(self, command, data, self._port, dict(os.environ))


class Ours(Barnabas):
    """One of three of ours, always at the same port."""

    def __init__(self, settings: dict[str, str], port: int) -> None:
        super().__init__("barnabas", settings, None)
        self._port = port

    def describe(self) -> str:
        return super().describe().partition(" default.replication.factor")[0]

    def start(self, data: Path) -> Running:
        command = [sys.executable, *self.command(data, self._port)]
        return spawn(self, command, data, self._port, self.environment())


def _ours(directory: Path, connect: str) -> dict[int, Peer]:
    return {
        broker_id: Ours(
            {**SETTINGS, **ON_ZOOKEEPER, "broker.id": str(broker_id), "zookeeper.connect": connect},
            free_port(),
        )
        for broker_id in BROKERS
    }


def _on_zookeeper(directory: Path, connect: str) -> dict[int, Peer]:
    peers: dict[int, Peer] = {}
    for broker_id in BROKERS:
        port = free_port()
        own = {
            "broker.id": str(broker_id),
            "zookeeper.connect": connect,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / f"data-{broker_id}"),
        }
        peers[broker_id] = Kafka("kafka-3.9", "3.9", {**SETTINGS, **ON_ZOOKEEPER, **own}, port)
    return peers


def _combined() -> dict[int, tuple[int, dict[str, str]]]:
    """Return port and settings of each of three nodes that are brokers and controllers."""
    controllers = {broker_id: free_port() for broker_id in BROKERS}
    voters = ",".join(f"{broker_id}@127.0.0.1:{port}" for broker_id, port in controllers.items())
    nodes = {}
    for broker_id, controller_port in controllers.items():
        port = free_port()
        own = {
            "process.roles": "broker,controller",
            "node.id": str(broker_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        nodes[broker_id] = port, {**SETTINGS, **WITH_KRAFT, **own}
    return nodes


def _with_kraft(directory: Path, connect: str) -> dict[int, Peer]:
    return {
        broker_id: Kafka("kafka-4", "4.x", {**own, "log.dirs": str(directory / f"data-{broker_id}")}, port)
        for broker_id, (port, own) in _combined().items()
    }


IN_QUORUM = {
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}
FIRST_IN_QUORUM = 100
"""Added to a broker's number for its node id: node 1 is the controller."""


class OursInQuorum(Ours):
    """One of our three brokers in a quorum; a broker that is also a controller has `listeners` in its settings."""

    def format(self, data: Path) -> None:
        super().format(data)
        command = [sys.executable, "-m", "barnabas", "storage", "format", "--cluster-id", CLUSTER_ID]
        command += ["--data", str(data)]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        subprocess.run(command, env=self.environment(), check=True, capture_output=True)


def _ours_combined(directory: Path, connect: str) -> dict[int, Peer]:
    return {broker_id: OursInQuorum(own, port) for broker_id, (port, own) in _combined().items()}


def _ours_in_quorum(directory: Path, connect: str) -> dict[int, Peer]:
    return {
        broker_id: OursInQuorum(
            {
                **SETTINGS,
                **IN_QUORUM,
                "node.id": str(FIRST_IN_QUORUM + broker_id),
                "controller.quorum.bootstrap.servers": connect,
            },
            free_port(),
        )
        for broker_id in (*BROKERS, JOINING)
    }


def _kafka_in_quorum(directory: Path, connect: str) -> dict[int, Peer]:
    peers: dict[int, Peer] = {}
    for broker_id in (*BROKERS, JOINING):
        port = free_port()
        own = {
            "node.id": str(FIRST_IN_QUORUM + broker_id),
            "controller.quorum.bootstrap.servers": connect,
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(directory / f"data-{broker_id}"),
        }
        peers[broker_id] = Kafka("kafka-quorum", "4.x", {**SETTINGS, **IN_QUORUM, **own}, port)
    return peers


KINDS: dict[str, Callable[[Path, str], dict[int, Peer]]] = {
    "barnabas": _ours,
    "kafka-3.9": _on_zookeeper,
    "kafka-4": _with_kraft,
    "barnabas-combined": _ours_combined,
    "barnabas-quorum": _ours_in_quorum,
    "kafka-quorum": _kafka_in_quorum,
}
ALONE = ("barnabas", "kafka-3.9", "kafka-4")
"""The kinds that are measured by default."""
