"""Java clients of a mixed quorum, and topics that brokers make themselves: parts of `parity`.

The rule: groups and transactions have coordinators at both brokers, and clients begin at each.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

from compat.cluster.nodes import ClusterError, wait_until
from compat.cluster.peers import ADMIN
from compat.cluster.quorum_peers import QuorumPeers
from compat.kafka import release, tool_command
from compat.kit.wire import ZERO_UUID, Connection

COORDINATORS: dict[str, tuple[int, Callable[[bytes], str]]] = {
    "__consumer_offsets": (0, lambda _: "group"),
    "__transaction_state": (1, lambda _: "transaction"),
    "__share_group_state": (2, lambda topic_id: f"group:{_text(topic_id)}:0"),
}
"""Internal topics, each with the type and the key of a FindCoordinator that creates it."""
NAMES = 4
"""Number of groups and of transactional ids for each broker: the coordinators of some are at the other."""
RECORDS = 200
TOOL_S = 90


def _text(topic_id: bytes) -> str:
    from barnabas.wire.ids import uuid_text

    return uuid_text(topic_id)


def internal_topics(peers: QuorumPeers, broker_ids: tuple[int, int]) -> str:
    """Each broker has internal topics made that are not there, with the same settings. Raises ClusterError."""
    topics = [_made_by(peers, broker_id) for broker_id in broker_ids]
    if topics[0] != topics[1]:
        raise ClusterError(f"internal topics are made differently: {topics}")
    return f"{len(topics[0])} internal topics, {sum(len(settings) for _, settings in topics[0].values())} settings"


def _made_by(peers: QuorumPeers, broker_id: int) -> dict[str, Any]:
    cluster = peers.cluster
    with Connection("127.0.0.1", cluster.quorum.leader().admin_port) as controller:
        names = [name for name in COORDINATORS if name in cluster.topics()]
        if names:
            controller.ask("DeleteTopics", 5, {"TopicNames": names, "TimeoutMs": 9000})
    with Connection("127.0.0.1", cluster.ports[broker_id]) as broker:
        asked = {"Topics": None, "AllowAutoTopicCreation": False}
        wait_until(
            lambda: (
                not {topic["Name"] for topic in broker.ask("Metadata", 12, asked)["Topics"]} & {*COORDINATORS}
            ),
            "internal topics are deleted",
        )
        topic_id = next(
            topic["TopicId"]
            for topic in broker.ask("Metadata", 12, asked)["Topics"]
            if topic["TopicId"] != ZERO_UUID
        )
        for kind, key in COORDINATORS.values():
            values = {"KeyType": kind, "CoordinatorKeys": [key(topic_id)]}
            wait_until(
                lambda values=values: (
                    not broker.ask("FindCoordinator", 6, values)["Coordinators"][0]["ErrorCode"]
                ),
                f"{peers.what(broker_id)} names a coordinator of type {kind}",
            )
    image = cluster.image()
    topics = {}
    for name in COORDINATORS:
        topic = image.topic(name)
        if topic is None:
            raise ClusterError(f"{name} is not made by {peers.what(broker_id)}")
        replicas = [len(partition.replicas) for _, partition in image.partitions_of(topic)]
        topics[name] = (replicas, dict(image.settings.get((2, name), {})))
    return topics


def clients(peers: QuorumPeers, broker_ids: tuple[int, int]) -> str:
    """Run transactions of KIP-890, groups of KIP-848 and share groups, by each broker. Raises ClusterError."""
    cluster = peers.cluster
    leaders: set[int] = set()
    # All users have a quota of 1 KB/s: of a throttled ShareFetch Kafka sends no records, which stay locked for 30 s.
    peers.tool(
        broker_ids[0], "configs", "--alter", "--entity-type", "users", "--entity-name", ADMIN, "--add-config",
        "consumer_byte_rate=1000000000",
    )  # fmt: skip
    for broker_id in broker_ids:
        at = f"127.0.0.1:{peers.users[broker_id]}"
        topic = f"clients-{broker_id}"
        peers.tool(
            broker_id,
            "topics",
            "--create",
            "--topic",
            topic,
            "--partitions",
            "2",
            "--replication-factor",
            "2",
        )
        for number in range(NAMES):
            _run(
                peers, "producer-perf-test", "--topic", topic, "--num-records", str(RECORDS), "--record-size", "10",
                "--throughput", "-1", "--transactional-id", f"tx-{broker_id}-{number}", "--transaction-duration-ms", "50",
                "--producer.config", str(peers.admin), "--producer-props", f"bootstrap.servers={at}",
            )  # fmt: skip
        count = NAMES * RECORDS
        for number in range(NAMES):
            group = f"new-{broker_id}-{number}"
            output = _run(
                peers, "console-consumer", "--bootstrap-server", at, "--topic", topic, "--from-beginning", "--group", group,
                "--max-messages", str(count), "--timeout-ms", "60000", "--consumer.config", str(peers.admin),
                "--consumer-property", "group.protocol=consumer", "--consumer-property", "isolation.level=read_committed",
            )  # fmt: skip
            _check(output, count, f"{group} of KIP-848")
            shared = f"share-{broker_id}-{number}"
            peers.tool(
                broker_id, "configs", "--alter", "--entity-type", "groups", "--entity-name", shared, "--add-config",
                "share.auto.offset.reset=earliest,share.isolation.level=read_committed",
            )  # fmt: skip
            output = _run(
                peers, "console-share-consumer", "--bootstrap-server", at, "--topic", topic, "--group", shared,
                "--max-messages", str(count), "--timeout-ms", "60000", "--consumer-config", str(peers.admin),
            )  # fmt: skip
            _check(output, count, shared)
    peers.tool(
        broker_ids[0], "configs", "--alter", "--entity-type", "users", "--entity-name", ADMIN, "--delete-config",
        "consumer_byte_rate",
    )  # fmt: skip
    for name in COORDINATORS:
        leaders |= {state["leader"] for state in cluster.states(name).values()}
    if leaders != set(broker_ids):
        raise ClusterError(f"the coordinators are at brokers {leaders} alone")
    return f"{2 * NAMES} transactional ids, groups of KIP-848 and share groups each, {count} records a topic"


def _check(output: str, count: int, what: str) -> None:
    lines = [line for line in output.splitlines() if len(line) == 10]
    if len(lines) != count:
        raise ClusterError(f"{what} reads {len(lines)} of {count} records: {output[-500:]}")


def _run(peers: QuorumPeers, name: str, *arguments: str) -> str:
    command = tool_command(release(peers.cluster.version), name, *arguments)
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TOOL_S)
    if done.returncode:
        raise ClusterError(f"{name} {' '.join(arguments)}: {done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout
