"""What each client did, and what of it is unusual. Pure.

The rule: whatever is called unusual has a threshold that is a constant here, and a reason; counts are kept, no messages.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.errors import PeerError, RequestError
from barnabas.inspection.errors import code_name
from barnabas.records.batch import iter_batches
from barnabas.tap.exchange import Connection, Exchange

PRODUCE, FETCH, METADATA, OFFSET_COMMIT, JOIN_GROUP, API_VERSIONS, SASL_AUTHENTICATE = 0, 1, 3, 8, 11, 18, 36
WAITING = frozenset((FETCH, JOIN_GROUP, 14, 78))
CLIENT_CLOSED = ("the client closed", "closed", "the tap ends", "the capture ends")
CLIENTS_MAX = 10_000
BATCHES_REMEMBERED = 1000
UNSUPPORTED_VERSION = 35

# What is unusual, and from where on.
TINY_FETCH_BYTES = 1024
ENOUGH = 100
"""So many of something say more than chance."""
TINY_FETCHES_SHARE = 0.5
EMPTY_FETCHES_PER_SECOND = 10.0
EMPTY_FETCHES_SHARE = 0.9
COMMITS_PER_SECOND = 10.0
SINGLE_BATCHES_SHARE = 0.8
UNCOMPRESSED_BYTES = 1_000_000
METADATA_PER_SECOND = 1.0
METADATA_MIN = 20
CONNECTIONS_PER_SECOND = 1.0
CONNECTIONS_MIN = 20
REPEATED_SHARE = 0.01
REPEATED_MIN = 5
ERRORS_SHARE = 0.01
ERRORS_MIN = 10
REAUTHENTICATIONS_PER_MINUTE = 6.0
JOINS_PER_MINUTE = 6.0
JOINS_MIN = 10
OLDEST_PRODUCE, OLDEST_FETCH = 3, 4
"""The first versions whose records are in the format that brokers keep."""


class Finding(NamedTuple):
    """Something unusual of a client."""

    name: str
    text: str
    reason: str


@dataclass(slots=True)
class Latency:
    """How long answers took, in ms."""

    count: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0

    def add(self, ms: float) -> None:
        """Add one."""
        self.count += 1
        self.total_ms += ms
        self.max_ms = max(self.max_ms, ms)


@dataclass(slots=True)
class Client:
    """What one client did."""

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
        """For how long it was seen; at least one second."""
        return max(1.0, self.last_at - self.first_at)

    @property
    def count(self) -> int:
        """How many requests it sent."""
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
        size = sum(len(one.records or b"") for topic in message.responses for one in topic.partitions)
        self.fetched_bytes += size
        if not size:
            self.empty_fetches += 1
        elif size < TINY_FETCH_BYTES:
            self.tiny_fetches += 1


class Summary:
    """What all clients did, as an observer."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._unnamed: dict[int, Connection] = {}
        """Connections that have sent nothing yet."""
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
        """Count a connection, once it is known whose it is."""
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
        """Count something odd."""
        client = self._client(connection.client_id or f"(no client id) {_host(connection)}", at)
        if client is not None:
            client.notes += 1

    def closed(self, connection: Connection, at: float, reason: str) -> None:  # noqa: ARG002
        """Count connections that have sent nothing."""
        if self._unnamed.pop(connection.id, None) is not None:
            client = self._client(f"(no client id) {_host(connection)}", connection.opened_at)
            if client is not None:
                client.connections += 1
                client.last_at = max(client.last_at, at)

    def clients(self) -> list[Client]:
        """Return all clients, those with the most requests first."""
        return sorted(self._clients.values(), key=lambda client: (-client.count, client.name))


def _was_left(exchange: Exchange) -> bool:
    """Return whether a client that closed its connection left a request that waits for something to happen."""
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


# --- what is unusual --------------------------------------------------------------------------------------------


