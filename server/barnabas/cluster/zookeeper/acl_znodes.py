"""The znodes of ACLs, in the format of Kafka's AclAuthorizer: one for each resource pattern. Pure.

The rule: unknown entries of a znode stay in it unchanged, and are not in the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.cluster.zookeeper import resource_znodes as resources
from barnabas.cluster.zookeeper.json_znodes import ZnodeError
from barnabas.cluster.zookeeper.resource_znodes import AclEntry
from barnabas.security.acls import (
    AccessControlEntry,
    PatternType,
    Permission,
    ResourcePattern,
    pascal_case,
    type_name,
)
from barnabas.security.authorizer import Operation, ResourceType

_ROOTS = {
    PatternType.LITERAL: resources.ACLS,
    PatternType.PREFIXED: f"{resources.EXTENDED_ACLS}/{PatternType.PREFIXED.name.lower()}",
}
TYPE_PATHS: Mapping[str, tuple[ResourceType, PatternType]] = {
    f"{root}/{type_name(kind)}": (kind, pattern) for pattern, root in _ROOTS.items() for kind in ResourceType
}
"""The parents of all znodes with ACLs; each broker with an authorizer makes those that are missing."""
CHANGES = (resources.ACL_CHANGES, resources.EXTENDED_ACL_CHANGES)

_OPERATIONS = {pascal_case(operation.name).upper(): operation for operation in Operation}
_PERMISSIONS = {permission.name: permission for permission in Permission}


def path_of(pattern: ResourcePattern) -> str:
    """Return the znode of a pattern's ACLs."""
    return resources.acl_path(pattern.pattern_type.name, type_name(pattern.resource_type), pattern.name)


def entries_of(pattern: ResourcePattern, data: bytes) -> tuple[list[AccessControlEntry], list[AclEntry]]:
    """Return the entries of a znode, and the unknown ones. Raises ZnodeError."""
    entries, unknown = [], []
    for acl in sorted(resources.decode_acls(path_of(pattern), data), key=_order):
        operation = _OPERATIONS.get(acl.operation.upper())
        permission = _PERMISSIONS.get(acl.permission.upper())
        if operation is None or permission is None:
            unknown.append(acl)
        else:
            entries.append(AccessControlEntry(acl.principal, acl.host, operation, permission))
    return entries, unknown


def _order(entry: AclEntry) -> tuple[str, str, str, str]:
    return entry.principal, entry.host, entry.operation, entry.permission


def encode(entries: list[AccessControlEntry], unknown: list[AclEntry]) -> bytes:
    """Return the content of a znode with these entries."""
    acl_entries = (
        AclEntry(
            entry.principal, entry.host, pascal_case(entry.operation.name), pascal_case(entry.permission.name)
        )
        for entry in entries
    )
    return resources.encode_acls([*acl_entries, *unknown])


def updated(
    pattern: ResourcePattern, data: bytes | None, changes: Mapping[AccessControlEntry, bool]
) -> bytes | None:
    """Return the content of a znode with `data` after entries were added (True) or removed; None if no entry is left.

    `data` is None for a missing znode. Raises ZnodeError for an unreadable one.
    """
    entries, unknown = entries_of(pattern, data) if data is not None else ([], [])
    kept = dict.fromkeys(entries)
    for entry, is_added in changes.items():
        if is_added:
            kept[entry] = None
        else:
            kept.pop(entry, None)
    if list(kept) == entries and data is not None:
        return data
    return encode(list(kept), unknown) if kept or unknown else None


def notification(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Return the path and the data of a notification that a pattern's ACLs have changed; ZooKeeper adds the number."""
    root = (
        resources.ACL_CHANGES
        if pattern.pattern_type is PatternType.LITERAL
        else resources.EXTENDED_ACL_CHANGES
    )
    data = resources.encode_acl_change(pattern.pattern_type.name, pattern.resource_type.name, pattern.name)
    return f"{root}/{resources.ACL_CHANGE_PREFIX}", data


def notified(path: str, data: bytes) -> ResourcePattern:
    """Return the pattern with changed ACLs. Raises ZnodeError."""
    pattern, kind, name = resources.decode_acl_change(path, data)
    try:
        return ResourcePattern(ResourceType[kind], PatternType[pattern], name)
    except KeyError:
        raise ZnodeError(path, "no such type of resources or patterns", data) from None


def patterns_below(path: str, names: list[str]) -> Iterator[ResourcePattern]:
    """Return the patterns with ACLs in the children of one of TYPE_PATHS."""
    kind, pattern = TYPE_PATHS[path]
    return (ResourcePattern(kind, pattern, name) for name in names)
