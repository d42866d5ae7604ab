"""ACLs shared by Apache Kafka 3.9 and Barnabas in one cluster on ZooKeeper: python -m compat.security.shared.

Each creates, changes and deletes ACLs; both must soon list the same ones, and make the same decisions. The exit code is 1
otherwise.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compat.kafka import KafkaError, RealKafka, free_port
from compat.kafka.broker import COMMON_SETTINGS
from compat.kit.sides import Side, StartError, barnabas
from compat.kit.wire import Values, WireError
from compat.security.acl_steps import (
    ALL,
    CLUSTER,
    CLUSTER_NAME,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    PREFIXED,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WRITE,
    acl,
    acl_filter,
)  # fmt: skip
from compat.security.sides import ADMIN, settings

SEEN_WITHIN_S = 20
NAMES = ("a", "ab", "b")
SETS: tuple[list[Values], ...] = (
    [acl(READ, TOPIC, "a"), acl(WRITE, TOPIC, "a"), acl(DESCRIBE_CONFIGS, TOPIC, "*", user="*")],
    [acl(ALL, TOPIC, "a", pattern=PREFIXED), acl(READ, TOPIC, "ab", permission=DENY, host="127.0.0.1")],
    [acl(DESCRIBE, TRANSACTIONAL_ID, "x", pattern=PREFIXED), acl(READ, GROUP, "g"), acl(13, USER, "User:x")],
    [acl(DESCRIBE, CLUSTER, CLUSTER_NAME), acl(READ, TOPIC, "name with \u00fc and spaces")],
)


@contextmanager
def cluster() -> Iterator[tuple[Side, Side]]:
    """(Kafka, Barnabas) on one ZooKeeper, with AclAuthorizer. Brokers speak with each other as super users."""
    with tempfile.TemporaryDirectory(prefix="shared-") as name:
        directory = Path(name)

        def lines(port: int, sasl_port: int) -> dict[str, str]:
            between = {
                "inter.broker.listener.name": "PLAINTEXT",
                "super.users": f"User:{ADMIN};User:ANONYMOUS",
            }
            return {**settings("zookeeper", port, sasl_port), **between}

        port, sasl_port = free_port(), free_port()
        kafka = RealKafka(
            "3.9", port, data=directory / "kafka", settings=lines(port, sasl_port), mode="zookeeper"
        )
        with kafka:
            ours, sasl_ours, properties = free_port(), free_port(), directory / "server.properties"
            own = {
                **COMMON_SETTINGS, **lines(ours, sasl_ours), "broker.id": "2", "zookeeper.connect": kafka.zookeeper,
                "log.dirs": str(directory / "barnabas"),
            }  # fmt: skip
            properties.write_text("".join(f"{key}={value}\n" for key, value in own.items()))
            with barnabas(properties):
                yield Side("Kafka", port, sasl_port), Side("Barnabas", ours, sasl_ours)


def listed(side: Side) -> set[tuple[object, ...]]:
    """All ACLs, as a broker describes them."""
    with side.connect(user=ADMIN) as connection:
        answer = connection.ask("DescribeAcls", 3, acl_filter())
    return {
        (item["ResourceType"], item["PatternType"], item["ResourceName"], *entry.values())
        for item in answer["Resources"]
        for entry in item["Acls"]
    }


def decided(side: Side) -> dict[str, tuple[int, int]]:
    """A broker's decisions on what alice may do with each topic."""
    asked = {"Topics": [{"Name": name} for name in NAMES], "IncludeTopicAuthorizedOperations": True}
    with side.connect(user="alice") as connection:
        answer = connection.ask("Metadata", 10, {**asked, "AllowAutoTopicCreation": False})
    return {row["Name"]: (row["ErrorCode"], row["TopicAuthorizedOperations"]) for row in answer["Topics"]}


def agree(label: str, kafka: Side, ours: Side, of: Callable[[Side], object], expected: object = None) -> bool:
    """Wait until both agree, and agree with `expected` if given; prints and returns the result."""
    give_up = time.monotonic() + SEEN_WITHIN_S
    while True:
        lists = of(kafka), of(ours)
        if lists[0] == lists[1] and expected in (None, lists[0]):
            print(f"same: {label}")
            return True
        if time.monotonic() > give_up:
            print(f"differs: {label}:\n  Kafka    {lists[0]}\n  Barnabas {lists[1]}\n  expected {expected}")
            return False
        time.sleep(0.1)


def rounds(kafka: Side, ours: Side) -> Iterator[bool]:
    """Each set of ACLs is made by one of them, added to by the other, and deleted by either."""
    with kafka.connect(user=ADMIN) as connection:
        topics = [{"Name": name, "NumPartitions": 1, "ReplicationFactor": 1} for name in NAMES]
        connection.ask("CreateTopics", 5, {"Topics": topics, "timeoutMs": 10_000})
    more = acl(WRITE, TOPIC, "a", user="bob")
    for number, acls in enumerate(SETS):
        first, second = (kafka, ours) if number % 2 else (ours, kafka)
        label = f"set {number}, made by {first.name}"
        for side, entries in ((first, acls), (second, [more])):
            with side.connect(user=ADMIN) as connection:
                results = connection.ask("CreateAcls", 3, {"Creations": entries})["Results"]
            assert not any(entry["ErrorCode"] for entry in results), results
        expected = {
            (entry["ResourceType"], entry["ResourcePatternType"], entry["ResourceName"], entry["Principal"], entry["Host"],
             entry["Operation"], entry["PermissionType"])
            for entry in (*acls, more)
        }  # fmt: skip
        yield agree(f"{label}: listed", kafka, ours, listed, expected)
        yield agree(f"{label}: decided", kafka, ours, decided)
        with second.connect(user=ADMIN) as connection:
            connection.ask("DeleteAcls", 3, {"Filters": [acl_filter(principal="User:bob")]})
        yield agree(
            f"{label}: one deleted by {second.name}",
            kafka,
            ours,
            listed,
            {entry for entry in expected if "User:bob" not in entry},
        )
        with first.connect(user=ADMIN) as connection:
            connection.ask("DeleteAcls", 3, {"Filters": [acl_filter()]})
        yield agree(f"{label}: all deleted", kafka, ours, listed, set())


def main() -> int:
    """Try it; returns the exit code."""
    try:
        with cluster() as (kafka, ours):
            outcomes = list(rounds(kafka, ours))
    except (KafkaError, StartError, WireError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(outcomes)} looks, {outcomes.count(False)} of them different")
    return 0 if all(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
