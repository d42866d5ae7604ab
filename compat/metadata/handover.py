"""One directory of a node that is broker and controller, from Apache Kafka to us and from us to Kafka.

    python -m compat.metadata.handover [--version 4.x] [--pairs kafka-barnabas,...] [--keep DIR]

Ours is `barnabas`, a node of both roles with Kafka's own server.properties, or `alone`, a broker without roles.

The rule: a node that starts on the directory answers clients as the one before it did: topics, settings, ACLs, quotas,
users, tokens, features, groups and records; and it takes more of each.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from compat.kafka import RealKafka
from compat.kafka.broker import free_port, wait_until_ready
from compat.kafka.process import JavaProcess
from compat.kit.wire import Connection, Values, WireError
from compat.metadata import workload
from compat.metadata.quorum import BARNABAS, environment, format_ours
from compat.metadata.workload import BROKER, CLIENT_METRICS, GROUP, HOST, TOPIC

RECORDS = 500
SETTLE_S = 20.0
RESOURCES = [
    (TOPIC, "orders"), (TOPIC, "payments"), (BROKER, ""), (BROKER, "1"), (GROUP, "share-1"),
    (CLIENT_METRICS, "slow-producers"),
]  # fmt: skip
OWN_SOURCES = (1, 2, 3, 7, 8)
"""Sources of settings that the metadata have: of a topic, a broker, all brokers, client metrics, a group."""
PAIRS = ("kafka-barnabas", "barnabas-kafka", "kafka-alone", "alone-kafka", "alone-barnabas")
ALONE_LACKS = ("features",)
"""Parts of the directory that a broker which is alone has of its release."""
OF_A_START = {"LeaderEpoch", "ThrottleTimeMs", "ClusterId", "ControllerId", "OfflineReplicas"}
"""Fields that may differ after a restart."""


class Directory:
    """The directory, its ports, and the settings with which either starts."""

    def __init__(self, version: str, path: Path) -> None:
        self.port, self.sasl_port = free_port(), free_port()
        path.mkdir(parents=True, exist_ok=True)
        settings = workload.settings(path, self.port, self.sasl_port)
        self.kafka = RealKafka(version, self.port, data=path, settings=settings)
        self.properties = self.kafka._write_properties()
        self.controller = int((path / "controller.port").read_text())

    def format(self, name: str) -> None:
        """Format the directory, as the first to start does. Raises WorkloadError, RuntimeError."""
        if name == "kafka":
            workload._format(self.kafka)
        if name != "barnabas":
            return  # a broker that is alone formats its directory itself
        user = f"SCRAM-SHA-256=[name=admin,password={workload.PASSWORD}]"
        format_ours("-c", str(self.properties), "--standalone", "--add-scram", user)

    def _own_properties(self, name: str) -> Path:
        """Return the file with which ours starts: the same, or one without roles and controllers.

        With that of Kafka a broker is alone as well, unless the directory was formatted for a controller.
        """
        if name != "alone" or not (self.properties.parent / "logs" / "bootstrap.checkpoint").exists():
            return self.properties
        lines = []
        for line in self.properties.read_text().splitlines():
            key, _, value = line.partition("=")
            if key in ("listeners", "listener.security.protocol.map"):
                value = ",".join(item for item in value.split(",") if not item.startswith("CONTROLLER:"))
            if not key.startswith(("process.roles", "controller.")):
                lines.append(f"{key}={value}\n")
        path = self.properties.with_name("alone.properties")
        path.write_text("".join(lines))
        return path

    def listens(self) -> bool:
        """Say whether the node accepts clients."""
        try:
            Connection(HOST, self.port).close()
        except OSError:
            return False
        return True

    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        """Run one of the two until the end of the block. Raises KafkaError."""
        if name == "kafka":
            self.kafka.port = self.port
            with self.kafka:
                yield
            return
        process = JavaProcess("barnabas", self.properties.parent)
        words = [*BARNABAS, "serve", "--config", str(self._own_properties(name))]
        process.start(words, environment())
        try:
            wait_until_ready("Barnabas", process, self.listens)
            yield
        finally:
            process.stop()
            complaints = [line for line in process.output.read_text().splitlines() if " ERROR " in line]
            if complaints:
                print(f"Barnabas complained: {complaints[0]}")


def fill(directory: Directory, version: str, *, has_controller: bool) -> None:
    """Make one of everything, records and committed offsets."""
    feature = "group.version" if version.startswith("4.0") else "share.version"
    with (
        Connection(HOST, directory.port) as broker,
        Connection(HOST, directory.sasl_port) as login,
        Connection(HOST, directory.controller) if has_controller else nullcontext() as active,
    ):
        workload._run(broker, active, login, feature)
    produce(directory, "first")


def produce(directory: Directory, word: str) -> None:
    """Produce records, and read some of them in a group of that name, which commits."""
    bootstrap = f"{HOST}:{directory.port}"
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        producer.produce("orders", f"{word}-{number}", key=str(number))
    if producer.flush(60):
        raise WireError("records were not acknowledged")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": word, "enable.auto.commit": False})
    for partition in range(3):
        consumer.commit(offsets=[TopicPartition("orders", partition, 10 + partition)], asynchronous=False)
    consumer.close()


def seen(directory: Directory) -> dict[str, Any]:
    """Return all that clients can see, by what was asked."""
    with Connection(HOST, directory.port) as broker, Connection(HOST, directory.sasl_port) as login:
        workload._ask(login, "SaslHandshake", 1, {"Mechanism": "PLAIN"})
        workload._ask(login, "SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0" + workload.PASSWORD.encode()})
        answers: dict[str, Any] = {
            "topics": broker.ask("Metadata", 12, {"Topics": None, "AllowAutoTopicCreation": False})["Topics"],
            "settings": _settings(broker),
            "acls": broker.ask("DescribeAcls", 3, _ANY_ACL)["Resources"],
            "quotas": broker.ask("DescribeClientQuotas", 1, {"Components": [], "Strict": False})["Entries"],
            "users": broker.ask("DescribeUserScramCredentials", 0, {"Users": None})["Results"],
            "tokens": login.ask("DescribeDelegationToken", 3, {"Owners": None})["Tokens"],
            "features": [
                (feature["Name"], feature["MaxVersionLevel"])
                for feature in broker.ask("ApiVersions", 4, _CLIENT)["FinalizedFeatures"]
            ],
            "groups": [
                group["GroupId"]
                for group in workload._ask(broker, "ListGroups", 4, {"StatesFilter": []})["Groups"]
            ],
        }
    answers["offsets"] = _offsets(directory, answers["groups"])
    answers["records"] = _records(directory)
    return {name: _plain(answer) for name, answer in answers.items()}


def settled(directory: Directory, before: dict[str, Any]) -> dict[str, Any]:
    """Return what can be seen once it is as before, or after a while: a coordinator loads its groups after a start."""
    deadline = time.monotonic() + SETTLE_S
    while (after := seen(directory)) != before and time.monotonic() < deadline:
        time.sleep(0.5)
    return after


_CLIENT = {"ClientSoftwareName": "handover", "ClientSoftwareVersion": "1"}
_ANY_ACL = {
    "ResourceTypeFilter": 1, "ResourceNameFilter": None, "PatternTypeFilter": 1, "PrincipalFilter": None,
    "HostFilter": None, "Operation": 1, "PermissionType": 1,
}  # fmt: skip


def _settings(broker: Connection) -> Values:
    resources = [
        {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None} for kind, name in RESOURCES
    ]
    values = {"Resources": resources, "IncludeSynonyms": False, "IncludeDocumentation": False}
    return {
        f"{result['ResourceType']} {result['ResourceName']}": {
            config["Name"]: config["Value"]
            for config in result["Configs"]
            if config["ConfigSource"] in OWN_SOURCES
        }
        for result in broker.ask("DescribeConfigs", 4, values)["Results"]
    }


def _offsets(directory: Directory, groups: list[str]) -> Values:
    offsets = {}
    for group in groups:
        consumer = Consumer({"bootstrap.servers": f"{HOST}:{directory.port}", "group.id": group})
        committed = consumer.committed([TopicPartition("orders", index) for index in range(3)], 30)
        offsets[group] = [partition.offset for partition in committed]
        consumer.close()
    return offsets


def _records(directory: Directory) -> list[tuple[int, int, bytes]]:
    consumer = Consumer(
        {"bootstrap.servers": f"{HOST}:{directory.port}", "group.id": "reader", "enable.auto.commit": False}
    )
    partitions = [TopicPartition("orders", index, 0) for index in range(3)]
    ends = {
        index: consumer.get_watermark_offsets(TopicPartition("orders", index), 30)[1] for index in range(3)
    }
    consumer.assign(partitions)
    records: list[tuple[int, int, bytes]] = []
    deadline = time.monotonic() + 60
    while len(records) < sum(ends.values()) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and not message.error():
            records.append((message.partition(), message.offset(), message.value()))
    consumer.close()
    return sorted(records)


def _plain(value: Any) -> Any:
    """Return an answer without what a start changes, lists in order."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in OF_A_START}
    return sorted((_plain(item) for item in value), key=repr) if isinstance(value, list) else value


