"""Conversations in detail: who logs in, which answer is to which request, what is kept, what the observer is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.tools.inspection.frames import read_request
from barnabas.tools.tap import exchange as exchanges
from barnabas.tools.tap import session as sessions
from barnabas.tools.tap.addresses import FILLING_TAGS, changed_end, may_have_addresses
from barnabas.tools.tap.cutting import Budget, Fate
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames, topics_of
from barnabas.tools.tap.masking import masked
from barnabas.tools.tap.session import Session
from barnabas.wire.framing import MESSAGE_BYTES_MAX
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


class Noting(Seen):
    """Remembers the bytes of notes too."""

    def __init__(self) -> None:
        super().__init__()
        self.data: list[bytes] = []
        self.times: list[float] = []

    def noted(self, connection: Connection, at: float, text: str, data: bytes = b"") -> None:
        super().noted(connection, at, text, data)
        self.data.append(data)
        self.times.append(at)


def ask(session: Session, *numbers: int, at: float = 0.0) -> None:
    for number in numbers:
        session.from_client(request(METADATA, 12, number, MetadataRequest()), at)


def answer(session: Session, *numbers: int, at: float = 0.0) -> bytes:
    found = b""
    for number in numbers:
        found += b"".join(map(bytes, session.from_broker(response(METADATA, 12, number, metadata()), at)))
    return found


# --- requests and their answers -------------------------------------------------------------------------------------


def test_requests_before_one_that_is_answered_stay_unanswered() -> None:
    seen = Seen()
    session = session_of(seen)
    ask(session, 1, 2, 3, at=1.0)
    assert not session.is_answered
    answer(session, 3, at=2.0)
    assert [(one.number, one.request.correlation_id, one.unanswered, one.answered_at) for one in seen.exchanges] == [
        (1, 1, "the broker answered a later request", None), (2, 2, "the broker answered a later request", None),
        (3, 3, "", 2.0),
    ]  # fmt: skip
    assert session.is_answered
    assert [one.sent_at for one in seen.exchanges] == [1.0] * 3
    ask(session, 4, 5)
    large = MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(n, "broker", 1) for n in range(500)]
    )
    session.from_broker(response(METADATA, 12, 5, large), 2.0)
    assert seen.exchanges[-1].response.message == large  # type: ignore[union-attr]


def test_an_answer_that_no_request_has_is_noted_and_the_next_one_is_found() -> None:
    seen = Noting()
    session = session_of(seen)
    ask(session, 1, 2)
    odd = response(METADATA, 12, 9, metadata())
    assert b"".join(map(bytes, session.from_broker(odd, 5.0))) == odd
    answer(session, 1, 2)
    assert seen.notes == ["an answer with a correlation id that no request has"]
    assert (seen.data, seen.times) == ([odd[4:]], [5.0])
    assert [one.request.correlation_id for one in seen.exchanges] == [1, 2]


def test_so_many_requests_wait_for_answers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "PENDING_MAX", 2)
    seen = Seen()
    session = session_of(seen)
    ask(session, 1, 2)
    assert seen.exchanges == []
    ask(session, 3)
    assert [(one.number, one.unanswered) for one in seen.exchanges] == [
        (1, "no answer among the ones after it")
    ]
    answer(session, 2, 3)
    assert [one.number for one in seen.exchanges] == [1, 2, 3]


def test_the_end_tells_of_frames_that_are_cut_short_and_of_what_is_unanswered() -> None:
    for client, broker, notes in (
        (b"", b"", []),
        (b"\0", b"", ["the client's last frame is cut short"]),
        (b"", b"\0\0\0\x50\0\0\0\1", ["the broker's last frame is cut short"]),
        (
            b"\0\0\0\x09abcdefgh",
            b"\0\0\0",
            ["the client's last frame is cut short", "the broker's last frame is cut short"],
        ),
    ):
        seen = Noting()
        session = session_of(seen)
        ask(session, 1)
        session.from_client(client, 1.0)
        session.from_broker(broker, 2.0)
        session.close(3.0, "why")
        assert (seen.notes, seen.ends) == (notes, ["why"])
        assert {*seen.times} <= {3.0}
        assert [one.unanswered for one in seen.exchanges] == ["why"]


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 11])
def test_a_large_produce_request_is_answered_unless_its_beginning_says_otherwise(version: int) -> None:
    for acks, name in ((0, None), (0, "x"), (1, None), (-1, "name" * 30)):
        seen = Seen()
        session = session_of(seen, memory=0)
        part = ProduceRequest.PartitionProduceData(0, b"x" * 70_000)
        topics = [ProduceRequest.TopicProduceData("t", partition_data=[part])]
        message = ProduceRequest(name if version >= 3 else None, acks, 30_000, topics)
        session.from_client(request(PRODUCE, version, 1, message), 0.0)
        assert session.is_answered is (acks == 0)
        assert [one.unanswered for one in seen.exchanges] == ["acks=0"] * (acks == 0)
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
    (one,) = seen.exchanges
    assert one.request.problem == f"not decoded: only 4096 of {len(asked) - 4} bytes are kept"
    assert one.request_bytes == asked[4:260]
    assert one.response is not None
    assert (one.response.problem, one.response.size, one.response.correlation_id) == (
        "not decoded: only 4096 of 80000 bytes are kept", 80_000, 1,
    )  # fmt: skip
    assert one.response_bytes == (answered[4:].ljust(256, b"x"))[:256]
    assert (one.request.size, one.request.api, one.request.client_id) == (len(asked) - 4, "Produce", "app")
    decoded = session_of(seen)
    ask(decoded, 1)
    answer(decoded, 1)
    assert (seen.exchanges[1].request_bytes, seen.exchanges[1].response_bytes) == (None, None)


def test_where_frames_may_begin_and_which_are_looked_at() -> None:
    session = session_of(Seen())
    with pytest.raises(sessions.NotFramesError):
        session.begin_response(8, b"\0\0\0\1")
    ask(session, 1)
    with pytest.raises(sessions.NotFramesError):
        session.begin_response(-1, b"\0\0\0\1")
    assert session.begin_response(0, b"") is Fate.PASS
    assert session.has_asked
    holding = session_of(Seen(), rewrites=True)
    ask(holding, 1)
    assert holding.begin_response(MESSAGE_BYTES_MAX + 1, b"\0\0\0\1") is Fate.HOLD
    head = request(METADATA, 8, 7, MetadataRequest())[4:]
    assert session.may_begin(b"\0\0\0\x08" + head[:8] + b"...", from_client=True) is False
    assert session.may_begin(b"\x10\0\0\1" + head, from_client=True) is False, "larger than any request"
    assert session.may_begin(b"\x10\0\0\0" + head, from_client=True) is True
    assert session.may_begin(b"\0\0\0\4\0\0\0\1", from_client=False)
    assert not session.may_begin(b"\0\0\0\4\0\0\0\2", from_client=False)


def test_has_asked_while_an_answer_is_on_its_way() -> None:
    session = session_of(Seen())
    assert not session.has_asked
    ask(session, 1)
    assert session.has_asked
    data = response(METADATA, 12, 1, metadata())
    session.from_broker(data[:-1], 0.0)
    assert session.has_asked
    session.from_broker(data[-1:], 0.0)
    assert not session.has_asked
    session.from_client(b"GET / HTTP/1.1\r\n", 0.0)
    assert session.has_asked, "another protocol's bytes are looked at by nobody"


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
        one = seen.exchanges[1]
        assert one.token is not None
        assert (one.token["mechanism"], one.token["user"]) == (mechanism, "ann")
        assert (one.answer_token or {}).get("server_signature") == ("***" if answer_token else None)
        assert not one.is_bare_token


def test_bare_tokens_come_after_the_first_version_only_and_where_it_succeeded() -> None:
    for version, code, is_bare in ((0, 0, True), (1, 0, False), (0, 33, False)):
        seen = Seen()
        session = session_of(seen)
        login(session, version=version, code=code)
        token = b"\0ann\0secret"
        session.from_client(len(token).to_bytes(4, "big") + token, 0.0)
        session.close(1.0, "closed")
        (one,) = seen.exchanges[1:]
        assert one.is_bare_token is is_bare
        assert one.request.api == ("SASL token" if is_bare else "?") or not is_bare
        assert session.connection.user == ("ann" if is_bare else None)


def test_a_first_frame_that_is_a_token_of_gssapi_is_one() -> None:
    seen = Seen()
    session = session_of(seen)
    token = b"\x60\x82\x01\0"
    for number, data in enumerate((token, token)):
        session.from_client(len(data).to_bytes(4, "big") + data, 0.0)
        assert session.is_answered is False
        if number == 0:
            session.from_broker(b"\0\0\0\4xyzw", 0.0)
    session.close(1.0, "closed")
    first, second = seen.exchanges
    assert (first.is_bare_token, first.token["mechanism"], first.response.size) == (True, "GSSAPI", 4)  # type: ignore[index,union-attr]
    assert first.answer_token is not None
    assert (first.answer_token["bytes"], second.is_bare_token) == (4, False)
    assert session.connection.mechanism is None, "which one it is, nobody has said"


def test_a_failure_of_a_bare_login_is_no_mechanism() -> None:
    for data, mechanism in ((b"e=unknown-user", None), (b"v=abc", "SCRAM-SHA-256")):
        session = session_of(Seen())
        login(session, version=0, mechanism="SCRAM-SHA-256")
        token = b"n,,n=ann,r=1"
        session.from_client(len(token).to_bytes(4, "big") + token, 0.0)
        session.from_broker(len(data).to_bytes(4, "big") + data, 0.0)
        assert session.connection.mechanism == mechanism


def test_a_connection_is_named_by_the_first_client_id_and_its_software() -> None:
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
        topics=[MetadataResponse.MetadataResponseTopic(name=name, topic_id=one) for one, name in topics]
    )


def test_names_of_topics_are_learned_from_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "TOPIC_IDS_MAX", 2)
    names = TopicNames()
    one, two, three = b"1" * 16, b"2" * 16, b"3" * 16
    names.learn(named((bytes(16), "zero"), (three, ""), (three, None), (one, "a")))
    names.learn(object())
    names.learn(SimpleNamespace(topics=None))
    assert [names.name_of(each) for each in (bytes(16), one, three)] == [None, "a", None]
    names.learn(named((two, "b"), (three, "c")))
    assert [names.name_of(each) for each in (one, two, three)] == ["a", "b", None]
    exchange = Exchange(Connection(1, "a:1", "b:2"), 1, read_request(b""), 0.0, names)
    assert (exchange.name_of(two), exchange.name_of(three)) == ("b", "MzMzMzMzMzMzMzMzMzMzMw")
    assert topics_of(None, names.name_of) == {}
    session = session_of(Seen())
    session.from_client(request(METADATA, 12, 1, MetadataRequest()), 0.0)
    session.from_broker(response(METADATA, 12, 1, named((one, "learned"))), 0.0)
    assert session.names.name_of(one) == "learned"


def test_a_latency_is_never_negative() -> None:
    exchange = Exchange(Connection(1, "a:1", "b:2"), 1, read_request(b""), 5.0, TopicNames())
    assert exchange.latency_ms is None
    for answered_at, latency_ms in ((5.0, 0.0), (4.0, 0.0), (5.5, 500.0)):
        exchange.answered_at = answered_at
        assert exchange.latency_ms == latency_ms


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


def test_addresses_that_cannot_be_changed_are_noted_and_the_answer_passes() -> None:
    from barnabas.wire.errors import EncodeError

    def fail(*_: Any) -> bytes:
        raise EncodeError("too long")

    seen = Seen()
    session = Session(
        Connection(1, "a:1", "b:2"), seen, budget=Budget(1 << 20), names=TopicNames(),
        holds=may_have_addresses, rewrite=fail,
    )  # fmt: skip
    ask(session, 1)
    assert answer(session, 1) == response(METADATA, 12, 1, metadata())
    assert seen.notes == ["addresses in an answer to Metadata cannot be changed: too long"]
    ask(session, 2)
    broken = b"\0\0\0\6\0\0\0\2\0\1"
    assert b"".join(map(bytes, session.from_broker(broken, 0.0))) == broken
    assert seen.notes[1].startswith("addresses in an answer to Metadata are not changed: Metadata v12: ")
    assert len(seen.exchanges) == 2


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
        found = [(one.host, one.port) for one in decoded.node_endpoints]
        assert found == ([(host, 9093)] if fits else [])
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


def test_frames_without_secrets_are_kept_as_they_are_and_tokens_not_at_all() -> None:
    frame = request(METADATA, 12, 1, MetadataRequest())[4:]
    assert masked(exchange_of(frame), frame, from_client=True) is frame
    assert masked(exchange_of(frame, is_bare_token=True), b"\0ann\0secret", from_client=True) == b"*" * 11


def test_secrets_are_overwritten_in_requests_answers_and_what_cannot_be_decoded() -> None:
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
    assert [one.value for one in hidden.message.resources[0].configs] == ["*" * 7, "12345", None]
    asked = request(38, 3, 7, CreateDelegationTokenRequest())[4:]
    answered = response(38, 3, 7, CreateDelegationTokenResponse(token_id="id", hmac=b"secret"))[4:]
    found = bytes(masked(exchange_of(asked), answered, from_client=False))
    assert (len(found), b"secret" in found, b"******" in found, b"id" in found) == (
        len(answered),
        False,
        True,
        True,
    )
    for broken in (answered[:-3], b"\0\0\0\7"):
        found = bytes(masked(exchange_of(asked), broken, from_client=False))
        assert (
            found == broken[:5] + b"*" * (len(broken) - 5) if len(broken) > 5 else len(found) >= len(broken)
        )
