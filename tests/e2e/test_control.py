"""The control API of a real process, over HTTP as any language speaks it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.testing.running import import_path
from tests.e2e.conftest import ROOT, BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

PATIENCE_S = 40.0
OPTIONS = ("--control", "127.0.0.1:0")


def call(
    broker: BrokerProcess, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
) -> tuple[int, Any]:
    """Ask the control API; returns the status and the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{broker.control_url}{path}", data, headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def produced(broker: BrokerProcess, value: bytes, **settings: Any) -> list[Any]:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 20, **settings})
    producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(PATIENCE_S)
    return errors


def test_faults_are_added_counted_switched_and_removed(start_broker: StartBroker) -> None:
    broker = start_broker(options=OPTIONS)
    status, rule = call(
        broker, "POST", "/v1/faults", {"short": "Produce topic=t nth=1 -> error=NOT_LEADER_OR_FOLLOWER"}
    )
    assert status == 200
    assert rule["name"] == "fault-1"
    assert produced(broker, b"1") == [None]
    assert call(broker, "GET", "/v1/faults/fault-1")[1]["hits"] == 1

    final = {"name": "final", "on": {"api": "Produce"}, "do": {"error": "POLICY_VIOLATION"}, "enabled": False}
    assert call(broker, "POST", "/v1/faults", final)[0] == 200
    assert produced(broker, b"2") == [None]
    assert call(broker, "PATCH", "/v1/faults/final", {"enabled": True})[1]["seen"] == 0
    assert produced(broker, b"3")[0].name() == "POLICY_VIOLATION"
    assert [entry["name"] for entry in call(broker, "GET", "/v1/faults")[1]["faults"]] == ["fault-1", "final"]

    result = call(broker, "GET", "/v1/requests?api=Produce&topic=t&error_code=44")[1]["requests"]
    assert len(result) == 1
    assert result[0]["request"]["topic_data"][0]["partition_data"][0]["records"] == {"bytes": 69}
    assert call(broker, "POST", "/v1/faults/reset", {"seed": 5})[1]["faults"][1]["hits"] == 0
    assert call(broker, "DELETE", "/v1/faults/final") == (204, None)
    assert call(broker, "GET", "/v1/faults/final")[0] == 404
    sets = [entry["name"] for entry in call(broker, "GET", "/v1/faults/sets")[1]["sets"]]
    assert "moved-leader" in sets
    assert (
        len(call(broker, "POST", "/v1/faults/sets/moved-leader", {"topic": "t", "times": 1})[1]["faults"])
        == 3
    )
    assert produced(broker, b"4") == [None]
    assert call(broker, "DELETE", "/v1/faults") == (204, None)
    assert call(broker, "GET", "/v1/faults")[1] == {"seed": 5, "faults": []}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/v1/faults", {"do": {"explode": True}}, 400, "do.explode: there is no such action"),
        ("POST", "/v1/faults", {"short": "Produce"}, 400, "is not of the form"),
        ("POST", "/v1/faults", [], 400, "a JSON object is expected"),
        ("POST", "/v1/faults/sets/none", {}, 404, "there is no set none"),
        ("GET", "/v1/requests?api=Produze", None, 400, "api: Produze"),
        ("GET", "/v1/requests?appi=Produce", None, 400, "there is no parameter appi"),
        ("GET", "/v1/wait/request?api=JoinGroup&timeout_ms=10", None, 408, "no such request in 10 ms"),
        ("POST", "/v1/clock/advance", {"ms": 1}, 409, "--virtual-clock"),
        ("DELETE", "/v1/connections/4711", None, 404, "there is no connection 4711"),
        ("POST", "/v1/broker/restart", {"down_ms": -1}, 400, "down_ms"),
        ("PUT", "/v1/faults", None, 405, "takes GET, POST, DELETE"),
        ("GET", "/v2", None, 404, "there is nothing at /v2"),
    ],
)
def test_a_mistake_is_explained(
    control_broker: BrokerProcess, method: str, path: str, body: Any, status: int, text: str
) -> None:
    result, answer = call(control_broker, method, path, body)
    assert (result, text in answer["error"]) == (status, True), answer


