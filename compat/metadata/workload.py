"""Metadata of every kind in a KRaft quorum: topics, settings, ACLs, quotas, users, tokens, registrations of brokers.

The rule: each step checks that Kafka accepted it, so that a missing kind of record is an error here, not a gap in the
comparison.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from compat.kafka import RealKafka
from compat.kafka.broker import CLUSTER_ID, free_port, kept_port
from compat.kafka.process import java_command
from compat.kit.wire import Connection, Values

PASSWORD = "secret-of-the-workload"
"""In every password and credential of the workload: no output of ours may have it."""
HOST = "127.0.0.1"
SESSION_MS = 3000
FAKE_BROKER = 2
FAKE_DIR = bytes(range(100, 116))
DEADLINE_S = 60
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SHA_256, SHA_512 = 1, 2
NOT_YET = {3, 5, 6, 14, 15, 16, 41, 51, 62}
"""Errors until a new topic is known (3) and led (5, 6), producer ids are there (14), coordinators are (15, 16, 51), a new
controller is active (41), or the image has a new token (62)."""
ANY_ACL = {
    "ResourceTypeFilter": 1, "ResourceNameFilter": None, "PatternTypeFilter": 1, "PrincipalFilter": None,
    "HostFilter": None, "Operation": 1, "PermissionType": 1,
}  # fmt: skip
"""Filter that every entry fits."""


class WorkloadError(Exception):
    """Kafka refused a step."""


def settings(directory: Path, port: int, sasl_port: int) -> dict[str, str]:
    """Settings of the node: a dynamic quorum of one, an authorizer, SASL for tokens, frequent snapshots, two log dirs."""
    controller = kept_port(directory, "controller.port")
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
        "log.dirs": f"{directory / 'logs'},{directory / 'more'}",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        "delegation.token.secret.key": PASSWORD,
        "broker.rack": "rack-a",
        "broker.session.timeout.ms": str(SESSION_MS),
        "metadata.log.max.record.bytes.between.snapshots": "2000",
        "metadata.max.idle.interval.ms": "5000",
        "num.partitions": "1",
    }


def write_log(directory: Path, version: str, while_running: Callable[[str], None]) -> Path:
    """Run the workload on a Kafka of a release in `directory`; returns the directory of its metadata log.

    `while_running` is called with the address of the controller, after a restart and before the end.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, sasl_port = free_port(), free_port()
    kafka = RealKafka(version, port, data=directory, settings=settings(directory, port, sasl_port))
    format_directory(kafka)
    with kafka:
        controller = int((kafka.directory / "controller.port").read_text())
        with (
            Connection(HOST, port) as broker,
            Connection(HOST, controller) as active,
            Connection(HOST, sasl_port) as login,
        ):
            _run(broker, active, login, "group.version" if version.startswith("4.0") else "share.version")
    kafka.port = port
    with kafka:  # a restart: another incarnation, another epoch of the quorum
        while_running(f"{HOST}:{controller}")
    return kafka.log_dir / "__cluster_metadata-0"


def format_directory(kafka: RealKafka) -> None:
    """Format the directories as a quorum of one that can grow (kraft.version 1), with a user in the bootstrap records."""
    import subprocess

    properties = kafka._write_properties()
    user = f"SCRAM-SHA-256=[name=admin,password={PASSWORD}]"
    command = java_command(
        kafka.release, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties),
        "--standalone", "--add-scram", user,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S * 4)
    if done.returncode:
        raise WorkloadError(f"format failed:\n{done.stdout}{done.stderr}")


def _run(broker: Connection, active: Connection, login: Connection, feature: str) -> None:
    _topics(broker)
    _settings(broker)
    _access(broker)
    _tokens(login)
    ask(broker, "InitProducerId", 4, {"TransactionalId": None, "TransactionTimeoutMs": 1000})
    _second_broker(broker, active)
    _removals(broker)
    update = {"Feature": feature, "MaxVersionLevel": 0, "UpgradeType": 2}
    values = {"timeoutMs": 10_000, "FeatureUpdates": [update], "ValidateOnly": False}
    ask(broker, "UpdateFeatures", 1, values)


