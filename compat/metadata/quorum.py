"""Controllers of Kafka or ours, one or three, with static or dynamic voters; brokers beside them.

The rule: a node is a directory with its settings, output and data; a node that was killed starts again with its data.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from barnabas.log.format.properties import encode_uuid
from barnabas.testing.running import import_path
from compat.kafka import release
from compat.kafka.broker import CLUSTER_ID, free_port, wait_until_ready
from compat.kafka.process import JavaProcess, java_command
from compat.kit.wire import Connection, WireError

HOST = "127.0.0.1"
FORMAT_TIMEOUT_S = 240
METADATA = "__cluster_metadata"
BARNABAS = (sys.executable, "-m", "barnabas")


class Node:
    """A node of a KRaft cluster in a directory.

    `port` is that of its listener; with `has_admin` it has a second one without security, at `admin_port`. `before` are
    words that start its command on a host of its own.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        node_id: int,
        role: str,
        *,
        host: str = HOST,
        port: int | None = None,
        before: Sequence[str] = (),
        has_admin: bool = False,
    ) -> None:
        self.host = host
        self._before = before
        self.release = release(version)
        self.directory = directory
        self.id = node_id
        self.role = role
        self.port = port or free_port()
        self.admin_port = free_port() if has_admin else self.port
        self.log_dir = directory / "logs"
        self.properties = directory / "server.properties"
        directory.mkdir(parents=True, exist_ok=True)
        self.process = JavaProcess(f"{role}-{node_id}", directory)

    @property
    def metadata_dir(self) -> Path:
        """The directory of the metadata log."""
        return self.log_dir / f"{METADATA}-0"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the settings."""
        listener = "CONTROLLER" if self.role == "controller" else "PLAINTEXT"
        own = {
            "process.roles": self.role,
            "node.id": str(self.id),
            "listeners": f"{listener}://{self.host}:{self.port}"
            + (f",ADMIN://{self.host}:{self.admin_port}" if self.admin_port != self.port else ""),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.log_dir),
            "offsets.topic.replication.factor": "1",
        }
        lines = (f"{name}={value}\n" for name, value in {**own, **settings}.items())
        self.properties.write_text("".join(lines))

    def format(self, *arguments: str) -> None:
        """Format the directory. Raises RuntimeError."""
        run_format(
            java_command(self.release, "kafka.tools.StorageTool"), "-c", str(self.properties), *arguments
        )

    def start(self) -> None:
        """Start the node, and wait until it listens. Raises KafkaError."""
        self.launch()
        wait_until_ready(self.process.name, self.process, self.listens)

    def launch(self) -> None:
        """Start the node, and do not wait."""
        self.process.start([*self._before, *java_command(self.release, "kafka.Kafka", str(self.properties))])

    def listens(self) -> bool:
        """Return whether the node accepts connections."""
        try:
            Connection(self.host, self.admin_port)
        except OSError:
            return False
        return True


class OurController(Node):
    """A controller of ours: `barnabas serve` from this checkout, formatted by `barnabas storage format`."""

    def format(self, *arguments: str) -> None:
        """Format the directory with the features of the release that is tried. Raises RuntimeError."""
        line = self.release.version.rpartition(".")[0]
        format_ours("-c", str(self.properties), "--release-version", line, *arguments)

    def launch(self) -> None:
        """Start the node, and do not wait."""
        words = [*BARNABAS, "serve", "--config", str(self.properties), "--log-level", "info"]
        self.process.start([*self._before, *words], environment())


def environment() -> dict[str, str]:
    """Return the environment of our own processes."""
    return {**os.environ, "PYTHONPATH": import_path()}


def format_ours(*arguments: str) -> None:
    """Format the directories of one of our own nodes. Raises RuntimeError."""
    run_format((*BARNABAS, "storage"), *arguments)


def run_format(tool: Sequence[str], *arguments: str) -> None:
    """Format directories by a tool for storage, Kafka's or ours. Raises RuntimeError."""
    command = [*tool, "format", "-t", CLUSTER_ID, *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=FORMAT_TIMEOUT_S
    )
    if done.returncode:
        raise RuntimeError(f"format failed:\n{done.stdout}{done.stderr}")


class Quorum:
    """Controllers 1 to `count`. Lifecycle: `start`, `stop`; single ones may be killed and started between.

    `ours` are the ids of those that are ours. With `is_dynamic` the voters are in the log (kraft.version 1), otherwise in
    controller.quorum.voters. `has_admin` gives each a second listener, ADMIN, without security.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        count: int,
        *,
        is_dynamic: bool,
        settings: Mapping[str, str],
        host: str = HOST,
        has_admin: bool = False,
        format_arguments: Sequence[str] = (),
        ours: Collection[int] = (),
    ) -> None:
        self.nodes = [
            (OurController if node_id in ours else Node)(
                version,
                directory / f"controller-{node_id}",
                node_id,
                "controller",
                host=host,
                has_admin=has_admin,
            )
            for node_id in range(1, count + 1)
        ]
        self.addresses = ",".join(f"{node.host}:{node.port}" for node in self.nodes)
        if is_dynamic:
            self.settings = {"controller.quorum.bootstrap.servers": self.addresses}
        else:
            voters = ",".join(f"{node.id}@{node.host}:{node.port}" for node in self.nodes)
            self.settings = {"controller.quorum.voters": voters}
        arguments: list[str] = []
        if is_dynamic:
            voters = ",".join(
                f"{node.id}@{node.host}:{node.port}:{encode_uuid(bytes([node.id]) * 16)}"
                for node in self.nodes
            )
            arguments = ["--initial-controllers", voters]
        for node in self.nodes:
            node.configure({**settings, **self.settings})
            node.format(*arguments, *format_arguments)

    @property
    def admin_addresses(self) -> str:
        """The same without security: where there is no other listener, that of the quorum."""
        return ",".join(f"{node.host}:{node.admin_port}" for node in self.nodes)

    def start(self) -> None:
        """Start all controllers, and wait for a leader."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            wait_until_ready(node.process.name, node.process, node.listens)
        self.leader()

    def leader(self, but: int = -1) -> Node:
        """Return the controller that leads, once there is one other than `but`. Raises RuntimeError after two minutes."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            for node in self.nodes:
                if node.id == but:  # it may hang
                    continue
                leader_id = self._leader_by(node)
                if leader_id >= 1 and leader_id != but:
                    return self.nodes[leader_id - 1]
            time.sleep(0.3)
        raise RuntimeError("no controller leads")

    def _leader_by(self, node: Node) -> int:
        if node.process.pid() is None:
            return -1
        topics = [{"TopicName": METADATA, "Partitions": [{"PartitionIndex": 0}]}]
        try:
            with Connection(node.host, node.admin_port) as connection:
                answer = connection.ask("DescribeQuorum", 1, {"Topics": topics})
        except (OSError, WireError):
            return -1
        (partition,) = answer["Topics"][0]["Partitions"]
        return -1 if partition["ErrorCode"] else int(partition["LeaderId"])

    def stop(self) -> None:
        """Stop all controllers: the leader last, so that the others need not wait."""
        for node in self.nodes:
            node.process.stop()