@pytest.fixture(scope="module")
def control_broker(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.e2e.conftest import _start

    broker = _start(tmp_path_factory.mktemp("control") / "data", options=OPTIONS)
    yield broker
    assert broker.stop() == 0


def test_web_pages_are_not_answered(control_broker: BrokerProcess) -> None:
    assert call(control_broker, "GET", "/v1/broker", headers={"Origin": "http://example.org"})[0] == 403
    assert call(control_broker, "GET", "/v1/broker", headers={"Host": "example.org"})[0] == 403


def test_connections_are_listed_and_closed(control_broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": control_broker.bootstrap, "client.id": "to-be-closed"})
    producer.produce("connections", b"1")
    assert producer.flush(PATIENCE_S) == 0
    result = [
        connection
        for connection in call(control_broker, "GET", "/v1/connections")[1]["connections"]
        if connection["client_id"] == "to-be-closed"
    ]
    assert result
    assert result[0]["software"].startswith("confluent-kafka-python") or "librdkafka" in result[0]["software"]
    for connection in result:
        assert call(control_broker, "DELETE", f"/v1/connections/{connection['id']}?reset=true") == (204, None)
    producer.produce("connections", b"2")
    assert producer.flush(PATIENCE_S) == 0


def test_restarted_broker_keeps_ports_and_faults(start_broker: StartBroker) -> None:
    broker = start_broker(options=(*OPTIONS, "--fault", "Produce nth=2 name=mine -> kill=after"))
    assert produced(broker, b"1") == [None]
    for body in ({}, {"crash": True, "down_ms": 100}):
        status, state = call(broker, "POST", "/v1/broker/restart", body)
        assert status == 200
        assert state["bootstrap"] == broker.bootstrap
    assert call(broker, "GET", "/v1/broker")[1]["starts"] == 3
    assert call(broker, "GET", "/v1/faults/mine")[1]["seen"] == 1
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), PATIENCE_S) == (0, 1)
    consumer.close()

    assert produced(broker, b"2", **{"message.timeout.ms": 1000})[0] is not None
    assert broker.process.wait(PATIENCE_S) == -signal.SIGKILL
    again = start_broker(data=broker.data)
    consumer = Consumer({"bootstrap.servers": again.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), PATIENCE_S) == (0, 2)
    consumer.close()


def test_the_clock_is_moved(start_broker: StartBroker) -> None:
    broker = start_broker(options=(*OPTIONS, "--virtual-clock"))
    assert call(broker, "POST", "/v1/clock/freeze")[1]["frozen"]
    first = call(broker, "GET", "/v1/clock")[1]["now_ms"]
    assert (
        call(broker, "POST", "/v1/clock/advance", {"ms": 86_400_000, "keep_clients": True})[1]["now_ms"]
        == first + 86_400_000
    )
    assert not call(broker, "POST", "/v1/clock/resume")[1]["frozen"]
    assert call(broker, "POST", "/v1/clock/speed", {"factor": 1000})[1]["factor"] == 1000
    assert produced(broker, b"1") == [None]
    assert broker.stop() == 0


@pytest.mark.parametrize(("path", "body"), [("freeze", None), ("speed", {"factor": 0.001})])
def test_a_stop_needs_no_time_of_the_virtual_clock(
    start_broker: StartBroker, path: str, body: dict[str, float] | None
) -> None:
    broker = start_broker(options=(*OPTIONS, "--virtual-clock"))
    assert produced(broker, b"1") == [None]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "fetch.wait.max.ms": 60_000})
    consumer.assign([TopicPartition("t", 0, 1)])
    consumer.poll(0)
    call(broker, "POST", f"/v1/clock/{path}", body)
    assert call(broker, "POST", "/v1/broker/restart")[0] == 200
    assert broker.stop() == 0
    consumer.close()


