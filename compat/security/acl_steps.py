"""ACLs as steps of a comparison: set them, and ask for what they allow.

The rule: ACLs are changed by the administrator with the APIs of both sides, and described afterwards; a read is repeated
until both sides agree, so that Kafka's brokers have learnt of a change before anything is asked that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compat.kit.compare import Step
from compat.kit.wire import Values
from compat.security.sides import ADMIN

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, TOKEN, USER = 2, 3, 4, 5, 6, 7
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, CLUSTER_ACTION = 2, 3, 4, 5, 6, 7, 8, 9
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
CLUSTER_NAME = "kafka-cluster"


def acl(
    operation: int,
    kind: int,
    name: str,
    *,
    user: str = "alice",
    pattern: int = LITERAL,
    permission: int = ALLOW,
    host: str = "*",
) -> Values:
    """Return an entry of CreateAcls."""
    return {
        "ResourceType": kind,
        "ResourceName": name,
        "ResourcePatternType": pattern,
        "Principal": f"User:{user}",
        "Host": host,
        "Operation": operation,
        "PermissionType": permission,
    }


def acl_filter(
    *,
    kind: int = 1,
    name: str | None = None,
    pattern: int = 1,
    principal: str | None = None,
    host: str | None = None,
    operation: int = 1,
    permission: int = 1,
) -> Values:
    """Return the fields of DescribeAcls, or of a filter of DeleteAcls; everything by default."""
    return {
        "ResourceTypeFilter": kind,
        "ResourceNameFilter": name,
        "PatternTypeFilter": pattern,
        "PrincipalFilter": principal,
        "HostFilter": host,
        "Operation": operation,
        "PermissionType": permission,
    }


def set_acls(label: str, acls: Iterable[Values], *, replace: bool = True) -> Iterator[Step]:
    """Create these ACLs, in place of all existing ones or in addition, and wait until both sides describe them."""
    if replace:
        yield Step(f"{label}: no ACLs", "DeleteAcls", 3, {"Filters": [acl_filter()]}, ADMIN)
        yield Step(f"{label}: none are known", "DescribeAcls", 3, acl_filter(), ADMIN)
    yield Step(f"{label}: ACLs", "CreateAcls", 3, {"Creations": list(acls)}, ADMIN)
    yield Step(f"{label}: known", "DescribeAcls", 3, acl_filter(), ADMIN)
