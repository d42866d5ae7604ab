"""A recording is read from a capture and sent again: in order, each request after the answers that it followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.tools.inspection.frames import Request, Response
from barnabas.tools.tap.captured import Report
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.recording import Recording, read_recording
from barnabas.tools.tap.replaying import Outcome, Replay, Standins, brokers_of, standins
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.metadata import MetadataResponse

HEARTBEAT, JOIN = 12, 11


class Capture:
    """A capture that is made of exchanges."""

    def __init__(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.exchanges: list[Exchange] = []

    def add(
        self, sent_at: float, answered_at: float | None, message: Any = None, answer: Any = None, *, of: int = 1,
        key: int = HEARTBEAT, version: int = 3, port: int | None = None, client_id: str | None = "app", **more: Any,
    ) -> Exchange:  # fmt: skip
        connection = self.connections.setdefault(
            of, Connection(of, f"10.0.0.{of}:50000", f"10.0.0.9:{port or 9090 + of}", software="sw 1.2")
        )
        if message is None:
            message = HeartbeatRequest(group_id="g", member_id=f"m{len(self.exchanges)}")
        request = Request(10, key, "Api", version, len(self.exchanges), client_id, message)
        exchange = Exchange(connection, len(self.exchanges) + 1, request, sent_at, TopicNames(), **more)
        if answered_at is not None:
            exchange.response = Response(10, 0, HeartbeatResponse() if answer is None else answer)
            exchange.answered_at = answered_at
        self.exchanges.append(exchange)
        return exchange

    def read(self) -> Recording:
        class Captured:
            def __init__(self, collector: Any, ports: Any) -> None:
                assert ports == [7]
                self.collector = collector

            def read(self, file: Any) -> Report:
                assert file == "file"
                for exchange in capture.exchanges:
                    self.collector.opened(exchange.connection, 0)
                    self.collector.exchanged(exchange)
                    self.collector.noted(exchange.connection, 0, "")
                    self.collector.closed(exchange.connection, 0, "")
                return Report()

        capture = self
        return read_recording("file", [7], Captured)  # type: ignore[arg-type]


# --- sending again ----------------------------------------------------------------------------------------------


class Broker:
    """Stands for the live brokers: remembers what is asked and answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Endpoint, Any, int, float]] = []
        self.opened: list[tuple[Endpoint, ClientSettings]] = []
        self.closed: list[Endpoint] = []
        self.refuses: dict[Endpoint, str] = {}
        self.answers: dict[str, Any] = {}
        """By member: an answer, an error, or the seconds until it is there."""

    async def start(self, nursery: Any, endpoint: Endpoint, settings: ClientSettings) -> Any:
        self.opened.append((endpoint, settings))
        if endpoint in self.refuses:
            raise ClientError(self.refuses[endpoint])

        async def ask(request: Any, *, version: int, timeout_ms: float) -> Any:
            self.asked.append((endpoint, request, version, timeout_ms))
            answer = self.answers.get(getattr(request, "member_id", ""), HeartbeatResponse())
            if isinstance(answer, float):
                await trio.sleep(answer)
                return HeartbeatResponse()
            if isinstance(answer, Exception):
                raise answer
            return answer

        return SimpleNamespace(ask=ask, close=lambda: self.closed.append(endpoint))

    def members(self) -> list[str]:
        return [request.member_id for _, request, _, _ in self.asked]


@pytest.fixture
def broker():
    return Broker()


def endpoints(*ports: int) -> dict[str, Endpoint]:
    return {f"10.0.0.9:{port}": Endpoint("live", port) for port in ports}


def replay_of(capture: Capture, broker: Broker, **more: Any) -> Replay:
    brokers = Standins(endpoints(9091, 9092, 9093), {1: 11})
    return Replay(capture.read(), brokers, ClientSettings(client_id="own"), connect=broker.start, **more)


async def test_each_request_is_sent_once_those_before_it_are_answered(autojump_clock, broker):
    capture = Capture()
    capture.add(1.0, 2.0)
    capture.add(3.0, 4.0, of=2)
    capture.add(3.0, 5.0, of=1)
    capture.add(6.0, None, of=2)
    broker.answers = {"m0": 5.0, "m1": 1.0, "m2": 3.0}
    begun = trio.current_time()
    replay = replay_of(capture, broker)
    result = await replay.run()
    assert broker.members() == ["m0", "m1", "m2", "m3"] or broker.members() == ["m0", "m2", "m1", "m3"]
    assert trio.current_time() - begun == pytest.approx(8.0)
    assert (result.sent, result.compared, result.different) == (4, 3, [])
    assert result.seconds == pytest.approx(8.0)
    assert sorted(endpoint.port for endpoint, _ in broker.opened) == [9091, 9092]
    assert sorted(endpoint.port for endpoint in broker.closed) == [9091, 9092]
    assert {version for _, _, version, _ in broker.asked} == {3}


