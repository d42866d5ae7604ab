"""`kafka_cluster` as an application's tests have it, with stock clients: nodes end, are cut off, and leaders move."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from barnabas.testing import ControlFailedError, KafkaCluster, start_cluster_process
from tests.support.stock_consumer import read_values

WAIT_S = 30
COUNT = 30


def produce(cluster: KafkaCluster, word: str, acks: int | str = "all") -> set[bytes]:
    """Produce to all three partitions of topic t by librdkafka; returns what was acknowledged."""
    acknowledged: set[bytes] = set()
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": acks, "log_level": 0, "request.timeout.ms": 2000,
         "api.version.request.timeout.ms": 1000}
    )  # fmt: skip
    for number in range(COUNT):
        producer.produce(
            "t", f"{word} {number}", partition=number % 3,
            on_delivery=lambda error, message: None if error else acknowledged.add(message.value()),
        )  # fmt: skip
    assert producer.flush(WAIT_S) == 0
    assert len(acknowledged) == COUNT
    return acknowledged


def leaders_of_a_client(cluster: KafkaCluster, bootstrap: str) -> dict[int, int]:
    topic = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=WAIT_S).topics["t"]
    return {index: partition.leader for index, partition in topic.partitions.items()}


@pytest.mark.slow
def test_acknowledged_records_survive_kills_and_cuts(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("t", 3)
    acknowledged = produce(kafka_cluster, "before")
    killed = kafka_cluster.active_controller()
    assert killed is not None
    kafka_cluster.kill(killed)
    assert not kafka_cluster.nodes()[killed].is_running
    acknowledged |= produce(kafka_cluster, "one is down")
    assert killed not in kafka_cluster.leaders("t").values()
    kafka_cluster.start(killed)
    for partition in range(3):
        kafka_cluster.move_leader("t", partition, killed)  # it has caught up
    acknowledged |= produce(kafka_cluster, "all are up")
    isolated = kafka_cluster.active_controller()
    assert isolated is not None
    kafka_cluster.isolate(isolated, clients=True)
    assert kafka_cluster.nodes()[isolated].is_isolated
    acknowledged |= produce(kafka_cluster, "one is cut off")
    assert kafka_cluster.active_controller() != isolated
    assert isolated not in kafka_cluster.leaders("t").values()
    kafka_cluster.rejoin(isolated)
    acknowledged |= produce(kafka_cluster, "all reach each other")
    assert read_values(kafka_cluster.bootstrap, len(acknowledged)) == acknowledged


def test_leader_moves_for_clients_while_they_produce(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("t", 3)
    producer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap.split(","), acks="all")
    offsets = []
    for leader in (1, 2, 3):
        kafka_cluster.move_leader("t", 0, leader)
        assert kafka_cluster.leaders("t")[0] == leader
        for node in kafka_cluster.nodes().values():
            assert leaders_of_a_client(kafka_cluster, node.bootstrap)[0] == leader
        offsets.append(producer.send("t", b"v", partition=0).get(WAIT_S).offset)
    producer.close()
    assert offsets == [0, 1, 2]


def test_clean_stop_hands_over_before_the_node_ends(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("t", 3)
    kafka_cluster.move_leader("t", 0, 1)
    kafka_cluster.stop(1)
    assert 1 not in kafka_cluster.leaders("t").values()
    produce(kafka_cluster, "without the first")
    kafka_cluster.start(1)
    kafka_cluster.move_leader("t", 0, 1)
    produce(kafka_cluster, "with the first")


@pytest.mark.kafka_cluster(brokers=2, controllers=3, settings={"num.partitions": "7"})
def test_cluster_has_the_shape_of_its_marker(kafka_cluster: KafkaCluster) -> None:
    nodes = kafka_cluster.nodes()
    assert {node.id: node.roles for node in nodes.values()} == {
        1: ("broker",),
        2: ("broker",),
        101: ("controller",),
        102: ("controller",),
        103: ("controller",),
    }
    assert kafka_cluster.bootstrap == f"{nodes[1].bootstrap},{nodes[2].bootstrap}"
    assert len(kafka_cluster.create_topic("seven")) == 7
    active = kafka_cluster.active_controller()
    assert active in (101, 102, 103)
    kafka_cluster.kill(active)
    kafka_cluster.create_topic("t", 3, replicas=2)
    produce(kafka_cluster, "by another controller")


def test_what_cannot_be_done_is_refused(kafka_start_cluster: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_start_cluster(2)
    cluster.create_topic("t", 3, replicas=1)
    elsewhere = 3 - cluster.leaders("t")[0]
    with pytest.raises(ControlFailedError, match=f"has no replica on broker {elsewhere}"):
        cluster.move_leader("t", 0, elsewhere)
    with pytest.raises(ControlFailedError, match="there is no node 9; there are: 1, 2"):
        cluster.kill(9)
    with pytest.raises(ControlFailedError, match="TOPIC_ALREADY_EXISTS"):
        cluster.create_topic("t")
    with pytest.raises(ControlFailedError, match="there is no topic u"):
        cluster.leaders("u")


def test_node_has_faults_and_requests_of_its_own(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("t", 3)
    for partition in range(3):
        kafka_cluster.move_leader("t", partition, 2)
    kafka_cluster.broker(2).fault("Produce times=1 -> error=NOT_ENOUGH_REPLICAS")
    produce(kafka_cluster, "once refused")
    codes = [request.error_codes for request in kafka_cluster.broker(2).requests("Produce")]
    assert len(codes) > 1
    assert not kafka_cluster.broker(1).requests("Produce")


# --- faults and time of controllers ---------------------------------------------------------------------------------


@pytest.mark.kafka_cluster(brokers=2, controllers=1)
def test_fault_of_a_controller_refuses_what_brokers_ask(kafka_cluster: KafkaCluster) -> None:
    controller = kafka_cluster.broker(101)
    rule = controller.fault("BrokerRegistration times=2 -> error=UNKNOWN_SERVER_ERROR")["name"]
    kafka_cluster.kill(2)
    kafka_cluster.start(2)
    assert controller.control("GET", f"/v1/faults/{rule}")["hits"] == 2
    kafka_cluster.create_topic("t", 3, replicas=2)


@pytest.mark.kafka_cluster(brokers=1)
def test_rules_of_a_combined_node_reach_its_controller(kafka_cluster: KafkaCluster) -> None:
    node = kafka_cluster.broker(1)
    heartbeats, everything, named = (
        node.fault(rule)["name"]
        for rule in ("BrokerHeartbeat -> hold_ms=1", "* -> hold_ms=1", "* listener=CONTROLLER -> hold_ms=1")
    )
    kafka_cluster.advance_clock(1)
    kafka_cluster.create_topic("t", 1)
    hits = {
        name: node.control("GET", f"/v1/faults/{name}")["hits"] for name in (heartbeats, everything, named)
    }
    assert hits[heartbeats] > 0
    assert hits[named] >= hits[heartbeats]
    assert hits[everything] == 0, "a rule that names neither is for clients"


@pytest.mark.kafka_cluster(  # several controllers would elect another one, by whose time no session has passed
    3, controllers=1, settings={"broker.session.timeout.ms": "60000", "broker.heartbeat.interval.ms": "20000"}
)
def test_clock_of_the_cluster_moves_its_controllers(kafka_cluster: KafkaCluster) -> None:
    kafka_cluster.create_topic("t", 3)
    leader = kafka_cluster.leaders("t")[0]
    controller = kafka_cluster.active_controller()
    if leader == controller:
        leader = next(node for node in (1, 2, 3) if node != controller)
        kafka_cluster.move_leader("t", 0, leader)
    kafka_cluster.isolate(leader, clients=True)
    for _ in range(6):  # less than a heartbeat each, so that those of the others are answered in between
        kafka_cluster.advance_clock(12)
        time.sleep(0.3)
    produce(kafka_cluster, "after the session of the isolated one")
    assert kafka_cluster.leaders("t")[0] != leader


def test_cluster_in_a_process_is_steered_over_http() -> None:
    with start_cluster_process(2, controllers=1) as cluster:
        cluster.create_topic("t", 3, replicas=2)
        cluster.move_leader("t", 0, 2)
        cluster.kill(1)
        cluster.broker(2).fault("Produce times=1 -> error=NOT_ENOUGH_REPLICAS")
        produce(cluster, "by the other one", acks=1)
        assert cluster.broker(2).requests("Produce")
        assert set(cluster.leaders("t").values()) == {2}
        assert not cluster.nodes()[1].is_running