def _topics(broker: Connection) -> None:
    for name, count in (("orders", 3), ("payments", 1), ("gone", 2)):
        settings = [{"Name": "retention.ms", "Value": "86400000"}] if name == "orders" else []
        topic = {"Name": name, "NumPartitions": count, "ReplicationFactor": 1, "Configs": settings}
        ask(broker, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 10_000})
    topics = [{"Name": "payments", "Count": 2, "Assignments": None}]
    ask(broker, "CreatePartitions", 3, {"Topics": topics, "TimeoutMs": 10_000, "ValidateOnly": False})


def _settings(broker: Connection) -> None:
    changes = (
        (TOPIC, "orders", "cleanup.policy", "compact,delete"),
        (TOPIC, "gone", "retention.bytes", "1000"),
        (BROKER, "", "log.cleaner.threads", "2"),
        (BROKER, "1", "log.cleaner.io.max.bytes.per.second", "1000000.0"),
        (BROKER, "1", "listener.name.plaintext.ssl.keystore.password", PASSWORD),
        (BROKER, "1", "my.plugin.api.token", PASSWORD),
        (CLIENT_METRICS, "slow-producers", "metrics", "org.apache.kafka.producer."),
        (CLIENT_METRICS, "slow-producers", "interval.ms", "60000"),
        (GROUP, "share-1", "share.auto.offset.reset", "earliest"),
    )
    for kind, name, key, value in changes:
        configure(broker, kind, name, key, value)


def configure(broker: Connection, kind: int, name: str, key: str, value: str | None) -> None:
    change = {"Name": key, "ConfigOperation": 1 if value is None else 0, "Value": value}
    resource = {"ResourceType": kind, "ResourceName": name, "Configs": [change]}
    ask(broker, "IncrementalAlterConfigs", 1, {"Resources": [resource], "ValidateOnly": False})


