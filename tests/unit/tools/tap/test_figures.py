"""Figures of clients: what is counted of each exchange, which figures are unusual, and how both are shown."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.tools.inspection.errors import FoundError
from barnabas.tools.inspection.frames import Request, Response
from barnabas.tools.tap import summary as summaries
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.findings import findings
from barnabas.tools.tap.summary import Client, Latency, Summary
from barnabas.tools.tap.summary_rendering import as_json, as_text
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateResponse

LOOKS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("connection churn", {"connections": 20, "last_at": 19.0}, {"connections": 19}),
    ("connection churn", {"connections": 21, "last_at": 20.0}, {"last_at": 21.0}),
    ("metadata storm", {"metadata": 20, "last_at": 19.0}, {"metadata": 19}),
    ("metadata storm", {"metadata": 21, "last_at": 20.0}, {"last_at": 21.0}),
    ("frequent reauthentication", {"logins": 5, "login_connections": {1, 2}, "last_at": 29.0}, {"last_at": 30.0}),
    ("frequent reauthentication", {"logins": 4, "login_connections": {1, 2}}, {"logins": 3}),
    ("newer than the broker", {"refused_versions": 1}, {"refused_versions": 0}),
    ("no ApiVersions", {"requests": Counter({("Heartbeat", 4): 60, ("Heartbeat", 3): 40})}, {"asks_for_versions": True}),
    ("no ApiVersions", {"requests": Counter({("Heartbeat", 4): 100})}, {"requests": Counter({("Heartbeat", 4): 99})}),
    ("rebalances", {"joins": 10, "last_at": 99.0}, {"joins": 9}),
    ("rebalances", {"joins": 11, "last_at": 109.0}, {"last_at": 110.0}),
    ("tiny fetches", {"tiny_fetches": 100, "fetches": 249, "empty_fetches": 50}, {"tiny_fetches": 99}),
    ("tiny fetches", {"tiny_fetches": 100, "fetches": 249, "empty_fetches": 50}, {"fetches": 250}),
    ("empty polls", {"empty_fetches": 100, "fetches": 111, "last_at": 9.0}, {"empty_fetches": 99, "fetches": 99}),
    ("empty polls", {"empty_fetches": 180, "fetches": 199, "last_at": 17.0}, {"last_at": 18.0}),
    ("empty polls", {"empty_fetches": 180, "fetches": 199, "last_at": 17.0}, {"fetches": 200}),
    ("many commits", {"commits": 100, "last_at": 9.0}, {"commits": 99}),
    ("many commits", {"commits": 110, "last_at": 10.0}, {"last_at": 11.0}),
    ("old Fetch version", {"lowest_fetch": 3}, {"lowest_fetch": 4}),
    ("old Fetch version", {"lowest_fetch": 0}, {"lowest_fetch": None}),
    ("batches of one record", {"batches": 100, "single_batches": 81}, {"single_batches": 80}),
    ("batches of one record", {"batches": 100, "single_batches": 100}, {"batches": 99, "single_batches": 99}),
    ("no compression", {"uncompressed_bytes": 1_000_000}, {"uncompressed_bytes": 999_999}),
    ("retries", {"repeated_batches": 5, "batches": 499}, {"repeated_batches": 4}),
    ("retries", {"repeated_batches": 5, "batches": 499}, {"batches": 500}),
    ("acks=0", {"unacknowledged": 1}, {"unacknowledged": 0}),
    ("old Produce version", {"lowest_produce": 2}, {"lowest_produce": 3}),
    ("old Produce version", {"lowest_produce": 0}, {"lowest_produce": None}),
    ("error answers", {"failed": 10, "requests": Counter({("A", 1): 999})}, {"failed": 9}),
    ("error answers", {"failed": 10, "requests": Counter({("A", 1): 999})}, {"requests": Counter({("A", 1): 1000})}),
    ("requests without an answer", {"unanswered": 1}, {"unanswered": 0}),
    ("undecoded", {"undecoded": 1}, {"undecoded": 0}),
    ("odd bytes", {"notes": 1}, {"notes": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "figures", "usual"), LOOKS)
def test_a_figure_is_unusual_from_its_limit_on(
    name: str, figures: dict[str, Any], usual: dict[str, Any]
) -> None:
    def found(**more: Any) -> set[str]:
        values = {
            "last_at": 1.0,
            "asks_for_versions": name != "no ApiVersions",
            "errors": Counter({("A", 3): 7}),
            **more,
        }
        return {finding.name for finding in findings(Client("c", 0.0, **values))}

    assert found(**figures) == {name}
    assert found(**figures | usual) == set()


# --- counting -------------------------------------------------------------------------------------------------------


def exchange(
    key: int, message: Any = None, answer: Any = None, *, version: int = 9, sent_at: float = 10.0,
    took_s: float | None = 0.5, of: Connection | None = None, client_id: str | None = "app",
) -> Exchange:  # fmt: skip
    connection = of or Connection(1, "10.0.0.1:1000", "10.0.0.2:9092", 5.0)
    request = Request(9, key, f"Api{key}", version, 1, client_id, message)
    result = Exchange(connection, 1, request, sent_at, TopicNames())
    if took_s is not None:
        result.response, result.answered_at = Response(9, 1, answer), sent_at + took_s
    return result


def counted(*exchanges: Exchange) -> Client:
    client = Client("c", 5.0, 5.0)
    for entry in exchanges:
        client.add(entry)
    return client


def produce(*batches: bytes, acks: int = -1, topic: str = "t", index: int = 3) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(index, b"".join(batches))
    return ProduceRequest(
        acks=acks, topic_data=[ProduceRequest.TopicProduceData(topic, partition_data=[part])]
    )


def batch(count: int, codec: int = Codec.NONE, **more: Any) -> bytes:
    return encode_batch([Record(n, 0, None, b"v") for n in range(count)], codec=codec, **more)


def sequenced(sequence: int, producer: int = 1, epoch: int = 0) -> bytes:
    return batch(2, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def test_batches_are_counted_by_their_headers() -> None:
    entry, three, packed = batch(1), batch(3), batch(2, Codec.LZ4)
    result = counted(
        exchange(0, produce(entry, three), version=8), exchange(0, produce(packed, acks=0), version=7)
    )
    assert (result.batches, result.single_batches, result.records) == (3, 1, 6)
    assert result.produced_bytes == len(entry) + len(three) + len(packed)
    assert result.uncompressed_bytes == len(entry) + len(three)
    assert (result.unacknowledged, result.lowest_produce, result.lowest_fetch) == (1, 7, None)
    assert result.repeated_batches == 0
    assert counted(exchange(0, None), exchange(0, None, version=11)).lowest_produce == 9
    broken = counted(exchange(0, produce(entry, b"\0" * 70)))
    assert (broken.batches, broken.records) == (1, 1), "what is broken ends the count"
    missing = produce()
    missing.topic_data[0].partition_data[0].records = None
    assert counted(exchange(0, missing)).batches == 0


@pytest.mark.parametrize(
    ("other", "repeated"),
    [
        (produce(sequenced(4)), 1),
        (produce(sequenced(5)), 0),
        (produce(sequenced(4, producer=2)), 0),
        (produce(sequenced(4, epoch=1)), 0),
        (produce(sequenced(4), topic="u"), 0),
        (produce(sequenced(4), index=2), 0),
        (produce(batch(2)), 0),
    ],
)
def test_batch_with_same_producer_and_sequence_is_a_repeat(other: ProduceRequest, repeated: int) -> None:
    first = exchange(0, produce(sequenced(4)))
    assert counted(first, exchange(0, other)).repeated_batches == repeated
    assert (
        counted(exchange(0, other), exchange(0, other), first).repeated_batches
        == (1 if other.topic_data[0].partition_data[0].records != batch(2) else 0) + repeated
    )


def fetched(*sizes: int) -> FetchResponse:
    parts = [
        FetchResponse.PartitionData(n, records=b"x" * size if size else None) for n, size in enumerate(sizes)
    ]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=parts)])


def test_fetches_are_counted_by_what_they_bring() -> None:
    answers = [fetched(), fetched(0, 0), fetched(1), fetched(1000, 23), fetched(1000, 24), fetched(2000)]
    result = counted(
        *(exchange(1, None, answer, version=12) for answer in answers),
        exchange(1, None, took_s=None, version=4),
    )
    assert (result.fetches, result.empty_fetches, result.tiny_fetches) == (6, 2, 2)
    assert (result.fetched_bytes, result.lowest_fetch, result.lowest_produce) == (
        1 + 1023 + 1024 + 2000,
        4,
        None,
    )


def test_requests_are_counted_by_api_version_and_latency() -> None:
    result = counted(
        exchange(3, sent_at=10.0, took_s=0.25), exchange(3, sent_at=20.0, took_s=0.75), exchange(3, version=8),
        exchange(8, sent_at=7.0, took_s=0.0), exchange(11, sent_at=30.0, took_s=2.0), exchange(12, took_s=None),
    )  # fmt: skip
    assert result.requests == {
        ("Api3", 9): 2,
        ("Api3", 8): 1,
        ("Api8", 9): 1,
        ("Api11", 9): 1,
        ("Api12", 9): 1,
    }
    assert result.latencies == {
        "Api3": Latency(3, 1500.0, 750.0),
        "Api8": Latency(1, 0.0, 0.0),
        "Api11": Latency(1, 2000.0, 2000.0),
    }
    assert (result.metadata, result.commits, result.joins, result.count) == (3, 1, 1, 6)
    assert (result.last_at, result.seconds) == (32.0, 27.0)
    assert counted(exchange(3, sent_at=5.5, took_s=0.1)).seconds == 1.0
    assert not result.asks_for_versions
    assert counted(exchange(18)).asks_for_versions


def test_what_failed_and_what_is_not_decoded_is_counted() -> None:
    failed = exchange(18)
    failed.refuse([FoundError(35, "a", ""), FoundError(35, "b", ""), FoundError(3, "c", "")])
    other = exchange(18)
    other.refuse([FoundError(3, "a", "")])
    elsewhere = exchange(3)
    elsewhere.refuse([FoundError(35, "a", "")])
    result = counted(failed, other, elsewhere, exchange(18))
    assert result.errors == {("Api18", 35): 1, ("Api18", 3): 2, ("Api3", 35): 1}
    assert (result.failed, result.refused_versions, result.undecoded) == (3, 1, 0)
    odd, odder = exchange(3), exchange(3)
    odd.request.problem = "no"
    assert odder.response is not None
    odder.response.problem = "no"
    assert counted(odd, odder, exchange(3, took_s=None)).undecoded == 2


def test_logins_are_counted_where_they_have_a_life_and_succeed() -> None:
    def login(number: int, lifetime_ms: int, code: int = 0) -> Exchange:
        connection = Connection(
            number, "a:1", "b:2", user=f"u{number}", software="lib 1" if number < 3 else ""
        )
        return exchange(
            36, None, SaslAuthenticateResponse(code, session_lifetime_ms=lifetime_ms), of=connection
        )

    result = counted(
        login(1, 1), login(1, 5000), login(2, 0), login(3, 9, 58), login(4, 9), exchange(36, took_s=None)
    )
    assert (result.logins, result.login_connections) == (3, {1, 4})
    assert (result.users, result.software) == ({"u1", "u2", "u3", "u4"}, {"lib 1"})


# --- clients --------------------------------------------------------------------------------------------------------


def test_so_many_clients_are_counted_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summaries, "CLIENTS_MAX", 2)
    summary = Summary()
    connection = Connection(1, "10.0.0.1:1000", "b:2", 5.0, "third")
    for name in ("first", "second", "third", "first"):
        summary.exchanged(exchange(3, client_id=name))
    summary.noted(connection, 1.0, "odd")
    summary.opened(connection, 1.0)
    summary.closed(connection, 1.0, "closed")
    assert [(client.name, client.count) for client in summary.clients()] == [("first", 2), ("second", 1)]
    assert summary.left_out == 3
    assert as_text(summary)[-1] == "3 events of further clients are not counted: there are 10000"


def busy() -> Summary:
    """A summary of two clients with figures that all differ."""
    summary = Summary()
    for name, opened_at in (("app", 100.0), ("idle", 50.0)):
        summary.noted(Connection(1, "10.0.0.1:1000", "10.0.0.2:9092", opened_at, name), opened_at, "odd")
    client, idle = summary.clients()
    client.notes = idle.notes = 0
    for name, value in {
        "last_at": 104.0, "software": {"lib 2", "lib 1"}, "users": {"bob", "ann"}, "connections": 3, "unanswered": 5,
        "requests": Counter({("Fetch", 12): 6, ("Fetch", 4): 1, ("Produce", 9): 8, ("SASL token", -1): 2}),
        "latencies": {"Fetch": Latency(7, 70.0, 55.04), "Produce": Latency(8, 20.0, 60.0), "A": Latency(1, 1.0, 1.0),
                      "B": Latency(1, 2.0, 2.0)},
        "errors": Counter({("Fetch", 3): 4, ("Produce", 6): 9}), "fetches": 7, "empty_fetches": 2, "tiny_fetches": 1,
        "fetched_bytes": 12_345, "batches": 8, "records": 80, "produced_bytes": 67_890, "repeated_batches": 4, "commits": 6,
        "asks_for_versions": True,
    }.items():  # fmt: skip
        setattr(client, name, value)
    return summary


def test_the_summary_as_text() -> None:
    assert as_text(busy()) == [
        "app (lib 1, lib 2, user ann, user bob)",
        "  17 requests on 3 connections in 4.0 s: Produce v9 8, Fetch v4+v12 7, SASL token 2",
        "  produced 80 records in 8 batches, 67,890 bytes",
        "  fetched 12,345 bytes in 7 fetches, 2 empty",
        "  committed 6 times, 1.5 per second",
        "  latency: Produce 2.5 ms, at most 60.0, Fetch 10.0 ms, at most 55.0, B 2.0 ms, at most 2.0",
        "  errors: NOT_LEADER_OR_FOLLOWER to Produce 9, UNKNOWN_TOPIC_OR_PARTITION to Fetch 4",
        "  unusual: requests without an answer: 5 requests were not answered before their connection ended; the broker "
        "closed the connection, or the client gave up waiting (request.timeout.ms)",
        "idle",
        "  0 requests on 0 connections in 1.0 s: ",
    ]  # fmt: skip
    assert as_text(Summary()) == ["no clients"]


def test_the_summary_as_json() -> None:
    first, second = as_json(busy())
    (unusual,) = first.pop("unusual")
    assert (unusual["name"], unusual.keys()) == ("requests without an answer", {"name", "text", "reason"})
    assert first == {
        "type": "client", "client_id": "app", "software": ["lib 1", "lib 2"], "users": ["ann", "bob"], "seconds": 4.0,
        "connections": 3,
        "requests": [
            {"api": "Fetch", "version": 4, "count": 1}, {"api": "Fetch", "version": 12, "count": 6},
            {"api": "Produce", "version": 9, "count": 8}, {"api": "SASL token", "version": -1, "count": 2},
        ],
        "latency_ms": {
            "A": {"count": 1, "mean": 1.0, "max": 1.0}, "B": {"count": 1, "mean": 2.0, "max": 2.0},
            "Fetch": {"count": 7, "mean": 10.0, "max": 55.04}, "Produce": {"count": 8, "mean": 2.5, "max": 60.0},
        },
        "errors": [
            {"api": "Fetch", "code": 3, "name": "UNKNOWN_TOPIC_OR_PARTITION", "count": 4},
            {"api": "Produce", "code": 6, "name": "NOT_LEADER_OR_FOLLOWER", "count": 9},
        ],
        "unanswered": 5, "produced": {"batches": 8, "records": 80, "bytes": 67_890, "repeated_batches": 4},
        "fetched": {"fetches": 7, "empty": 2, "tiny": 1, "bytes": 12_345}, "commits": 6,
    }  # fmt: skip
    assert (second["client_id"], second["unusual"], second["requests"]) == ("idle", [], [])
