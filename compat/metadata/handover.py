"""Handover of the directory of a combined broker and controller, from Apache Kafka to us and back.

    python -m compat.metadata.handover [--version 4.x] [--pairs kafka-barnabas,...] [--seed S] [--keep DIR]

Ours is `barnabas`, a node of both roles with Kafka's own server.properties, or `alone`, a broker without roles. Each run
has another cluster, made by random changes from a seed, which is printed.

The rule: a node that starts on the directory answers clients as the previous one did, field by field: topics, settings,
ACLs, quotas, users, tokens, features, groups, offsets, transactions and the bytes of all logs; and accepts changes of each.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

from compat.kafka import RealKafka
from compat.kafka.broker import free_port, wait_until_ready
from compat.kafka.process import JavaProcess
from compat.kit.known import differences_between
from compat.kit.wire import Connection, Values
from compat.metadata import workload
from compat.metadata.changes import RandomChanges
from compat.metadata.coordinator_changes import Node
from compat.metadata.quorum import BARNABAS, environment, format_ours
from compat.metadata.workload import BROKER, CLIENT_METRICS, GROUP, HOST, TOPIC

SETTLE_S = 20.0
SETTLE_PAUSE_S = 0.5
CHANGES_OF_A_ROUND = 12
OWN_SOURCES = (1, 2, 3, 7, 8)
"""Sources of settings that the metadata have: of a topic, a broker, all brokers, client metrics, a group."""
PATIENCE = dict.fromkeys(
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"), "3600000"
)
"""Settings by which a static member that is away stays one, however long a start takes."""
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
        settings = {**workload.settings(path, self.port, self.sasl_port), **PATIENCE}
        self.kafka = RealKafka(version, self.port, data=path, settings=settings)
        self.properties = self.kafka._write_properties()
        self.controller = int((path / "controller.port").read_text())

    def format(self, name: str) -> None:
        """Format the directory, as the first to start does. Raises WorkloadError, RuntimeError."""
        if name == "kafka":
            workload.format_directory(self.kafka)
        if name != "barnabas":
            return  # a broker that is alone formats its directory itself
        user = f"SCRAM-SHA-256=[name=admin,password={workload.PASSWORD}]"
        format_ours("-c", str(self.properties), "--standalone", "--add-scram", user)

    def _own_properties(self, name: str) -> Path:
        """Return the settings file of our node: the same, or one without roles and controllers.

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

    @property
    def node(self) -> Node:
        """Addresses of the broker."""
        return Node(self.port, self.sasl_port)

    @contextmanager
    def connections(self) -> Iterator[tuple[Connection, Connection]]:
        """Connect to the broker without a login, and as the user alice."""
        with Connection(HOST, self.port) as broker, Connection(HOST, self.sasl_port) as login:
            workload.ask(login, "SaslHandshake", 1, {"Mechanism": "PLAIN"})
            workload.ask(
                login, "SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0" + workload.PASSWORD.encode()}
            )
            yield broker, login

    def listens(self) -> bool:
        """Return whether the node accepts clients."""
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


def filled(directory: Directory, changes: RandomChanges, rounds: int) -> None:
    """Make random changes while the node runs: one of each kind in the first round, some in each later one."""
    with directory.connections() as (broker, login):
        if not changes.log:
            changes.all_kinds(broker, login)
        for _ in range(rounds):
            changes.some(CHANGES_OF_A_ROUND, broker, login)


