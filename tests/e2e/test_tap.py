"""`barnabas tap` between stock clients and brokers, and `barnabas replay` of what it recorded."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from barnabas.testing.running import import_path

from .conftest import ROOT, BrokerProcess, StartBroker
from .test_demo_security import as_user, demo, properties, section

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]


@dataclass
class Tap:
    """A tap that runs; after its end, what it wrote."""

    address: str
    directory: Path
    output: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)

    def exchanges(self, api: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == "exchange" and event["api"] == api]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


@contextmanager
def tapped(directory: Path, broker: str, *options: str, listen: str = "127.0.0.1:0") -> Iterator[Tap]:
    """A tap in front of a broker, as a user starts it."""
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    command = [
        sys.executable, "-m", "barnabas", "tap", broker, "--listen", listen, "--summary",
        "--json", str(directory / "tap.json"), "--pcap", str(directory / "tap.pcapng"), *options,
    ]  # fmt: skip
    with (
        (directory / "tap.out").open("w") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.PIPE, text=True, env=environment
        ) as process,
    ):
        assert process.stderr is not None
        text = ""
        for line in process.stderr:
            text += line
            if "is ready" in line:
                break
        assert "is ready: " in text, text
        tap = Tap(text.partition("is ready: ")[2].split()[0], directory)
        try:
            yield tap
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read()
            assert process.wait(30) == 0, rest
            assert "Traceback" not in rest
            tap.output = (directory / "tap.out").read_text()
            tap.events = [json.loads(line) for line in (directory / "tap.json").read_text().splitlines()]


def use_kafka_python(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip", client_id="orders-service")
    for number in range(20):
        producer.send(topic, key=b"k%d" % number, value=b"v%d" % number)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    assert {next(consumer).value for _ in range(20)} == {b"v%d" % number for number in range(20)}
    consumer.commit()
    consumer.close()


def test_stock_clients_work_and_every_exchange_is_shown(broker: BrokerProcess, tmp_path: Path) -> None:
    with tapped(tmp_path, broker.bootstrap, "--records") as tap:
        use_kafka_python(tap.address, "tapped-orders")
        settings = {"bootstrap.servers": tap.address}
        producer = Producer({**settings, "client.id": "librdkafka"})
        producer.produce("tapped-orders", b"one more")
        assert producer.flush(30) == 0
        consumer = Consumer({**settings, "group.id": "audit", "auto.offset.reset": "earliest"})
        consumer.subscribe(["tapped-orders"])
        values = set()
        while len(values) < 21:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.add(message.value())
        consumer.close()
    produced = [entry for entry in tap.exchanges("Produce") if entry["client_id"] == "orders-service"]
    records = [
        record["value"]
        for entry in produced
        for topic in entry["request"]["topic_data"]
        for partition in topic["partition_data"]
        for batch in partition["records"]
        for record in batch["records"]
    ]
    assert records == [f"v{number}" for number in range(20)]
    assert produced[0]["topics"] == {"tapped-orders": [0]}
    # Nobody has gone past the tap: what the broker said of itself was changed on the way.
    port = int(broker.bootstrap.rpartition(":")[2])
    assert tap.exchanges("Metadata")[0]["response"]["brokers"][0]["port"] == port
    assert {entry["api"] for entry in tap.events if entry["type"] == "exchange"} >= {
        "JoinGroup",
        "OffsetCommit",
        "Fetch",
    }
    assert "librdkafka Produce v" in tap.output
    assert "orders-service (kafka-python " in tap.output
    assert not [entry for entry in tap.events if entry["type"] == "noted"]


def test_filters_choose_what_is_shown(broker: BrokerProcess, tmp_path: Path) -> None:
    with tapped(tmp_path, broker.bootstrap, "--api", "Produce", "--topic", "filtered-*") as tap:
        for topic in ("filtered-a", "other"):
            producer = KafkaProducer(bootstrap_servers=tap.address)
            producer.send(topic, b"x").get(30)
            producer.close()
    shown = [event for event in tap.events if event["type"] == "exchange"]
    assert [(event["api"], list(event["topics"])) for event in shown] == [("Produce", ["filtered-a"])]
    lines = [line for line in tap.output.splitlines() if "->" in line]
    assert len(lines) == 1


def test_recording_is_replayed_and_differences_are_found(start_broker: StartBroker, tmp_path: Path) -> None:
    first = start_broker(data=tmp_path / "first")
    with tapped(tmp_path, first.bootstrap) as tap:
        use_kafka_python(tap.address, "recorded")
    recording = str(tmp_path / "tap.pcapng")

    shown = run("tap", "--read", recording, "--json", "-")
    assert shown.returncode == 0
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    for api in ("Produce", "JoinGroup", "OffsetCommit"):
        again = [entry["request"] for entry in events if entry.get("api") == api]
        assert again == [entry["request"] for entry in tap.exchanges(api)]

    second = start_broker(data=tmp_path / "second")
    replayed = run("replay", recording, "--to", second.bootstrap)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "0 differ" in replayed.stderr
    consumer = KafkaConsumer("recorded", bootstrap_servers=second.bootstrap, auto_offset_reset="earliest")
    assert {next(consumer).value for _ in range(20)} == {b"v%d" % number for number in range(20)}
    consumer.close()

    # Once more to the same broker: its offsets are others now.
    different = run("replay", recording, "--to", second.bootstrap, "--json")
    assert different.returncode == 1
    result = [json.loads(line) for line in different.stdout.splitlines()]
    paths = {
        entry["path"]
        for exchange in result
        if exchange["api"] == "Produce"
        for entry in exchange["differences"]
    }
    assert any("base_offset" in path for path in paths)


def test_tls_on_both_sides_and_a_login_through_it(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with demo(directory) as output:
        settings = properties(section(output, "librdkafka"))
        broker = settings["bootstrap.servers"]
        authority = settings["ssl.ca.location"]
        options = ("--tls", "--tls-directory", str(tmp_path / "tls"), "--broker-ca", authority)
        with tapped(tmp_path, broker, *options, listen="localhost:0") as tap:
            through = {
                **as_user(settings, output, "alice"),
                "bootstrap.servers": tap.address,
                "ssl.ca.location": str(tmp_path / "tls" / "ca.crt"),
            }
            producer = Producer(through)
            producer.produce("demo", b"through the tap")
            assert producer.flush(30) == 0
    login = tap.exchanges("SaslAuthenticate")
    assert login[0]["sasl"]["user"] == "alice"
    assert login[0]["request"]["auth_bytes"] == "***"
    assert tap.exchanges("Produce")[0]["user"] == "alice"
    assert tap.exchanges("Produce")[0]["response"]["responses"]


def test_a_broker_that_is_not_there_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tapped(tmp_path, f"127.0.0.1:{port}") as tap:
        host, _, number = tap.address.rpartition(":")
        with socket.create_connection((host, int(number)), 30) as client:
            assert client.recv(1) == b""
    (note,) = [event for event in tap.events if event["type"] == "noted"]
    assert note["text"] == f"the broker at 127.0.0.1:{port} cannot be reached: Connection refused"


def test_other_protocols_pass_and_half_closed_is_answered(tmp_path: Path) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(30)
    with server, tapped(tmp_path, f"127.0.0.1:{server.getsockname()[1]}") as tap:
        host, _, number = tap.address.rpartition(":")
        with socket.create_connection((host, int(number)), 30) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            accepted, _ = server.accept()
            with accepted, accepted.makefile("rb") as asked:
                assert asked.read() == b"GET / HTTP/1.0\r\n\r\n"
                accepted.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")
            with client.makefile("rb") as answer:
                assert answer.read() == b"HTTP/1.0 200 OK\r\n\r\nhello"
    notes = [event["text"] for event in tap.events if event["type"] == "noted"]
    assert "HTTP request" in notes[0]


def test_wrong_options_are_one_line() -> None:
    for arguments, text in (
        (("tap",), "name a broker"),
        (("tap", "nowhere"), "not host:port"),
        (("tap", "localhost:1", "--api", "Porduce"), "Kafka has no API 'Porduce'"),
        (("tap", "localhost:1", "--tls", "--certificate", "/nonexistent"), "no such file"),
        (("tap", "--read", "/nonexistent"), "No such file"),
        (("replay", "/nonexistent", "--to", "localhost:1"), "No such file"),
    ):
        done = run(*arguments)
        assert done.returncode in (1, 2)
        assert text in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_admin_of_a_local_cluster_sees_the_tap_for_every_broker(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    command = [
        sys.executable, "-m", "barnabas", "serve", "--workers", "2", "--listen", "127.0.0.1:0", "--data",
        str(tmp_path / "data"),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        words = dict(word.split("=", 1) for word in process.stdout.readline().split() if "=" in word)
        brokers = words["bootstrap.servers"].split(",")
        try:
            with tapped(tmp_path, brokers[0]) as tap:
                admin = KafkaAdminClient(bootstrap_servers=tap.address)
                nodes = {(broker["host"], broker["port"]) for broker in admin.describe_cluster()["brokers"]}
                admin.close()
                host, _, port = tap.address.rpartition(":")
                assert len(nodes) == 2
                assert (host, int(port)) in nodes
                assert not nodes & {
                    (broker.rpartition(":")[0], int(broker.rpartition(":")[2])) for broker in brokers
                }
                for other in nodes:
                    socket.create_connection(other, 30).close()
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.parametrize("more", [(), ("--control", "127.0.0.1:0")], ids=["alone", "with control"])
def test_serve_tap_shows_the_brokers_own_requests(
    start_broker: StartBroker, tmp_path: Path, more: tuple[str, ...]
) -> None:
    file = tmp_path / "own.json"
    broker = start_broker(options=[f"--tap=json={file},api=Produce,records,summary", *more])
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, client_id="orders-service")
    producer.send("orders", b"hello").get(30)
    producer.close()
    broker.process.send_signal(signal.SIGTERM)
    assert broker.process.stdout is not None
    shown = broker.process.stdout.read()
    assert broker.stop() == 0
    assert "orders-service Produce v" in shown
    assert "unusual" in shown or "requests on" in shown
    events = [json.loads(line) for line in file.read_text().splitlines()]
    (produced,) = [event for event in events if event["type"] == "exchange"]
    assert (
        produced["request"]["topic_data"][0]["partition_data"][0]["records"][0]["records"][0]["value"]
        == "hello"
    )


def test_serve_tap_refuses_options_that_mean_nothing(tmp_path: Path) -> None:
    for option, text in (
        ("nonsense", "unrecognized arguments"),
        ("api=Porduce", "no API"),
        ("pcap=x", "barnabas tap"),
    ):
        done = run("serve", "--data", str(tmp_path), f"--tap={option}")
        assert done.returncode == 2
        assert text in done.stderr
