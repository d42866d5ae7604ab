"""Figures of each client: requests, latencies, errors. Pure.

The rule: counts are kept, no messages.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from barnabas.errors import PeerError, RequestError
from barnabas.records.batch import iter_batches
from barnabas.tools.tap.exchange import Connection, Exchange

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, JOIN_GROUP, API_VERSIONS, SASL_AUTHENTICATE = 0, 1, 3, 8, 11, 18, 36
WAITING = frozenset((FETCH, JOIN_GROUP, 14, 78))
CLIENT_CLOSED = ("the client closed", "closed", "the tap ends", "the capture ends")
CLIENTS_MAX = 10_000
BATCHES_REMEMBERED = 1000
UNSUPPORTED_VERSION = 35
TINY_FETCH_BYTES = 1024
"""A fetch that brings less is tiny."""


@dataclass(slots=True)
class Latency:
    """Latencies of answers, in ms."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, ms: float) -> None:
        """Add a latency in ms."""
        self.count += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)


@dataclass(slots=True)
class Client:
    """Figures of one client."""

    name: str
    first_at: float
    last_at: float = 0.0
    software: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    connections: int = 0
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    latencies: dict[str, Latency] = field(default_factory=dict)
    errors: Counter[tuple[str, int]] = field(default_factory=Counter)
    """By API and code."""
    failed: int = 0
    """Requests with an error in the answer."""
    unanswered: int = 0
    undecoded: int = 0
    notes: int = 0
    metadata: int = 0
    commits: int = 0
    joins: int = 0
    logins: int = 0
    login_connections: set[int] = field(default_factory=set)
    refused_versions: int = 0
    fetches: int = 0
    empty_fetches: int = 0
    tiny_fetches: int = 0
    fetched_bytes: int = 0
    batches: int = 0
    single_batches: int = 0
    records: int = 0
    produced_bytes: int = 0
    uncompressed_bytes: int = 0
    repeated_batches: int = 0
    unacknowledged: int = 0
    lowest_produce: int | None = None
    lowest_fetch: int | None = None
    asks_for_versions: bool = False
    _sequences: OrderedDict[tuple[Any, ...], None] = field(default_factory=OrderedDict)

    @property
    def seconds(self) -> float:
        """Seconds between the first and the last event; at least one."""
        return max(1.0, self.last_at - self.first_at)

    @property
    def count(self) -> int:
        """Number of requests that the client sent."""
        return sum(self.requests.values())

    def add(self, exchange: Exchange) -> None:
        """Count an exchange."""
        request, connection = exchange.request, exchange.connection
        self.last_at = max(self.last_at, exchange.answered_at or exchange.sent_at)
        self.requests[request.api, request.version] += 1
        if connection.software:
            self.software.add(connection.software)
        if connection.user is not None:
            self.users.add(connection.user)
        if exchange.latency_ms is not None:
            self.latencies.setdefault(request.api, Latency()).add(exchange.latency_ms)
        elif exchange.unanswered not in ("", "acks=0") and not _was_left(exchange):
            self.unanswered += 1
        if request.problem or (exchange.response is not None and exchange.response.problem):
            self.undecoded += 1
        if exchange.errors:
            self.failed += 1
            for code in {error.code for error in exchange.errors}:
                self.errors[request.api, code] += 1
        self._add_by_api(exchange)

    def _add_by_api(self, exchange: Exchange) -> None:
        request = exchange.request
        key = request.api_key
        if key == PRODUCE:
            self._add_produce(exchange)
        elif key == FETCH:
            self._add_fetch(exchange)
        elif key == METADATA:
            self.metadata += 1
        elif key == OFFSET_COMMIT:
            self.commits += 1
        elif key == JOIN_GROUP:
            self.joins += 1
        elif key == API_VERSIONS:
            self.asks_for_versions = True
            self.refused_versions += any(error.code == UNSUPPORTED_VERSION for error in exchange.errors)
        elif key == SASL_AUTHENTICATE and exchange.response is not None and not exchange.errors:
            message = exchange.response.message
            lifetime_ms = getattr(message, "session_lifetime_ms", 0)
            if lifetime_ms:
                self.logins += 1
                self.login_connections.add(exchange.connection.id)

    def _add_produce(self, exchange: Exchange) -> None:
        request = exchange.request
        version = request.version
        self.lowest_produce = version if self.lowest_produce is None else min(version, self.lowest_produce)
        if request.message is None:
            return
        self.unacknowledged += request.message.acks == 0
        for topic in request.message.topic_data:
            name = topic.name or topic.topic_id
            for partition in topic.partition_data:
                for header in _headers(partition.records):
                    self._add_batch(name, partition.index, header)

    def _add_batch(self, topic: Any, partition: int, header: Any) -> None:
        self.batches += 1
        self.records += max(header.records_count, 0)
        self.single_batches += header.records_count == 1
        self.produced_bytes += header.size
        if not header.codec:
            self.uncompressed_bytes += header.size
        if header.has_producer_id:
            sequence = (topic, partition, header.producer_id, header.producer_epoch, header.base_sequence)
            if sequence in self._sequences:
                self.repeated_batches += 1
            self._sequences[sequence] = None
            if len(self._sequences) > BATCHES_REMEMBERED:
                self._sequences.popitem(last=False)

    def _add_fetch(self, exchange: Exchange) -> None:
        version = exchange.request.version
        self.lowest_fetch = version if self.lowest_fetch is None else min(version, self.lowest_fetch)
        message = exchange.response.message if exchange.response is not None else None
        if message is None:
            return
        self.fetches += 1
        size = sum(
            len(partition.records or b"") for topic in message.responses for partition in topic.partitions
        )
        self.fetched_bytes += size
        if not size:
            self.empty_fetches += 1
        elif size < TINY_FETCH_BYTES:
            self.tiny_fetches += 1


