"""The znodes of settings, ACLs, features, delegation tokens and old consumers: paths, and JSON to values and back. Pure.

The rule: the written formats are those of Kafka 3.9; all formats since 0.8 are read. Unreadable content raises
ZnodeError. Values of SCRAM credentials and passwords are not shown: `masked` is for logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote_plus

from barnabas.cluster.zookeeper import znodes
from barnabas.cluster.zookeeper.json_znodes import Fields, ZnodeError, encode, is_secret, read
from barnabas.security.tokens import Token

CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "config_change_"
TOPICS = "topics"
BROKERS = "brokers"
CLIENTS = "clients"
USERS = "users"
IPS = "ips"
CLIENT_METRICS = "client-metrics"
GROUPS = "groups"
ENTITY_TYPES = (TOPICS, BROKERS, CLIENTS, USERS, IPS)
DEFAULT = "<default>"
"""Name of the defaults for all of a type: /config/brokers/<default>."""
HIDDEN = "[hidden]"
_SECRET_PARTS = ("password", "scram-", "jaas", "credentials", "keystore.key", "secret")

ACLS = "/kafka-acl"
EXTENDED_ACLS = "/kafka-acl-extended"
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE_PREFIX = "acl_changes_"
FEATURE = "/feature"
CONSUMERS = "/consumers"
TOKENS = "/delegation_token/tokens"
TOKEN_CHANGES = "/delegation_token/token_changes"
TOKEN_CHANGE_PREFIX = "token_change_"

PERSISTENT = (
    CONSUMERS,
    znodes.BROKER_IDS,
    znodes.TOPICS,
    CONFIG_CHANGES,
    znodes.DELETE_TOPICS,
    znodes.BROKER_SEQUENCE,
    znodes.ISR_CHANGES,
    znodes.LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in ENTITY_TYPES),
)
"""Each broker makes those of them that are missing.

