"""Entries of the image in words: the output of `barnabas metadata`, as values of JSON. Pure.

The rule: numbers of the protocol are shown by name where there is a name, ids are as Kafka writes them, and no secret
leaves this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

from barnabas.cluster.kraft.image import BROKER, CLIENT_METRICS, GROUP, TOPIC, Change, Entity
from barnabas.cluster.kraft.secrets import shown_value
from barnabas.cluster.kraft.values import (
    LOST,
    MIGRATING,
    RECOVERING,
    UNASSIGNED,
    Acl,
    Broker,
    Controller,
    Credential,
    Endpoint,
    Partition,
    Topic,
)
from barnabas.config.listeners import PROTOCOLS
from barnabas.log.format.properties import encode_uuid
from barnabas.security.acls import PatternType, Permission
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.scram import BY_TYPE
from barnabas.security.tokens import Token

Row = dict[str, Any]

RESOURCE_KINDS = {TOPIC: "topic", BROKER: "broker", CLIENT_METRICS: "client-metrics", GROUP: "group"}
ALL_BROKERS = "default"
DEFAULT_NAME = "<default>"
_DIRECTORIES = {UNASSIGNED: "unassigned", LOST: "lost", MIGRATING: "migrating"}
_ZK_MIGRATION = ("none", "migration", "before migration", "after migration")


def broker_row(broker: Broker) -> Row:
    """Return a broker's columns."""
    cordoned = broker.cordoned_log_dirs
    return {
        "broker": broker.id,
        "epoch": broker.epoch,
        "is_fenced": broker.fenced,
        "is_in_controlled_shutdown": broker.in_controlled_shutdown,
        "rack": broker.rack,
        "endpoints": [_endpoint(endpoint) for endpoint in broker.endpoints],
        "log_dirs": _ids(broker.log_dirs),
        "cordoned_log_dirs": None if cordoned is None else _ids(cordoned),
        "incarnation_id": encode_uuid(broker.incarnation_id),
        "features": {name: f"{levels.lowest}-{levels.highest}" for name, levels in broker.features},
    }


def controller_row(controller: Controller) -> Row:
    """Return a controller's columns."""
    return {
        "controller": controller.id,
        "endpoints": [_endpoint(endpoint) for endpoint in controller.endpoints],
        "incarnation_id": encode_uuid(controller.incarnation_id),
        "features": {name: f"{levels.lowest}-{levels.highest}" for name, levels in controller.features},
    }


def partition_row(partition: Partition) -> Row:
    """Return a partition's columns, without its topic and number."""
    return {
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.isr),
        "eligible": list(partition.elr),
        "last_known_eligible": list(partition.last_known_elr),
        "adding": list(partition.adding),
        "removing": list(partition.removing),
        "is_recovering": partition.leader_recovery_state == RECOVERING,
        "log_dirs": _ids(partition.directories),
    }


def setting_row(key: tuple[int, str, str], value: str) -> Row:
    """Return a setting's columns; the value is hidden if it is or may be secret."""
    resource_type, resource, name = key
    return {
        "kind": RESOURCE_KINDS.get(resource_type, str(resource_type)),
        "name": resource or (ALL_BROKERS if resource_type == BROKER else ""),
        "key": name,
        "value": shown_value(resource_type, name, value),
    }


def acl_row(acl_id: bytes, acl: Acl) -> Row:
    """Return an ACL's columns."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": _name(Permission, acl.permission),
        "operation": _name(Operation, acl.operation),
        "resource_type": _name(ResourceType, acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": _name(PatternType, acl.pattern_type),
        "id": encode_uuid(acl_id),
    }


def quota_row(entity: Entity, name: str, value: float) -> Row:
    """Return a quota's columns."""
    parts = {kind.replace("-", "_"): part if part is not None else DEFAULT_NAME for kind, part in entity}
    return {**{kind: parts.get(kind) for kind in ("user", "client_id", "ip")}, "key": name, "value": value}


def quota_name(entity: Entity) -> str:
    """Return the subject of a quota, as in `client-id=<default>,user=bob`."""
    return ",".join(f"{kind}={part if part is not None else DEFAULT_NAME}" for kind, part in entity)


def user_row(key: tuple[str, int], credential: Credential) -> Row:
    """Return the columns of a user's credential, without its salt and keys."""
    return {"user": key[0], "mechanism": mechanism_name(key[1]), "iterations": credential.iterations}


def token_row(token: Token) -> Row:
    """Return a token's columns. Its id is not secret: to compute the HMAC from it needs the cluster's key."""
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued_at_ms": token.issued_ms,
        "expires_at_ms": token.expires_ms,
        "renewable_until_at_ms": token.expires_max_ms,
    }


