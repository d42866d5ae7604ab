"""Large Fetch answers with records that pass unread: the same bytes, and the same message but for the records."""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import trio

from barnabas.client.settings import Endpoint
from barnabas.tools.inspection.messages import UnreadRecords, as_json
from barnabas.tools.tap.addresses import changed_end, may_have_addresses
from barnabas.tools.tap.cutting import Budget
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.proxy import Proxy, ProxySettings
from barnabas.tools.tap.session import Session
from barnabas.tools.tap.skimming import VERSION_MAX
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.headers import decode_response
from tests.unit.tools.tap.test_session import Seen, pieces, request, response

FETCH = 1
Partition, Topic, Node = (
    FetchResponse.PartitionData,
    FetchResponse.FetchableTopicResponse,
    FetchResponse.NodeEndpoint,
)


def fetch_session(seen: Seen, host: str = "tap", memory: int = 1 << 20) -> Session:
    """Return a session that tells clients of a large answer's addresses, and looks at no records."""

    def rewrite_end(exchange: Exchange, size: int) -> bytes | None:
        assert exchange.response is not None
        end, _ = changed_end(
            exchange.request.version, size, exchange.response.message, lambda _host, port: (host, port + 1)
        )
        return end

    return Session(
        Connection(1, "127.0.0.1:1000", "127.0.0.1:9092"), seen, budget=Budget(memory), names=TopicNames(),
        holds=may_have_addresses, rewrite=lambda _exchange, _frame: None, rewrite_end=rewrite_end,
    )  # fmt: skip


def answer(rng: random.Random, version: int) -> FetchResponse:
    """Return an answer of this version with large, small, empty and null records."""
    tags = {7: rng.randbytes(3)} if version >= 12 and rng.random() < 0.3 else None
    topics = []
    for number in range(rng.randrange(1, 4)):
        partitions = []
        for index in range(rng.randrange(4)):
            entry = Partition(index, rng.choice((0, 3)), rng.randrange(1000))
            entry.records = rng.choice(
                (None, b"", rng.randbytes(rng.randrange(1, 300)), rng.randbytes(90_000))
            )
            if version >= 4:
                entry.aborted_transactions = rng.choice(
                    (None, [], [FetchResponse.AbortedTransaction(5, 6)] * 3)
                )
            if version >= 12 and rng.random() < 0.5:
                entry.current_leader = FetchResponse.LeaderIdAndEpoch(1, 2)
                entry.unknown_tagged_fields = tags
            partitions.append(entry)
        topics.append(
            Topic(
                "" if version >= 13 else f"topic-{number}",
                rng.randbytes(16) if version >= 13 else bytes(16),
                partitions,
            )
        )
    topics.append(
        Topic("last" if version < 13 else "", partitions=[Partition(records=rng.randbytes(70_000))])
    )
    return FetchResponse(responses=topics, unknown_tagged_fields=tags)


def passed(session: Session, data: bytes, rng: random.Random) -> bytes:
    """Send bytes of a broker through a session, those that are not looked at aside; returns what is forwarded."""
    result = b""
    while data:
        aside = min(session.unread, len(data))
        if aside and rng.random() < 0.7:
            count = rng.randrange(1, aside + 1)
            session.passed(count, 2.0)
            result, data = result + data[:count], data[count:]
            continue
        count = rng.choice((1, 2, 3, 7, 100, 5000, 100_000))
        result += b"".join(map(bytes, session.from_broker(data[:count], 2.0)))
        session.sent()
        data = data[count:]
    return result


