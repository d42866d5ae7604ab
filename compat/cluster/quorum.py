"""python -m compat.cluster quorum: brokers of Kafka's and ours under controllers of Kafka 4, in every role.

The checks are those of clusters on ZooKeeper (`checks`), and those that only a quorum has: controllers that are killed, a
snapshot for a late joiner, requests that our brokers forward. The rule: what is asked about the cluster is read from the
quorum's own log, as an observer reads it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.commands.connection import Connecting
from barnabas.commands.metadata_live import state_of
from barnabas.log.format.properties import encode_uuid
from barnabas.testing.running import import_path
from compat.cluster import checks, tools
from compat.cluster.howto import blocks
from compat.cluster.load import Load
from compat.cluster.nodes import KAFKA, OURS, Brokers, ClusterError, KafkaError, Node, wait_until
from compat.kafka import free_port, release, tool_command
from compat.kafka.broker import CLUSTER_ID
from compat.matrix.brokers import Barnabas, BrokerError
from compat.metadata.quorum import HOST, Quorum
from compat.metadata.quorum import Node as KafkaProcess

VERSION = "4.3.1"
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
MIXES = {
    "kafka": (KAFKA, KAFKA, KAFKA),
    "one-of-ours": (KAFKA, KAFKA, OURS),
    "two-of-ours": (KAFKA, OURS, OURS),
    "ours": (OURS, OURS, OURS),
    "rolled": (KAFKA, KAFKA, KAFKA),
}


class KafkaNode:
    """Apache Kafka with the broker role."""

    def __init__(
        self, broker_id: int, port: int, directory: Path, settings: Mapping[str, str], version: str
    ) -> None:
        self._node = KafkaProcess(version, directory, broker_id, "broker", port=port)
        self._node.configure(settings)
        self.bootstrap = f"{HOST}:{port}"

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
        return self._node.log_dir

    def complaints(self) -> list[str]:
        lines = self._node.process.output.read_text(errors="replace").splitlines()
        return [line for line in lines if " ERROR " in line or " FATAL " in line]


class OurNode:
    """`barnabas serve` from this checkout, formatted by `barnabas storage format`."""

    def __init__(
        self, broker_id: int, port: int, directory: Path, settings: Mapping[str, str], version: str
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        own = {
            **settings,
            "process.roles": "broker",
            "node.id": str(broker_id),
            "controller.listener.names": "CONTROLLER",
        }
        self._broker = Barnabas(directory, own)
        self._broker.bootstrap = self.bootstrap = f"{HOST}:{port}"
        self._data = directory / "data"

    def start(self) -> None:
        if not (self._data / "meta.properties").exists():
            self._format()
        self._broker.start()

    def _format(self) -> None:
        command = [sys.executable, "-m", "barnabas", "storage", "format", "--cluster-id", CLUSTER_ID]
        command += ["--data", str(self._data)]
        for name, value in self._broker.settings.items():
            command += ["--set", f"{name}={value}"]
        done = subprocess.run(
            command, env={"PYTHONPATH": import_path()}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ClusterError(f"barnabas storage format: {done.stderr}")

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

    def complaints(self) -> list[str]:
        return self._broker.complaints()


MAKERS: Mapping[str, Callable[..., Node]] = {KAFKA: KafkaNode, OURS: OurNode}


class QuorumCluster(Brokers):
    """Controllers of Kafka's, and brokers as in `kinds`; a context manager. Raises ClusterError, KafkaError."""

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
    ) -> None:
        """`prepare` is called before the first broker starts.

        With `has_admin` each controller has a listener without security, for the checks.
        """
        self.version = version
        self.directory = directory
        self.settings = {**SETTINGS, **(settings or {})}
        self.own: Mapping[int, Mapping[str, str]] = {}
        """Settings of single brokers."""
        self._prepare = prepare
        self.quorum = Quorum(
            version, directory, controllers, is_dynamic=is_dynamic,
            settings={**CONTROLLER_SETTINGS, **(controller_settings or {})},
            has_admin=has_admin, format_arguments=format_arguments,
        )  # fmt: skip
        self.kinds = dict(enumerate(kinds, FIRST_BROKER))
        self.ports = {broker_id: free_port() for broker_id in self.kinds}
        self.nodes: dict[int, Node] = {}

    def __enter__(self) -> QuorumCluster:
        try:
            self.quorum.start()
            if self._prepare is not None:
                self._prepare(self)
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
            self.ports[broker_id],
            self.directory / f"{kind}-{broker_id}",
            {
                **self.settings,
                "broker.rack": f"rack-{broker_id}",
                **self.quorum.settings,
                **self.own.get(broker_id, {}),
            },
            self.version,
        )

    # --- what the quorum says -------------------------------------------------------------------------------

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


