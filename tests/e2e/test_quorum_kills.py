"""Processes of a quorum's cluster are killed: others lead long before a session or a fetch timeout is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client import ClientSettings, parse_bootstrap
from barnabas.client.connection import open_connection
from barnabas.wire.generated.describe_quorum import DescribeQuorumRequest

from .test_quorum import WAIT_SECONDS_MAX, Node, free_port, until

pytestmark = pytest.mark.e2e

PARTITIONS = 20
SOON_SECONDS = 5
"""A tenth of the timeouts below; a fraction of a second on an idle machine."""
TIMEOUTS = {
    "broker.session.timeout.ms": "50000",
    "controller.quorum.fetch.timeout.ms": "50000",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    """Nodes that a test starts."""
    started: list[Node] = []
    yield started
    for node in started:
        node.end(signal.SIGKILL)


def admin_of(node: Node) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{node.port}"})


def create(node: Node, topic: str, replicas: int) -> None:
    admin = admin_of(node)
    (created,) = admin.create_topics([NewTopic(topic, PARTITIONS, replicas)]).values()
    created.result(WAIT_SECONDS_MAX)


def leaders(node: Node, topic: str) -> list[int]:
    partitions = admin_of(node).list_topics(topic, timeout=WAIT_SECONDS_MAX).topics[topic].partitions.values()
    return [partition.leader for partition in partitions]


def is_led_by(node: Node, topic: str, broker_ids: Sequence[int]) -> bool:
    """Say whether a node knows a leader among the brokers for each partition, and each leads some."""
    found = leaders(node, topic)
    return len(found) == PARTITIONS and set(found) == set(broker_ids)


def test_killed_broker_is_replaced_before_its_session_ends(tmp_path: Path, nodes: list[Node]) -> None:
    elsewhere = {"controller.quorum.bootstrap.servers": "127.0.0.1:1"}
    controller = Node(tmp_path, 1, "controller", TIMEOUTS | elsewhere)
    address = {"controller.quorum.bootstrap.servers": f"127.0.0.1:{controller.port}"}
    brokers = [Node(tmp_path, number, "broker", TIMEOUTS | address) for number in (4, 5)]
    nodes += [controller, *brokers]
    controller.format("--standalone").start()
    for broker in brokers:
        broker.format().start()
    create(brokers[0], "t", replicas=2)
    until(lambda: is_led_by(brokers[0], "t", (4, 5)))
    began = time.monotonic()
    brokers[1].end(signal.SIGKILL)
    until(lambda: is_led_by(brokers[0], "t", (4,)))
    print(f"led by another broker after {time.monotonic() - began:.3f} s")
    assert time.monotonic() - began < SOON_SECONDS
    brokers[1].start()  # which waits until it is unfenced
    assert "DUPLICATE_BROKER_REGISTRATION" not in brokers[1].log.read_text()
    assert "ERROR" not in controller.log.read_text()


def test_killed_leading_controller_is_replaced_with_its_broker(tmp_path: Path, nodes: list[Node]) -> None:
    controllers = {number: free_port() for number in (1, 2, 3)}
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in controllers.items())
    for number, port in controllers.items():
        client_port = free_port()
        own = {
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://127.0.0.1:{client_port},CONTROLLER://127.0.0.1:{port}",
            "log.dirs": str(tmp_path / f"node-{number}"),
        }
        nodes.append(Node(tmp_path, number, "broker,controller", TIMEOUTS | own))
        nodes[-1].port = client_port
        nodes[-1].format()
    with ThreadPoolExecutor() as starting:
        list(starting.map(Node.start, nodes))
    create(nodes[0], "t", replicas=2)
    until(lambda: is_led_by(nodes[0], "t", (1, 2, 3)))
    leader_id = trio.run(leader_of, controllers[1])
    others = [number for number in controllers if number != leader_id]
    began = time.monotonic()
    nodes[leader_id - 1].end(signal.SIGKILL)
    create(nodes[others[0] - 1], "u", replicas=1)
    print(f"another controller acts after {time.monotonic() - began:.3f} s")
    until(lambda: is_led_by(nodes[others[1] - 1], "t", others))
    print(f"led by other brokers after {time.monotonic() - began:.3f} s")
    assert time.monotonic() - began < 2 * SOON_SECONDS
    nodes[leader_id - 1].start()
    assert "DUPLICATE_BROKER_REGISTRATION" not in nodes[leader_id - 1].log.read_text()


async def leader_of(port: int) -> int:
    """Return the id of the controller that leads, by what another one says."""
    topic = DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])
    while True:
        async with open_connection(parse_bootstrap(f"127.0.0.1:{port}")[0], ClientSettings()) as connection:
            response = await connection.ask(DescribeQuorumRequest([topic]))
        leader_id: int = response.topics[0].partitions[0].leader_id
        if leader_id >= 0:
            return leader_id
        await trio.sleep(0.1)
