"""Guarantees of a cluster of any brokers: one function for each, in the order of execution.

The rule: a check restores the cluster (all brokers running, all replicas in sync), and returns a description of its
result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from compat.cluster import tools
from compat.cluster.load import QUICK, Load, check, read_all
from compat.cluster.logs import compare
from compat.cluster.nodes import KAFKA, OURS, Brokers, ClusterError, wait_until
from compat.faults import clients, verdict

PARTITIONS = 6
TOPIC = "events"
FRANZ_GO = "franz-go"
RECORDS = 3000
Check = Callable[[Brokers], str]


def membership(cluster: Brokers) -> str:
    """All brokers are registered, and every broker lists all of them to clients."""
    wait_until(
        lambda: cluster.live() == set(cluster.kinds),
        "all brokers are registered",
        lambda: str(cluster.live()),
    )
    for broker_id, node in cluster.nodes.items():

        def live_brokers(bootstrap: str = node.bootstrap) -> set[int]:
            return set(AdminClient({"bootstrap.servers": bootstrap, **QUICK}).list_topics(timeout=10).brokers)

        wait_until(
            lambda live_brokers=live_brokers: live_brokers() == set(cluster.kinds),
            f"broker {broker_id} names all brokers",
            lambda live_brokers=live_brokers: str(live_brokers()),
        )
    version = tools.run(cluster, "broker-api-versions", expect="Produce(0)")
    return f"brokers {sorted(cluster.live())}, controller {cluster.controller()}, {version.count('Produce(0)')} answer"


def creation(cluster: Brokers) -> str:
    """kafka-topics creates a topic with three replicas each, and all of them get in sync."""
    tools.run(
        cluster, "topics", "--create", "--topic", TOPIC, "--partitions", str(PARTITIONS), "--replication-factor", "3",
        "--config", "min.insync.replicas=2",
    )  # fmt: skip
    cluster.wait_in_sync(TOPIC, 3)
    described = tools.run(cluster, "topics", "--describe", "--topic", TOPIC, expect="min.insync.replicas=2")
    leaders = {index: state["leader"] for index, state in cluster.states(TOPIC).items()}
    if described.count("Isr: ") != PARTITIONS:
        raise ClusterError(f"the tool does not show {PARTITIONS} partitions: {described}")
    if len(set(leaders.values())) != 3:
        raise ClusterError(f"leaders are not spread over the brokers: {leaders}")
    return f"leaders {leaders}"


def produce_and_consume(cluster: Brokers) -> str:
    """librdkafka produces with acks=all, a group of two members reads everything once, and commits."""
    before = _count(cluster)
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate=20_000)
    with load:
        wait_until(lambda: len(load.acknowledged) >= RECORDS or bool(load.errors), "records are acknowledged")
    group = f"group-{time.monotonic_ns()}"
    members = [_member(cluster, group) for _ in range(2)]
    seen: set[int] = set()

    def have_both() -> bool:
        for member in members:
            seen.update(
                int(message.value().split()[0]) for message in member.consume(500, 0.1) if not message.error()
            )
        return all(member.assignment() for member in members)

    wait_until(have_both, "both members have partitions")
    deadline = time.monotonic() + 60
    while len(seen) < len(load.acknowledged):
        if time.monotonic() > deadline:
            raise ClusterError(f"the group has read {len(seen)} of {len(load.acknowledged)} records")
        for member in members:
            for message in member.consume(500, 0.2):
                if message.error() is None:
                    seen.add(int(message.value().split()[0]))
    for member in members:
        member.close()  # commits the records that it has read
    _check_growth(cluster, load, before)
    lag = tools.run(cluster, "consumer-groups", "--describe", "--group", group)
    return f"{len(load.acknowledged)} records; consumer-groups shows {lag.count(TOPIC)} partitions"


def _member(cluster: Brokers, group: str) -> Consumer:
    member = Consumer(
        {**QUICK, "bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    member.subscribe([TOPIC])
    return member


def java_clients(cluster: Brokers) -> str:
    """The Java producer (acks=all, idempotent) and consumer by Kafka's own tools."""
    topic = "java"
    tools.run(
        cluster, "topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"
    )
    produced = tools.run(
        cluster, "verifiable-producer", "--topic", topic, "--max-messages", str(RECORDS), "--acks", "-1"
    )
    acknowledged = produced.count('"producer_send_success"')
    if acknowledged != RECORDS:
        raise ClusterError(f"{acknowledged} of {RECORDS} records were acknowledged: {produced[-800:]}")
    read = tools.run(
        cluster, "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", str(RECORDS),
        "--timeout-ms", "30000", "--group", "java",
    )  # fmt: skip
    values = {line for line in read.splitlines() if line.isdigit()}
    if len(values) != RECORDS:
        raise ClusterError(f"{len(values)} of {RECORDS} values were read: {read[-500:]}")
    return f"{RECORDS} records"


