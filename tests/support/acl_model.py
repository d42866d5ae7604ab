"""Who may do what by a list of ACLs, as Kafka's documentation says it: nothing indexed, nothing remembered.

Written without looking at the authorizer: numbers of the wire, plain tuples, and no code of the broker's.
"""

from __future__ import annotations

from typing import NamedTuple

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL = 2
IMPLIED_BY = {8: (8, 3, 4, 6, 7), 10: (10, 11)}
"""DESCRIBE by READ, WRITE, DELETE and ALTER; DESCRIBE_CONFIGS by ALTER_CONFIGS."""


class Acl(NamedTuple):
    """One ACL, in numbers of the wire."""

    kind: int
    pattern: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int

    def is_about(self, principal: str, host: str, kind: int, name: str) -> bool:
        matches = self.name in (name, "*") if self.pattern == LITERAL else name.startswith(self.name)
        return (
            matches
            and self.kind == kind
            and self.principal in (principal, "User:*")
            and self.host in (host, "*")
        )


def allows(acls: list[Acl], principal: str, host: str, operation: int, kind: int, name: str) -> bool:
    """Whether these ACLs allow an operation on a resource; nothing is allowed to who is not named."""
    about = [acl for acl in acls if acl.is_about(principal, host, kind, name)]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in about):
        return False
    implied = (*IMPLIED_BY.get(operation, (operation,)), ALL)
    return any(acl.permission == ALLOW and acl.operation in implied for acl in about)


def allows_somewhere(acls: list[Acl], principal: str, host: str, operation: int, kind: int) -> bool:
    """Whether there can be a resource on which these ACLs allow this operation, by trying each name that may differ."""
    names = {name for acl in acls if acl.kind == kind for name in (acl.name, f"{acl.name}\0new")}
    exact = [acl for acl in acls if acl.operation in (operation, ALL)]
    return any(allows(exact, principal, host, operation, kind, name) for name in (*names, "\0new"))