Not that of producer ids: Apache Kafka makes it without data, which is not the same as empty data, and does not start where
it is empty. The broker that allocates the first ids makes it.
"""


def is_sensitive(path: str) -> bool:
    """Return whether a znode has secrets: then no other user may read it, if there are ACLs at all."""
    return is_secret(path)


def is_open(path: str) -> bool:
    """Return whether any client may change a znode even if there are ACLs: old consumers write theirs themselves."""
    return path == CONSUMERS or path.startswith(f"{CONSUMERS}/")


def sanitized(name: str) -> str:
    """A user or client id as the name of a znode."""
    return name if name == DEFAULT else quote(name, safe="-_.").replace("~", "%7E")


def desanitized(name: str) -> str:
    """The user or client id that a znode is named after."""
    return unquote_plus(name)


def config_path(entity_type: str, name: str) -> str:
    """The znode of an entity's settings; a user's client is `USER/clients/CLIENT`, all sanitized."""
    return f"{CONFIG}/{entity_type}/{name}"


def encode_config(settings: Mapping[str, str]) -> bytes:
    """The JSON of an entity's own settings."""
    return encode({"version": 1, "config": dict(settings)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """An entity's own settings; none if the znode is empty. `path` is for errors."""
    if not data:
        return {}
    config = read(path, data).object("config")
    return {name: config.text(name) for name in config.names()}


def masked(settings: Mapping[str, str]) -> dict[str, str]:
    """The same settings for a log, without secrets."""
    return {
        name: HIDDEN if any(part in name.lower() for part in _SECRET_PARTS) else value
        for name, value in settings.items()
    }


def encode_config_change(entity_path: str) -> bytes:
    """The JSON of a notification that an entity's settings have changed: `topics/NAME`, `users/NAME/clients/ID`."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(name: str, data: bytes) -> tuple[str, str]:
    """Type and name of the entity with changed settings; `name` is the child of CONFIG_CHANGES.

    Version 2, version 1 (Kafka 0.9), and a topic's name as JSON text (0.8).
    """
    path = f"{CONFIG_CHANGES}/{name}"
    if data.startswith(b'"') and data.endswith(b'"'):
        return TOPICS, data[1:-1].decode(errors="replace")
    fields = read(path, data)
    if fields.version(2, is_strict=True) == 1:
        kind, entity = fields.text("entity_type"), fields.text("entity_name")
    else:
        kind, _, entity = fields.text("entity_path").partition("/")
    if not kind or not entity:
        raise ZnodeError(path, "it names no entity", data)
    return kind, entity


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Entry of an ACL: principal, host, operation, permission; as texts of Kafka's: `User:alice`, `*`, `Read`, `Allow`."""

    principal: str
    host: str
    operation: str
    permission: str


def acl_path(pattern: str, resource_type: str, name: str) -> str:
    """The znode of a resource's ACLs: pattern `LITERAL` or `PREFIXED`, type as in `Topic`."""
    root = ACLS if pattern.upper() == "LITERAL" else f"{EXTENDED_ACLS}/{pattern.lower()}"
    return f"{root}/{resource_type}/{name}"


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """The JSON of a resource's ACLs."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": entry.permission,
            "operation": entry.operation,
            "host": entry.host,
        }
        for entry in entries
    ]
    return encode({"version": 1, "acls": acls})


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """A resource's ACLs; none if the znode is empty."""
    if not data:
        return frozenset()
    fields = read(path, data)
    fields.version(1, is_strict=True)
    return frozenset(
        AclEntry(acl.text("principal"), acl.text("host"), acl.text("operation"), acl.text("permissionType"))
        for acl in fields.objects("acls")
    )


def encode_acl_change(pattern: str, resource_type: str, name: str) -> bytes:
    """Return a notification that a resource's ACLs have changed: text for literal patterns, JSON for the others."""
    if pattern.upper() == "LITERAL":
        return f"{resource_type.upper()}:{name}".encode()
    return encode(
        {"version": 1, "resourceType": resource_type.upper(), "name": name, "patternType": pattern.upper()}
    )


def decode_acl_change(path: str, data: bytes) -> tuple[str, str, str]:
    """Pattern, resource type (both in capitals) and name of the resource with changed ACLs."""
    if not path.startswith(EXTENDED_ACL_CHANGES):
        kind, colon, name = data.decode(errors="replace").partition(":")
        if not colon:
            raise ZnodeError(path, "TYPE:NAME is expected", data)
        return "LITERAL", kind.upper(), name
    fields = read(path, data)
    fields.version(1, is_strict=True)
    return fields.text("patternType").upper(), fields.text("resourceType").upper(), fields.text("name")


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """Levels of the cluster's features by name (KIP-584)."""

    is_enabled: bool
    levels: Mapping[str, int]


def encode_features(features: FinalizedFeatures, version: int = 2) -> bytes:
    """The JSON of the cluster's features; version 1 before Kafka 3.3."""
    levels = {
        name: {"max_version_level": level} | ({"min_version_level": level} if version == 1 else {})
        for name, level in features.levels.items()
    }
    return encode({"version": version, "status": int(features.is_enabled), "features": levels})


def decode_features(data: bytes) -> FinalizedFeatures:
    """The cluster's features, in versions 1 and 2."""
    fields = read(FEATURE, data)
    fields.version(2, is_strict=True)
    status = fields.int32("status")
    if status not in (0, 1):
        raise fields.wrong("status", "0 or 1")
    features = fields.object("features")
    levels = {name: _level(features.object(name)) for name in features.names()}
    return FinalizedFeatures(status == 1, levels)


def _level(fields: Fields) -> int:
    level = fields.int32("max_version_level")
    if not 1 <= level < 2**15:
        raise fields.wrong("max_version_level", "from 1 on")
    return level


def token_path(token_id: str) -> str:
    """The znode of a delegation token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: Token) -> bytes:
    """The JSON of a delegation token."""
    return encode(
        {
            "version": 3,
            "owner": sanitized(token.owner),
            "tokenRequester": sanitized(token.requester),
            "renewers": [sanitized(renewer) for renewer in token.renewers],
            "issueTimestamp": token.issued_ms,
            "maxTimestamp": token.expires_max_ms,
            "expiryTimestamp": token.expires_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(name: str, data: bytes) -> Token:
    """A delegation token, in versions 1 to 3; `name` is the child of TOKENS."""
    fields = read(f"{TOKENS}/{name}", data)
    version = fields.version(3, is_strict=True)
    owner = desanitized(fields.text("owner"))
    return Token(
        fields.text("tokenId"),
        owner,
        desanitized(fields.text("tokenRequester")) if version >= 3 else owner,
        tuple(desanitized(renewer) for renewer in fields.texts("renewers")),
        fields.integer("issueTimestamp"),
        fields.integer("expiryTimestamp"),
        fields.integer("maxTimestamp"),
    )


def offset_path(group: str, topic: str, index: int) -> str:
    """The znode of a group's offset of a partition."""
    return f"{CONSUMERS}/{group}/offsets/{topic}/{index}"


def encode_offset(offset: int) -> bytes:
    """The number as text."""
    return b"%d" % offset


def decode_offset(path: str, data: bytes) -> int:
    """A group's offset of a partition."""
    if not data.removeprefix(b"-").isdigit() or not -(2**63) <= int(data) < 2**63:
        raise ZnodeError(path, "an offset is expected", data)
    return int(data)