def _access(broker: Connection) -> None:
    for principal, pattern, permission in (("User:bob", 3, 3), ("User:eve", 4, 2)):
        acl = {
            "ResourceType": 2, "ResourceName": "orders", "ResourcePatternType": pattern, "Principal": principal,
            "Host": "*", "Operation": 3, "PermissionType": permission,
        }  # fmt: skip
        ask(broker, "CreateAcls", 3, {"Creations": [acl]})
    for entity in ([("user", "bob"), ("client-id", None)], [("ip", "10.0.0.1")], [("user", None)]):
        key = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        entry = {
            "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
            "Ops": [{"Key": key, "Value": 1024.0, "Remove": False}],
        }
        ask(broker, "AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})
    for mechanism, algorithm in ((SHA_256, "sha256"), (SHA_512, "sha512")):
        salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), b"salt", 4096)
        user = {
            "Name": "bob",
            "Mechanism": mechanism,
            "Iterations": 4096,
            "Salt": b"salt",
            "SaltedPassword": salted,
        }
        ask(broker, "AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [user]})


def _tokens(login: Connection) -> None:
    ask(login, "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    ask(login, "SaslAuthenticate", 2, {"AuthBytes": b"\0alice\0" + PASSWORD.encode()})
    hmacs = []
    for _ in range(2):
        renewers = [{"PrincipalType": "User", "PrincipalName": "bob"}]
        answer = ask(login, "CreateDelegationToken", 2, {"Renewers": renewers, "MaxLifetimeMs": -1})
        hmacs.append(answer["Hmac"])
    ask(login, "RenewDelegationToken", 2, {"Hmac": hmacs[0], "RenewPeriodMs": 3_600_000})
    ask(login, "ExpireDelegationToken", 2, {"Hmac": hmacs[1], "ExpiryTimePeriodMs": -1})


def _second_broker(broker: Connection, active: Connection) -> None:
    """A broker that registers, gets replicas, and is fenced, while the first one reassigns to it and back."""
    epoch = _register(active)
    _heartbeat_until(active, epoch, fenced=False)
    replicas = {"PartitionIndex": 0, "BrokerIds": [1, FAKE_BROKER]}
    topic = {
        "Name": "shared", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": [replicas],
        "Configs": [{"Name": "min.insync.replicas", "Value": "2"}],
    }  # fmt: skip
    ask(broker, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 10_000})
    _reassign(broker, [FAKE_BROKER])
    _heartbeat(active, epoch)
    _reassign(broker, None)
    _heartbeat(active, epoch, WantShutDown=True)
    time.sleep(2 * SESSION_MS / 1000)  # no heartbeat for so long: it is fenced, and leaves the ISR
    ask(broker, "UnregisterBroker", 0, {"BrokerId": FAKE_BROKER})


def _register(active: Connection) -> int:
    features = [
        {"Name": "metadata.version", "MinSupportedVersion": 7, "MaxSupportedVersion": 33},
        *(
            {"Name": name, "MinSupportedVersion": 0, "MaxSupportedVersion": 2}
            for name in (
                "kraft.version", "transaction.version", "group.version", "share.version", "streams.version",
                "eligible.leader.replicas.version",
            )
        ),
    ]  # fmt: skip
    values = {
        "BrokerId": FAKE_BROKER, "ClusterId": CLUSTER_ID, "IncarnationId": bytes(range(1, 17)),
        "Listeners": [{"Name": "PLAINTEXT", "Host": HOST, "Port": 9, "SecurityProtocol": 0}],
        "Features": features, "Rack": None, "LogDirs": [FAKE_DIR], "PreviousBrokerEpoch": -1,
    }  # fmt: skip
    epoch: int = ask(active, "BrokerRegistration", 4, values)["BrokerEpoch"]
    return epoch


def _heartbeat(active: Connection, epoch: int, **values: Any) -> Values:
    fields = {
        "BrokerId": FAKE_BROKER,
        "BrokerEpoch": epoch,
        "CurrentMetadataOffset": 1 << 40,
        "WantFence": False,
    }
    return ask(
        active, "BrokerHeartbeat", 1, {**fields, "WantShutDown": False, "OfflineLogDirs": [], **values}
    )


def _heartbeat_until(active: Connection, epoch: int, *, fenced: bool) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while _heartbeat(active, epoch)["IsFenced"] is not fenced:
        if time.monotonic() > deadline:
            raise WorkloadError(f"broker {FAKE_BROKER} is not {'' if fenced else 'un'}fenced")
        time.sleep(0.1)


def _reassign(broker: Connection, replicas: list[int] | None) -> None:
    partitions = [{"PartitionIndex": 0, "Replicas": replicas}]
    topics = [{"Name": "orders", "Partitions": partitions}]
    ask(broker, "AlterPartitionReassignments", 0, {"TimeoutMs": 10_000, "Topics": topics})


def _removals(broker: Connection) -> None:
    configure(broker, TOPIC, "orders", "cleanup.policy", None)
    filters = {**ANY_ACL, "ResourceTypeFilter": 2, "PrincipalFilter": "User:eve"}
    ask(broker, "DeleteAcls", 3, {"Filters": [filters]})
    entry = {
        "Entity": [{"EntityType": "user", "EntityName": None}],
        "Ops": [{"Key": "producer_byte_rate", "Value": 0.0, "Remove": True}],
    }
    ask(broker, "AlterClientQuotas", 1, {"Entries": [entry], "ValidateOnly": False})
    deletion = {"Name": "bob", "Mechanism": SHA_512}
    ask(broker, "AlterUserScramCredentials", 0, {"Deletions": [deletion], "Upsertions": []})
    ask(broker, "DeleteTopics", 5, {"TopicNames": ["gone"], "TimeoutMs": 10_000})


def ask(connection: Connection, api: str, version: int, values: Values, but: Collection[int] = ()) -> Values:
    """Ask, again while the broker is not ready for it; raise WorkloadError for any other error but these."""
    deadline = time.monotonic() + DEADLINE_S
    answer = connection.ask(api, version, values)
    while NOT_YET.intersection(_codes(answer)) and time.monotonic() < deadline:
        time.sleep(0.1)
        answer = connection.ask(api, version, values)
    for code in _codes(answer):
        if code and code not in but:
            raise WorkloadError(f"{api} v{version}: error {code}: {json.dumps(answer, default=str)}")
    return answer


def _codes(value: Any) -> list[int]:
    if isinstance(value, dict):
        own = [inner for name, inner in value.items() if name.lower() == "errorcode"]
        return own + [code for inner in value.values() for code in _codes(inner)]
    return [code for inner in value for code in _codes(inner)] if isinstance(value, list) else []
