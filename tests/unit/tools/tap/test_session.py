"""Conversations, byte for byte, however they are cut into pieces."""

from __future__ import annotations

import random
from typing import Any

from barnabas.tools.tap.addresses import changed, may_have_addresses
from barnabas.tools.tap.cutting import Budget
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.session import Session
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.headers import encode_request, encode_response


class Seen:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self.notes: list[str] = []
        self.ends: list[str] = []

    def opened(self, connection: Connection, at: float) -> None:
        pass

    def exchanged(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        self.notes.append(text)

    def closed(self, connection: Connection, at: float, reason: str) -> None:
        self.ends.append(reason)


def request(key: int, version: int, correlation_id: int, message: Any, client_id: str = "app") -> bytes:
    return b"".join(bytes(c) for c in encode_request(key, version, correlation_id, client_id, message))  # type: ignore[arg-type]


def response(key: int, version: int, correlation_id: int, message: Any) -> bytes:
    return b"".join(bytes(c) for c in encode_response(key, version, correlation_id, message))  # type: ignore[arg-type]


def session_of(seen: Seen, *, rewrites: bool = False, memory: int = 1 << 20, keeper: Any = None) -> Session:
    def rewrite(exchange: Exchange, frame: Any) -> bytes | None:
        assert exchange.response is not None
        entry = exchange.request
        return changed(
            entry.api_key,
            entry.version,
            frame,
            exchange.response.message,
            lambda _host, port: ("tap", port + 1),
        )

    return Session(
        Connection(1, "127.0.0.1:1000", "127.0.0.1:9092"), seen, budget=Budget(memory), names=TopicNames(),
        holds=may_have_addresses if rewrites else lambda _key, _version: False,
        rewrite=rewrite if rewrites else None, keeper=keeper,
    )  # fmt: skip


def metadata(port: int = 9092) -> MetadataResponse:
    return MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(1, "broker", port)])


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    result = []
    at = 0
    while at < len(data):
        size = rng.choice((1, 2, 3, 7, 20, 1000))
        result.append(data[at : at + size])
        at += size
    return result


def test_answers_are_matched_and_forwarded_however_they_are_cut() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(30):
        seen = Seen()
        session = session_of(seen, rewrites=True)
        asked = request(18, 3, 1, ApiVersionsRequest("lib", "1.0")) + request(3, 12, 2, MetadataRequest())
        asked += request(18, 3, 3, ApiVersionsRequest())
        for entry in pieces(asked, rng):
            session.from_client(entry, 1.0)
        versions = response(18, 3, 1, ApiVersionsResponse())
        answers = versions + response(3, 12, 2, metadata()) + response(18, 3, 3, ApiVersionsResponse())
        forwarded = b"".join(
            bytes(chunk) for entry in pieces(answers, rng) for chunk in session.from_broker(entry, 2.0)
        )
        moved = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(1, "tap", 9093)])
        assert forwarded == versions + response(3, 12, 2, moved) + response(18, 3, 3, ApiVersionsResponse())
        assert [entry.request.api for entry in seen.exchanges] == ["ApiVersions", "Metadata", "ApiVersions"]
        assert seen.exchanges[1].response is not None
        assert seen.exchanges[1].response.message.brokers[0].host == "broker", "what the broker said is shown"
        assert [entry.latency_ms for entry in seen.exchanges] == [1000.0] * 3
        assert session.connection.software == "lib 1.0"
        assert not seen.notes


def test_large_produce_without_acks_is_not_waited_for_either() -> None:
    seen = Seen()
    session = session_of(seen, memory=1000)
    part = ProduceRequest.PartitionProduceData(0, b"x" * 200_000)
    for version in (0, 3, 9):
        message = ProduceRequest(
            acks=0, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])]
        )
        if version >= 3:
            message.transactional_id = "transaction"
        session.from_client(request(0, version, 1, message), 0)
    assert [exchange.unanswered for exchange in seen.exchanges] == ["acks=0"] * 3
    assert "not decoded: only 4096 of" in seen.exchanges[0].request.problem
    assert session.is_answered


def test_an_unknown_api_is_forwarded_and_shown_with_its_bytes() -> None:
    seen = Seen()
    session = session_of(seen)
    frame = bytes.fromhex("7ffe 0001 00000005 0003 617070") + b"body"
    session.from_client(len(frame).to_bytes(4, "big") + frame, 0)
    answer = b"\0\0\0\x08\0\0\0\x05abcd"
    assert b"".join(map(bytes, session.from_broker(answer, 0))) == answer
    (exchange,) = seen.exchanges
    assert exchange.request.problem == "unknown API key 32766"
    assert exchange.request_bytes == frame
    assert exchange.response_bytes == answer[4:]


def test_bytes_of_a_broker_that_nobody_asked_for_pass() -> None:
    seen = Seen()
    session = session_of(seen)
    assert session.from_broker(b"220 mail ready\r\n", 0) == [b"220 mail ready\r\n"]
    assert "nothing is asked" in seen.notes[0]


def test_requests_that_stay_unanswered_are_shown_at_the_end() -> None:
    seen = Seen()
    session = session_of(seen)
    session.from_client(request(3, 1, 2, MetadataRequest()) + b"\0\0", 0)
    session.close(1, "the broker closed")
    assert seen.exchanges[0].unanswered == "the broker closed"
    assert seen.notes == ["the client's last frame is cut short"]


def test_bare_tokens_after_the_first_handshake_are_no_requests() -> None:
    seen = Seen()
    session = session_of(seen)
    session.from_client(request(17, 0, 1, SaslHandshakeRequest("PLAIN")), 0)
    session.from_broker(response(17, 0, 1, SaslHandshakeResponse(mechanisms=["PLAIN"])), 0)
    token = b"\0alice\0hunter2"
    session.from_client(len(token).to_bytes(4, "big") + token, 0)
    session.from_broker(b"\0\0\0\0", 0)
    session.from_client(request(3, 1, 2, MetadataRequest()), 0)
    session.from_broker(response(3, 1, 2, metadata()), 0)
    handshake, login, asked = seen.exchanges
    assert handshake.request.message.mechanism == "PLAIN"
    assert login.token == {"mechanism": "PLAIN", "bytes": 14, "user": "alice", "password": "***"}
    assert asked.request.api == "Metadata"
    assert (session.connection.user, session.connection.mechanism) == ("alice", "PLAIN")


def test_held_bytes_are_sent_when_broker_ends_mid_frame() -> None:
    session = session_of(Seen(), rewrites=True)
    session.from_client(request(3, 12, 2, MetadataRequest()), 0)
    answer = response(3, 12, 2, metadata())[:20]
    assert session.from_broker(answer, 0) == []
    assert session.rest() == answer