def findings(client: Client) -> list[Finding]:
    """Return what is unusual of a client."""
    return [*_of_connections(client), *_of_consumers(client), *_of_producers(client), *_of_answers(client)]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _of_connections(client: Client) -> Iterator[Finding]:
    seconds = client.seconds
    if client.connections >= CONNECTIONS_MIN and client.connections / seconds > CONNECTIONS_PER_SECOND:
        yield Finding(
            "connection churn",
            f"{client.connections} connections in {seconds:.0f} s (more than {CONNECTIONS_PER_SECOND:g} per second)",
            "each connection costs a handshake, a login and ApiVersions: keep producers and consumers, not one per message",
        )
    if client.metadata >= METADATA_MIN and client.metadata / seconds > METADATA_PER_SECOND:
        yield Finding(
            "metadata storm",
            f"{client.metadata} Metadata requests in {seconds:.0f} s (more than {METADATA_PER_SECOND:g} per second)",
            "metadata is needed every few minutes and after errors: look for topics that do not exist, leaders that move",
        )
    renewed = client.logins - len(client.login_connections)
    if renewed / seconds * 60 > REAUTHENTICATIONS_PER_MINUTE and renewed > 1:
        yield Finding(
            "frequent reauthentication",
            f"{renewed} logins were renewed in {seconds:.0f} s",
            "connections.max.reauth.ms, or the life of tokens, is short: each renewal costs round trips and CPU",
        )
    if client.refused_versions:
        yield Finding(
            "newer than the broker",
            f"{client.refused_versions} ApiVersions requests of a version that the broker does not know",
            "the client asks again in an older version: one more round trip for each connection, otherwise harmless",
        )
    if client.count >= ENOUGH and not client.asks_for_versions:
        yield Finding(
            "no ApiVersions",
            "the client never asked which versions the broker has",
            "clients from before 0.10, or with api.version.request=false, use fixed, old versions; Kafka 4 refuses many",
        )
    if client.joins >= JOINS_MIN and client.joins / seconds * 60 > JOINS_PER_MINUTE:
        yield Finding(
            "rebalances",
            f"{client.joins} JoinGroup requests in {seconds:.0f} s (more than {JOINS_PER_MINUTE:g} per minute)",
            "members come and go, or miss max.poll.interval.ms or session.timeout.ms: nobody consumes meanwhile",
        )


def _of_consumers(client: Client) -> Iterator[Finding]:
    seconds = client.seconds
    filled = client.fetches - client.empty_fetches
    if client.tiny_fetches >= ENOUGH and _share(client.tiny_fetches, filled) > TINY_FETCHES_SHARE:
        yield Finding(
            "tiny fetches",
            f"{client.tiny_fetches} of {filled} fetches with records brought less than {TINY_FETCH_BYTES} bytes",
            "each costs a round trip: fetch.min.bytes with fetch.max.wait.ms has the broker collect more",
        )
    if (
        client.empty_fetches >= ENOUGH
        and client.empty_fetches / seconds > EMPTY_FETCHES_PER_SECOND
        and _share(client.empty_fetches, client.fetches) > EMPTY_FETCHES_SHARE
    ):
        yield Finding(
            "empty polls",
            f"{client.empty_fetches} of {client.fetches} fetches were empty, "
            f"{client.empty_fetches / seconds:.0f} per second",
            "fetch.max.wait.ms is short: with 500 ms (the default) an idle consumer asks twice a second",
        )
    if client.commits >= ENOUGH and client.commits / seconds > COMMITS_PER_SECOND:
        yield Finding(
            "many commits",
            f"{client.commits} offset commits in {seconds:.0f} s (more than {COMMITS_PER_SECOND:g} per second)",
            "each is written to __consumer_offsets and replicated: commit per batch or per interval, not per record",
        )
    if client.lowest_fetch is not None and client.lowest_fetch < OLDEST_FETCH:
        yield Finding(
            "old Fetch version",
            f"Fetch v{client.lowest_fetch}",
            "records are converted to the format of before 0.11 for it, without zero copy; Kafka 4 refuses it",
        )


def _of_producers(client: Client) -> Iterator[Finding]:
    if client.batches >= ENOUGH and _share(client.single_batches, client.batches) > SINGLE_BATCHES_SHARE:
        yield Finding(
            "batches of one record",
            f"{client.single_batches} of {client.batches} batches hold one record",
            "linger.ms above 0, or not waiting for each send, puts records together: less CPU, better compression",
        )
    if client.uncompressed_bytes >= UNCOMPRESSED_BYTES:
        yield Finding(
            "no compression",
            f"{client.uncompressed_bytes:,} bytes of batches that are not compressed",
            "compression.type=lz4 or zstd saves network, disk and replication, where records are not compressed already",
        )
    if (
        client.repeated_batches >= REPEATED_MIN
        and _share(client.repeated_batches, client.batches) > REPEATED_SHARE
    ):
        yield Finding(
            "retries",
            f"{client.repeated_batches} of {client.batches} batches were sent again with the same sequence number",
            "answers are late, or connections break: look at request.timeout.ms and at the latency of Produce",
        )
    if client.unacknowledged:
        yield Finding(
            "acks=0",
            f"{client.unacknowledged} Produce requests want no answer",
            "records can be lost, and refused, without anybody being told",
        )
    if client.lowest_produce is not None and client.lowest_produce < OLDEST_PRODUCE:
        yield Finding(
            "old Produce version",
            f"Produce v{client.lowest_produce}",
            "records come in the format of before 0.11 and are converted by the broker; Kafka 4 refuses it",
        )


