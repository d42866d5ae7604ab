"""Findings: unusual behaviour of a client. Pure.

The rule: each kind of unusual behaviour has a threshold that is a constant here, and a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.environment.terminal import counted
from barnabas.tools.inspection.errors import code_name
from barnabas.tools.tap.summary import TINY_FETCH_BYTES, Client

ENOUGH = 100
"""Occurrences that are more than chance."""
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
"""The first versions with records in the format that brokers keep."""


class Finding(NamedTuple):
    """One kind of unusual behaviour of a client."""

    name: str
    text: str
    reason: str


def findings(client: Client) -> list[Finding]:
    """Return the unusual facts about a client."""
    return [*_of_connections(client), *_of_consumers(client), *_of_producers(client), *_of_answers(client)]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _of_connections(client: Client) -> Iterator[Finding]:
    seconds = client.seconds
    if client.connections >= CONNECTIONS_MIN and client.connections / seconds > CONNECTIONS_PER_SECOND:
        yield Finding(
            "connection churn",
            f"{counted(client.connections, 'connection')} in {seconds:.0f} s "
            f"(more than {CONNECTIONS_PER_SECOND:g} per second)",
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
            f"{counted(renewed, 'login was', 'logins were')} renewed in {seconds:.0f} s",
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
            "members come and go, or miss max.poll.interval.ms or session.timeout.ms: the group pauses meanwhile",
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
            f"{client.empty_fetches} of {counted(client.fetches, 'fetch', 'fetches')} were empty, "
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
            f"{client.single_batches} of {counted(client.batches, 'batch', 'batches')} hold one record",
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
            f"{client.repeated_batches} of {counted(client.batches, 'batch', 'batches')} were sent again "
            "with the same sequence number",
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
            f"{client.failed} of {counted(client.count, 'request')} had an error in the answer, "
            f"{count} of them {code_name(code)} to {api}",
            "clients retry most of these quietly: the application sees them as latency",
        )
    if client.unanswered:
        yield Finding(
            "requests without an answer",
            f"{counted(client.unanswered, 'request was', 'requests were')} not answered before their connection ended",
            "the broker closed the connection, or the client gave up waiting (request.timeout.ms)",
        )
    if client.undecoded:
        yield Finding(
            "undecoded",
            f"{counted(client.undecoded, 'request or answer', 'requests or answers')} could not be decoded",
            "a version that is newer than this tap, or bytes that are wrong: they are in the output in hex",
        )
    if client.notes:
        yield Finding(
            "odd bytes",
            f"{counted(client.notes, 'note')} on its connections",
            "bytes that are no frames, frames that are cut short, answers without a request: they are in the output",
        )