class Summary:
    """Observer that counts figures of each client."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._unnamed: dict[int, Connection] = {}
        """Connections without a request so far."""
        self.left_out = 0

    def _client(self, name: str, at: float) -> Client | None:
        client = self._clients.get(name)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                self.left_out += 1
                return None
            client = self._clients[name] = Client(name, at, at)
        return client

    def opened(self, connection: Connection, at: float) -> None:  # noqa: ARG002
        """Count a connection, once its client is known."""
        self._unnamed[connection.id] = connection

    def exchanged(self, exchange: Exchange) -> None:
        """Count an exchange."""
        connection = exchange.connection
        name = exchange.request.client_id
        if name is None:
            name = (
                connection.client_id
                if connection.client_id is not None
                else f"(no client id) {_host(connection)}"
            )
        client = self._client(name, connection.opened_at or exchange.sent_at)
        if client is None:
            return
        if self._unnamed.pop(connection.id, None) is not None:
            client.connections += 1
        client.add(exchange)

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:  # noqa: ARG002
        """Count an anomaly."""
        client = self._client(connection.client_id or f"(no client id) {_host(connection)}", at)
        if client is not None:
            client.notes += 1

    def closed(self, connection: Connection, at: float, reason: str) -> None:  # noqa: ARG002
        """Count a connection without requests."""
        if self._unnamed.pop(connection.id, None) is not None:
            client = self._client(f"(no client id) {_host(connection)}", connection.opened_at)
            if client is not None:
                client.connections += 1
                client.last_at = max(client.last_at, at)

    def clients(self) -> list[Client]:
        """Return all clients, by descending number of requests."""
        return sorted(self._clients.values(), key=lambda client: (-client.count, client.name))


def _was_left(exchange: Exchange) -> bool:
    """Return whether a client closed its connection during a request that waits for an event."""
    return exchange.request.api_key in WAITING and exchange.unanswered in CLIENT_CLOSED


def _host(connection: Connection) -> str:
    return connection.client.rpartition(":")[0]


def _headers(records: Any) -> Iterator[Any]:
    if records is None:
        return
    try:
        for _, header in iter_batches(records):
            yield header
    except (PeerError, RequestError, ValueError):
        return