def _of_answers(client: Client) -> Iterator[Finding]:
    if client.failed >= ERRORS_MIN and _share(client.failed, client.count) > ERRORS_SHARE:
        (api, code), count = client.errors.most_common(1)[0]
        yield Finding(
            "error answers",
            f"{client.failed} of {client.count} requests had an error in the answer, "
            f"{count} of them {code_name(code)} to {api}",
            "clients retry most of these quietly: the application sees them as latency",
        )
    if client.unanswered:
        yield Finding(
            "requests without an answer",
            f"{client.unanswered} requests were not answered before their connection ended",
            "the broker closed the connection, or the client gave up waiting (request.timeout.ms)",
        )
    if client.undecoded:
        yield Finding(
            "undecoded",
            f"{client.undecoded} requests or answers could not be decoded",
            "a version that is newer than this tap, or bytes that are wrong: they are in the output in hex",
        )
    if client.notes:
        yield Finding(
            "odd bytes",
            f"{client.notes} notes on its connections",
            "bytes that are no frames, frames that are cut short, answers that nobody asked for: they are in the output",
        )


# --- shown --------------------------------------------------------------------------------------------------------


def as_text(summary: Summary) -> list[str]:
    """Return the summary as lines."""
    lines = []
    for client in summary.clients():
        who = ", ".join((*sorted(client.software), *(f"user {user}" for user in sorted(client.users))))
        lines.append(f"{client.name}{f' ({who})' if who else ''}")
        lines.append(
            f"  {client.count} requests on {client.connections} connections in {client.seconds:.1f} s: {_apis(client)}"
        )
        if client.batches:
            lines.append(
                f"  produced {client.records} records in {client.batches} batches, {client.produced_bytes:,} bytes"
            )
        if client.fetches:
            lines.append(
                f"  fetched {client.fetched_bytes:,} bytes in {client.fetches} fetches, {client.empty_fetches} empty"
            )
        if client.commits:
            lines.append(
                f"  committed {client.commits} times, {client.commits / client.seconds:.1f} per second"
            )
        slow = sorted(client.latencies.items(), key=lambda item: -item[1].max_ms)[:3]
        if slow:
            shown = ", ".join(
                f"{api} {one.total_ms / one.count:.1f} ms, at most {one.max_ms:.1f}" for api, one in slow
            )
            lines.append(f"  latency: {shown}")
        if client.errors:
            shown = ", ".join(
                f"{code_name(code)} to {api} {count}" for (api, code), count in client.errors.most_common(5)
            )
            lines.append(f"  errors: {shown}")
        lines += [f"  unusual: {one.name}: {one.text}; {one.reason}" for one in findings(client)]
    if summary.left_out:
        lines.append(f"{summary.left_out} events of further clients are not counted: there are {CLIENTS_MAX}")
    return lines or ["no clients"]


def _apis(client: Client) -> str:
    by_api: dict[str, list[tuple[int, int]]] = {}
    for (api, version), count in client.requests.items():
        by_api.setdefault(api, []).append((version, count))
    ordered = sorted(by_api.items(), key=lambda item: -sum(count for _, count in item[1]))
    return ", ".join(
        f"{api}{' ' + '+'.join(f'v{version}' for version, _ in sorted(found)) if found[0][0] >= 0 else ''} "
        f"{sum(count for _, count in found)}"
        for api, found in ordered
    )


def as_json(summary: Summary) -> list[dict[str, Any]]:
    """Return the summary as JSON, an object for each client."""
    return [
        {
            "type": "client",
            "client_id": client.name,
            "software": sorted(client.software),
            "users": sorted(client.users),
            "seconds": round(client.seconds, 3),
            "connections": client.connections,
            "requests": [
                {"api": api, "version": version, "count": count}
                for (api, version), count in sorted(client.requests.items())
            ],
            "latency_ms": {
                api: {
                    "count": one.count,
                    "mean": round(one.total_ms / one.count, 3),
                    "max": round(one.max_ms, 3),
                }
                for api, one in sorted(client.latencies.items())
            },
            "errors": [
                {"api": api, "code": code, "name": code_name(code), "count": count}
                for (api, code), count in sorted(client.errors.items())
            ],
            "unanswered": client.unanswered,
            "produced": {
                "batches": client.batches,
                "records": client.records,
                "bytes": client.produced_bytes,
                "repeated_batches": client.repeated_batches,
            },
            "fetched": {
                "fetches": client.fetches,
                "empty": client.empty_fetches,
                "tiny": client.tiny_fetches,
                "bytes": client.fetched_bytes,
            },
            "commits": client.commits,
            "unusual": [one._asdict() for one in findings(client)],
        }
        for client in summary.clients()
    ]
