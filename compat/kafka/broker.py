"""One Kafka broker on loopback: settings, formatting, start, readiness, stop.

The rule: all files of a broker (settings, data, output, pids) are in its directory.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from compat.kafka.process import LIGHT_JVM, JavaProcess, java_command
from compat.kafka.releases import KafkaError, Release, release

READY_TIMEOUT_S = 240
READY_POLL_S = 0.05
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
COMMON_SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "500",
}


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ZooKeeperServer:
    """The ZooKeeper that Kafka brings along, on loopback, for one broker or for several; `address` is HOST:PORT.

    `tls` are ZooKeeper's settings for TLS (`ssl.*`): with them it accepts only TLS. Without `syncs` a transaction is
    answered before it is flushed to the disk: it still survives the process, and a disk that is busy for seconds ends no
    session. With a `jaas` file, which has a section Server, clients can log in by SASL.
    """

    def __init__(
        self,
        of: Release,
        directory: Path,
        tls: Mapping[str, str] | None = None,
        *,
        syncs: bool = False,
        jaas: Path | None = None,
        jvm_options: Sequence[str] = (),
    ) -> None:
        self._release = of
        self._tls = tls
        self._syncs = syncs
        self._jaas = jaas
        self._jvm_options = jvm_options
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.port = kept_port(directory, "zookeeper.port")
        self._process = JavaProcess("zookeeper", directory)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its pid while it runs."""
        return self._process.pid()

    def start(self) -> None:
        """Start and wait until it opens sessions; with TLS, until it accepts connections. Raises KafkaError."""
        config = self.directory / "zoo.cfg"
        port = "clientPort" if self._tls is None else "secureClientPort"
        lines = [
            f"dataDir={self.directory / 'zookeeper'}",
            f"{port}={self.port}",
            f"{port}Address=127.0.0.1",
            *(f"{name}={value}" for name, value in (self._tls or {}).items()),
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "tickTime=1000",
        ]
        config.write_text("\n".join(lines) + "\n")
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        if self._jaas is not None:
            provider = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            config.write_text(f"{config.read_text()}{provider}\n")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *self._jvm_options]
        if self._jaas is not None:
            options.append(f"-Djava.security.auth.login.config={self._jaas}")
        if not self._syncs:
            options += ["-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"]
        self._process.start(java_command(self._release, main, str(config), options=options))
        gives = _accepts if self._tls is not None else _gives_sessions
        wait_until_ready("ZooKeeper", self._process, lambda: gives(self.port))

    def stop(self) -> None:
        self._process.stop()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.kill()


def kept_port(directory: Path, name: str) -> int:
    """Return a port that stays the same for this directory; it is stored in the file `name`."""
    path = directory / name
    if not path.exists():
        path.write_text(f"{free_port()}\n")
    return int(path.read_text())


