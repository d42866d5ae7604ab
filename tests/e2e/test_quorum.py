"""A cluster without Java: a controller and brokers under it, as processes, with a stock client and kills."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.client.connection import open_connection
from barnabas.client.settings import SaslCredentials
from barnabas.cluster.kraft.image import QuorumImage
from barnabas.commands.connection import Connecting
from barnabas.commands.metadata_live import state_of
from barnabas.testing.running import import_path
from barnabas.wire.generated.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest
from barnabas.wire.generated.errors import ErrorCode

from .conftest import PROGRAM, ROOT, STOP_SECONDS_MAX

pytestmark = pytest.mark.e2e

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
WAIT_SECONDS_MAX = 60
BROKER = 4
COUNT = 200
NO_SETTINGS: Mapping[str, str] = {}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURED = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{PLAIN} username="node" password="secret" user_node="secret" user_guest="secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node",
}
"""Nodes log in to controllers, which obey ACLs; clients of brokers are User:ANONYMOUS."""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Node:
    """A node of the cluster with its own directory, which stays when its process is killed."""

    def __init__(self, directory: Path, node_id: int, role: str, settings: dict[str, str]) -> None:
        self.port = free_port()
        self.log = directory / f"{role}-{node_id}.log"
        self.data = directory / f"{role}-{node_id}"
        self._file = directory / f"{role}-{node_id}.properties"
        listener = "CONTROLLER" if role == "controller" else "PLAINTEXT"
        own = {
            "process.roles": role,
            "node.id": str(node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
        }
        lines = [f"{name}={value}\n" for name, value in {**own, **settings}.items()]
        self._file.write_text("".join(lines))
        self._process: subprocess.Popen[str] | None = None

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command with the node's settings to its end."""
        command = [*PROGRAM, *words, "--config", str(self._file)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment(), timeout=WAIT_SECONDS_MAX
        )

    def format(self, *arguments: str) -> Node:
        done = self.run("storage", "format", "-t", CLUSTER_ID, *arguments)
        assert done.returncode == 0, done.stderr
        return self

    def start(self) -> Node:
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*PROGRAM, "serve", "--config", str(self._file)],
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment(),
            )  # fmt: skip
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "barnabas is ready" in line, self.log.read_text()
        return self

    def end(self, number: int) -> int:
        """Signal the process, and return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        code = process.wait(STOP_SECONDS_MAX)
        if process.stdout is not None:
            process.stdout.close()
        return code


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": import_path(ROOT)}


class Cluster:
    """One controller and one broker."""

    def __init__(self, directory: Path, shared: Mapping[str, str] = NO_SETTINGS) -> None:
        """`shared` are settings of both."""
        elsewhere = {
            "controller.quorum.bootstrap.servers": "127.0.0.1:1",
            "broker.session.timeout.ms": "2000",
        }
        self.controller = Node(directory, 1, "controller", {**elsewhere, **shared})
        self.address = f"127.0.0.1:{self.controller.port}"
        self.broker = Node(
            directory,
            BROKER,
            "broker",
            {
                "controller.quorum.bootstrap.servers": self.address,
                "broker.heartbeat.interval.ms": "400",
                "offsets.topic.replication.factor": "1",
                "group.initial.rebalance.delay.ms": "0",
                **shared,
            },
        )
        self.bootstrap = f"127.0.0.1:{self.broker.port}"

    def start(self) -> None:
        self.controller.format("--standalone").start()
        self.broker.format().start()

    def end(self) -> None:
        self.broker.end(signal.SIGKILL)
        self.controller.end(signal.SIGKILL)

    def image(self) -> QuorumImage:
        """All that is committed, as an observer reads it."""
        addresses = parse_bootstrap(self.address)
        return state_of(Connecting(addresses, ClientSettings(client_id="test"), {}))[0]

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})

    def create(self, topic: str) -> None:
        admin = self.admin()  # which must live until it is answered
        (created,) = admin.create_topics([NewTopic(topic, 3, 1)]).values()
        created.result(WAIT_SECONDS_MAX)

    def produce(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(COUNT):
            producer.produce(topic, value=b"%d" % number)
        assert producer.flush(WAIT_SECONDS_MAX) == 0

    def consume(self, topic: str, count: int) -> list[int]:
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([topic])
        values: list[int] = []
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(int(message.value() or b"-1"))
        consumer.close()
        return sorted(values)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        started.start()
        yield started
    finally:
        started.end()


def test_stock_client_works_in_a_cluster_without_java(cluster: Cluster) -> None:
    cluster.create("t")
    cluster.produce("t")
    assert cluster.consume("t", COUNT) == list(range(COUNT))
    image = cluster.image()
    assert set(image.topic_ids) == {"t", "__consumer_offsets"}
    assert image.controllers[1].endpoints[0].port == cluster.controller.port
    assert (cluster.broker.end(signal.SIGTERM), cluster.controller.end(signal.SIGTERM)) == (0, 0)
    for node in (cluster.broker, cluster.controller):
        assert "ERROR" not in node.log.read_text()


def test_killed_broker_is_fenced_and_returns_with_its_records(cluster: Cluster) -> None:
    cluster.create("t")
    cluster.produce("t")
    epoch = cluster.image().brokers[BROKER].epoch
    cluster.broker.end(signal.SIGKILL)
    until(lambda: cluster.image().brokers[BROKER].fenced)
    assert {partition.leader for partition in cluster.image().partitions.values()} == {-1}
    cluster.broker.start()
    until(lambda: not cluster.image().brokers[BROKER].fenced)
    assert cluster.image().brokers[BROKER].epoch > epoch
    assert cluster.consume("t", COUNT) == list(range(COUNT))


def test_killed_controller_returns_with_all_that_it_acknowledged(cluster: Cluster) -> None:
    for number in range(3):
        cluster.create(f"t{number}")
    admin = cluster.admin()
    entry = ConfigEntry("retention.ms", "1234567", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "t1", incremental_configs=[entry])
    (changed,) = admin.incremental_alter_configs([resource]).values()
    changed.result(WAIT_SECONDS_MAX)
    before = cluster.image()
    cluster.controller.end(signal.SIGKILL)
    cluster.produce("t0")  # what brokers do without the controller
    cluster.controller.start()
    cluster.create("t3")
    after = cluster.image()
    assert set(before.topic_ids) < set(after.topic_ids)
    assert all(after.topic_ids[name] == topic_id for name, topic_id in before.topic_ids.items())
    assert after.settings[2, "t1"] == {"retention.ms": "1234567"}
    assert after.brokers[BROKER].epoch == before.brokers[BROKER].epoch
    assert not after.brokers[BROKER].fenced
    assert cluster.consume("t0", COUNT) == list(range(COUNT))


def test_secured_controller_serves_its_nodes_and_refuses_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, SECURED)
    try:
        cluster.start()
        with pytest.raises(KafkaException) as refused:
            cluster.create("t")  # authorized by the controller, for the client that the broker names
        assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        denial = "Principal = User:ANONYMOUS is Denied operation = CREATE"
        assert denial in cluster.controller.log.read_text()
        answers = trio.run(answers_to, cluster.address, "guest")
        assert answers == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        assert trio.run(answers_to, cluster.address, "node") == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]
    finally:
        cluster.end()


def test_controller_that_joins_by_itself_becomes_a_voter(tmp_path: Path) -> None:
    first = Node(tmp_path, 1, "controller", {"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
    asked = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{first.port}"}
    joining = Node(tmp_path, 2, "controller", {**asked, "controller.quorum.auto.join.enable": "true"})
    try:
        first.format("--standalone").start()
        joining.format("--no-initial-controllers").start()
        until(lambda: voters(f"127.0.0.1:{first.port}") == [1, 2])
    finally:
        first.end(signal.SIGKILL)
        joining.end(signal.SIGKILL)


def voters(address: str) -> list[int]:
    """Return the ids of the voters that are committed."""
    connecting = Connecting(parse_bootstrap(address), ClientSettings(client_id="test"), {})
    return sorted(voter.id for voter in state_of(connecting)[1].voters)


def test_commands_of_the_page_start_a_controller(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/cluster.md").read_text()
    (block,) = re.findall(
        r"(?:^    .*\n)+", page.partition("## Controllers without Java\n")[2].partition("\n## ")[0], re.M
    )
    commands = re.sub(r"^    ", "", block, flags=re.M)
    data, port = tmp_path / "data", free_port()
    commands = commands.replace("/var/lib/barnabas-controller", str(data)).replace(
        "localhost:9093", f"localhost:{port}"
    )
    program = tmp_path / "barnabas"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
    program.chmod(0o755)
    own = {**environment(), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    with subprocess.Popen(
        ["sh", "-ec", commands],
        cwd=tmp_path,
        env=own,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            assert shell.stdout is not None
            assert f"Formatted {data} for node 1" in shell.stdout.readline()
            assert f"bootstrap.controllers=127.0.0.1:{port}" in shell.stdout.readline()
        finally:
            os.killpg(shell.pid, signal.SIGTERM)


async def answers_to(address: str, user: str) -> list[int]:
    """Return the error codes of a heartbeat and of DescribeQuorum from a user of the controller."""
    settings = ClientSettings(sasl=SaslCredentials("PLAIN", user, "secret"))
    topic = DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])
    requests = BrokerHeartbeatRequest(broker_id=9, broker_epoch=1), DescribeQuorumRequest([topic])
    async with open_connection(parse_bootstrap(address)[0], settings) as connection:
        return [(await connection.ask(request)).error_code for request in requests]


def test_controller_without_formatted_dir_does_not_start(tmp_path: Path) -> None:
    node = Node(tmp_path, 1, "controller", {"controller.quorum.bootstrap.servers": "127.0.0.1:1"})
    done = node.run("serve")
    assert done.returncode == 1
    assert "is not formatted: format it first" in done.stderr


def test_controller_of_another_node_id_does_not_start(tmp_path: Path) -> None:
    settings = {"controller.quorum.bootstrap.servers": "127.0.0.1:1"}
    Node(tmp_path, 1, "controller", settings).format("--standalone")
    other = Node(tmp_path, 2, "controller", settings | {"log.dirs": str(tmp_path / "controller-1")})
    done = other.run("serve")
    assert done.returncode == 1
    assert "node.id" in done.stderr
    assert "Traceback" not in done.stderr
