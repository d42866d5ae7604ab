"""Conversations in detail: logins, which answer is to which request, what is kept, what the observer is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.tools.inspection.frames import read_request
from barnabas.tools.tap import exchange as exchanges
from barnabas.tools.tap import session as sessions
from barnabas.tools.tap.addresses import FILLING_TAGS, changed_end
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames, topics_of
from barnabas.tools.tap.masking import masked
from barnabas.tools.tap.session import Session
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.tools.tap.test_session import Seen, metadata, request, response, session_of

METADATA, PRODUCE = 3, 0


def ask(session: Session, *numbers: int, at: float = 0.0) -> None:
    for number in numbers:
        session.from_client(request(METADATA, 12, number, MetadataRequest()), at)


def answer(session: Session, *numbers: int, at: float = 0.0) -> bytes:
    result = b""
    for number in numbers:
        result += b"".join(map(bytes, session.from_broker(response(METADATA, 12, number, metadata()), at)))
    return result


# --- requests and their answers -------------------------------------------------------------------------------------


def test_requests_before_one_that_is_answered_stay_unanswered() -> None:
    seen = Seen()
    session = session_of(seen)
    ask(session, 1, 2, 3, at=1.0)
    assert not session.is_answered
    answer(session, 3, at=2.0)
    assert [(x.number, x.request.correlation_id, x.unanswered, x.answered_at) for x in seen.exchanges] == [
        (1, 1, "the broker answered a later request", None), (2, 2, "the broker answered a later request", None),
        (3, 3, "", 2.0),
    ]  # fmt: skip
    assert session.is_answered
    assert [exchange.sent_at for exchange in seen.exchanges] == [1.0] * 3
    ask(session, 4, 5)
    large = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(n, "broker", 1) for n in range(500)]
    )
    session.from_broker(response(METADATA, 12, 5, large), 2.0)
    assert seen.exchanges[-1].response.message == large  # type: ignore[union-attr]


def test_so_many_requests_wait_for_answers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PENDING_MAX", 2)
    seen = Seen()
    session = session_of(seen)
    ask(session, 1, 2)
    assert seen.exchanges == []
    ask(session, 3)
    assert [(exchange.number, exchange.unanswered) for exchange in seen.exchanges] == [
        (1, "no answer among the ones after it")
    ]
    answer(session, 2, 3)
    assert [exchange.number for exchange in seen.exchanges] == [1, 2, 3]


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 11])
def test_large_produce_is_answered_unless_acks_is_0(version: int) -> None:
    for acks, name in ((0, None), (0, "x"), (1, None), (-1, "name" * 30)):
        seen = Seen()
        session = session_of(seen, memory=0)
        part = ProduceRequest.PartitionProduceData(0, b"x" * 70_000)
        topics = [ProduceRequest.TopicProduceData("t", partition_data=[part])]
        message = ProduceRequest(name if version >= 3 else None, acks, 30_000, topics)
        session.from_client(request(PRODUCE, version, 1, message), 0.0)
        assert session.is_answered is (acks == 0)
        assert [exchange.unanswered for exchange in seen.exchanges] == ["acks=0"] * (acks == 0)
    seen = Seen()
    session = session_of(seen, memory=0)
    big = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 30_000)] * 3)
    session.from_client(request(METADATA, 12, 1, big), 0.0)
    assert not session.is_answered, "only Produce has acks"


def test_what_is_not_decoded_keeps_the_beginning_of_its_bytes() -> None:
    seen = Seen()
    session = session_of(seen, memory=0)
    part = ProduceRequest.PartitionProduceData(0, b"x" * 70_000)
    asked = request(
        PRODUCE,
        9,
        1,
        ProduceRequest(acks=1, topic_data=[ProduceRequest.TopicProduceData("t", partition_data=[part])]),
    )
    session.from_client(asked, 0.0)
    answered = response(METADATA, 12, 1, metadata()) + b""
    session.from_broker((80_000).to_bytes(4, "big") + answered[4:].ljust(80_000, b"x"), 1.0)
    (entry,) = seen.exchanges
    assert entry.request.problem == f"not decoded: only 4096 of {len(asked) - 4} bytes are kept"
    assert entry.request_bytes == asked[4:260]
    assert entry.response is not None
    assert (entry.response.problem, entry.response.size, entry.response.correlation_id) == (
        "not decoded: only 4096 of 80000 bytes are kept", 80_000, 1,
    )  # fmt: skip
    assert entry.response_bytes == (answered[4:].ljust(256, b"x"))[:256]
    assert (entry.request.size, entry.request.api, entry.request.client_id) == (
        len(asked) - 4,
        "Produce",
        "app",
    )
    decoded = session_of(seen)
    ask(decoded, 1)
    answer(decoded, 1)
    assert (seen.exchanges[1].request_bytes, seen.exchanges[1].response_bytes) == (None, None)


# --- logins ---------------------------------------------------------------------------------------------------------


def login(session: Session, *, version: int, code: int = 0, mechanism: str = "PLAIN") -> None:
    session.from_client(request(17, version, 1, SaslHandshakeRequest(mechanism)), 0.0)
    session.from_broker(response(17, version, 1, SaslHandshakeResponse(code, [mechanism])), 0.0)


def test_a_login_in_requests_has_user_mechanism_and_tokens() -> None:
    for code, answer_token in ((0, b""), (58, b""), (0, b"v=abc")):
        seen = Seen()
        session = session_of(seen)
        mechanism = "SCRAM-SHA-256" if answer_token else "PLAIN"
        login(session, version=1, mechanism=mechanism)
        assert session.connection.mechanism is None
        token = b"n,,n=ann,r=1" if answer_token else b"\0ann\0secret"
        session.from_client(request(36, 2, 2, SaslAuthenticateRequest(token)), 0.0)
        assert session.connection.user == "ann"
        session.from_broker(response(36, 2, 2, SaslAuthenticateResponse(code, None, answer_token)), 0.0)
        assert session.connection.mechanism == (None if code else mechanism)
        entry = seen.exchanges[1]
        assert entry.token is not None
        assert (entry.token["mechanism"], entry.token["user"]) == (mechanism, "ann")
        assert (entry.answer_token or {}).get("server_signature") == ("***" if answer_token else None)
        assert not entry.is_bare_token


def test_bare_tokens_follow_successful_handshake_of_version_0() -> None:
    for version, code, is_bare in ((0, 0, True), (1, 0, False), (0, 33, False)):
        seen = Seen()
        session = session_of(seen)
        login(session, version=version, code=code)
        token = b"\0ann\0secret"
        session.from_client(len(token).to_bytes(4, "big") + token, 0.0)
        session.close(1.0, "closed")
        (entry,) = seen.exchanges[1:]
        assert entry.is_bare_token is is_bare
        assert entry.request.api == ("SASL token" if is_bare else "?") or not is_bare
        assert session.connection.user == ("ann" if is_bare else None)


def test_a_failure_of_a_bare_login_is_no_mechanism() -> None:
    for data, mechanism in ((b"e=unknown-user", None), (b"v=abc", "SCRAM-SHA-256")):
        session = session_of(Seen())
        login(session, version=0, mechanism="SCRAM-SHA-256")
        token = b"n,,n=ann,r=1"
        session.from_client(len(token).to_bytes(4, "big") + token, 0.0)
        session.from_broker(len(data).to_bytes(4, "big") + data, 0.0)
        assert session.connection.mechanism == mechanism


def test_connection_is_named_by_first_client_id_and_software() -> None:
    session = session_of(Seen())
    session.from_client(request(18, 3, 1, ApiVersionsRequest("", "")), 0.0)
    assert session.connection.software == ""
    for name, version in (("lib", ""), ("lib", "2")):
        session.from_client(request(18, 3, 1, ApiVersionsRequest(name, version), "later"), 0.0)
        assert session.connection.software == f"{name} {version}".strip()
    assert session.connection.client_id == "app"


# --- names ----------------------------------------------------------------------------------------------------------


def named(*topics: tuple[bytes, str | None]) -> MetadataResponse:
    return MetadataResponse(
        topics=[MetadataResponse.MetadataResponseTopic(name=name, topic_id=id_) for id_, name in topics]
    )


def test_names_of_topics_are_learned_from_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "TOPIC_IDS_MAX", 2)
    names = TopicNames()
    entry, two, three = b"1" * 16, b"2" * 16, b"3" * 16
    names.learn(named((bytes(16), "zero"), (three, ""), (three, None), (entry, "a")))
    names.learn(object())
    names.learn(SimpleNamespace(topics=None))
    assert [names.name_of(each) for each in (bytes(16), entry, three)] == [None, "a", None]
    names.learn(named((two, "b"), (three, "c")))
    assert [names.name_of(each) for each in (entry, two, three)] == ["a", "b", None]
    exchange = Exchange(Connection(1, "a:1", "b:2"), 1, read_request(b""), 0.0, names)
    assert (exchange.name_of(two), exchange.name_of(three)) == ("b", "MzMzMzMzMzMzMzMzMzMzMw")
    assert topics_of(None, names.name_of) == {}
    session = session_of(Seen())
    session.from_client(request(METADATA, 12, 1, MetadataRequest()), 0.0)
    session.from_broker(response(METADATA, 12, 1, named((entry, "learned"))), 0.0)
    assert session.names.name_of(entry) == "learned"


# --- what is kept, and addresses ------------------------------------------------------------------------------------


def test_a_keeper_gets_every_frame_with_its_side_size_and_time() -> None:
    kept: list[tuple[Any, ...]] = []

    def keep(exchange: Exchange, frame: Any, size: int, *, from_client: bool, at: float) -> None:
        kept.append((exchange.number, len(frame), size, from_client, at))

    session = session_of(Seen(), keeper=keep, memory=0)
    ask(session, 1, at=1.0)
    answer(session, 1, at=2.0)
    large = request(
        METADATA, 12, 2, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 30_000)] * 3)
    )
    session.from_client(large, 3.0)
    asked, answered = (
        len(request(METADATA, 12, 1, MetadataRequest())) - 4,
        len(response(METADATA, 12, 1, metadata())) - 4,
    )
    assert kept == [
        (1, asked, asked, True, 1.0), (1, answered, answered, False, 2.0), (2, 4096, len(large) - 4, True, 3.0),
    ]  # fmt: skip


def test_the_end_of_a_large_answer_is_filled_to_its_size() -> None:
    """Whatever the sizes: the new end has as many bytes, and the same addresses unless they cannot fit."""
    from barnabas.wire import registry

    def end_of(host: str, version: int = 17) -> bytes:
        message = FetchResponse(node_endpoints=[FetchResponse.NodeEndpoint(1, host, 9092)])
        return registry.response_codec(1).encode_bytes(message, version)[11:]

    message = FetchResponse(node_endpoints=[FetchResponse.NodeEndpoint(1, "b" * 300, 9092)])
    size = len(end_of("b" * 300))
    for length in [*range(1, 290), 295, 296, 297, 298, 299, 300, 301, 302, 303, 304, 305, 330]:
        host = "h" * length
        end, is_kept = changed_end(17, size, message, lambda _host, port, host=host: (host, port + 1))  # type: ignore[misc]
        assert end is not None
        assert len(end) == size
        fits = length == 300 or len(end_of(host)) <= size - 2
        assert is_kept is fits
        decoded = registry.response_codec(1).decode_whole(bytes(11 - 1) + b"\1" + end, 17, 0)
        result = [(node_endpoint.host, node_endpoint.port) for node_endpoint in decoded.node_endpoints]
        assert result == ([(host, 9093)] if fits else [])
        assert {*(decoded.unknown_tagged_fields or {})} <= {*FILLING_TAGS}
    assert changed_end(17, size, message, lambda *_: None) == (None, True)
    assert changed_end(17, 2, message, lambda *_: ("x", 1)) == (None, False)


def test_addresses_are_those_of_brokers_that_there_are() -> None:
    from barnabas.tools.tap.addresses import changed

    for host, port, asked in (
        ("", 9092, False),
        ("h", 0, False),
        ("h", -1, False),
        ("h", 65_536, False),
        ("h", 65_535, True),
        ("h", 1, True),
    ):
        calls: list[Any] = []
        node = MetadataResponse.MetadataResponseBroker(1, host, port)
        message = MetadataResponse(brokers=[node])
        frame = response(METADATA, 12, 1, metadata())[4:]
        assert changed(METADATA, 12, frame, message, lambda *where: calls.append(where)) is None  # noqa: B023
        assert bool(calls) is asked
        assert changed(METADATA, 12, frame, message, lambda *where: where) is None  # type: ignore[arg-type,return-value]


# --- secrets --------------------------------------------------------------------------------------------------------


def exchange_of(frame: bytes, *, is_bare_token: bool = False) -> Exchange:
    return Exchange(
        Connection(1, "a:1", "b:2"), 1, read_request(frame), 0.0, TopicNames(), is_bare_token=is_bare_token
    )


def test_secrets_are_overwritten_in_all_kept_frames() -> None:
    setting = AlterConfigsRequest.AlterableConfig
    resource = AlterConfigsRequest.AlterConfigsResource(
        4,
        "1",
        [
            setting("ssl.key.password", "hunter2"),
            setting("retention.ms", "12345"),
            setting("sasl.jaas.config", None),
        ],
    )
    asked = request(33, 1, 1, AlterConfigsRequest([resource]))[4:]
    hidden = read_request(bytes(masked(exchange_of(asked), asked, from_client=True)))
    assert [config.value for config in hidden.message.resources[0].configs] == ["*" * 7, "12345", None]
    asked = request(38, 3, 7, CreateDelegationTokenRequest())[4:]
    answered = response(38, 3, 7, CreateDelegationTokenResponse(token_id="id", hmac=b"secret"))[4:]
    result = bytes(masked(exchange_of(asked), answered, from_client=False))
    assert (len(result), b"secret" in result, b"******" in result, b"id" in result) == (
        len(answered),
        False,
        True,
        True,
    )
    for broken in (answered[:-3], b"\0\0\0\7"):
        result = bytes(masked(exchange_of(asked), broken, from_client=False))
        assert (
            result == broken[:5] + b"*" * (len(broken) - 5) if len(broken) > 5 else len(result) >= len(broken)
        )
