"""The metadata journal as older versions wrote it: lines of JSON with checksums, in the first versions without.

The rule: disks hold these bytes, so this format must not change.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.cluster.metadata.image import Change, PartitionInfo
from barnabas.cluster.metadata.journal_names import COPY, JOURNAL
from barnabas.log.disk import Disk
from barnabas.records.crc import crc32c
from barnabas.security import scram


def write_journal(disk: Disk, groups: Sequence[Sequence[Change]], dirs: Sequence[str] = ("/a",)) -> list[str]:
    """Write all copies of the journal of these groups of changes, as a broker with these log dirs; returns their paths."""
    paths = [f"{dirs[0]}/{JOURNAL}", *(f"{directory}/{COPY}" for directory in dirs)]
    for directory in dirs:
        disk.make_dirs(directory)
    for path in paths:
        disk.replace(path, encode_lines(groups), sync=True)
    return paths


def encode_lines(groups: Sequence[Sequence[Change]], first: int = 1) -> bytes:
    """Return the lines of groups of changes, numbered from `first` on; a group applies as a whole or not at all."""
    lines: list[bytes] = []
    for group in groups:
        for lines_after, change in enumerate(group, 1 - len(group)):
            lines.append(encode_line(first + len(lines), change, has_more=lines_after != 0))
    return b"".join(lines)


def encode_line(number: int, change: Change, *, has_more: bool = False) -> bytes:
    """Return a change as a line; with `has_more` the next line belongs to the same group."""
    more = '"more":true,' if has_more else ""
    return sealed(f'"n":{number},{more}{encode(change)[1:]}'.encode())


def sealed(body: bytes) -> bytes:
    """Return the line with a checksum for an object, given without its closing brace."""
    return b'{"crc":"%08x",%s\n' % (crc32c(body), body)


def encode(change: Change) -> str:
    """One change as the first versions wrote it, without the newline."""
    name = type(change).__name__
    return json.dumps({"change": name, **_BODIES[name](change)}, separators=(",", ":"))


def _partition(info: PartitionInfo) -> list[Any]:
    return [info.leader, list(info.replicas), list(info.isr), info.leader_epoch, info.partition_epoch]


def _token(change: Any) -> dict[str, Any]:
    token = change.token
    return {
        "id": token.token_id, "owner": token.owner, "requester": token.requester, "renewers": list(token.renewers),
        "issued": token.issued_ms, "expires": token.expires_ms, "expires_max": token.expires_max_ms,
    }  # fmt: skip


def _acl(change: Any) -> dict[str, Any]:
    (kind, pattern, name), (principal, host, operation, permission) = change.acl
    return {
        "type": int(kind), "pattern": int(pattern), "name": name, "principal": principal, "host": host,
        "operation": int(operation), "permission": int(permission),
    }  # fmt: skip


_BODIES: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "TopicCreated": lambda change: {
        "name": change.topic.name,
        "id": change.topic.id.hex(),
        "partitions": [_partition(info) for info in change.topic.partitions],
    },
    "PartitionsAdded": lambda change: {
        "name": change.name,
        "partitions": [_partition(info) for info in change.partitions],
    },
    "PartitionChanged": lambda change: {
        "name": change.name,
        "index": change.index,
        "partition": _partition(change.partition),
    },
    "EpochBegun": lambda change: {"epoch": change.epoch},
    "TopicDeleted": lambda change: {"name": change.name},
    "ConfigChanged": lambda change: {
        "type": change.resource_type,
        "name": change.resource_name,
        "settings": dict(change.settings),
    },
    "ProducerIdsAllocated": lambda change: {"next_id": change.next_id},
    "LogDirsRegistered": lambda change: {
        "broker": change.broker_id,
        "dirs": sorted(directory_id.hex() for directory_id in change.directory_ids),
    },
    "ScramCredentialChanged": lambda change: {
        "user": change.user,
        "mechanism": change.mechanism,
        "credential": scram.to_text(change.credential) if change.credential is not None else None,
    },
    "DelegationTokenChanged": _token,
    "DelegationTokenRemoved": lambda change: {"id": change.token_id},
    "ClientQuotaChanged": lambda change: {"entity": dict(change.entity.parts), "quotas": dict(change.quotas)},
    "AclAdded": _acl,
    "AclRemoved": _acl,
}
"""Content of the object of each kind of change, beside its name."""