def seen(directory: Directory, changes: RandomChanges) -> dict[str, Any]:
    """Return the state as seen by clients, by request."""
    with directory.connections() as (broker, login):

        def ask(api: str, version: int, **values: Any) -> Values:
            return broker.ask(api, version, values)

        topics = ask("Metadata", 12, Topics=None, AllowAutoTopicCreation=False)["Topics"]
        own = {topic["Name"]: len(topic["Partitions"]) for topic in topics if not topic["IsInternal"]}
        offsets = _group_offsets(broker)
        groups = [
            group
            for group in ask("ListGroups", 5, StatesFilter=[], TypesFilter=[])["Groups"]
            if group["ProtocolType"] or group["GroupId"] in offsets
        ]  # Kafka lists those that have lost their last offset, until it next looks for old ones
        by_type = {
            kind: [group["GroupId"] for group in groups if group["GroupType"] == kind]
            for kind in ("classic", "consumer", "share")
        }
        transactional_ids = sorted(changes.transactions)
        shares = [{"GroupId": group, "Topics": None} for group in by_type["share"]]
        all_partitions = [
            {"Name": topic, "PartitionIndexes": list(range(count))} for topic, count in own.items()
        ]
        answers = {
            "topics": topics,
            "epochs": {
                f"{topic['Name']}-{partition['PartitionIndex']}": partition["LeaderEpoch"]
                for topic in topics
                for partition in topic["Partitions"]
            },
            "settings": _settings(broker, own),
            "acls": ask("DescribeAcls", 3, **workload.ANY_ACL)["Resources"],
            "quotas": ask("DescribeClientQuotas", 1, Components=[], Strict=False)["Entries"],
            "users": ask("DescribeUserScramCredentials", 0, Users=None)["Results"],
            "tokens": login.ask("DescribeDelegationToken", 3, {"Owners": None})["Tokens"],
            "features": ask("ApiVersions", 4, **_CLIENT)["FinalizedFeatures"],
            "log dirs": {
                entry["LogDir"]: {
                    topic["Name"]: sorted(partition["PartitionIndex"] for partition in topic["Partitions"])
                    for topic in entry["Topics"]
                    if topic["Name"] in own
                }
                for entry in ask("DescribeLogDirs", 4, Topics=None)["Results"]
            },
            "groups": groups,
            "classic groups": ask("DescribeGroups", 5, Groups=by_type["classic"])["Groups"],
            "consumer groups": ask("ConsumerGroupDescribe", 1, GroupIds=by_type["consumer"])["Groups"],
            "share groups": ask("ShareGroupDescribe", 1, GroupIds=by_type["share"])["Groups"],
            "offsets": offsets,
            "offsets of share groups": ask("DescribeShareGroupOffsets", 1, Groups=shares)["Groups"],
            "transactions": ask("DescribeTransactions", 0, TransactionalIds=transactional_ids)[
                "TransactionStates"
            ],
            "producers": ask("DescribeProducers", 0, Topics=all_partitions)["Topics"],
            "first offsets": _offsets(broker, own, -2),
            "stable offsets": _offsets(broker, own, -1),
            "records": {
                f"{topic}-{index}": _log(broker, topic, index)
                for topic, count in own.items()
                for index in range(count)
            },
        }
    return {name: _plain(answer) for name, answer in answers.items()}


