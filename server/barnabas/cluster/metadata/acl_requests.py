"""ACLs and filters from the fields of CreateAcls, DeleteAcls and DescribeAcls. Pure.

The rule: each entry of a request is checked on its own, with Kafka's messages; if Kafka would close the connection or
fail the whole request with UNKNOWN_SERVER_ERROR for an entry, only that entry gets INVALID_REQUEST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.errors import RequestError
from barnabas.security.acls import (
    ANY,
    MATCH,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from barnabas.security.networks import check_host
from barnabas.wire.generated.errors import ErrorCode

if TYPE_CHECKING:
    from enum import IntEnum

    from barnabas.wire.generated.create_acls import CreateAclsRequest
    from barnabas.wire.generated.delete_acls import DeleteAclsRequest
    from barnabas.wire.generated.describe_acls import DescribeAclsRequest

    K = TypeVar("K", bound=IntEnum)

CHANGES_MAX = 10_000
"""ACLs, or filters, in one request; as in Kafka."""
ACLS_MAX = 100_000
"""ACLs of a cluster; Kafka has no such limit."""
NAME_BYTES_MAX = 2**15 - 1
"""Longest string, in bytes, that every version of Kafka's protocol can hold."""
ACL_BYTES = 200
"""Approximate bytes of an ACL in a response."""


def binding_of(
    asked: CreateAclsRequest.AclCreation,
    *,
    in_znodes: bool,
    has_prefixes: bool = True,
    knows_networks: bool = False,
) -> AclBinding:
    """Return the ACL to create. Raises INVALID_REQUEST. `in_znodes`: whether the resource's name becomes that of a znode.

    `has_prefixes`: whether all brokers support prefixed patterns (Kafka 2.0). `knows_networks`: whether the host may be
    a network (Kafka 4.4).
    """
    kind = _known(ResourceType, asked.resource_type, "resourceType")
    name = asked.resource_name
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not name:
        raise _invalid("Invalid empty resource name")
    pattern_type = _known(PatternType, asked.resource_pattern_type, "patternType")
    operation = _known(Operation, asked.operation, "operation")
    permission = _known(Permission, asked.permission_type, "permissionType")
    if ":" not in asked.principal:
        raise _invalid(
            f"Could not parse principal from `{asked.principal[:100]}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    for what, text in (("resource name", name), ("principal", asked.principal), ("host", asked.host)):
        if len(text.encode()) > NAME_BYTES_MAX:
            raise _invalid(f"The {what} is longer than {NAME_BYTES_MAX} bytes")
    if in_znodes and not _is_znode_name(name):
        raise _invalid("Failed to create ACL: ZooKeeper has no znodes with the name of this resource")
    if pattern_type is PatternType.PREFIXED and not has_prefixes:
        raise _invalid(
            "Failed to create ACL: prefixed patterns need inter.broker.protocol.version 2.0 or later"
        )
    if knows_networks:
        try:
            check_host(asked.host)
        except ValueError as error:
            raise _invalid(str(error)) from None
    entry = AccessControlEntry(asked.principal, asked.host, operation, permission)
    return AclBinding(ResourcePattern(kind, pattern_type, name), entry)


def filter_to_delete(asked: DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Return which ACLs are to be deleted. Raises INVALID_REQUEST for numbers that mean nothing."""
    acl_filter = filter_of(asked)
    if not _is_known(ResourceType, acl_filter.resource_type) or not (
        acl_filter.pattern_type == MATCH or _is_known(PatternType, acl_filter.pattern_type)
    ):
        raise _invalid("Unknown patternFilter.")
    if not _is_known(Operation, acl_filter.operation) or not _is_known(Permission, acl_filter.permission):
        raise _invalid("Unknown entryFilter.")
    return acl_filter


def filter_of(asked: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
    """Return the ACL filter of a request. Raises INVALID_REQUEST if a field has the number for "unknown"."""
    numbers = (
        asked.resource_type_filter, asked.pattern_type_filter, asked.operation, asked.permission_type,
    )  # fmt: skip
    if 0 in numbers:
        raise _invalid("The filter contains UNKNOWN elements")
    return AclFilter(
        asked.resource_type_filter,
        asked.pattern_type_filter,
        asked.resource_name_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _known(kind: type[K], number: int, what: str) -> K:
    try:
        return kind(number)
    except ValueError:
        word = {ANY: "ANY", MATCH: "MATCH" if kind is PatternType else "UNKNOWN"}.get(number, "UNKNOWN")
        raise _invalid(f"Invalid {what} {word}") from None


def _is_known(kind: type[K], number: int) -> bool:
    return number == ANY or number in kind.__members__.values()


def _is_znode_name(name: str) -> bool:
    """Return whether ZooKeeper accepts a name as one part of a path."""
    return name not in (".", "..") and not any(
        char == "/"
        or char < " "
        or "\x7f" <= char <= "\x9f"
        or "\ud800" <= char <= "\uf8ff"
        or char >= "\ufff0"
        for char in name
    )


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
