"""A quorum with one resource of every kind, with a broker of Kafka's and one of ours: for `parity`.

The rule: SIDE is replaced by a different word for each side, so that both can get the same requests for changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from compat.cluster.nodes import ClusterError
from compat.kafka.broker import CLUSTER_ID
from compat.kit.sides import Side
from compat.kit.wire import Connection, Values

SIDE = "SIDE"
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
KAFKAS, OF_OURS, FENCED = 4, 5, 6
"""The ids of the brokers; the fenced one has no process."""
FEATURES = (
    "metadata.version", "kraft.version", "transaction.version", "group.version", "share.version", "streams.version",
    "eligible.leader.replicas.version",
)  # fmt: skip


IN_ANY_ORDER = ("NodeId", "BrokerId", "User", "Mechanism", "TokenId")
"""Fields that sort lists without a significant order."""


class Asking(Connection):
    """A connection that has its side's word in place of SIDE, in both directions, and lists in order."""

    word = ""
    broker_id = 0

    def send(self, api: str, version: int, values: Values) -> None:
        super().send(api, version, self._worded(values))

    def receive(self, api: str, version: int) -> Values:
        answer: Values = self._plain(super().receive(api, version))
        return answer

    def _worded(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._worded(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._worded(item) for item in value]
        if value == "OWN":
            return str(self.broker_id)
        return value.replace(SIDE, self.word) if isinstance(value, str) else value

    def _plain(self, value: Any) -> Any:
        if isinstance(value, dict):
            if "ErrorCode" in value and value.get("ResourceName") == str(self.broker_id):
                value["ResourceName"] = "OWN"
            return {key: self._plain(item) for key, item in value.items()}
        if isinstance(value, list):
            items = [self._plain(item) for item in value]
            for key in IN_ANY_ORDER:
                if items and all(isinstance(item, dict) and key in item for item in items):
                    return sorted(items, key=lambda item: item[key])
            return items
        return value.replace(self.word, SIDE) if isinstance(value, str) else value


@dataclass(frozen=True)
class Member(Side):
    """A broker of the cluster."""

    word: str = ""
    broker_id: int = 0

    @property
    def ports(self) -> dict[int, str]:
        """None: both name the same brokers, with their own ports."""
        return {}

    def connect(self, client_id: str = "parity", user: str = "") -> Connection:
        """A new connection, with the login of `Side`."""
        connection = super().connect(client_id, user)
        connection.__class__ = Asking
        assert isinstance(connection, Asking)
        connection.word, connection.broker_id = self.word, self.broker_id
        return connection


# --- contents --------------------------------------------------------------------------------------------------------


def fill(controller: Connection, broker: Connection) -> None:
    """Create one resource of every kind by a broker of Kafka's. Raises ClusterError."""
    epoch = _registered(controller)
    _beat(controller, epoch)
    assignments: dict[str, list[list[int]]] = {
        "both": [[KAFKAS, OF_OURS], [OF_OURS, KAFKAS], [KAFKAS, OF_OURS]],
        "kafkas": [[KAFKAS]],
        "ours": [[OF_OURS]],
        "careful": [[KAFKAS, FENCED], [OF_OURS, FENCED]],
        "gone": [[FENCED]],
        "many": [[KAFKAS]] * 7,
        "filled": [[OF_OURS], [KAFKAS]],
    }
    configs = {
        "careful": {"min.insync.replicas": "2"},
        "both": {"retention.ms": "007", "cleanup.policy": "compact, delete"},
    }
    for name, replicas in assignments.items():
        topic = {
            "Name": name, "NumPartitions": -1, "ReplicationFactor": -1,
            "Assignments": [{"PartitionIndex": index, "BrokerIds": ids} for index, ids in enumerate(replicas)],
            "Configs": [{"Name": key, "Value": value} for key, value in configs.get(name, {}).items()],
        }  # fmt: skip
        _ok(broker, "CreateTopics", 7, {"Topics": [topic], "timeoutMs": 9000})
        _beat(controller, epoch)
    for kind, name, key, value in (
        (BROKER, "", "log.cleaner.threads", "2"),
        (BROKER, "", "message.max.bytes", "2000000"),
        (BROKER, "4", "background.threads", "9"),
        (BROKER, "5", "background.threads", "9"),
        (BROKER, "6", "background.threads", "9"),
        (BROKER, "4", "a.plugins.secret", "x"),
        (BROKER, "5", "a.plugins.secret", "x"),
        (METRICS, "slow", "metrics", "org.apache.kafka.producer."),
        (METRICS, "slow", "interval.ms", "60000"),
        (METRICS, "slow", "match", "client_id=a"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (GROUP, "s", "share.auto.offset.reset", "earliest"),
        (TOPIC, "many", "leader.replication.throttled.replicas", "0:1,1:1"),
    ):
        # A broker of Kafka's accepts only its own settings, the controller those of any broker.
        _ok(
            controller if name.isdigit() else broker,
            "IncrementalAlterConfigs",
            1,
            change(kind, name, (key, 0, value)),
        )
    for pattern, name, principal in ((3, "both", "User:bob"), (4, "pre", "User:eve"), (3, "*", "User:*")):
        acl = {"ResourceType": 2, "ResourceName": name, "ResourcePatternType": pattern, "Principal": principal,
               "Host": "*", "Operation": 3, "PermissionType": 3}  # fmt: skip
        _ok(broker, "CreateAcls", 3, {"Creations": [acl]})
    for entity, key in (
        ([("user", "bob"), ("client-id", None)], "producer_byte_rate"), ([("user", "bob")], "request_percentage"),
        ([("user", None)], "consumer_byte_rate"), ([("client-id", "c")], "controller_mutation_rate"),
        ([("ip", "10.0.0.1")], "connection_creation_rate"), ([("ip", None)], "connection_creation_rate"),
    ):  # fmt: skip
        _ok(broker, "AlterClientQuotas", 1, {"Entries": [quota(entity, key, 1024.0)], "ValidateOnly": False})
    for mechanism in (1, 2):
        user = {"Name": "bob", "Mechanism": mechanism, "Iterations": 4096 * mechanism, "Salt": b"salt",
                "SaltedPassword": b"salted" * 5}  # fmt: skip
        _ok(broker, "AlterUserScramCredentials", 0, {"Deletions": [], "Upsertions": [user]})


def _registered(controller: Connection) -> int:
    values = {
        "BrokerId": FENCED, "ClusterId": CLUSTER_ID, "IncarnationId": bytes(range(1, 17)),
        "Listeners": [
            {"Name": name, "Host": "127.0.0.1", "Port": 9 + number, "SecurityProtocol": protocol}
            for number, (name, protocol) in enumerate({"PLAINTEXT": 0, "USERS": 2, "BETWEEN": 3}.items())
        ],
        "Features": [{"Name": name, "MinSupportedVersion": 0 if name != "metadata.version" else 7,
                      "MaxSupportedVersion": 33 if name == "metadata.version" else 2} for name in FEATURES],
        "Rack": "rack-6", "LogDirs": [bytes(range(100, 116))], "PreviousBrokerEpoch": -1,
    }  # fmt: skip
    epoch: int = _ok(controller, "BrokerRegistration", 4, values)["BrokerEpoch"]
    return epoch


def _beat(controller: Connection, epoch: int) -> None:
    values = {"BrokerId": FENCED, "BrokerEpoch": epoch, "CurrentMetadataOffset": 1 << 40, "WantFence": False,
              "WantShutDown": False, "OfflineLogDirs": []}  # fmt: skip
    _ok(controller, "BrokerHeartbeat", 1, values)


def _ok(connection: Connection, api: str, version: int, values: Values) -> Values:
    answer = connection.ask(api, version, values)
    if any(_codes(answer)):
        raise ClusterError(f"{api}: {answer}")
    return answer


def _codes(value: Any) -> list[int]:
    if isinstance(value, dict):
        return [
            code for key, item in value.items() for code in ([item] if key == "ErrorCode" else _codes(item))
        ]
    return [code for item in value for code in _codes(item)] if isinstance(value, list) else []


def change(kind: int, name: str, *changes: tuple[str, int, str | None], validate: bool = False) -> Values:
    """Return an IncrementalAlterConfigs request for one resource."""
    configs = [
        {"Name": key, "ConfigOperation": operation, "Value": value} for key, operation, value in changes
    ]
    return {
        "Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": configs}],
        "ValidateOnly": validate,
    }


def replace(kind: int, name: str, *settings: tuple[str, str | None], validate: bool = False) -> Values:
    """Return an AlterConfigs request for one resource."""
    configs = [{"Name": key, "Value": value} for key, value in settings]
    return {
        "Resources": [{"ResourceType": kind, "ResourceName": name, "Configs": configs}],
        "ValidateOnly": validate,
    }


def quota(
    entity: Sequence[tuple[str, str | None]], key: str, value: float, *, remove: bool = False
) -> Values:
    """An entry of an AlterClientQuotas request."""
    return {
        "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
        "Ops": [{"Key": key, "Value": value, "Remove": remove}],
    }
