"""The authorizer that follows ACLs, as Apache Kafka's StandardAuthorizer and AclAuthorizer do. Pure.

The rule: super users may do everything; otherwise a matching ACL that denies takes precedence, then one that allows;
without a match the operation is denied, unless the resource has no ACLs and `allow.everyone.if.no.acl.found` is on.
Decisions are cached until the ACLs change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from barnabas.security.acls import (
    ANYONE,
    WILDCARD,
    AclBinding,
    Acls,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.security.authorizer import Operation, Requester, ResourceType
from barnabas.security.networks import is_within

DECISIONS_MAX = 20_000
NAME_LENGTH_MAX = 256
"""Decisions on resources with longer names are not cached, as clients choose the names."""

SOME_NAME = "hardcode"
"""The resource that stands for those without ACLs of their own, as in Kafka."""

SUPER_USER, DEFAULT_ALLOW, DEFAULT_DENY = "SuperUser", "DefaultAllow", "DefaultDeny"
"""Rules that a decision may follow from, as Kafka's audit log names them."""

_DESCRIBES = (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_DESCRIBES_CONFIGS = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = MappingProxyType({
    **{operation: (operation, Operation.ALL) for operation in Operation},
    Operation.DESCRIBE: (*_DESCRIBES, Operation.ALL),
    Operation.DESCRIBE_CONFIGS: (*_DESCRIBES_CONFIGS, Operation.ALL),
})  # fmt: skip
"""By operation, the operations that imply it if an ACL allows them; a denial implies none."""


class Decision(NamedTuple):
    """A decision to allow or deny, and the ACL or the name of the rule behind it."""

    is_allowed: bool
    rule: AclBinding | str

    @property
    def reason(self) -> str:
        """The rule in words, for a log."""
        return self.rule if isinstance(self.rule, str) else f"MatchingAcl({self.rule})"


class StandardAuthorizer:
    """An Authorizer that follows the ACLs of the metadata image."""

    def __init__(
        self,
        acls: Callable[[], Acls],
        super_users: Iterable[str] = (),
        *,
        allows_without_acls: bool = False,
        knows_networks: bool = False,
    ) -> None:
        """`acls` returns the newest ACLs; `super_users` are principals as `User:alice`.

        With `knows_networks` the host of an ACL may be a network (KIP-1276); it is a text like any other without.
        """
        self._newest = acls
        self._acls = acls()
        self._super_users = frozenset(super_users)
        self._knows_networks = knows_networks
        self._default = (
            Decision(True, DEFAULT_ALLOW) if allows_without_acls else Decision(False, DEFAULT_DENY)
        )
        self._decisions: dict[tuple[Requester, Operation, ResourceType, str], bool] = {}
        self._on_any: dict[tuple[Requester, Operation, ResourceType], bool] = {}
        self.allowed_counts = [0] * (max(ResourceType) + 1)
        """Number of times that `allows` has allowed something, by the number of the resource type."""
        self.denied_counts = [0] * (max(ResourceType) + 1)

    @property
    def acl_count(self) -> int:
        """Number of ACLs."""
        return self._newest().count

    def allows(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> bool:
        """Return whether `requester` may do `operation` on this resource."""
        if self._newest() is not self._acls:
            self._forget()
        key = (requester, operation, resource_type, name)
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = self.decide(requester, operation, resource_type, name).is_allowed
            if len(name) <= NAME_LENGTH_MAX:
                if len(self._decisions) >= DECISIONS_MAX:
                    self._decisions.clear()
                self._decisions[key] = is_allowed
        (self.allowed_counts if is_allowed else self.denied_counts)[resource_type] += 1
        return is_allowed

    def allows_on_any(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, /
    ) -> bool:
        """Return whether there may be a resource of this type on which `requester` may do `operation` (KIP-679)."""
        if self._newest() is not self._acls:
            self._forget()
        key = (requester, operation, resource_type)
        is_allowed = self._on_any.get(key)
        if is_allowed is None:
            if len(self._on_any) >= DECISIONS_MAX:
                self._on_any.clear()
            is_allowed = self._on_any[key] = self._decide_on_any(requester, operation, resource_type)
        return is_allowed

    def reason(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str, /
    ) -> str:
        """Name the rule that `allows` follows, as Kafka's audit log does."""
        return self.decide(requester, operation, resource_type, name).reason

    def _is_from(self, requester: Requester, host: str) -> bool:
        """Return whether a requester's address is the host of an ACL, or in it."""
        if requester.host == host:
            return True
        return self._knows_networks and is_within(requester.host, host)

    def _forget(self) -> None:
        self._acls = self._newest()
        self._decisions.clear()
        self._on_any.clear()

    def decide(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision:
        """Return the decision with its rule. Takes time for each ACL of the principal on the resource."""
        if requester.principal in self._super_users:
            return Decision(True, SUPER_USER)
        acls = self._newest()
        candidates = acls.patterns_for(resource_type, name)
        allowing, denying = _IMPLIED_BY[operation], (operation, Operation.ALL)
        allowed: AclBinding | None = None
        for principal in (requester.principal, ANYONE):
            patterns = acls.by_principal.get(principal)
            if patterns is None:
                continue
            for pattern in candidates:
                for entry in patterns.get(pattern, ()):
                    if entry.host != WILDCARD and not self._is_from(requester, entry.host):
                        continue
                    if entry.permission is Permission.DENY:
                        if entry.operation in denying:
                            return Decision(False, AclBinding(ResourcePattern(*pattern), entry))
                    elif allowed is None and entry.operation in allowing:
                        allowed = AclBinding(ResourcePattern(*pattern), entry)
        if allowed is not None:
            return Decision(True, allowed)
        if self._default.is_allowed and any(pattern in acls.principals for pattern in candidates):
            return Decision(False, DEFAULT_DENY)
        return self._default

    def _decide_on_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Decide as Kafka does: by ACLs for just this operation or all, wherever no broader one denies it."""
        if self.decide(requester, operation, resource_type, SOME_NAME).is_allowed:
            return True
        names: dict[tuple[Permission, PatternType], set[str]] = {
            (permission, kind): set() for permission in Permission for kind in PatternType
        }
        for principal in (requester.principal, ANYONE):
            for pattern, entries in self._newest().of(principal).items():
                if pattern.resource_type is not resource_type:
                    continue
                for entry in entries:
                    if entry.operation not in (operation, Operation.ALL):
                        continue
                    if entry.host == WILDCARD or self._is_from(requester, entry.host):
                        names[entry.permission, pattern.pattern_type].add(pattern.name)
        denied = names[Permission.DENY, PatternType.LITERAL]
        denied_prefixes = names[Permission.DENY, PatternType.PREFIXED]
        if WILDCARD in denied:
            return False
        allowed = names[Permission.ALLOW, PatternType.LITERAL]
        if WILDCARD in allowed:
            return True
        open_names = (allowed - denied) | names[Permission.ALLOW, PatternType.PREFIXED]
        return not all(_is_below(name, denied_prefixes) for name in open_names)


def _is_below(name: str, prefixes: set[str]) -> bool:
    """Return whether one of the prefixes is a prefix of the name."""
    return bool(prefixes) and any(
        name[:length] in prefixes for length in {len(prefix) for prefix in prefixes}
    )
