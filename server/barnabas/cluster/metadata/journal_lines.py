"""Lines of the JSON journal in which older versions stored the metadata of a broker without a cluster. Pure.

A line is `{"crc":"<CRC-32C in hex>","n":<number>,"change":...}`, with `"more":true` after the number if a group of changes
continues in the next line. The checksum is over the bytes after it and its comma, without the newline. The oldest lines,
without a checksum, begin with `{"change":`.

The rule: a line with the right checksum is intact: if it cannot be read, a version that is not known wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from barnabas.cluster.metadata.access_changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    ScramCredentialChanged,
)
from barnabas.cluster.metadata.changes import (
    ConfigChanged,
    EpochBegun,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.metadata.image import Change, PartitionInfo, TopicInfo
from barnabas.errors import RequestError
from barnabas.records.crc import crc32c
from barnabas.security import scram
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import Token
from barnabas.serving.quotas.entities import entity_of

_CRC = b'{"crc":"'
_BODY_AT = len(_CRC) + 10
_OLD = b'{"change":'
KIND_SHOWN: Final = 100


class NewerLineError(ValueError):
    """A line is whole, and of a kind or form that this version does not know."""


class Line(NamedTuple):
    """A line of a journal; its number is -1 if it was written without. `data` is the line with its newline."""

    number: int
    change: Change
    has_more: bool
    data: bytes


def decode_line(data: bytes) -> Line:
    """Decode a line, with its newline. Raises ValueError for a damaged line, NewerLineError for an unknown version.

    If only the newline is damaged, the checksum shows that the rest is intact.
    """
    is_old = data.startswith(_OLD)
    if is_old and not data.endswith(b"\n"):
        raise ValueError("a line without its end")
    text = data[:-1]
    if not is_old:
        body = text[_BODY_AT:]
        if text[:_BODY_AT] != b'%s%08x",' % (_CRC, crc32c(body)):
            raise ValueError("a line that does not match its checksum")
        text = b"{" + body
    try:
        fields = json.loads(text)
        whole = data[:-1] + b"\n"
        return Line(fields.get("n", -1), _change(fields), fields.get("more", False), whole)
    except (KeyError, TypeError, AttributeError, ValueError, RequestError) as error:
        if is_old:
            raise ValueError(f"a line that no version wrote: {error!r}") from error
        raise NewerLineError(_kind_in(text)) from error


def _kind_in(text: bytes) -> str:
    """Return the kind of change in a line, for messages."""
    try:
        kind = json.loads(text)["change"]
    except (ValueError, KeyError, TypeError):
        return "unknown"
    return repr(kind)[:KIND_SHOWN]


def _change(body: dict[str, Any]) -> Change:
    """Return the change in a line's object. Raises ValueError, KeyError or TypeError if it is invalid."""
    decode = _CHANGES.get(body["change"])
    if decode is None:
        raise ValueError(f"unknown change {body['change']!r}")
    return decode(body)


def _topic_created(body: dict[str, Any]) -> TopicCreated:
    return TopicCreated(TopicInfo(body["name"], bytes.fromhex(body["id"]), _partitions(body["partitions"])))


def _partition_changed(body: dict[str, Any]) -> PartitionChanged:
    (partition,) = _partitions([body["partition"]])
    return PartitionChanged(body["name"], body["index"], partition)


def _partitions(rows: list[Any]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(leader, tuple(replicas), tuple(isr), leader_epoch, partition_epoch)
        for leader, replicas, isr, leader_epoch, partition_epoch in rows
    )


def _scram(body: dict[str, Any]) -> ScramCredentialChanged:
    text = body["credential"]
    credential = scram.of_text(text) if text is not None else None
    return ScramCredentialChanged(body["user"], body["mechanism"], credential)


def _token(body: dict[str, Any]) -> DelegationTokenChanged:
    token = Token(
        body["id"], body["owner"], body["requester"], tuple(body["renewers"]),
        body["issued"], body["expires"], body["expires_max"],
    )  # fmt: skip
    return DelegationTokenChanged(token)


def _quotas(body: dict[str, Any]) -> ClientQuotaChanged:
    quotas = tuple((name, float(value)) for name, value in body["quotas"].items())
    return ClientQuotaChanged(entity_of(body["entity"].items()), quotas)


def _acl(body: dict[str, Any]) -> AclBinding:
    pattern = ResourcePattern(ResourceType(body["type"]), PatternType(body["pattern"]), body["name"])
    operation, permission = Operation(body["operation"]), Permission(body["permission"])
    return AclBinding(pattern, AccessControlEntry(body["principal"], body["host"], operation, permission))


_CHANGES: Mapping[str, Callable[[dict[str, Any]], Change]] = {
    "TopicCreated": _topic_created,
    "PartitionsAdded": lambda body: PartitionsAdded(body["name"], _partitions(body["partitions"])),
    "PartitionChanged": _partition_changed,
    "EpochBegun": lambda body: EpochBegun(body["epoch"]),
    "TopicDeleted": lambda body: TopicDeleted(body["name"]),
    "ConfigChanged": lambda body: ConfigChanged(body["type"], body["name"], tuple(body["settings"].items())),
    "ProducerIdsAllocated": lambda body: ProducerIdsAllocated(body["next_id"]),
    "LogDirsRegistered": lambda body: LogDirsRegistered(
        body["broker"], frozenset(map(bytes.fromhex, body["dirs"]))
    ),
    "ScramCredentialChanged": _scram,
    "DelegationTokenChanged": _token,
    "DelegationTokenRemoved": lambda body: DelegationTokenRemoved(body["id"]),
    "ClientQuotaChanged": _quotas,
    "AclAdded": lambda body: AclAdded(_acl(body)),
    "AclRemoved": lambda body: AclRemoved(_acl(body)),
}
"""Decoders of all kinds of change that were kept, by name."""
