"""Apache Kafka from Maven Central: broker and controller in one JVM, started as by its own scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench.peers.base import Peer, Running, free_port, free_ports, spawn
from bench.tools import BenchError
from compat.kafka.releases import KafkaError, fetch, release

NEWEST = "4.x"
# JVM options of bin/kafka-server-start.sh and kafka-run-class.sh.
JVM_OPTIONS = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.segment.delete.delay.ms=100
log.initial.task.delay.ms=500
"""


class Kafka(Peer):
    """One KRaft node. Needs Java 17 and Maven; the jars are kept in .tools."""

    def __init__(self, label: str, settings: dict[str, str], version: str | None) -> None:
        super().__init__(label, settings)
        self._release = release(version or NEWEST)
        self._ports: dict[Path, tuple[int, int]] = {}

    def describe(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"Apache Kafka {self._release.version}, one KRaft node, {JVM_OPTIONS[0]} {settings}".strip()

    def format(self, data: Path) -> None:
        super().format(data)
        self._write_properties(data)
        self._java(
            data, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", self._conf(data)
        )

    def start(self, data: Path) -> Running:
        port, _ = self._write_properties(data)
        command = ["java", *JVM_OPTIONS, "-cp", self._classpath(), "kafka.Kafka", self._conf(data)]
        running = spawn(self, command, data, port, dict(os.environ))
        running.secured = f"127.0.0.1:{port + 1}" if self.secured is not None else ""
        return running

    def _write_properties(self, data: Path) -> tuple[int, int]:
        # Formatting stores the controller's address, so it stays the same over restarts.
        if data not in self._ports:
            self._ports[data] = free_ports(), free_port()
        port, controller_port = self._ports[data]
        text = PROPERTIES.format(port=port, controller_port=controller_port, data=data)
        settings = dict(self.settings)
        if self.secured is not None:
            secured = self.secured.address(port + 1)
            settings = {
                **self.secured.settings(),
                "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},{secured}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},{secured}",
                **settings,
            }
        text += "".join(f"{name}={value}\n" for name, value in settings.items())
        Path(self._conf(data)).write_text(text)
        return self._ports[data]

    @staticmethod
    def _conf(data: Path) -> str:
        return str(data.with_name(f"{data.name}.properties"))

    def _java(self, data: Path, *arguments: str) -> None:
        command = ["java", "-Xmx256m", "-cp", self._classpath(), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"{' '.join(arguments)} for {data} failed:\n{done.stdout}{done.stderr}")

    def _classpath(self) -> str:
        try:
            return f"{fetch(self._release)}/*"
        except KafkaError as error:
            raise BenchError(f"{error} (or use --peers barnabas,mock)") from error