def zk_migration_name(state: int) -> str:
    """Return the name of a state of the migration from ZooKeeper."""
    return _ZK_MIGRATION[state] if 0 <= state < len(_ZK_MIGRATION) else str(state)


def mechanism_name(number: int) -> str:
    """Return the name of a SCRAM mechanism."""
    return BY_TYPE[number].name if number in BY_TYPE else str(number)


class ChangeNames:
    """Changes in words: `entry` names the changed entry, `before` and `after` have the columns that differ.

    Names of topics are learned from the changes themselves, and from `topics`: a partition has only the topic's id.
    """

    def __init__(self, topics: Mapping[bytes, Topic]) -> None:
        self._names = {topic_id: topic.name for topic_id, topic in topics.items()}

    def row(self, change: Change) -> Row:
        """Return the columns of a change."""
        kind, key, before, after = change
        if kind == "topic":
            self._names[key] = (after or before).name
        old, new = (_columns(kind, key, value) for value in (before, after))
        if old is not None and new is not None:
            changed = [name for name in new if old.get(name) != new[name]]
            if not changed:  # only secrets of the user differ, and they are not shown
                changed = list(new)
            old, new = ({name: side[name] for name in changed} for side in (old, new))
        return {"kind": kind, "entry": self._entry(kind, key), "before": old, "after": new}

    def _entry(self, kind: str, key: Any) -> str:
        if kind == "topic":
            return self._names[key]
        if kind == "partition":
            topic_id, index = key
            return f"{self._names.get(topic_id, encode_uuid(topic_id))}-{index}"
        if kind == "setting":
            resource_type, resource, name = key
            row = setting_row((resource_type, resource, name), "")
            return f"{row['kind']} {row['name']} {name}"
        if kind == "acl":
            return encode_uuid(key)
        if kind == "quota":
            entity, name = key
            return f"{quota_name(entity)} {name}"
        if kind == "user":
            return f"{key[0]} {mechanism_name(key[1])}"
        return "" if key == () else str(key)


def control_row(message: Any, epoch: int) -> Row | None:
    """Return a control record as the columns of a change; None if it does not concern the quorum."""
    after: Row
    match type(message).__name__:
        case "LeaderChangeMessage":
            after = {"leader": message.leader_id, "epoch": epoch}
            return {"kind": "quorum", "entry": "leader", "before": None, "after": after}
        case "KRaftVersionRecord":
            after = {"level": message.kraft_version}
            return {"kind": "quorum", "entry": "kraft.version", "before": None, "after": after}
        case "VotersRecord":
            after = {"voters": [voter.voter_id for voter in message.voters]}
            return {"kind": "quorum", "entry": "voters", "before": None, "after": after}
    return None


_KEY_COLUMNS = {
    "broker": ("broker",),
    "controller": ("controller",),
    "acl": ("id",),
    "user": ("user", "mechanism"),
    "token": ("token_id",),
}
"""Columns that name the entry, and so are not repeated on its sides."""


def _columns(kind: str, key: Any, value: Any) -> Row | None:
    """Return the columns of an entry's value, without those that are its key; None for no value."""
    if value is None:
        return None
    row: Row
    match kind:
        case "feature":
            return {"level": value}
        case "topic":
            return {"id": encode_uuid(key)}
        case "setting":
            return {"value": setting_row(key, value)["value"]}
        case "quota":
            return {"value": value}
        case "producer_ids":
            return {"next_producer_id": value}
        case "zk_migration":
            return {"state": zk_migration_name(value)}
        case "partition":
            return partition_row(value)
        case "broker":
            row = broker_row(value)
        case "controller":
            row = controller_row(value)
        case "acl":
            row = acl_row(key, value)
        case "user":
            row = user_row(key, value)
        case _:
            row = token_row(value)
    return {name: cell for name, cell in row.items() if name not in _KEY_COLUMNS[kind]}


def _endpoint(endpoint: Endpoint) -> str:
    protocol = endpoint.security_protocol
    shown = PROTOCOLS[protocol] if 0 <= protocol < len(PROTOCOLS) else str(protocol)
    address = f"{endpoint.name}://{endpoint.host}:{endpoint.port}"
    return address if shown == endpoint.name else f"{address} ({shown})"


def _ids(directories: Iterable[bytes]) -> list[str]:
    return [_DIRECTORIES.get(directory) or encode_uuid(directory) for directory in directories]


def _name(names: type[IntEnum], number: int) -> str:
    try:
        return names(number).name.lower().replace("_", "-")
    except ValueError:
        return str(number)