def wait_until_ready(what: str, process: JavaProcess, ready: Callable[[], bool]) -> None:
    """Wait until `ready` returns True. Raises KafkaError if the process ends, or if it takes too long."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not ready():
        process.check_running()
        if time.monotonic() > deadline:
            raise KafkaError(f"{what} was not ready in {READY_TIMEOUT_S} s; see {process.output}")
        time.sleep(READY_POLL_S)


class RealKafka:
    """Apache Kafka as a context manager; `bootstrap` is HOST:PORT once it is entered.

    `version` is `4.x`, `3.9` or exact; `mode` is `kraft` or, for 3.9, `zookeeper`. `port` 0 takes a free one.
    `zookeeper` is HOST:PORT of a ZooKeeper that runs already; without it each broker has one of its own.
    `settings` are lines of server.properties. `prepare` is called before the broker starts, once ZooKeeper runs.
    Without `data` a temporary directory is made and removed again; a directory that was used before is started again
    with what is in it. `classpath` has plugins of its own. Raises KafkaError.
    """

    def __init__(
        self,
        version: str = "4.x",
        port: int = 0,
        *,
        data: Path | str | None = None,
        settings: Mapping[str, str] | None = None,
        mode: str = "kraft",
        zookeeper: str = "",
        prepare: Callable[[RealKafka], None] | None = None,
        jvm_options: tuple[str, ...] = LIGHT_JVM,
        classpath: str = "",
    ) -> None:
        self.release = release(version)
        if mode not in {"kraft", "zookeeper"} or (mode == "zookeeper" and not self.release.zookeeper):
            raise KafkaError(f"Kafka {self.release.version} has no mode {mode!r}")
        self.mode = mode
        self.port = port
        self.settings = dict(settings or {})
        self.prepare = prepare
        self.jvm_options = jvm_options
        self.classpath = classpath
        self._temporary = data is None
        self.directory = Path(data) if data is not None else Path(tempfile.mkdtemp(prefix="kafka-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory = self.directory.resolve()
        self.log_dir = self.directory / "logs"
        self.zookeeper = zookeeper
        self._broker = JavaProcess("kafka", self.directory)
        has_own = mode == "zookeeper" and not zookeeper
        self._zookeeper = ZooKeeperServer(self.release, self.directory) if has_own else None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def output(self) -> Path:
        """The file with the output of the broker."""
        return self._broker.output

    @property
    def pid(self) -> int | None:
        """The broker's pid while it runs."""
        return self._broker.pid()

    def start(self) -> None:
        """Start and wait until the broker serves clients. Raises KafkaError."""
        if self.pid is not None:
            raise KafkaError(f"a broker already runs on {self.directory}")
        self.port = self.port or free_port()
        properties = self._write_properties()
        if self.mode == "zookeeper":
            if self._zookeeper is not None:
                self._zookeeper.start()
        elif not (self.log_dir / "meta.properties").exists():
            self._run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties))
        if self.prepare is not None:
            self.prepare(self)
        # The pid file names the broker; `stop` needs nothing else.
        self._broker.start(
            java_command(
                self.release,
                "kafka.Kafka",
                str(properties),
                options=self.jvm_options,
                classpath=self.classpath,
            )
        )
        try:
            self._wait_until_ready()
        except KafkaError:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the broker, then its ZooKeeper; keeps the data unless the directory was temporary."""
        self._broker.stop()
        if self._zookeeper is not None:
            self._zookeeper.stop()

    def kill(self) -> None:
        """End the broker with SIGKILL, without a clean shutdown."""
        self._broker.kill()

    def __enter__(self) -> RealKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _write_properties(self) -> Path:
        properties = {**COMMON_SETTINGS, "log.dirs": str(self.log_dir)}
        if self.mode == "kraft":
            controller = kept_port(self.directory, "controller.port")
            properties |= {
                "process.roles": "broker,controller",
                "node.id": "1",
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                "controller.listener.names": "CONTROLLER",
            }
        else:
            if self._zookeeper is not None:
                self.zookeeper = self._zookeeper.address
            properties |= {
                "broker.id": "1",
                "zookeeper.connect": self.zookeeper,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            }
        properties["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{self.port}"
        properties |= self.settings
        path = self.directory / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return path

    def _run(self, main: str, *arguments: str) -> None:
        command = java_command(self.release, main, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=READY_TIMEOUT_S)
        if done.returncode:
            raise KafkaError(f"{main} {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self) -> None:
        wait_until_ready("Kafka", self._broker, lambda: _serves(self.port))


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


def _gives_sessions(port: int) -> bool:
    """Return whether ZooKeeper opens a session: it closes connections for a while after its port is open."""
    connect = struct.pack(">iqiqi16x?", 0, 0, 10_000, 0, 16, False)  # a new session, not read-only
    close_session = struct.pack(">ii", 1, -11)
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(struct.pack(">i", len(connect)) + connect)
            if not connection.recv(1):
                return False
            connection.sendall(struct.pack(">i", len(close_session)) + close_session)
            while connection.recv(4096):
                pass  # it closes the connection once the session is closed
            return True
    except OSError:
        return False


def _serves(port: int) -> bool:
    """Return whether Metadata lists a broker: by then it has registered, and topics can be created."""
    # Metadata v4 (the oldest that Kafka 3.9 and 4 both serve without surprises) for no topics.
    request = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">i?", 0, False)
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            size = struct.unpack(">i", _receive(connection, 4))[0]
            answer = _receive(connection, size)
    except OSError:
        return False
    brokers: int = struct.unpack_from(">i", answer, 8)[0]
    return brokers > 0


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("closed")
        received += part
    return received
