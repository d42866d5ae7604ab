"""Changes as JSON lines and back, for stores that keep a journal. Pure.

A line is `{"crc":"<CRC-32C in hex>","n":<number>,"change":...}`, with `"more":true` after the number if what belongs
together goes on in the next line. The checksum is over what follows it and its comma, without the newline. Lines
without a checksum, as they were written first, begin with `{"change":`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from barnabas.cluster.changes import (
    AclAdded,
    AclRemoved,
    ClientQuotaChanged,
    ConfigChanged,
    DelegationTokenChanged,
    DelegationTokenRemoved,
    LogDirsRegistered,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    ScramCredentialChanged,
    TopicCreated,
    TopicDeleted,
)
from barnabas.cluster.image import Change, ClusterImage, PartitionInfo, TopicInfo
from barnabas.errors import RequestError
from barnabas.quotas.entities import entity_of
from barnabas.records.crc import crc32c
from barnabas.security import scram
from barnabas.security.acls import AccessControlEntry, AclBinding, PatternType, Permission, ResourcePattern
from barnabas.security.authorizer import Operation, ResourceType
from barnabas.security.tokens import Token

_CRC = b'{"crc":"'
_BODY_AT = len(_CRC) + 10
_OLD = b'{"change":'


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a journal; its number is -1 if it was written without. `data` is the line with its newline."""

    number: int
    change: Change
    has_more: bool
    data: bytes


def encode_line(number: int, change: Change, *, has_more: bool = False) -> bytes:
    """Return one change as a line with its number and checksum; `has_more` says that the next one belongs to it."""
    more = '"more":true,' if has_more else ""
    body = f'"n":{number},{more}{encode(change)[1:]}'.encode()
    return b'%s%08x",%s\n' % (_CRC, crc32c(body), body)


def decode_line(data: bytes) -> Line:
    """Return the line in these bytes, with its newline. Raises ValueError unless it is sound.

    Where nothing but the newline is damaged, the checksum shows that the rest is sound.
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
        found = json.loads(text)
        whole = data[:-1] + b"\n"
        return Line(found.get("n", -1), _change(found), found.get("more", False), whole)
    except (KeyError, TypeError, AttributeError, RequestError) as error:
        raise ValueError(f"a line that nobody wrote: {error!r}") from error


def encode(change: Change) -> str:
    """Return one change as one line of JSON, without the newline. Raises TypeError for a kind that is not kept."""
    name = type(change).__name__
    form = _FORMS.get(name)
    if form is None:
        raise TypeError(f"{name} is not kept: it is true only while a broker runs")
    return json.dumps({"change": name, **form.body(change)}, separators=(",", ":"))


def _change(body: dict[str, Any]) -> Change:
    """Return the change in a line's object. Raises ValueError, KeyError or TypeError for what `encode` never wrote."""
    form = _FORMS.get(body["change"])
    if form is None:
        raise ValueError(f"unknown change {body['change']!r}")
    change: Change = form.change(body)
    return change


C = TypeVar("C", bound=Change)


class _Form(Generic[C]):
    """How changes of one kind are kept: as the body of an object, and back. The kind's name is the object's `change`."""

    __slots__ = ("body", "change", "kind")

    def __init__(
        self, kind: type[C], body: Callable[[C], dict[str, Any]], change: Callable[[dict[str, Any]], C]
    ) -> None:
        self.kind = kind
        self.body = body
        self.change = change


def _topic_created(body: dict[str, Any]) -> TopicCreated:
    return TopicCreated(TopicInfo(body["name"], bytes.fromhex(body["id"]), _partitions(body["partitions"])))


def _partition_changed(body: dict[str, Any]) -> PartitionChanged:
    (partition,) = _partitions([body["partition"]])
    return PartitionChanged(body["name"], body["index"], partition)


def _scram(body: dict[str, Any]) -> ScramCredentialChanged:
    text = body["credential"]
    credential = scram.of_text(text) if text is not None else None
    return ScramCredentialChanged(body["user"], body["mechanism"], credential)


def _scram_body(change: ScramCredentialChanged) -> dict[str, Any]:
    kept = scram.to_text(change.credential) if change.credential is not None else None
    return {"user": change.user, "mechanism": change.mechanism, "credential": kept}


def _token(body: dict[str, Any]) -> DelegationTokenChanged:
    token = Token(
        body["id"], body["owner"], body["requester"], tuple(body["renewers"]),
        body["issued"], body["expires"], body["expires_max"],
    )  # fmt: skip
    return DelegationTokenChanged(token)


def _token_body(change: DelegationTokenChanged) -> dict[str, Any]:
    token = change.token
    return {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": token.issued_ms,
        "expires": token.expires_ms,
        "expires_max": token.expires_max_ms,
    }