@pytest.mark.parametrize("version", range(VERSION_MAX + 1))
def test_the_same_bytes_and_the_same_message_but_for_the_records(version: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(10):
        seen = Seen()
        session = fetch_session(seen)
        for number in (1, 2):
            for piece in pieces(request(FETCH, version, number, FetchRequest()), rng):
                session.from_client(piece, 1.0)
        answers = [response(FETCH, version, number, answer(rng, version)) for number in (1, 2)]
        assert passed(session, b"".join(answers), rng) == b"".join(answers)
        assert session.is_answered
        for exchange, data in zip(seen.exchanges, answers, strict=True):
            assert exchange.response is not None
            assert exchange.response.size == len(data) - 4
            _, whole = decode_response(memoryview(data)[4:], FETCH, version)
            assert as_json(exchange.response.message) == as_json(whole)
            last = exchange.response.message.responses[-1].partitions[0]
            assert isinstance(last.records, UnreadRecords)
        session.close(3.0, "the client closed")
        assert not seen.notes


def moved(host: str) -> FetchResponse:
    """Return an answer with records, and a partition with a leader that has moved to this host."""
    gone = Partition(1, 6, -1, current_leader=FetchResponse.LeaderIdAndEpoch(2, 5))
    return FetchResponse(
        responses=[Topic(topic_id=bytes(16), partitions=[Partition(records=bytes(80_000)), gone])],
        node_endpoints=[Node(2, host, 9092)],
    )


def forwarded(host: str, own: str, version: int = 17) -> tuple[FetchResponse, Seen]:
    """Return an answer that names `host` as a client gets it through a tap at `own`."""
    seen = Seen()
    session = fetch_session(seen, own)
    session.from_client(request(FETCH, version, 1, FetchRequest()), 1.0)
    sent = response(FETCH, version, 1, moved(host))
    got = passed(session, sent, random.Random(1))
    assert len(got) == len(sent)
    message: Any = decode_response(memoryview(got)[4:], FETCH, version)[1]
    return message, seen


@pytest.mark.parametrize("length", [3, 4, 5, 6, 40, 130, 131, 132, 133, 134, 135, 300])
def test_addresses_at_the_end_become_the_taps_at_same_size(length: int) -> None:
    message, seen = forwarded("b" * length, "tap")
    assert message.responses[0].partitions[1].current_leader.leader_id == 2
    nodes = [
        (node_endpoint.node_id, node_endpoint.host, node_endpoint.port)
        for node_endpoint in message.node_endpoints
    ]
    assert nodes in ([(2, "tap", 9093)], [])
    assert nodes or length == 4, "a tagged field takes two bytes at least"
    shown = seen.exchanges[0].response
    assert shown is not None
    assert shown.message.node_endpoints[0].host == "b" * length, "what the broker said is shown"


def test_addresses_that_are_too_long_are_left_out() -> None:
    message, _ = forwarded("b", "tap.example.com")
    assert message.node_endpoints == []
    assert message.responses[0].partitions[1].error_code == 6


def test_what_is_no_fetch_answer_passes_as_it_is() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(60):
        version = rng.randrange(VERSION_MAX + 1)
        seen = Seen()
        session = fetch_session(seen, memory=rng.choice((0, 1 << 20)))
        session.from_client(request(FETCH, version, 1, FetchRequest()), 1.0)
        data = bytearray(response(FETCH, version, 1, answer(rng, version)))
        for _ in range(rng.randrange(1, 20)):
            data[rng.randrange(8, min(len(data), 400))] = rng.randrange(256)
        sent = bytes(data) if rng.random() < 0.7 else bytes(data[: rng.randrange(8, len(data))])
        got = passed(session, sent, rng) + session.rest()
        if len(seen.exchanges) == 1 and seen.exchanges[0].response and seen.exchanges[0].response.problem:
            assert got == sent
        assert len(got) == len(sent)
        session.close(3.0, "the client closed")


def test_interrupted_response_is_shown_as_far_as_kept() -> None:
    seen = Seen()
    session = fetch_session(seen)
    for number in (1, 2):
        session.from_client(request(FETCH, 16, number, FetchRequest()), 1.0)
    broken = b"\0\0\0\1\0" + b"\xff" * 100_000  # a count that takes more bytes than there may be
    sent = len(broken).to_bytes(4, "big") + broken
    forwarded = b"".join(
        map(bytes, session.from_broker(sent[:50_000], 2.0) + session.from_broker(sent[50_000:], 3.0))
    )
    assert forwarded == sent
    (row,) = seen.exchanges
    assert row.response is not None
    kept = len(row.response_bytes or b"")
    assert 8 < kept < 256
    assert row.response_bytes == broken[:kept]
    assert (row.response.message, row.response.size, row.answered_at) == (None, len(broken), 3.0)
    assert row.response.problem == f"not decoded: only {kept} of {len(broken)} bytes are kept"
    assert seen.notes == [f"addresses in an answer to Fetch are not changed: {row.response.problem}"]
    part = Partition(records=bytes(70_000))
    session.from_broker(response(FETCH, 16, 2, FetchResponse(responses=[Topic("", b"i" * 16, [part])])), 4.0)
    assert [each.response.problem for each in seen.exchanges[1:] if each.response] == [""]


async def test_large_answers_reach_the_client_as_they_are_over_sockets() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    answers = [
        response(FETCH, 17, number, FetchResponse(
            responses=[Topic(topic_id=bytes(16), partitions=[Partition(records=rng.randbytes(size)) for size in sizes])]
        ))
        for number, sizes in enumerate(([5_000_000], [100], [70_000, 3_000_000, 10], [200_000] * 5, [1 << 20]))
    ]  # fmt: skip
    expected = b"".join(answers)

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        at = 0
        while at < len(expected):
            size = rng.choice((10, 1000, 100_000, 2_000_000))
            await stream.send_all(expected[at : at + size])
            at += size
            await trio.lowlevel.checkpoint()
        await stream.send_eof()

    seen = Seen()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        broker = listeners[0].socket.getsockname()[1]
        proxy = Proxy(ProxySettings((Endpoint("127.0.0.1", broker),), "127.0.0.1"), seen, reads_records=False)
        port = await nursery.start(proxy.run)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(b"".join(request(FETCH, 17, number, FetchRequest()) for number in range(5)))
        result = bytearray()
        with trio.fail_after(60):
            while part := await stream.receive_some(rng.choice((1000, 65_536, 1 << 20))):
                result += part
            assert bytes(result) == expected
            while len(seen.exchanges) < 5:
                await trio.sleep(0.01)
            await stream.aclose()
            while proxy.open_count:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert [row.response.size for row in seen.exchanges if row.response] == [len(row) - 4 for row in answers]
    assert not seen.notes


@pytest.mark.parametrize("who", ["client", "broker"])
async def test_who_goes_in_the_middle_of_records_ends_the_connection(who: str) -> None:
    data = response(FETCH, 17, 1, FetchResponse(
        responses=[Topic(topic_id=bytes(16), partitions=[Partition(records=bytes(50_000_000))])]
    ))  # fmt: skip

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(data[:20_000_000] if who == "broker" else data)

    seen = Seen()
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        broker = listeners[0].socket.getsockname()[1]
        proxy = Proxy(ProxySettings((Endpoint("127.0.0.1", broker),), "127.0.0.1"), seen, reads_records=False)
        port = await nursery.start(proxy.run)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(request(FETCH, 17, 1, FetchRequest()))
        result = 0
        with trio.fail_after(60):
            while result < 10_000_000:
                result += len(await stream.receive_some(1 << 20))
            if who == "broker":
                while part := await stream.receive_some(1 << 20):
                    result += len(part)
                assert result == 20_000_000
            await trio.aclose_forcefully(stream)
            while not seen.ends:
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert proxy.open_count == 0
    assert [exchange.response for exchange in seen.exchanges] == [None]
    assert seen.exchanges[0].unanswered.startswith(f"the {who}")
