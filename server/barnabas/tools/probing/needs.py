"""Needs of stock clients: for each use, the APIs and the versions that the client supports.

The rule: a use works if for each of its APIs both support some version. Kafka's own clients support the versions of
their release; the others' ranges are from their sources. A range that was not looked up is left open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barnabas.config import releases
from barnabas.wire import registry

Ranges = Mapping[int, tuple[int, int]]
ANY = (0, 99)
PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3

USES: dict[str, tuple[int, ...]] = {
    "produce": (METADATA, PRODUCE),
    "produce exactly once": (METADATA, PRODUCE, 22),
    "transactions": (METADATA, PRODUCE, 10, 22, 24, 25, 26, 28),
    "consume": (METADATA, FETCH, LIST_OFFSETS),
    "classic groups": (METADATA, FETCH, LIST_OFFSETS, 8, 9, 10, 11, 12, 13, 14),
    "groups of KIP-848": (METADATA, FETCH, LIST_OFFSETS, 8, 9, 10, 68),
    "share groups": (METADATA, 10, 76, 78, 79),
    "streams groups": (METADATA, FETCH, 8, 9, 10, 88),
    "make topics": (METADATA, 19, 20),
    "change settings": (METADATA, 32, 44),
}


@dataclass(frozen=True, slots=True)
class Client:
    """A client: its supported versions by API, unsupported uses, and other needs."""

    name: str
    ranges: Ranges
    without: tuple[str, ...] = ()
    compresses_by: int | None = None
    """It compresses only where this version of Produce is advertised as the first."""


def _java(version: str, release: str, *without: str) -> Client:
    return Client(f"kafka-clients {version}", releases.versions_of(release), without)


NEW_GROUPS = ("groups of KIP-848", "share groups", "streams groups")
NO_TRANSACTIONS = ("produce exactly once", "transactions")
_LIBRDKAFKA: dict[int, tuple[int, int]] = {
    LIST_OFFSETS: (0, 7), 8: (0, 9), 9: (0, 9), 10: (0, 2), 11: (0, 5), 12: (0, 3), 13: (0, 1), 14: (0, 3), 22: (0, 4),
    24: (0, 0), 25: (0, 0), 26: (0, 1), 28: (0, 3), 19: (0, 4), 20: (0, 4), 32: (0, 1), 68: (0, 1),
    PRODUCE: (0, 10), FETCH: (0, 16), METADATA: (0, 13), 44: (0, 1),
}  # fmt: skip

CLIENTS = (
    _java("4.4", "4.4"),
    _java("4.3", "4.3"),
    _java("4.0", "4.0", "share groups", "streams groups"),
    _java("3.9", "3.9", "share groups", "streams groups"),
    _java("2.8", "2.8", *NEW_GROUPS),
    _java("1.1", "1.1", *NEW_GROUPS, "change settings"),
    _java("0.10.2", "0.10.2", *NEW_GROUPS, *NO_TRANSACTIONS, "make topics", "change settings"),
    _java("0.9.0", "0.9.0", *NEW_GROUPS, *NO_TRANSACTIONS, "make topics", "change settings"),
    Client("librdkafka 2.16 (confluent-kafka, rust-rdkafka)", _LIBRDKAFKA, ("share groups", "streams groups")),
    Client("librdkafka 2.0 (kcat 1.7.1)", _LIBRDKAFKA, NEW_GROUPS, compresses_by=0),
    Client("franz-go 1.21", {}, ("streams groups",)),
    Client("sarama 1.61", {}, NEW_GROUPS),
    Client("kafka-go 0.4", {PRODUCE: (2, 7), FETCH: (2, 10), 18: (0, 0)}, (*NEW_GROUPS, *NO_TRANSACTIONS)),
    Client("kafka-python 3.0", {}, NEW_GROUPS),
    Client("kafka-python 2.0", {PRODUCE: (0, 7), FETCH: (0, 4), METADATA: (0, 1)}, (*NEW_GROUPS, *NO_TRANSACTIONS)),
    Client("aiokafka 0.14", {}, NEW_GROUPS),
    Client("kafkajs 2.2", {PRODUCE: (0, 7), FETCH: (0, 11)}, NEW_GROUPS),
    Client("rskafka", {}, (*NEW_GROUPS, *NO_TRANSACTIONS, "classic groups")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """Uses of a broker that one client supports, and those that it cannot have with this broker."""

    client: str
    works: tuple[str, ...]
    lacks: tuple[tuple[str, str], ...]
    """Uses that do not work, and the APIs that stand in the way."""
    never: tuple[str, ...]
    """Uses that the client does not know."""
    notes: tuple[str, ...] = ()


def needs_of_all(served: Ranges, advertised: Ranges, switched_off: frozenset[int]) -> list[Need]:
    """Judge each client by the versions that are honoured; `switched_off` are APIs that are advertised and off."""
    return [_need(client, served, advertised, switched_off) for client in CLIENTS]


def _need(client: Client, served: Ranges, advertised: Ranges, switched_off: frozenset[int]) -> Need:
    works, lacks = [], []
    for use, keys in USES.items():
        if use in client.without:
            continue
        missing = [_missing(key, client.ranges.get(key, ANY), served, switched_off) for key in keys]
        if any(missing):
            lacks.append((use, ", ".join(filter(None, missing))))
        else:
            works.append(use)
    notes = []
    if (
        client.compresses_by is not None
        and PRODUCE in advertised
        and advertised[PRODUCE][0] > client.compresses_by
    ):
        notes.append(f"cannot compress: Produce v{client.compresses_by} is not advertised (KAFKA-18659)")
    return Need(client.name, tuple(works), tuple(lacks), client.without, tuple(notes))


def _missing(key: int, client_range: tuple[int, int], served: Ranges, switched_off: frozenset[int]) -> str:
    name = registry.name_of(key)
    if key not in served:
        return f"{name} is not served"
    if key in switched_off:
        return f"{name} is switched off"
    low, high = served[key]
    if max(low, client_range[0]) > min(high, client_range[1]):
        return f"{name} v{low}-{high} is served, v{client_range[0]}-{client_range[1]} known"
    return ""
