"""Changes as JSON lines and back, for stores that keep a journal. Pure.

A line is `{"crc":"<CRC-32C in hex>","n":<number>,"change":...}`, with `"more":true` after the number if what belongs
together goes on in the next line. The checksum is over what follows it and its comma, without the newline. Lines
without a checksum, as they were written first, begin with `{"change":`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from barnabas.cluster import image
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
    """One change as a line with its number and checksum; `has_more` says that the next one belongs to it."""
    more = '"more":true,' if has_more else ""
    body = f'"n":{number},{more}{encode(change)[1:]}'.encode()
    return b'%s%08x",%s\n' % (_CRC, crc32c(body), body)


def decode_line(data: bytes) -> Line:
    """The line in these bytes, with its newline. Raises ValueError unless it is sound.

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
    """One change as one line of JSON, without the newline."""
    kind = type(change).__name__
    match change:
        case image.TopicCreated(topic):
            body: dict[str, Any] = {
                "name": topic.name,
                "id": topic.id.hex(),
                "partitions": [_partition(partition) for partition in topic.partitions],
            }
        case image.PartitionsAdded(name, partitions):
            body = {"name": name, "partitions": [_partition(partition) for partition in partitions]}
        case image.PartitionChanged(name, index, partition):
            body = {"name": name, "index": index, "partition": _partition(partition)}
        case image.TopicDeleted(name):
            body = {"name": name}
        case image.ConfigChanged(resource_type, resource_name, settings):
            body = {"type": resource_type, "name": resource_name, "settings": dict(settings)}
        case image.ProducerIdsAllocated(next_id):
            body = {"next_id": next_id}
        case image.LogDirsRegistered(broker_id, directory_ids):
            body = {"broker": broker_id, "dirs": sorted(one.hex() for one in directory_ids)}
        case image.ScramCredentialChanged(user, mechanism, credential):
            kept = scram.to_text(credential) if credential is not None else None
            body = {"user": user, "mechanism": mechanism, "credential": kept}
        case image.DelegationTokenChanged(token):
            body = _token(token)
        case image.DelegationTokenRemoved(token_id):
            body = {"id": token_id}
        case image.ClientQuotaChanged(entity, quotas):
            body = {"entity": dict(entity.parts), "quotas": dict(quotas)}
        case image.AclAdded(acl) | image.AclRemoved(acl):
            body = _acl(acl)
        case _:
            raise TypeError(f"{kind} is not kept: it is true only while a broker runs")
    return json.dumps({"change": kind, **body}, separators=(",", ":"))


def _change(body: dict[str, Any]) -> Change:
    """The change in a line's object. Raises ValueError, KeyError or TypeError for what `encode` never wrote."""
    match body["change"]:
        case "TopicCreated":
            topic = TopicInfo(body["name"], bytes.fromhex(body["id"]), _partitions(body["partitions"]))
            return image.TopicCreated(topic)
        case "PartitionsAdded":
            return image.PartitionsAdded(body["name"], _partitions(body["partitions"]))
        case "PartitionChanged":
            (partition,) = _partitions([body["partition"]])
            return image.PartitionChanged(body["name"], body["index"], partition)
        case "TopicDeleted":
            return image.TopicDeleted(body["name"])
        case "ConfigChanged":
            return image.ConfigChanged(body["type"], body["name"], tuple(body["settings"].items()))
        case "ProducerIdsAllocated":
            return image.ProducerIdsAllocated(body["next_id"])
        case "LogDirsRegistered":
            return image.LogDirsRegistered(body["broker"], frozenset(map(bytes.fromhex, body["dirs"])))
        case "ScramCredentialChanged":
            text = body["credential"]
            credential = scram.of_text(text) if text is not None else None
            return image.ScramCredentialChanged(body["user"], body["mechanism"], credential)
        case "DelegationTokenChanged":
            token = Token(
                body["id"], body["owner"], body["requester"], tuple(body["renewers"]),
                body["issued"], body["expires"], body["expires_max"],
            )  # fmt: skip
            return image.DelegationTokenChanged(token)
        case "DelegationTokenRemoved":
            return image.DelegationTokenRemoved(body["id"])
        case "ClientQuotaChanged":
            return image.ClientQuotaChanged(entity_of(body["entity"].items()), _limits(body["quotas"]))
        case "AclAdded":
            return image.AclAdded(_binding(body))
        case "AclRemoved":
            return image.AclRemoved(_binding(body))
    raise ValueError(f"unknown change {body['change']!r}")


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": token.issued_ms,
        "expires": token.expires_ms,
        "expires_max": token.expires_max_ms,
    }


def changes_of(whole: ClusterImage) -> list[Change]:
    """The changes that lead from nothing to this image: a snapshot in the journal's own terms."""
    changes: list[Change] = [image.TopicCreated(topic) for topic in whole.topics.values()]
    changes += [
        image.ConfigChanged(kind, name, tuple(settings.items()))
        for (kind, name), settings in whole.configs.items()
    ]
    if whole.next_producer_id:
        changes.append(image.ProducerIdsAllocated(whole.next_producer_id))
    changes += [image.LogDirsRegistered(broker_id, ids) for broker_id, ids in whole.log_dirs.items()]
    changes += [
        image.ScramCredentialChanged(user, mechanism, credential)
        for user, credentials in whole.scram.items()
        for mechanism, credential in credentials.items()
    ]
    changes += [image.DelegationTokenChanged(token) for token in whole.tokens.values()]
    changes += [
        image.ClientQuotaChanged(entity, tuple(quotas.items())) for entity, quotas in whole.quotas.items()
    ]
    changes += map(image.AclAdded, whole.acls)
    return changes


def _limits(quotas: dict[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple((name, float(value)) for name, value in quotas.items())


def _acl(acl: AclBinding) -> dict[str, Any]:
    (kind, pattern, name), (principal, host, operation, permission) = acl
    return {
        "type": int(kind), "pattern": int(pattern), "name": name, "principal": principal, "host": host,
        "operation": int(operation), "permission": int(permission),
    }  # fmt: skip


def _binding(body: dict[str, Any]) -> AclBinding:
    pattern = ResourcePattern(ResourceType(body["type"]), PatternType(body["pattern"]), body["name"])
    operation, permission = Operation(body["operation"]), Permission(body["permission"])
    return AclBinding(pattern, AccessControlEntry(body["principal"], body["host"], operation, permission))


def _partition(info: PartitionInfo) -> list[Any]:
    return [info.leader, list(info.replicas), list(info.isr), info.leader_epoch, info.partition_epoch]


def _partitions(rows: list[Any]) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(leader, tuple(replicas), tuple(isr), leader_epoch, partition_epoch)
        for leader, replicas, isr, leader_epoch, partition_epoch in rows
    )