def controllers_killed(cluster: Brokers) -> str:
    """Records are acknowledged while the leading controller is killed, and metadata change after the election."""
    assert isinstance(cluster, QuorumCluster)
    if len(cluster.quorum.nodes) < 3:
        return "one controller: not done"
    load = Load(cluster.bootstrap, checks.TOPIC, checks.PARTITIONS)
    seconds = []
    with load:
        wait_until(lambda: len(load.acknowledged) > 1000, "the load begins")
        for number in range(2):
            leader = cluster.quorum.leader()
            begun = time.monotonic()
            leader.process.kill()
            cluster.quorum.leader(but=leader.id)
            tools.run(cluster, "topics", "--create", "--topic", f"after-{number}", "--partitions", "3")
            seconds.append(f"{time.monotonic() - begun:.1f} s")
            leader.start()
            so_far = len(load.acknowledged)
            wait_until(
                lambda so_far=so_far: len(load.acknowledged) > so_far + 1000, "records are acknowledged"
            )
    for number in range(2):
        cluster.wait_in_sync(f"after-{number}", 3)
    return f"a topic is made {', '.join(seconds)} after the kill"


def unregistered(cluster: Brokers) -> str:
    """kafka-cluster unregister, by a broker of ours if there is one, removes a stopped broker; it registers again."""
    broker_id = max(cluster.kinds)
    cluster.nodes[broker_id].stop()
    wait_until(lambda: broker_id not in cluster.live(), f"broker {broker_id} goes")
    tools.run(cluster, "cluster", "unregister", "--id", str(broker_id), expect="no longer registered")
    assert isinstance(cluster, QuorumCluster)
    wait_until(lambda: broker_id not in cluster.image().brokers, f"broker {broker_id} is unregistered")
    cluster.start(broker_id)
    for topic in cluster.topics():
        cluster.wait_in_sync(topic, cluster.replicas(topic))
    return f"broker {broker_id}"


def kafkas_tools(cluster: Brokers) -> str:
    """Kafka's tools say the same by each broker: features, quorum, topics, settings."""
    questions: dict[str, tuple[str, ...]] = {
        "features": ("describe",),
        "topics": ("--describe",),
        "log-dirs": ("--describe",),
        "metadata-quorum": ("describe", "--replication"),
        "cluster": ("cluster-id",),
        "configs": ("--describe", "--entity-type", "topics", "--all"),
    }
    assert isinstance(cluster, QuorumCluster)
    for tool, arguments in questions.items():
        answers = {}
        for broker_id in sorted(cluster.kinds):
            text = tools.run(cluster, tool, *arguments, at=cluster.nodes[broker_id].bootstrap)
            answers[broker_id] = _settled(tool, text)
        if tool == "log-dirs":
            continue  # sizes grow while they are asked for
        if len({tuple(lines) for lines in answers.values()}) != 1:
            raise ClusterError(f"{tool} says different things: {answers}")
    return ", ".join(questions)


def _settled(tool: str, text: str) -> list[str]:
    """Return lines that do not change from one moment to the next, in order."""
    lines = sorted(line.rstrip() for line in text.splitlines() if line.strip())
    if tool == "features":
        return sorted({line.partition("Epoch:")[0].rstrip() for line in lines})
    if tool == "metadata-quorum":
        return sorted({" ".join(line.split()[:2]) for line in lines})
    return lines