def test_the_document_names_every_route(control_broker: BrokerProcess) -> None:
    document = call(control_broker, "GET", "/openapi.json")[1]
    assert document["openapi"].startswith("3.1")
    assert {"/v1/faults", "/v1/requests", "/v1/clock/advance", "/v1/broker/restart"} <= set(document["paths"])
    names = [entry["operationId"] for path in document["paths"].values() for entry in path.values()]
    assert len(names) == len(set(names))


def started(*options: str) -> tuple[int, str]:
    """Start a broker that does not start; returns its exit code and what it says."""
    command = [sys.executable, "-m", "barnabas", "serve", "--listen", "127.0.0.1:0", "--ephemeral", *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": import_path(ROOT)},
    )
    return done.returncode, done.stderr


def test_what_is_wrong_is_said_before_the_start(tmp_path: Path) -> None:
    path = tmp_path / "faults.yaml"
    path.write_text("faults:\n  - on: {api: Produce}\n    do: {error: NO_SUCH}\n")
    code, text = started("--faults", str(path))
    assert code == 2
    assert f"{path}:3: do.error: 'NO_SUCH' is not the name of an error code" in text
    code, text = started("--fault", "Produce -> explode")
    assert code == 2
    assert "--fault 'Produce -> explode': do.explode: there is no such action" in text
    code, text = started("--faults", str(tmp_path / "missing"))
    assert code == 2
    assert "missing: No such file or directory" in text
    code, text = started("--control", "0.0.0.0:0")
    assert code == 1
    assert "needs a token" in text


def test_a_token_lets_in(start_broker: StartBroker) -> None:
    broker = start_broker("control.token=secret", options=OPTIONS)
    assert call(broker, "GET", "/v1/broker")[0] == 401
    assert call(broker, "GET", "/v1/broker", headers={"Authorization": "Bearer wrong"})[0] == 401
    assert call(broker, "GET", "/v1/broker", headers={"Authorization": "Bearer secret"})[0] == 200


def test_bytes_that_are_no_http_cost_their_connection_alone(control_broker: BrokerProcess) -> None:
    address = control_broker.control_url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), 10) as sock:
        sock.sendall(b"\x00\x01\x02 nonsense\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 400")
    assert call(control_broker, "GET", "/v1/broker")[0] == 200


def test_a_broker_that_serve_has_started_is_forked(start_broker: StartBroker) -> None:
    broker = start_broker(options=OPTIONS)
    assert produced(broker, b"both") == [None]
    status, fork = call(broker, "POST", "/v1/fork", {})
    assert status == 200
    assert fork["bootstrap"] != broker.bootstrap

    def values(bootstrap: str, count: int) -> list[bytes | None]:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        result = consumer.consume(count, PATIENCE_S)
        consumer.close()
        return [message.value() for message in result]

    assert produced(broker, b"first alone") == [None]
    producer = Producer({"bootstrap.servers": fork["bootstrap"]})
    producer.produce("t", b"fork alone")
    assert producer.flush(PATIENCE_S) == 0
    assert values(broker.bootstrap, 2) == [b"both", b"first alone"]
    assert values(fork["bootstrap"], 2) == [b"both", b"fork alone"]

    request = urllib.request.Request(f"{fork['control_url']}/v1/fork", b"{}")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        second = json.loads(answer.read())
    assert values(second["bootstrap"], 2) == [b"both", b"fork alone"], "a fork of the fork"
    for url in (second["control_url"], fork["control_url"]):
        stopping = urllib.request.Request(f"{url}/v1/broker/stop", b"{}")
        urllib.request.urlopen(stopping, timeout=PATIENCE_S).close()
    assert values(broker.bootstrap, 2) == [b"both", b"first alone"], "it goes on without them"
