"""A recording is read from a capture and sent again: in order, each request after the answers that it followed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.client.errors import ClientError
from barnabas.client.settings import ClientSettings, Endpoint
from barnabas.tools.inspection.frames import Request, Response
from barnabas.tools.tap import recording as recordings
from barnabas.tools.tap import replaying
from barnabas.tools.tap.captured import Report
from barnabas.tools.tap.exchange import Connection, Exchange, TopicNames
from barnabas.tools.tap.recording import Recording, read_recording
from barnabas.tools.tap.replaying import Outcome, Replay, Standins, brokers_of, deepcopy_of, standins
from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest

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

    def read(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
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
        monkeypatch.setattr(recordings, "Captured", Captured)
        return read_recording("file", [7])  # type: ignore[arg-type]


# --- reading ----------------------------------------------------------------------------------------------------


def test_requests_are_in_order_and_know_how_many_answers_they_followed(monkeypatch):
    capture = Capture()
    late = capture.add(5.0, 9.0)
    first = capture.add(1.0, 4.0)
    second = capture.add(2.0, 3.0, of=2)
    never = capture.add(3.0, None, of=2)  # at the moment of an answer, which counts
    at_once = capture.add(0.0, 0.0, of=3)
    found = capture.read(monkeypatch)
    assert list(found.connections) == [3, 1, 2]
    assert [one.exchange for one in found.connections[1]] == [first, late]
    assert [one.exchange for one in found.connections[2]] == [second, never]
    assert found.answered == [at_once, second, first, late]
    after = {id(one.exchange): one.after for requests in found.connections.values() for one in requests}
    assert [after[id(one)] for one in (at_once, first, second, never, late)] == [1, 1, 1, 2, 3]
    assert (found.count, found.begun_at, found.left_out) == (5, 0.0, Counter())
    recorded = found.connections[2]
    assert recorded[0].message is second.request.message
    assert recorded[0].answer is second.response.message
    assert recorded[1].answer is None
    assert Recording().begun_at == 0.0
    assert Recording().count == 0


def test_requests_of_one_moment_are_in_the_order_of_connection_and_number(monkeypatch):
    capture = Capture()
    for of in (2, 1, 2, 1):
        capture.add(1.0, 2.0, of=of)
    found = capture.read(monkeypatch)
    assert list(found.connections) == [1, 2]
    assert [[one.exchange.number for one in found.connections[of]] for of in (1, 2)] == [[2, 4], [1, 3]]


def test_what_cannot_be_sent_again_is_left_out_with_its_reason(monkeypatch):
    capture = Capture()
    capture.add(1.0, 2.0, SaslHandshakeRequest(mechanism="PLAIN"), key=17)
    capture.add(1.0, 2.0, object(), key=36)
    capture.add(1.0, 2.0, is_bare_token=True)
    kept = capture.add(1.0, 2.0)
    unread = capture.add(1.0, 2.0)
    unread.request.message, unread.request.problem = None, "cut short"
    found = capture.read(monkeypatch)
    logins = "logins: the replay logs in by itself, as --config says"
    assert found.left_out == {logins: 3, "requests that are not decoded (cut short)": 1}
    assert [one.exchange for one in found.connections[1]] == [kept]
    assert found.answered == [kept]


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
def broker(monkeypatch):
    broker = Broker()
    monkeypatch.setattr(replaying, "start_connection", broker.start)
    return broker


def endpoints(*ports: int) -> dict[str, Endpoint]:
    return {f"10.0.0.9:{port}": Endpoint("live", port) for port in ports}


def replay_of(capture: Capture, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Replay:
    brokers = Standins(endpoints(9091, 9092, 9093), {1: 11})
    return Replay(capture.read(monkeypatch), brokers, ClientSettings(client_id="own"), **more)


async def test_each_request_is_sent_once_those_before_it_are_answered(autojump_clock, broker, monkeypatch):
    capture = Capture()
    capture.add(1.0, 2.0)
    capture.add(3.0, 4.0, of=2)
    capture.add(3.0, 5.0, of=1)
    capture.add(6.0, None, of=2)
    broker.answers = {"m0": 5.0, "m1": 1.0, "m2": 3.0}
    begun = trio.current_time()
    replay = replay_of(capture, monkeypatch)
    result = await replay.run()
    assert broker.members() == ["m0", "m1", "m2", "m3"] or broker.members() == ["m0", "m2", "m1", "m3"]
    assert trio.current_time() - begun == pytest.approx(8.0)
    assert (result.sent, result.compared, result.different) == (4, 3, [])
    assert result.seconds == pytest.approx(8.0)
    assert sorted(endpoint.port for endpoint, _ in broker.opened) == [9091, 9092]
    assert sorted(endpoint.port for endpoint in broker.closed) == [9091, 9092]
    assert {version for _, _, version, _ in broker.asked} == {3}


async def test_with_times_requests_are_not_sent_before_theirs(autojump_clock, broker, monkeypatch):
    for is_timed, seconds in ((False, 0.0), (True, 7.0)):
        capture = Capture()
        capture.add(100.0, 101.0)
        capture.add(107.0, 108.0)
        begun = trio.current_time()
        await replay_of(capture, monkeypatch, is_timed=is_timed).run()
        assert trio.current_time() - begun == pytest.approx(seconds, abs=0.01)


async def test_a_connection_is_opened_as_the_recorded_client(broker, monkeypatch):
    capture = Capture()
    capture.add(1.0, 2.0)
    capture.add(1.0, 2.0, of=2, client_id=None)
    capture.connections[2].software = ""
    capture.add(1.0, 2.0, of=3)
    capture.connections[3].software = "name"
    await replay_of(capture, monkeypatch).run()
    own = ClientSettings()
    opened = [settings for _, settings in sorted(broker.opened, key=lambda one: one[0].port)]
    assert [(one.client_id, one.software_name, one.software_version) for one in opened] == [
        ("app", "sw", "1.2"), ("", own.software_name, own.software_version), ("app", "name", own.software_version),
    ]  # fmt: skip


async def test_failures_are_outcomes_and_hold_nobody_up(autojump_clock, broker, monkeypatch):
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
    result = await replay_of(capture, monkeypatch, on_outcome=seen.append).run()
    assert result.different == seen
    assert [(one.exchange, one.failure) for one in seen] == [
        (refused[0], "nobody listens"), (refused[1], "nobody listens"), (failing, "lost"), (other, ""),
    ]  # fmt: skip
    assert [len(one.differences) for one in seen] == [0, 0, 0, 1]
    assert (result.sent, result.compared) == (1, 1)
    assert len(broker.opened) == 2
    assert broker.closed == [Endpoint("live", 9092)]


async def test_what_the_live_broker_hands_out_is_sent_in_place_of_what_was_recorded(broker, monkeypatch):
    capture = Capture()
    recorded = JoinGroupResponse(member_id="recorded", generation_id=1)
    capture.add(1.0, 2.0, JoinGroupRequest(group_id="g"), recorded, key=JOIN)
    beat = HeartbeatRequest(group_id="g", member_id="recorded", generation_id=1)
    capture.add(3.0, 4.0, beat)
    broker.answers = {"": JoinGroupResponse(member_id="live", generation_id=5)}
    result = await replay_of(capture, monkeypatch).run()
    assert broker.asked[1][1] == HeartbeatRequest(group_id="g", member_id="live", generation_id=5)
    assert beat.member_id == "recorded", "the recording stays as it is"
    assert result.different == []


@pytest.mark.parametrize(
    ("request_", "patience_ms"),
    [
        (HeartbeatRequest(), 30_000),
        (FetchRequest(max_wait_ms=500), 30_500),
        (ProduceRequest(timeout_ms=1500), 31_500),
        (JoinGroupRequest(rebalance_timeout_ms=60_000), 90_000),
        (JoinGroupRequest(rebalance_timeout_ms=-1), 30_000),
        (ApiVersionsRequest(), 30_000),
    ],
)
def test_an_answer_may_take_as_long_as_the_request_lets_it_and_more(monkeypatch, request_, patience_ms):
    assert replay_of(Capture(), monkeypatch)._patience_ms(request_) == patience_ms


def test_a_copy_shares_records_and_nothing_else():
    records = memoryview(bytearray(b"records"))
    part = ProduceRequest.PartitionProduceData(index=0, records=records)
    message = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[part])])
    copy = deepcopy_of(message)
    assert copy == message
    copied = copy.topic_data[0].partition_data[0]
    assert copied is not part
    assert copied.records is records


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
def test_brokers_stand_for_recorded_ones_in_the_order_of_their_ids(monkeypatch, nodes, live, chosen, ids):
    capture = Capture()
    capture.add(1.0, 2.0, answer=answer_of(*nodes))
    capture.add(1.0, 2.0, of=2)
    brokers = {number: Endpoint("live", port) for number, port in live.items()}
    found = standins(capture.read(monkeypatch), brokers)
    assert [found.endpoints[f"10.0.0.9:{port}"].port for port in (9091, 9092)] == chosen
    assert found.nodes == ids


async def test_brokers_are_those_that_the_first_that_answers_names(monkeypatch):
    asked: list[int] = []

    async def start(nursery: Any, endpoint: Endpoint, settings: ClientSettings) -> Any:
        asked.append(endpoint.port)
        if endpoint.port in (1, 2):
            raise ClientError(f"{endpoint.port} is down")

        async def ask(request: Any, *, version_max: int) -> Any:
            assert (request.topics, version_max) == ([], 12)
            return answer_of(*([(3, 30), (1, 10)] if endpoint.port == 3 else []))

        return SimpleNamespace(ask=ask, close=lambda: None)

    monkeypatch.setattr(replaying, "start_connection", start)

    async def of(*ports: int) -> dict[int, Endpoint]:
        asked.clear()
        return await brokers_of([Endpoint("b", port) for port in ports], ClientSettings())

    assert list((await of(1, 3, 4)).items()) == [(1, Endpoint("h", 10)), (3, Endpoint("h", 30))]
    assert asked == [1, 3]
    assert await of(4) == {0: Endpoint("b", 4)}
    with pytest.raises(ClientError, match="2 is down"):
        await of(1, 2)