def transactions(cluster: Brokers) -> str:
    """Committed transactions over partitions of several brokers are read whole, aborted ones not at all."""
    topic = f"payments-{time.monotonic_ns()}"
    tools.run(
        cluster, "topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3"
    )
    cluster.wait_in_sync(topic, 3)
    producer = Producer({**QUICK, "bootstrap.servers": cluster.bootstrap, "transactional.id": "pay"})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, f"{number}".encode(), partition=partition)
        producer.flush(30)  # records still in the client would not be sent, let alone aborted
        (producer.abort_transaction if number % 4 == 3 else producer.commit_transaction)(60)
    expected = [f"{number}".encode() for number in range(20) if number % 4 != 3]
    records = read_all(cluster.bootstrap, topic, 3)
    if any(values != expected for values in records.values()):
        raise ClusterError(f"read_committed reads {records}")
    everything = read_all(cluster.bootstrap, topic, 3, committed=False)
    if any(len(values) != 20 for values in everything.values()):
        raise ClusterError(f"read_uncommitted reads {everything}")
    return "15 committed, 5 aborted, 3 partitions each"


def identical_replicas(cluster: Brokers) -> str:
    """The replicas of every topic have the same bytes."""
    topics = cluster.topics()
    for topic in topics:
        cluster.wait_in_sync(topic, cluster.replicas(topic))
    partitions, size = compare(cluster, topics)
    return f"{partitions} partitions of {len(topics)} topics, {size} bytes each"


def leader_killed(cluster: Brokers) -> str:
    """A broker is killed under load: no acknowledged record is lost, the others continue, and it returns."""
    told = []
    for broker_id in cluster.kinds:
        load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
        before = _count(cluster)
        with load:
            wait_until(lambda load=load: len(load.acknowledged) > 1000, "the load begins")
            begun = time.monotonic()
            cluster.nodes[broker_id].kill()
            wait_until(
                lambda broker_id=broker_id: all(s["leader"] not in (-1, broker_id) for s in cluster.states(TOPIC).values()),
                f"all that broker {broker_id} led is led by others", lambda: str(cluster.states(TOPIC)),
            )  # fmt: skip
            elected = time.monotonic() - begun
            here = len(load.acknowledged)
            wait_until(
                lambda load=load, here=here: len(load.acknowledged) > here + 3000 or bool(load.errors),
                "records are acknowledged again",
            )
        pause = load.longest_pause(begun)
        cluster.start(broker_id)
        cluster.wait_in_sync(TOPIC, 3)
        _check_growth(cluster, load, before)
        told.append(
            f"{broker_id} ({cluster.kinds[broker_id]}): elected after {elected:.1f} s, longest pause {pause:.1f} s"
        )
    return "; ".join(told)


def clean_stop(cluster: Brokers) -> str:
    """Brokers are stopped and started one by one under load: no record is refused or lost."""
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS)
    before = _count(cluster)
    begun = time.monotonic()
    with load:
        wait_until(lambda: len(load.acknowledged) > 1000, "the load begins")
        for broker_id in cluster.kinds:
            cluster.nodes[broker_id].stop()
            cluster.start(broker_id)
            cluster.wait_in_sync(TOPIC, 3)
    pause = load.longest_pause(begun)
    _check_growth(cluster, load, before)
    return f"{len(load.acknowledged)} records, longest pause {pause:.1f} s"


def _count(cluster: Brokers) -> dict[int, int]:
    """Number of records in each partition."""
    return {index: len(values) for index, values in read_all(cluster.bootstrap, TOPIC, PARTITIONS).items()}


def _check_growth(cluster: Brokers, load: Load, before: dict[int, int]) -> None:
    records = read_all(cluster.bootstrap, TOPIC, PARTITIONS)
    check(load, {index: values[before[index] :] for index, values in records.items()})


def preferred_leaders(cluster: Brokers) -> str:
    """kafka-leader-election gives leadership back to the first replica of each partition."""
    for topic in cluster.topics():  # a replica out of sync cannot be elected; the tool reports it
        cluster.wait_in_sync(topic, cluster.replicas(topic))
    tools.run(cluster, "leader-election", "--election-type", "preferred", "--all-topic-partitions")
    assignment = cluster.assignment(TOPIC)

    def wrong() -> dict[int, int]:
        return {i: s["leader"] for i, s in cluster.states(TOPIC).items() if s["leader"] != assignment[i][0]}

    wait_until(lambda: not wrong(), "preferred replicas lead", lambda: str(wrong()))
    return f"{len(assignment)} partitions"


