"""`serve --tap`: a broker's own requests as exchanges, with their connections, refusals and ends."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.errors import RequestError
from barnabas.tools.tap.broker_tap import BrokerTap
from barnabas.tools.tap.exchange import Connection, Exchange
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest, ProduceResponse
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.unit.tools.tap.test_session import Seen

PRODUCE = 0


def context(key: int, version: int = 9, connection_id: int = 1, **more: Any) -> Any:
    fields = {"login": None, "user": "ANONYMOUS", **more}
    connection = SimpleNamespace(
        connection_id=connection_id,
        peer_address=("10.0.0.1", 4000 + connection_id),
        local_address=("10.0.0.2", 9092),
        **fields,
    )
    return SimpleNamespace(
        api_key=key, api_version=version, correlation_id=77, client_id="app", connection=connection
    )


class Watch:
    """A tap of a broker, and what its observer is told."""

    def __init__(self, text: str = "quiet") -> None:
        self.tap = BrokerTap(text)
        self.seen = Seen()
        self.opens: list[tuple[Any, ...]] = []
        self.views = SimpleNamespace(observer=self, only_terminal=None)
        self.tap._views = self.views  # type: ignore[assignment]

    def exchanged(self, exchange: Exchange) -> None:
        self.seen.exchanges.append(exchange)

    def opened(self, connection: Connection, at: float) -> None:
        self.opens.append((connection.id, connection.client, connection.broker, at))

    async def ask(self, asked: Any, message: Any, answer: Any) -> Exchange:
        async def handler(*_: Any) -> Any:
            if isinstance(answer, BaseException):
                raise answer
            return answer

        intercept = self.tap.around(None)
        if isinstance(answer, BaseException):
            with pytest.raises(type(answer)):
                await intercept(asked, message, handler)
        else:
            assert await intercept(asked, message, handler) is answer
        return self.seen.exchanges[-1]


async def test_a_brokers_own_requests_are_exchanges_with_their_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watch = Watch()
    clock = iter(range(100, 200))
    monkeypatch.setattr(time, "time", lambda: float(next(clock)))
    message = ProduceRequest(acks=1)
    entry = await watch.ask(context(PRODUCE), message, ProduceResponse())
    asked, answered = entry.request, entry.response
    assert (asked.api_key, asked.api, asked.version, asked.correlation_id, asked.client_id, asked.message) == (
        PRODUCE, "Produce", 9, 77, "app", message,
    )  # fmt: skip
    assert answered is not None
    assert (answered.correlation_id, answered.version, answered.message) == (77, 9, ProduceResponse())
    assert (entry.number, entry.sent_at, entry.answered_at) == (1, 100.0, 102.0)
    assert watch.opens == [(1, "10.0.0.1:4001", "10.0.0.2:9092", 101.0)]
    again = await watch.ask(context(PRODUCE), message, None)
    assert (again.number, again.unanswered, again.response) == (2, "acks=0", None)
    other = await watch.ask(context(PRODUCE, connection_id=2), message, ProduceResponse())
    assert (other.number, other.connection.id, len(watch.opens)) == (1, 2, 2)


async def test_what_gets_no_line_is_counted_and_keeps_its_number() -> None:
    watch = Watch()
    skipped: list[str] = []
    full = True
    watch.views.only_terminal = SimpleNamespace(is_full=lambda at: full, skip=skipped.append)
    failed = ProduceResponse([ProduceResponse.TopicProduceResponse("t", partition_responses=[
        ProduceResponse.PartitionProduceResponse(0, 6)
    ])])  # fmt: skip
    message = ProduceRequest(acks=1)
    await watch.ask(context(PRODUCE), message, ProduceResponse())  # of a connection that nobody has seen
    await watch.ask(context(PRODUCE), message, ProduceResponse())
    await watch.ask(context(3), MetadataRequest(), MetadataResponse())
    await watch.ask(context(PRODUCE), message, failed)
    await watch.ask(context(18, 3), ApiVersionsRequest("lib", "1"), ApiVersionsResponse())
    await watch.ask(context(PRODUCE), message, None)
    full = False
    await watch.ask(context(PRODUCE), message, ProduceResponse())
    assert [exchange.number for exchange in watch.seen.exchanges] == [1, 4, 5, 6, 7]
    assert skipped == ["Produce", "Metadata"]


async def test_a_brokers_refusals_and_ends_are_told() -> None:
    watch = Watch()
    refused = await watch.ask(
        context(PRODUCE), ProduceRequest(), RequestError(ErrorCode.INVALID_REQUEST, "no")
    )
    assert [(error.code, error.path, error.about) for error in refused.errors] == [(42, "error_code", "no")]
    assert refused.response is not None
    assert (refused.response.message, refused.response.correlation_id, refused.answered_at is not None) == (
        None,
        77,
        True,
    )
    failed = await watch.ask(context(PRODUCE), ProduceRequest(), ValueError("bug"))
    assert (failed.unanswered, failed.response) == ("ValueError", None)
    with trio.CancelScope() as scope:
        scope.cancel()

        async def handler(*_: Any) -> Any:
            await trio.lowlevel.checkpoint()

        await watch.tap.around(None)(context(PRODUCE), ProduceRequest(), handler)
    assert watch.seen.exchanges[-1].unanswered == "the broker ends"


async def test_a_brokers_connections_have_software_mechanism_and_user() -> None:
    watch = Watch()
    result = await watch.ask(context(18, 3), ApiVersionsRequest("lib", ""), ApiVersionsResponse())
    connection = result.connection
    assert (connection.software, connection.mechanism, connection.user, connection.client_id) == (
        "lib",
        None,
        None,
        "app",
    )
    unknown = await watch.ask(context(36, 2, 5), SaslAuthenticateRequest(b"x"), SaslAuthenticateResponse())
    assert unknown.token == {"mechanism": "unknown"}
    await watch.ask(context(17, 1), SaslHandshakeRequest("PLAIN"), SaslHandshakeResponse())
    response = await watch.ask(
        context(36, 2, login="x", user="User:ann"), SaslAuthenticateRequest(b"x"), SaslAuthenticateResponse()
    )
    assert (response.token, connection.mechanism, connection.user) == (
        {"mechanism": "PLAIN"},
        "PLAIN",
        "User:ann",
    )
    assert result.token is None


async def test_an_interceptor_within_answers_and_names_are_the_brokers() -> None:
    watch = Watch()

    async def inner(*_: Any) -> Any:
        return "inner"

    async def handler(*_: Any) -> Any:
        raise AssertionError

    assert await watch.tap.around(inner)(context(PRODUCE), ProduceRequest(), handler) == "inner"
    names = watch.seen.exchanges[0].names
    assert names.name_of(b"i" * 16) is None
    metadata = SimpleNamespace(image=SimpleNamespace(topic_name=lambda topic_id: f"topic {topic_id!r}"))
    watch.tap.attach(SimpleNamespace(services=SimpleNamespace(metadata=metadata)))
    assert names.name_of(b"i") == "topic b'i'"


async def test_a_broker_that_shows_nothing_yet_answers_all_the_same(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tap = BrokerTap(f"summary,json={tmp_path}/x")

    async def handler(*_: Any) -> Any:
        return ProduceResponse()

    assert await tap.around(None)(context(PRODUCE), ProduceRequest(), handler) == ProduceResponse()
    async with tap.running():
        await tap.around(None)(context(PRODUCE), ProduceRequest(), handler)
    await tap.around(None)(context(PRODUCE), ProduceRequest(), handler)
    assert (tmp_path / "x").read_text().count('"exchange"') == 1
    assert "  1 request on 1 connection" in capsys.readouterr().out
