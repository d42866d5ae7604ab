"""Rights by a list of ACLs, and requests that change that list, as Kafka's documentation says it.

Written without looking at the authorizer: numbers of the wire, plain tuples, nothing indexed or remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.models.transactions import refuse_unless

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
DENY, ALLOW = 2, 3
ALL = 2
KINDS, PATTERNS, OPERATIONS, PERMISSIONS = range(2, 8), (LITERAL, PREFIXED), range(2, 16), (DENY, ALLOW)
CLUSTER, CLUSTER_NAME = 4, "kafka-cluster"
IMPLIED_BY = {8: (8, 3, 4, 6, 7), 10: (10, 11)}
"""DESCRIBE by READ, WRITE, DELETE and ALTER; DESCRIBE_CONFIGS by ALTER_CONFIGS."""
SOME_NAME = "hardcode"
"""The one resource that Kafka looks at for what is allowed to everyone where there are no ACLs."""


class Acl(NamedTuple):
    """One ACL, in numbers of the wire."""

    kind: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def applies_to(self, kind: int, name: str) -> bool:
        matches = self.name in (name, "*") if self.pattern == LITERAL else name.startswith(self.name)
        return matches and self.kind == kind

    def is_about(self, principal: str, host: str, kind: int, name: str) -> bool:
        return (
            self.applies_to(kind, name)
            and self.principal in (principal, "User:*")
            and self.host in (host, "*")
        )


class Filter(NamedTuple):
    """ACLs to describe or delete: None and ANY match everything; MATCH, what applies to the resource of that name."""

    kind: int
    pattern: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        if self.name is None:
            is_named = self.pattern in (ANY, MATCH, acl.pattern)
        elif self.pattern == MATCH:
            is_named = acl.applies_to(acl.kind, self.name)
        else:
            is_named = self.name == acl.name and self.pattern in (ANY, acl.pattern)
        return (
            is_named
            and self.kind in (ANY, acl.kind)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
        )


def allows(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: int,
    kind: int,
    name: str,
    *,
    super_users: Iterable[str] = (),
    everyone_if_none: bool = False,
) -> bool:
    """Say whether these ACLs allow an operation on a resource; by default only what an ACL grants is allowed.

    `everyone_if_none`: everything is allowed on a resource that no ACL applies to.
    """
    if principal in super_users:
        return True
    about = [acl for acl in acls if acl.is_about(principal, host, kind, name)]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in about):
        return False
    implied = (*IMPLIED_BY.get(operation, (operation,)), ALL)
    if any(acl.permission == ALLOW and acl.operation in implied for acl in about):
        return True
    return everyone_if_none and not any(acl.applies_to(kind, name) for acl in acls)


def allows_somewhere(
    acls: Iterable[Acl],
    principal: str,
    host: str,
    operation: int,
    kind: int,
    *,
    super_users: Iterable[str] = (),
    everyone_if_none: bool = False,
) -> bool:
    """Say whether these ACLs allow this operation on some resource, by trying each name that may differ."""
    rules = {"super_users": super_users, "everyone_if_none": everyone_if_none}
    if allows(acls, principal, host, operation, kind, SOME_NAME, **rules):  # type: ignore[arg-type]
        return True
    names = {name for acl in acls if acl.kind == kind for name in (acl.name, f"{acl.name}\0new")}
    exact = [acl for acl in acls if acl.operation in (operation, ALL)]
    return any(allows(exact, principal, host, operation, kind, name) for name in (*names, "\0new"))


def check_new(acl: Acl) -> None:
    """Refuse an ACL that CreateAcls cannot create: all of it must be said, and of a cluster there is one name."""
    is_whole = (
        acl.kind in KINDS
        and acl.pattern in PATTERNS
        and acl.operation in OPERATIONS
        and acl.permission in PERMISSIONS
    )
    is_name = bool(acl.name) and (acl.kind != CLUSTER or acl.name == CLUSTER_NAME)
    refuse_unless(is_whole and is_name and ":" in acl.principal, "INVALID_REQUEST")


def describe(acls: Iterable[Acl], filter_: Filter) -> set[Acl]:
    """Answer DescribeAcls. The number 0 says UNKNOWN; numbers without any meaning match nothing."""
    refuse_unless(
        0 not in (filter_.kind, filter_.pattern, filter_.operation, filter_.permission), "INVALID_REQUEST"
    )
    return {acl for acl in acls if filter_.matches(acl)}


def delete(acls: Iterable[Acl], filter_: Filter) -> set[Acl]:
    """Return what one filter of DeleteAcls deletes; it refuses numbers without any meaning, too."""
    is_known = (
        filter_.kind in (ANY, *KINDS)
        and filter_.pattern in (ANY, MATCH, *PATTERNS)
        and filter_.operation in (ANY, *OPERATIONS)
        and filter_.permission in (ANY, *PERMISSIONS)
    )
    refuse_unless(is_known, "INVALID_REQUEST")
    return describe(acls, filter_)