def settled(
    directory: Directory, changes: RandomChanges, before: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return the state once it equals `before` (by default, once it is stable), or after a timeout.

    A broker of Kafka learns of changes after their answers, and a coordinator loads its groups after a start.
    """
    deadline = time.monotonic() + SETTLE_S
    expected = seen(directory, changes) if before is None else before
    while True:
        time.sleep(SETTLE_PAUSE_S)
        after = seen(directory, changes)
        if not list(differences(expected, after)) or time.monotonic() > deadline:
            return after
        expected = after if before is None else before


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    """Yield where two observations differ; leader epochs of a later one may be higher."""
    for what, answer in before.items():
        if what != "epochs":
            for path, earlier, later in differences_between("", answer, after[what]):
                yield f"{what}: {path}: {earlier!r:.300} became {later!r:.300}"
            continue
        for partition, epoch in answer.items():
            if after[what].get(partition, -1) < epoch:
                yield f"leader epoch of {partition}: {epoch} became {after[what].get(partition)}"


_CLIENT = {"ClientSoftwareName": "handover", "ClientSoftwareVersion": "1"}


def _settings(broker: Connection, topics: Iterable[str]) -> Values:
    listed = broker.ask("ListConfigResources", 1, {"ResourceTypes": [BROKER, CLIENT_METRICS, GROUP]})
    resources = [(entry["ResourceType"], entry["ResourceName"]) for entry in listed["ConfigResources"]]
    resources += [(BROKER, ""), *((TOPIC, topic) for topic in topics)]
    values = {
        "Resources": [
            {"ResourceType": kind, "ResourceName": name, "ConfigurationKeys": None}
            for kind, name in resources
        ],
        "IncludeSynonyms": True,
        "IncludeDocumentation": False,
    }
    return {
        f"{result['ResourceType']} {result['ResourceName']}": {
            config["Name"]: [
                config["Value"],
                config["ConfigSource"],
                [synonym for synonym in config["Synonyms"] if synonym["Source"] in OWN_SOURCES],
            ]
            for config in result["Configs"]
            if config["ConfigSource"] in OWN_SOURCES
        }
        for result in broker.ask("DescribeConfigs", 4, values)["Results"]
    }


def _group_offsets(broker: Connection) -> Values:
    """Return the offsets of groups that have any, share groups left out."""
    listed = broker.ask("ListGroups", 5, {"StatesFilter": [], "TypesFilter": ["classic", "consumer"]})[
        "Groups"
    ]
    groups = [
        {"GroupId": group["GroupId"], "MemberId": None, "MemberEpoch": -1, "Topics": None} for group in listed
    ]
    answer = broker.ask("OffsetFetch", 9, {"Groups": groups, "RequireStable": False})
    return {group["GroupId"]: group for group in answer["Groups"] if group["Topics"]}


def _offsets(broker: Connection, topics: Mapping[str, int], timestamp: int) -> Values:
    asked = [
        {
            "Name": topic,
            "Partitions": [{"PartitionIndex": index, "Timestamp": timestamp} for index in range(count)],
        }
        for topic, count in topics.items()
    ]
    answer = broker.ask("ListOffsets", 7, {"ReplicaId": -1, "IsolationLevel": 1, "Topics": asked})
    return {
        f"{topic['Name']}-{partition['PartitionIndex']}": [partition["ErrorCode"], partition["Offset"]]
        for topic in answer["Topics"]
        for partition in topic["Partitions"]
    }


def _log(broker: Connection, topic: str, index: int) -> Values:
    """Return the batches of a partition, as they are: their number and a hash, and what transactions make of them."""
    first = _offsets(broker, {topic: index + 1}, -2)[f"{topic}-{index}"][1]
    batches, offset, digest = 0, first, hashlib.sha256()
    partition: Values = {"Partition": index, "PartitionMaxBytes": 1 << 20}
    topics = [{"Topic": topic, "Partitions": [partition]}]
    while True:
        partition["FetchOffset"] = offset
        values = {
            "ReplicaId": -1, "MaxWaitMs": 0, "MinBytes": 0, "MaxBytes": 1 << 24, "IsolationLevel": 0, "SessionEpoch": -1,
            "Topics": topics,
        }  # fmt: skip
        answer = broker.ask("Fetch", 11, values)["Responses"][0]["Partitions"][0]
        records = answer["Records"] or b""
        position = 0
        while position + 61 <= len(records):
            base, size = struct.unpack_from(">qi", records, position)
            last = struct.unpack_from(">i", records, position + 23)[0]
            if base + last >= offset:
                digest.update(records[position : position + 12 + size])
                batches += 1
                offset = base + last + 1
            position += 12 + size
        if not records:
            break
    partition["FetchOffset"] = first
    committed = broker.ask("Fetch", 11, {**values, "IsolationLevel": 1})["Responses"][0]["Partitions"][0]
    return {
        "batches": batches, "hash": digest.hexdigest(), "error": answer["ErrorCode"], "end": offset,
        "stable": committed["LastStableOffset"], "aborted": committed["AbortedTransactions"],
    }  # fmt: skip


def _plain(value: Any) -> Any:
    """Return a response without values that a restart changes, with lists sorted or as dicts by their entries' keys."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key not in OF_A_START}
    if not isinstance(value, list):
        return value
    for key in (
        "Name",
        "TopicName",
        "Topic",
        "GroupId",
        "PartitionIndex",
        "User",
        "TokenId",
        "TransactionalId",
    ):
        if value and all(isinstance(item, dict) and key in item for item in value):
            return {str(item[key]): _plain(item) for item in value}
    return sorted((_plain(item) for item in value), key=repr)


def hand_over(
    directory: Directory, first: str, second: str, changes: RandomChanges, rounds: int, starts: int
) -> Iterator[str]:
    """Yield the differences after each start except the first: of the second node, of the first again, and so on."""
    directory.format(first)
    is_alone = "alone" in (first, second)
    with directory.running(first):
        filled(directory, changes, rounds)
        before = settled(directory, changes)
    counts = ", ".join(f"{len(answer)} {name}" for name, answer in before.items())
    print(f"{first}: {len(changes.log)} changes, {counts}")
    for number, name in enumerate((second, first) * starts, 2):
        if number > starts:
            return
        with directory.running(name):
            for line in differences(before, settled(directory, changes, before)):
                if not (is_alone and line.startswith(ALONE_LACKS)):
                    yield f"start {number}, {name}: {line}"
            filled(directory, changes, 1)
            before = settled(directory, changes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", default="4.x", help="which Kafka (default: the newest here)")
    parser.add_argument("--pairs", default=",".join(PAIRS), help="which, the first to start named first")
    parser.add_argument(
        "--seed", default=date.today().strftime("%Y%m%d"), help="of the cluster (default: the day)"
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="rounds of changes before the first end (default: 3)"
    )
    parser.add_argument("--starts", type=int, default=4, help="starts of each directory (default: 4)")
    parser.add_argument("--keep", metavar="DIR", type=Path, help="leave everything there")
    options = parser.parse_args()
    base = options.keep or Path(tempfile.mkdtemp(prefix="compat-metadata-"))
    print(f"seed {options.seed}")
    count = 0
    try:
        for pair in options.pairs.split(","):
            first, _, second = pair.partition("-")
            directory = Directory(options.version, base / pair)
            random = Random(f"{options.seed} {pair}")
            changes = RandomChanges(random, directory.node, has_features="alone" not in (first, second))
            for line in hand_over(directory, first, second, changes, options.rounds, options.starts):
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