async def test_with_times_requests_are_not_sent_before_theirs(autojump_clock, broker):
    for is_timed, seconds in ((False, 0.0), (True, 7.0)):
        capture = Capture()
        capture.add(100.0, 101.0)
        capture.add(107.0, 108.0)
        begun = trio.current_time()
        await replay_of(capture, broker, is_timed=is_timed).run()
        assert trio.current_time() - begun == pytest.approx(seconds, abs=0.01)


async def test_failures_are_outcomes_and_hold_nobody_up(autojump_clock, broker):
    capture = Capture()
    refused = [capture.add(1.0, 2.0), capture.add(2.5, 3.0), capture.add(2.6, None)]
    failing = capture.add(4.0, 5.0, of=2)
    capture.add(6.0, None, of=2)
    other = capture.add(7.0, 8.0, of=2)
    broker.refuses[Endpoint("live", 9091)] = "nobody listens"
    broker.answers = {
        "m3": ClientError("lost"),
        "m4": ClientError("lost too"),
        "m5": HeartbeatResponse(error_code=25),
    }
    seen: list[Outcome] = []
    result = await replay_of(capture, broker, on_outcome=seen.append).run()
    assert result.different == seen
    assert [(outcome.exchange, outcome.failure) for outcome in seen] == [
        (refused[0], "nobody listens"), (refused[1], "nobody listens"), (failing, "lost"), (other, ""),
    ]  # fmt: skip
    assert [len(outcome.differences) for outcome in seen] == [0, 0, 0, 1]
    assert (result.sent, result.compared) == (1, 1)
    assert len(broker.opened) == 2
    assert broker.closed == [Endpoint("live", 9092)]


async def test_live_ids_replace_recorded_ones(broker):
    capture = Capture()
    recorded = JoinGroupResponse(member_id="recorded", generation_id=1)
    capture.add(1.0, 2.0, JoinGroupRequest(group_id="g"), recorded, key=JOIN)
    beat = HeartbeatRequest(group_id="g", member_id="recorded", generation_id=1)
    capture.add(3.0, 4.0, beat)
    broker.answers = {"": JoinGroupResponse(member_id="live", generation_id=5)}
    result = await replay_of(capture, broker).run()
    assert broker.asked[1][1] == HeartbeatRequest(group_id="g", member_id="live", generation_id=5)
    assert beat.member_id == "recorded", "the recording stays as it is"
    assert result.different == []


# --- brokers ----------------------------------------------------------------------------------------------------


def answer_of(*nodes: tuple[int, int]) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(number, "h", port) for number, port in nodes]
    )


@pytest.mark.parametrize(
    ("nodes", "live", "chosen", "ids"),
    [
        ((), {1: 1}, [1, 1], {}),
        ((), {1: 1, 2: 2}, [1, 2], {}),
        ((), {1: 1, 2: 2, 3: 3}, [1, 2], {}),
        (((5, 9092), (4, 9091)), {1: 1, 2: 2}, [1, 2], {4: 1, 5: 2}),
        (((4, 9092), (5, 9091)), {1: 1, 2: 2}, [2, 1], {4: 1, 5: 2}),
        (((4, 9092), (5, 9091)), {7: 1}, [1, 1], {4: 7, 5: 7}),
        (((4, 9999), (5, 9092)), {7: 1, 8: 2}, [1, 2], {4: 7, 5: 8}),
    ],
)
def test_live_brokers_replace_recorded_ones_in_id_order(nodes, live, chosen, ids):
    capture = Capture()
    capture.add(1.0, 2.0, answer=answer_of(*nodes))
    capture.add(1.0, 2.0, of=2)
    brokers = {number: Endpoint("live", port) for number, port in live.items()}
    result = standins(capture.read(), brokers)
    assert [result.endpoints[f"10.0.0.9:{port}"].port for port in (9091, 9092)] == chosen
    assert result.nodes == ids


async def test_brokers_are_those_that_the_first_that_answers_names():
    asked: list[int] = []

    async def start(nursery: Any, endpoint: Endpoint, settings: ClientSettings) -> Any:
        asked.append(endpoint.port)
        if endpoint.port in (1, 2):
            raise ClientError(f"{endpoint.port} is down")

        async def ask(request: Any, *, version_max: int) -> Any:
            assert (request.topics, version_max) == ([], 12)
            return answer_of(*([(3, 30), (1, 10)] if endpoint.port == 3 else []))

        return SimpleNamespace(ask=ask, close=lambda: None)

    async def of(*ports: int) -> dict[int, Endpoint]:
        asked.clear()
        return await brokers_of([Endpoint("b", port) for port in ports], ClientSettings(), start)

    assert list((await of(1, 3, 4)).items()) == [(1, Endpoint("h", 10)), (3, Endpoint("h", 30))]
    assert asked == [1, 3]
    assert await of(4) == {0: Endpoint("b", 4)}
    with pytest.raises(ClientError, match="2 is down"):
        await of(1, 2)
