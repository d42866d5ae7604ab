"""Requests that set and describe client quotas, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

from compat.kit.compare import Step
from compat.kit.wire import Values

EXACT, DEFAULT, ANY = range(3)
Part = tuple[str, str | None]
Component = tuple[str, int, str | None]

ALICE: Part = ("user", "alice")
BOB: Part = ("user", "bob")
APP: Part = ("client-id", "app")
ANY_USER: Part = ("user", None)
ANY_CLIENT: Part = ("client-id", None)
ADDRESS: Part = ("ip", "10.1.2.3")


def entry(entity: list[Part], *ops: tuple[str, float | None]) -> Values:
    """An alteration of one entity; a quota without a value is removed."""
    return {
        "Entity": [{"EntityType": kind, "EntityName": name} for kind, name in entity],
        "Ops": [
            {"Key": key, "Value": 0.0 if value is None else value, "Remove": value is None}
            for key, value in ops
        ],
    }


def describe(*components: Component, strict: bool = False) -> Values:
    """A filter."""
    return {
        "Components": [
            {"EntityType": kind, "MatchType": how, "Match": name} for kind, how, name in components
        ],
        "Strict": strict,
    }


RATE, FETCH, PERCENT, MUTATIONS, CONNECTIONS = (
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
    "connection_creation_rate",
)  # fmt: skip

# By what is tried: the entities of one request.
ALTERATIONS: dict[str, list[Values]] = {
    "a user": [entry([ALICE], (RATE, 1000.0), (PERCENT, 12.5))],
    "a user again": [entry([ALICE], (RATE, 1000.0))],
    "a default user": [entry([ANY_USER], (FETCH, 5e9))],
    "a client": [entry([APP], (MUTATIONS, 0.5))],
    "a default client": [entry([ANY_CLIENT], (RATE, 2.0**62))],
    "both": [entry([ALICE, APP], (RATE, 1.0)), entry([ANY_USER, ANY_CLIENT], (RATE, 2.0))],
    "a user and the default client": [entry([BOB, ANY_CLIENT], (RATE, 3.0), (FETCH, 4.0))],
    "an unusual name": [entry([("user", "CN=Ä b,O=*/~")], (RATE, 1.0))],
    "an address": [entry([ADDRESS], (CONNECTIONS, 7.0)), entry([("ip", "::1")], (CONNECTIONS, 8.0))],
    "the default address": [entry([("ip", None)], (CONNECTIONS, 2147483647.0))],
    "infinitely much": [entry([BOB], (PERCENT, float("inf")))],
    "almost a whole number": [entry([BOB], (RATE, 5.0000000001))],
    "nothing": [entry([ALICE])],
    "no entities": [],
    "no entity": [entry([], (RATE, 1.0))],
    "an unknown type": [entry([("group", "g")], (RATE, 1.0))],
    "an empty type": [entry([("", "g")], (RATE, 1.0))],
    "an empty user": [entry([("user", "")], (RATE, 1.0))],
    "an empty client": [entry([("client-id", "")], (RATE, 1.0))],
    "an empty address": [entry([("ip", "")], (CONNECTIONS, 1.0))],
    "an address and a user": [entry([ADDRESS, ALICE], (CONNECTIONS, 1.0))],
    "an address and a client": [entry([ADDRESS, APP], (RATE, 1.0))],
    "no address": [entry([("ip", "not an address")], (CONNECTIONS, 1.0))],
    "a user twice": [entry([ALICE, BOB], (RATE, 77.0))],
    "an unknown quota": [entry([ALICE], ("no_such_rate", 1.0))],
    "a quota of addresses": [entry([ALICE], (CONNECTIONS, 1.0))],
    "a quota of users": [entry([ADDRESS], (RATE, 1.0))],
    "zero": [entry([ALICE], (RATE, 0.0))],
    "negative": [entry([ALICE], (RATE, -5.0))],
    "a fraction": [entry([ALICE], (RATE, 1.5))],
    "a fraction of connections": [entry([ADDRESS], (CONNECTIONS, 1.5))],
    "too many connections": [entry([ADDRESS], (CONNECTIONS, 2147483648.0))],
    "too many bytes": [entry([ALICE], (RATE, 1e19))],
    "as many bytes as can be": [entry([ALICE], (RATE, 2.0**63))],
    "one right and one wrong": [entry([ALICE], (FETCH, 99.0), (RATE, -1.0))],
    "one entity right and one wrong": [entry([BOB], (FETCH, 98.0)), entry([ALICE], (RATE, -1.0))],
    "a quota twice": [entry([BOB], (FETCH, 97.0), (FETCH, 96.0))],
    "remove what is not there": [entry([("user", "nobody")], (RATE, None), ("unheard_of", None))],
    "remove and set": [entry([ALICE], (PERCENT, None), (FETCH, 11.0))],
    "remove the last": [entry([APP], (MUTATIONS, None))],
}

_SETS = [names for count in (2, 3, 4) for names in permutations((RATE, FETCH, PERCENT, MUTATIONS), count)]
# In which order the quotas of an entity are described depends on which there are, and which were there before.
ORDERS: dict[str, list[Values]] = {
    "at once": [entry([("user", "-".join(names))], *((name, 1000.0) for name in names)) for names in _SETS],
    "the first is removed": [entry([("user", "-".join(names))], (names[0], None)) for names in _SETS],
    "the first is back": [entry([("user", "-".join(names))], (names[0], 5.0)) for names in _SETS],
    "all are removed": [
        entry([("user", "-".join(names))], *((name, None) for name in names)) for names in _SETS
    ],
}

FILTERS: dict[str, Values] = {
    "everything": describe(),
    "nothing": describe(strict=True),
    "users": describe(("user", ANY, None)),
    "users alone": describe(("user", ANY, None), strict=True),
    "alice": describe(("user", EXACT, "alice")),
    "alice alone": describe(("user", EXACT, "alice"), strict=True),
    "the default user": describe(("user", DEFAULT, None)),
    "alice and the app": describe(("user", EXACT, "alice"), ("client-id", EXACT, "app")),
    "alice with any client": describe(("user", EXACT, "alice"), ("client-id", ANY, None)),
    "the defaults": describe(("user", DEFAULT, None), ("client-id", DEFAULT, None), strict=True),
    "clients": describe(("client-id", ANY, None)),
    "clients alone": describe(("client-id", ANY, None), strict=True),
    "addresses": describe(("ip", ANY, None)),
    "an address": describe(("ip", EXACT, "10.1.2.3"), strict=True),
    "the default address": describe(("ip", DEFAULT, None)),
    "nobody": describe(("user", EXACT, "nobody")),
    "an empty name": describe(("user", EXACT, "")),
    "an empty type": describe(("", ANY, None)),
    "an unknown type": describe(("group", ANY, None)),
    "a type twice": describe(("user", ANY, None), ("user", EXACT, "alice")),
    "an exact match without a name": describe(("user", EXACT, None)),
    "a default match with a name": describe(("user", DEFAULT, "alice")),
    "any match with a name": describe(("user", ANY, "alice")),
    "an unknown match": describe(("user", 3, None)),
    "an address and a user": describe(("ip", ANY, None), ("user", ANY, None)),
}


def steps() -> list[Step]:
    """All that is asked, in order; after each alteration everything is described."""
    return list(_steps())


def _steps() -> Iterator[Step]:
    for version in (0, 1):
        for validate in (True, False):
            for label, entries in (ALTERATIONS | ({} if validate else ORDERS)).items():
                request: dict[str, Any] = {"Entries": entries, "ValidateOnly": validate}
                only = " only validated" if validate else ""
                yield Step(f"alter v{version}{only}: {label}", "AlterClientQuotas", version, request)
                if not validate:
                    yield Step(f"after v{version}: {label}", "DescribeClientQuotas", version, describe())
        for label, request in FILTERS.items():
            yield Step(f"describe v{version}: {label}", "DescribeClientQuotas", version, request)