def hand_over(version: str, first: str, second: str, path: Path) -> Iterator[str]:
    """Yield what differs after each of three starts: of the second, of the first, and of the second again."""
    directory = Directory(version, path)
    directory.format(first)
    is_alone = "alone" in (first, second)
    with directory.running(first):
        fill(directory, version, has_controller=not is_alone)
        before = seen(directory)
    print(f"{first}: {', '.join(f'{len(answer)} {name}' for name, answer in before.items())}")
    for number, name in enumerate((second, first, second)):
        with directory.running(name):
            after = settled(directory, before)
            for what, answer in before.items():
                if after[what] != answer and not (is_alone and what in ALONE_LACKS):
                    yield f"start {number + 2}, {name}: {what}: {answer!r:.600} became {after[what]!r:.600}"
            with Connection(HOST, directory.port) as broker:
                workload._configure(broker, TOPIC, "payments", "retention.ms", str(1000_000 + number))
            produce(directory, f"again-{number}")
            before = seen(directory)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--pairs", default=",".join(PAIRS), help="which, the first to start named first")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave everything there")
    options = parser.parse_args()
    base = options.keep or Path(tempfile.mkdtemp(prefix="compat-metadata-"))
    count = 0
    try:
        for pair in options.pairs.split(","):
            first, _, second = pair.partition("-")
            for line in hand_over(options.version, first, second, base / pair):
                count += 1
                print(f"DIFFERENT  {pair}: {line}")
    finally:
        if not options.keep:
            shutil.rmtree(base)
    print(f"{count} differences")
    return 1 if count else 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
