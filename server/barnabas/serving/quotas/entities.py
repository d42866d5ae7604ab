"""Entities of quotas, the kinds of quotas, and checks of alterations and filters. Pure.

The rule: names and combinations are those of KIP-546; requests that Kafka refuses raise a RequestError with its code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from types import MappingProxyType
from typing import NamedTuple

from barnabas.errors import RequestError
from barnabas.wire.generated.errors import ErrorCode

USER, CLIENT_ID, IP = "user", "client-id", "ip"
"""The types of parts of an entity, as they travel."""

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

INT_MAX, LONG_MAX = 2.0**31 - 1, 2.0**63
HASH_MAP_BUCKETS = 16
"""Buckets of a HashMap of Java that is made without a size."""
FRACTION_MAX = 1e-6
"""Distance from a whole number up to which a value counts as one."""

_OF_USERS_AND_CLIENTS: Mapping[str, float] = MappingProxyType(
    {
        PRODUCER_BYTE_RATE: LONG_MAX,
        CONSUMER_BYTE_RATE: LONG_MAX,
        REQUEST_PERCENTAGE: math.inf,
        CONTROLLER_MUTATION_RATE: math.inf,
    }
)
_OF_IPS: Mapping[str, float] = MappingProxyType({CONNECTION_CREATION_RATE: INT_MAX})
"""The largest value of each quota; those that are not infinite must be whole numbers."""

Quotas = Mapping[str, float]
"""Limits by the name of the quota."""


class QuotaEntity(NamedTuple):
    """Clients or an address to which quotas apply. A missing part is None, the default of its type is empty."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> tuple[tuple[str, str | None], ...]:
        """Types and names as in requests, in Kafka's order: the name of a default is None."""
        pairs = ((CLIENT_ID, self.client_id), (USER, self.user), (IP, self.ip))
        return tuple((kind, name or None) for kind, name in pairs if name is not None)

    @property
    def known_quotas(self) -> Mapping[str, float]:
        """The largest value of each quota that such an entity can have."""
        return _OF_USERS_AND_CLIENTS if self.ip is None else _OF_IPS

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name!r}" if name else f"default {kind}" for kind, name in self.parts)