def _quotas(body: dict[str, Any]) -> ClientQuotaChanged:
    quotas = tuple((name, float(value)) for name, value in body["quotas"].items())
    return ClientQuotaChanged(entity_of(body["entity"].items()), quotas)


def _acl(body: dict[str, Any]) -> AclBinding:
    pattern = ResourcePattern(ResourceType(body["type"]), PatternType(body["pattern"]), body["name"])
    operation, permission = Operation(body["operation"]), Permission(body["permission"])
    return AclBinding(pattern, AccessControlEntry(body["principal"], body["host"], operation, permission))


def _acl_body(change: AclAdded | AclRemoved) -> dict[str, Any]:
    (kind, pattern, name), (principal, host, operation, permission) = change.acl
    return {
        "type": int(kind), "pattern": int(pattern), "name": name, "principal": principal, "host": host,
        "operation": int(operation), "permission": int(permission),
    }  # fmt: skip


def _partition(info: PartitionInfo) -> list[Any]:
    return [info.leader, list(info.replicas), list(info.isr), info.leader_epoch, info.partition_epoch]


def _partitions(rows: list[Any]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(leader, tuple(replicas), tuple(isr), leader_epoch, partition_epoch)
        for leader, replicas, isr, leader_epoch, partition_epoch in rows
    )


_FORMS: Mapping[str, _Form[Any]] = {
    form.kind.__name__: form
    for form in (
        _Form(
            TopicCreated,
            lambda change: {
                "name": change.topic.name,
                "id": change.topic.id.hex(),
                "partitions": [_partition(partition) for partition in change.topic.partitions],
            },
            _topic_created,
        ),
        _Form(
            PartitionsAdded,
            lambda change: {
                "name": change.name,
                "partitions": [_partition(one) for one in change.partitions],
            },
            lambda body: PartitionsAdded(body["name"], _partitions(body["partitions"])),
        ),
        _Form(
            PartitionChanged,
            lambda change: {
                "name": change.name,
                "index": change.index,
                "partition": _partition(change.partition),
            },
            _partition_changed,
        ),
        _Form(TopicDeleted, lambda change: {"name": change.name}, lambda body: TopicDeleted(body["name"])),
        _Form(
            ConfigChanged,
            lambda change: {
                "type": change.resource_type,
                "name": change.resource_name,
                "settings": dict(change.settings),
            },
            lambda body: ConfigChanged(body["type"], body["name"], tuple(body["settings"].items())),
        ),
        _Form(
            ProducerIdsAllocated,
            lambda change: {"next_id": change.next_id},
            lambda body: ProducerIdsAllocated(body["next_id"]),
        ),
        _Form(
            LogDirsRegistered,
            lambda change: {
                "broker": change.broker_id,
                "dirs": sorted(one.hex() for one in change.directory_ids),
            },
            lambda body: LogDirsRegistered(body["broker"], frozenset(map(bytes.fromhex, body["dirs"]))),
        ),
        _Form(ScramCredentialChanged, _scram_body, _scram),
        _Form(DelegationTokenChanged, _token_body, _token),
        _Form(
            DelegationTokenRemoved,
            lambda change: {"id": change.token_id},
            lambda body: DelegationTokenRemoved(body["id"]),
        ),
        _Form(
            ClientQuotaChanged,
            lambda change: {"entity": dict(change.entity.parts), "quotas": dict(change.quotas)},
            _quotas,
        ),
        _Form(AclAdded, _acl_body, lambda body: AclAdded(_acl(body))),
        _Form(AclRemoved, _acl_body, lambda body: AclRemoved(_acl(body))),
    )
}
"""The kinds of change that are kept, by name; the others are true only while a broker runs."""


def changes_of(whole: ClusterImage) -> list[Change]:
    """Return the changes that lead from nothing to this image: a snapshot in the journal's own terms."""
    changes: list[Change] = [TopicCreated(topic) for topic in whole.topics.values()]
    changes += [
        ConfigChanged(kind, name, tuple(settings.items())) for (kind, name), settings in whole.configs.items()
    ]
    if whole.next_producer_id:
        changes.append(ProducerIdsAllocated(whole.next_producer_id))
    changes += [LogDirsRegistered(broker_id, ids) for broker_id, ids in whole.log_dirs.items()]
    changes += [
        ScramCredentialChanged(user, mechanism, credential)
        for user, credentials in whole.scram.items()
        for mechanism, credential in credentials.items()
    ]
    changes += [DelegationTokenChanged(token) for token in whole.tokens.values()]
    changes += [ClientQuotaChanged(entity, tuple(quotas.items())) for entity, quotas in whole.quotas.items()]
    changes += map(AclAdded, whole.acls)
    return changes