def reassignment(cluster: Brokers) -> str:
    """kafka-reassign-partitions moves a partition from one replica to two others and back, records and all."""
    topic = "moved"
    first, second, third = sorted(cluster.kinds)
    # Kafka before 4.0 refuses acks=all where there are fewer replicas than min.insync.replicas.
    tools.run(
        cluster,
        "topics",
        "--create",
        "--topic",
        topic,
        "--replica-assignment",
        str(first),
        "--config",
        "min.insync.replicas=1",
    )
    producer = Producer({**QUICK, "bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(1000):
        producer.produce(topic, f"{number}".encode(), partition=0)
    producer.flush(30)
    for replicas in ([second, third], [third, first, second]):
        plan = cluster.directory / "plan.json"
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": replicas}]})
        )
        tools.run(cluster, "reassign-partitions", "--reassignment-json-file", str(plan), "--execute")

        def is_done(replicas: list[int] = replicas) -> bool:
            state = cluster.states(topic)[0]
            return (
                cluster.assignment(topic)[0] == replicas
                and sorted(state["isr"]) == sorted(replicas)
                and not cluster.adding(topic).get(0)
            )

        wait_until(
            is_done,
            f"{topic}-0 is on {replicas}",
            lambda: f"{cluster.assignment(topic)} {cluster.states(topic)}",
        )
        tools.run(
            cluster,
            "reassign-partitions",
            "--reassignment-json-file",
            str(plan),
            "--verify",
            expect="is completed",
        )
    values = read_all(cluster.bootstrap, topic, 1)[0]
    if values != [f"{number}".encode() for number in range(1000)]:
        raise ClusterError(f"{len(values)} of 1000 records are there after the move")
    return f"{first} -> {second},{third} -> {third},{first},{second} with 1000 records"


def other_tools(cluster: Brokers) -> str:
    """kafka-configs, kafka-log-dirs, kafka-get-offsets, the tool of the keeper, growth and deletion of a topic."""
    topic = "tools"
    tools.run(
        cluster, "topics", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3"
    )
    tools.run(
        cluster,
        "configs",
        "--alter",
        "--entity-type",
        "topics",
        "--entity-name",
        topic,
        "--add-config",
        "retention.ms=777000",
    )
    for node in cluster.nodes.values():
        admin = AdminClient({"bootstrap.servers": node.bootstrap, **QUICK})
        wait_until(
            lambda admin=admin: _retention(admin, topic) == "777000", "every broker knows the new setting"
        )
    tools.run(
        cluster,
        "configs",
        "--alter",
        "--entity-type",
        "brokers",
        "--entity-default",
        "--add-config",
        "log.retention.ms=999000",
    )
    tools.run(cluster, "topics", "--alter", "--topic", topic, "--partitions", "4")
    cluster.wait_in_sync(topic, 3)
    dirs = tools.run(
        cluster, "log-dirs", "--describe", "--topic-list", topic, expect=f'"broker":{max(cluster.kinds)}'
    )
    if dirs.count(f'"{topic}-') != 12:
        raise ClusterError(f"log-dirs does not show 4 partitions on 3 brokers: {dirs}")
    tools.run(cluster, "get-offsets", "--topic", TOPIC, expect=f"{TOPIC}:0:")
    keeper, *question = cluster.keeper_tool
    tools.run(cluster, keeper, *question)
    tools.run(cluster, "topics", "--delete", "--topic", topic)
    wait_until(lambda: topic not in cluster.topics(), "the topic is gone")
    wait_until(
        lambda: not any(list(node.log_dir.glob(f"{topic}-?")) for node in cluster.nodes.values()),
        "its logs are gone",
    )
    return f"configs, topics --alter, log-dirs, get-offsets, {keeper}, topics --delete"


def _retention(admin: AdminClient, topic: str) -> str | None:
    from confluent_kafka.admin import ConfigResource

    (answer,) = admin.describe_configs([ConfigResource("topic", topic)]).values()
    return answer.result(10)["retention.ms"].value


def offsets_survive(cluster: Brokers) -> str:
    """Committed offsets survive a kill of the coordinator's broker, and another broker becomes the coordinator."""
    group = "survivors"
    member = Consumer(
        {**QUICK, "bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    committed = [TopicPartition(TOPIC, index, 10 + index) for index in range(PARTITIONS)]
    expected = {part.partition: part.offset for part in committed}
    member.commit(offsets=committed, asynchronous=False)
    told = []
    for broker_id in cluster.kinds:
        cluster.nodes[broker_id].kill()
        begun = time.monotonic()

        def offsets_now() -> dict[int, int]:
            asked = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
            try:
                return {part.partition: part.offset for part in member.committed(asked, timeout=5)}
            except Exception:
                return {}

        wait_until(
            lambda offsets_now=offsets_now: offsets_now() == expected,
            "committed offsets are read",
            lambda offsets_now=offsets_now: str(offsets_now()),
        )
        told.append(f"{time.monotonic() - begun:.1f} s")
        cluster.start(broker_id)
        cluster.wait_in_sync("__consumer_offsets", 3)
    member.close()
    return f"read again after {', '.join(told)} with brokers 1, 2, 3 killed in turn"


def rolled_over(cluster: Brokers) -> str:
    """Broker by broker the cluster becomes one of the other kind, on the same log dirs, and back, under two producers."""
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate=500)
    before = _count(cluster)
    tools.run(
        cluster, "topics", "--create", "--topic", FRANZ_GO, "--partitions", str(clients.PARTITIONS),
        "--replication-factor", "3", "--config", "min.insync.replicas=2",
    )  # fmt: skip
    cluster.wait_in_sync(FRANZ_GO, 3)
    franz_go = clients.FranzGo(FRANZ_GO, cluster.bootstrap, 500, cluster.directory)
    begun = time.monotonic()
    franz_go.start()
    with load:
        wait_until(
            lambda: min(len(load.acknowledged), len(franz_go.acknowledged)) > 500, "the load begins",
            lambda: str(franz_go.errors),
        )  # fmt: skip
        for kind in (OURS, KAFKA):
            for broker_id in cluster.kinds:
                cluster.replace(broker_id, kind)
                cluster.wait_in_sync(TOPIC, 3)
                cluster.wait_in_sync(FRANZ_GO, 3)
            so_far = len(load.acknowledged)
            wait_until(
                lambda so_far=so_far: len(load.acknowledged) > so_far + 500, "records are acknowledged"
            )
    franz_go.stop()
    pauses = load.longest_pause(begun), franz_go.longest_pause(begun, time.monotonic())
    _check_growth(cluster, load, before)
    broken = verdict.broken_promises(franz_go, verdict.read(cluster.bootstrap, FRANZ_GO))
    if broken:
        raise ClusterError("; ".join(broken))
    counts = len(load.acknowledged), len(franz_go.acknowledged)
    return (
        f"three Kafkas to three of ours and back: {counts[0]} records of librdkafka, longest pause {pauses[0]:.1f} s; "
        f"{counts[1]} of franz-go, {pauses[1]:.1f} s"
    )


def protocol_raised(cluster: Brokers) -> str:
    """Brokers are restarted with a newer inter.broker.protocol.version, one by one, under load: topics get their ids."""

    def topic_id() -> str:
        return cluster.topic_id(TOPIC)

    if topic_id():
        raise ClusterError(f"with the older protocol {TOPIC} has an id: {topic_id()}")
    before = cluster.settings["inter.broker.protocol.version"]
    cluster.settings["inter.broker.protocol.version"] = "3.9"
    load = Load(cluster.bootstrap, TOPIC, PARTITIONS, rate=500)
    counts = _count(cluster)
    begun = time.monotonic()
    with load:
        wait_until(lambda: len(load.acknowledged) > 500, "the load begins")
        for broker_id in cluster.kinds:
            cluster.nodes.pop(broker_id).stop()
            cluster.start(broker_id)
            cluster.wait_in_sync(TOPIC, 3)
        wait_until(lambda: bool(topic_id()), f"{TOPIC} has an id")
        so_far = len(load.acknowledged)
        wait_until(lambda: len(load.acknowledged) > so_far + 500, "records are acknowledged")
    pause = load.longest_pause(begun)
    _check_growth(cluster, load, counts)
    described = tools.run(cluster, "topics", "--describe", "--topic", TOPIC, expect=f"TopicId: {topic_id()}")
    if described.count("Isr: ") != PARTITIONS:
        raise ClusterError(described)
    return f"{before} to 3.9, {TOPIC} is {topic_id()}; {len(load.acknowledged)} records, longest pause {pause:.1f} s"


CHECKS: tuple[Check, ...] = (
    membership, creation, produce_and_consume, java_clients, transactions, identical_replicas, other_tools, reassignment,
    preferred_leaders, leader_killed, preferred_leaders, clean_stop, offsets_survive, identical_replicas,
)  # fmt: skip
ROLLED: tuple[Check, ...] = (
    membership, creation, produce_and_consume, transactions, rolled_over, identical_replicas, produce_and_consume,
    transactions,
)  # fmt: skip
"""Checks of a cluster that is rolled over."""
RAISED: tuple[Check, ...] = (
    membership, creation, produce_and_consume, protocol_raised, identical_replicas, produce_and_consume, transactions,
    leader_killed, identical_replicas,
)  # fmt: skip
"""Promises of a cluster after its protocol is raised."""