def entity_of(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity with these parts, as an alteration names it. Raises INVALID_REQUEST."""
    names: dict[str, str] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"there are no quota entities of type {kind!r}")
        if name == "":
            raise _invalid(f"the name of the {kind} is empty")
        names[kind] = name or ""
    if not names:
        raise _invalid("a quota entity without any part")
    entity = QuotaEntity(names.get(USER), names.get(CLIENT_ID), names.get(IP))
    if entity.ip is not None:
        if len(names) > 1:
            raise _invalid("a quota entity of type ip cannot be combined with user or client-id")
        if entity.ip and normal_ip(entity.ip) is None:
            raise _invalid(f"{entity.ip!r} is not an IP address")
    return entity


def in_order(parts: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yield types and names in Kafka's order; there may be very many."""
    first = [kind for kind in (CLIENT_ID, USER) if kind in parts]
    yield from ((kind, parts[kind]) for kind in first)
    for kind, name in parts.items():
        if kind not in first:
            yield kind, name


def normal_ip(text: str) -> str | None:
    """Return an IP address as sockets show it, None for an invalid text; IPv4 in IPv6 becomes IPv4."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def altered(
    entity: QuotaEntity,
    before: Quotas,
    operations: Sequence[tuple[str, float | None]],
    *,
    finite_only: bool = False,
) -> Quotas:
    """Return the quotas of an entity after these operations, a value that is set, None to remove it, in Kafka's order.

    Raises INVALID_REQUEST: a quota that such an entity cannot have, a value that it cannot have, a quota named twice.
    With `finite_only` a quota has a number, as since Kafka 4.4.
    """
    after = dict(before)
    named = set()
    for name, value in operations:
        if name in named:
            raise _invalid(f"the quota {name!r} is named twice")
        named.add(name)
        if value is None:
            after.pop(name, None)
        else:
            check_value(entity, name, value)
            if finite_only and math.isinf(value):
                raise _invalid(f"the quota {name} must be a finite number")
            after[name] = value
    return {name: after[name] for name in _in_order_of_a_map(before, after)}


def _in_order_of_a_map(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Return the names of an entity's quotas in the iteration order of Java's HashMap, which Kafka uses.

    A new map has the capacity for the former entries, gets the remaining ones, then new ones in the order of the map of
    changes, and doubles at a load above three quarters; a bucket keeps the order of insertion.
    """
    former, names = list(before), set(after)
    kept = [name for name in former if name in names]
    new = sorted(names.difference(former), key=partial(_bucket, HASH_MAP_BUCKETS))
    buckets = 1
    while buckets < len(former) or buckets * 3 // 4 < len(names):
        buckets *= 2
    return sorted([*kept, *new], key=partial(_bucket, buckets))


def _bucket(buckets: int, name: str) -> int:
    """Return the bucket of a text in a Java HashMap with this many buckets."""
    hashed = 0
    for character in name:
        hashed = (hashed * 31 + ord(character)) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & buckets - 1


def check_value(entity: QuotaEntity, name: str, value: float) -> None:
    """Raise INVALID_REQUEST unless the entity can have this value of this quota."""
    most = entity.known_quotas.get(name)
    if most is None:
        raise _invalid(f"{entity} cannot have a quota {name!r}")
    if not value > 0:  # which NaN is not either
        raise _invalid(f"the quota {name} must be greater than 0")
    if math.isinf(most):
        return
    if value > most:
        raise _invalid(f"the quota {name} is at most {most:.0f}")
    if abs(math.remainder(value, 1.0)) > FRACTION_MAX:
        raise _invalid(f"the quota {name} must be a whole number")


EXACT, DEFAULT, ANY = range(3)
"""Types of match of a filter's component: a name, the default, any name and the default."""


class QuotaFilter:
    """Filter of DescribeClientQuotas. `strict` excludes entities with parts of a type that no component names."""

    __slots__ = ("any", "exact", "strict")

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self.exact: dict[str, str] = {}
        """Names by type, empty for the default."""
        self.any: set[str] = set()

    def add(self, kind: str, match_type: int, match: str | None) -> None:
        """Add a component. Raises INVALID_REQUEST, UNSUPPORTED_VERSION for a type of entity that is not known."""
        if not kind:
            raise _invalid("a component without an entity type")
        if kind in self.exact or kind in self.any:
            raise _invalid(f"two components are about the entity type {kind}")
        if kind not in (USER, CLIENT_ID, IP):
            raise RequestError(ErrorCode.UNSUPPORTED_VERSION, f"there are no quota entities of type {kind!r}")
        if match_type == EXACT:
            if match is None:
                raise _invalid(f"the component for {kind} matches a name, and names none")
            # No entity has an empty name: it must not match the default.
            self.exact[kind] = match or "\0"
        elif match_type not in (DEFAULT, ANY):
            raise _invalid(f"{match_type} is not a type of match")
        elif match is not None:
            raise _invalid(
                f"the component for {kind} names {match!r}, which its type of match does not allow"
            )
        elif match_type == DEFAULT:
            self.exact[kind] = ""
        else:
            self.any.add(kind)

    def check(self) -> None:
        """Raise INVALID_REQUEST for a combination that no entity can match."""
        kinds = self.any.union(self.exact)
        if IP in kinds and len(kinds) > 1:
            raise _invalid("a component for ip cannot be combined with those for user or client-id")

    def matches(self, entity: QuotaEntity) -> bool:
        """Return whether an entity matches."""
        names = {kind: name or "" for kind, name in entity.parts}
        if self.strict and len(names) != len(self.exact) + len(self.any):
            return False
        return all(kind in names for kind in self.any) and all(
            names.get(kind) == name for kind, name in self.exact.items()
        )


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, message)