def as_printed(cluster: Brokers) -> str:
    """The commands of docs/how-to/cluster.md make a broker of this cluster, with its addresses and an own directory."""
    assert isinstance(cluster, QuorumCluster)
    directory = cluster.directory / "as-printed"
    programs = directory / "bin"
    programs.mkdir(parents=True)
    tool = shlex.join(tool_command(release(cluster.version), "cluster"))
    for name, command in (("kafka-cluster.sh", tool), ("barnabas", f"{sys.executable} -m barnabas")):
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    (commands,) = blocks("In a cluster of Apache Kafka 4")
    port = free_port()
    words = {
        "localhost:9092": cluster.bootstrap.partition(",")[0],
        "localhost:9093": cluster.quorum.addresses.partition(",")[0],
        "localhost:9192": f"{HOST}:{port}",
        "/var/lib/barnabas": str(directory / "data"),
    }
    for printed, own in words.items():
        commands = commands.replace(printed, own)
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": import_path(),
    }
    with (directory / "output").open("wb") as output:
        shell = subprocess.Popen(
            ["sh", "-ec", commands], cwd=directory, env=environment, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(
            lambda: 7 in cluster.live(),
            "the broker of the page is unfenced",
            (directory / "output").read_text,
        )
        tools.run(
            cluster,
            "topics",
            "--create",
            "--topic",
            "printed",
            "--replica-assignment",
            "7",
            at=f"{HOST}:{port}",
        )
        wait_until(lambda: cluster.states("printed").get(0, {}).get("leader") == 7, "it leads a new topic")
    finally:
        os.killpg(shell.pid, signal.SIGTERM)
        shell.wait(60)
    wait_until(lambda: 7 not in cluster.live(), "it leaves")
    return f"{len(commands.splitlines())} lines"


CHECKS: tuple[checks.Check, ...] = (
    checks.membership, checks.creation, checks.produce_and_consume, checks.java_clients, checks.transactions,
    checks.identical_replicas, kafkas_tools, checks.other_tools, checks.reassignment, checks.preferred_leaders,
    checks.leader_killed, checks.preferred_leaders, checks.clean_stop, controllers_killed, checks.offsets_survive,
    unregistered, as_printed, checks.identical_replicas,
)  # fmt: skip


def run_mix(
    mix: str,
    options: argparse.Namespace,
    directory: Path,
    chosen: Sequence[checks.Check],
    *,
    is_dynamic: bool,
) -> int:
    """Run checks in one cluster; returns how many failed."""
    voters = "dynamic" if is_dynamic else "static"
    print(
        f"\n{mix}: Kafka {options.version}, {options.controllers} controllers, {voters} voters, in {directory}",
        flush=True,
    )
    failures = 0
    try:
        cluster = QuorumCluster(
            directory,
            MIXES[mix],
            version=options.version,
            controllers=options.controllers,
            is_dynamic=is_dynamic,
        )
        with cluster:
            for check in chosen:
                begun = time.monotonic()
                try:
                    outcome, verdict = check(cluster), "PASS"
                except (ClusterError, KafkaError) as error:
                    outcome, verdict = str(error), "FAIL"
                except Exception:
                    outcome, verdict = traceback.format_exc(), "FAIL"
                print(
                    f"  {verdict} {check.__name__} ({time.monotonic() - begun:.0f} s): {outcome}", flush=True
                )
                failures += verdict == "FAIL"
                if verdict == "FAIL" and not options.keep:
                    break
            for broker_id, lines in cluster.complaints().items():
                print(
                    f"  FAIL broker {broker_id} has logged {len(lines)} errors, the first: {lines[0]}",
                    flush=True,
                )
                failures += 1
    except (ClusterError, KafkaError, RuntimeError) as error:
        print(f"  FAIL {error}", flush=True)
        failures += 1
    return failures


def main(argv: list[str]) -> int:
    """Returns the exit code: 0 when every check holds in every mix."""
    parser = argparse.ArgumentParser(prog="python -m compat.cluster quorum", description=__doc__)
    parser.add_argument(
        "--mixes", default="one-of-ours,two-of-ours,ours,rolled", help=f"of {', '.join(MIXES)}"
    )
    parser.add_argument("--version", default=VERSION, help="which Kafka (default: %(default)s)")
    parser.add_argument("--controllers", type=int, choices=(1, 3), default=1)
    parser.add_argument("--voters", choices=("dynamic", "static"), default="dynamic")
    parser.add_argument("--checks", default="", help="only these, after creation")
    parser.add_argument("--keep", action="store_true", help="go on after a check that fails")
    parser.add_argument("--dir", type=Path, help="where to keep everything (default: a temporary directory)")
    options = parser.parse_args(argv)
    names = [name for name in options.checks.split(",") if name]
    failures = 0
    for mix in options.mixes.split(","):
        table = checks.ROLLED if mix == "rolled" else CHECKS
        chosen = [
            check for check in table if not names or check.__name__ in ("membership", "creation", *names)
        ]
        directory = Path(tempfile.mkdtemp(prefix="quorum-", dir=options.dir))
        failed = run_mix(mix, options, directory, chosen, is_dynamic=options.voters == "dynamic")
        failures += failed
        if not failed and not options.dir:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"\n{'FAIL' if failures else 'PASS'}: {failures} checks failed")
    return 1 if failures else 0
