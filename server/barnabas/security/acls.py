"""Access control lists: operations that principals may, or may not, do on resources; bindings, filters, an index. Pure.

The rule: an `Acls` never changes. A `Draft` builds another one from it that shares all unchanged parts, so that a cache
of decisions can check by identity whether they are still valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from ipaddress import IPv6Address
from typing import NamedTuple, cast

from barnabas.security.authorizer import Operation, ResourceType

ANY = 1
"""In a filter: any resource type, operation, permission type or pattern type."""
WILDCARD = "*"
"""As a name in a literal pattern: every resource of the type. As a host: every host."""
ANYONE = "User:*"
"""The principal of ACLs for all users."""


class PatternType(IntEnum):
    """Ways in which a name in an ACL stands for resources, with the numbers of the wire (KIP-290)."""

    __hash__ = int.__hash__  # that of Enum is slow, and decisions are looked up by these

    LITERAL = 3
    PREFIXED = 4


MATCH = 2
"""As a pattern type in a filter: patterns of any type that the named resource matches."""


class Permission(IntEnum):
    """Effects of an ACL, to allow or to deny, with the numbers of the wire."""

    __hash__ = int.__hash__  # that of Enum is slow, and decisions are looked up by these

    DENY = 2
    ALLOW = 3


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def __str__(self) -> str:
        return f"{type_name(self.resource_type)}:{self.pattern_type.name}:{self.name}"


class AccessControlEntry(NamedTuple):
    """A principal that may, or may not, do an operation from a host. The host is an address as Kafka writes it, or `*`."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One ACL: a resource pattern, and an entry for it."""

    pattern: ResourcePattern
    entry: AccessControlEntry

    def __str__(self) -> str:
        entry = self.entry
        return (
            f"{entry.principal} has {entry.permission.name} permission for {entry.operation.name} "
            f"from host {entry.host} on {self.pattern}"
        )


class AclFilter(NamedTuple):
    """A filter of ACLs: type codes of the protocol, ANY for every type; None for any text.

    With the pattern type MATCH the name is that of a resource: all patterns that apply to it match.
    """

    resource_type: int = ANY
    pattern_type: int = ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches(self, binding: AclBinding) -> bool:
        """Return whether an ACL matches."""
        return self.matches_pattern(binding.pattern) and self.matches_entry(binding.entry)

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        """Return whether ACLs with this pattern may match."""
        if self.resource_type not in (ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (ANY, MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type != MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == WILDCARD

    def matches_entry(self, entry: AccessControlEntry) -> bool:
        """Return whether ACLs with this entry may match."""
        return (
            (self.principal is None or self.principal == entry.principal)
            and (self.host is None or self.host == entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )


Entries = tuple[AccessControlEntry, ...]
Patterns = Mapping[ResourcePattern, Entries]


class Acls:
    """All ACLs, by principal and pattern, immutable. Equal only to itself."""

    __slots__ = ("by_principal", "count", "prefixes", "principals")

    def __init__(
        self,
        by_principal: Mapping[str, Patterns],
        principals: Mapping[ResourcePattern, frozenset[str]],
        prefixes: Mapping[ResourceType, Mapping[int, int]],
        count: int,
    ) -> None:
        self.by_principal = by_principal
        self.principals = principals
        """Principals that the ACLs of each pattern name."""
        self.prefixes = prefixes
        """Number of prefixed patterns by resource type and length of the prefix."""
        self.count = count

    def __iter__(self) -> Iterator[AclBinding]:
        for patterns in self.by_principal.values():
            for pattern, entries in patterns.items():
                for entry in entries:
                    yield AclBinding(pattern, entry)

    def __contains__(self, binding: AclBinding) -> bool:
        return binding.entry in self.of(binding.entry.principal).get(binding.pattern, ())

    def of(self, principal: str) -> Patterns:
        """Return the ACLs that name this principal."""
        return self.by_principal.get(principal, _NOTHING)

    def on(self, pattern: ResourcePattern) -> Iterator[AccessControlEntry]:
        """Go through the entries of one pattern."""
        for principal in self.principals.get(pattern, ()):
            yield from self.by_principal[principal][pattern]

    def matching(self, acl_filter: AclFilter) -> Iterator[list[AclBinding]]:
        """Yield the ACLs that match a filter, in small batches, many of them empty."""
        if acl_filter.principal is None:
            candidates: Iterable[Patterns] = self.by_principal.values()
        else:
            candidates = (self.of(acl_filter.principal),)
        for patterns in candidates:
            for pattern, entries in patterns.items():
                if acl_filter.matches_pattern(pattern):
                    yield [AclBinding(pattern, entry) for entry in entries if acl_filter.matches_entry(entry)]
                else:
                    yield []

    def patterns_for(self, resource_type: ResourceType, name: str) -> list[ResourcePattern]:
        """Return the patterns of ACLs that may apply to this resource: its name, the wildcard, and prefixes.

        They are plain tuples, which are equal to patterns and several times as fast to create.
        """
        patterns = [
            (resource_type, PatternType.LITERAL, name),
            (resource_type, PatternType.LITERAL, WILDCARD),
        ]
        lengths = self.prefixes.get(resource_type)
        if lengths:
            size, prefixed = len(name), PatternType.PREFIXED
            patterns += [(resource_type, prefixed, name[:length]) for length in lengths if length <= size]
        return cast("list[ResourcePattern]", patterns)

    def changed(self, added: Iterable[AclBinding] = (), removed: Iterable[AclBinding] = ()) -> Acls:
        """Return all ACLs after some were added, and then others removed."""
        draft = Draft(self)
        for binding in added:
            draft.add(binding)
        for binding in removed:
            draft.remove(binding)
        return draft.acls()


_NOTHING: Patterns = {}
NO_ACLS = Acls({}, {}, {}, 0)


class Draft:
    """ACLs that are being changed, from an existing `Acls`."""

    def __init__(self, acls: Acls) -> None:
        self._before = acls
        self._by_principal: dict[str, dict[ResourcePattern, dict[AccessControlEntry, None]]] = {}
        self._count = acls.count
        self._is_changed = False

    def add(self, binding: AclBinding) -> bool:
        """Add an ACL; returns whether it was not there."""
        pattern, entry = binding
        entries = self._entries(entry.principal, pattern)
        if entry in entries:
            return False
        entries[entry] = None
        self._count += 1
        self._is_changed = True
        return True

    def remove(self, binding: AclBinding) -> bool:
        """Remove an ACL; returns whether it existed."""
        pattern, entry = binding
        entries = self._entries(entry.principal, pattern)
        if entry not in entries:
            return False
        del entries[entry]
        self._count -= 1
        self._is_changed = True
        return True

    def _entries(self, principal: str, pattern: ResourcePattern) -> dict[AccessControlEntry, None]:
        patterns = self._by_principal.setdefault(principal, {})
        entries = patterns.get(pattern)
        if entries is None:
            entries = patterns[pattern] = dict.fromkeys(self._before.of(principal).get(pattern, ()))
        return entries

    def acls(self) -> Acls:
        """Return the ACLs after all changes; the same as before where nothing has changed."""
        if not self._is_changed:
            return self._before
        by_principal = dict(self._before.by_principal)
        named: dict[ResourcePattern, set[str]] = {}
        for principal, changed in self._by_principal.items():
            patterns = dict(by_principal.get(principal, _NOTHING))
            for pattern, entries in changed.items():
                if pattern not in named:
                    named[pattern] = set(self._before.principals.get(pattern, ()))
                if entries:
                    patterns[pattern] = tuple(entries)
                    named[pattern].add(principal)
                else:
                    patterns.pop(pattern, None)
                    named[pattern].discard(principal)
            if patterns:
                by_principal[principal] = patterns
            else:
                by_principal.pop(principal, None)
        principals = dict(self._before.principals)
        prefixes = {kind: dict(lengths) for kind, lengths in self._before.prefixes.items()}
        for pattern, who in named.items():
            if pattern.pattern_type is PatternType.PREFIXED and (pattern in principals) != bool(who):
                _count(prefixes.setdefault(pattern.resource_type, {}), len(pattern.name), 1 if who else -1)
            if who:
                principals[pattern] = frozenset(who)
            else:
                principals.pop(pattern, None)
        return Acls(by_principal, principals, prefixes, self._count)


def _count(lengths: dict[int, int], length: int, change: int) -> None:
    lengths[length] = lengths.get(length, 0) + change
    if not lengths[length]:
        del lengths[length]


def host_of(address: str) -> str:
    """Return an IP address as ACLs name it: as Java writes it, IPv6 without `::`, and IPv4 for one mapped into IPv6."""
    if ":" not in address:
        return address
    address, _, zone = address.partition("%")
    parsed = IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (int(group, 16) for group in parsed.exploded.split(":"))
    return ":".join(f"{group:x}" for group in groups) + (f"%{zone}" if zone else "")


def type_name(resource_type: ResourceType) -> str:
    """Return the name of a resource type as Kafka writes it in znodes and logs: `TransactionalId`."""
    return pascal_case(resource_type.name)


def pascal_case(name: str) -> str:
    """Return a name in capitals as Kafka writes it in znodes: `DESCRIBE_CONFIGS` as `DescribeConfigs`."""
    return "".join(part.capitalize() for part in name.split("_"))
