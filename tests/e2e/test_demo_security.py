"""`barnabas serve --demo-security`: what it prints is what stock clients are given, and nothing else lets them in."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [entry.getsockname()[1] for entry in sockets]
    for entry in sockets:
        entry.close()
    return ports


@contextmanager
def demo(directory: Path, *more: str) -> Iterator[str]:
    """Start a demonstration; gives what it prints until it is ready."""
    sasl, ssl = free_ports(2)
    listeners = f"listeners=SASL_SSL://localhost:{sasl},SSL://localhost:{ssl}"
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "serve",
        "--demo-security",
        str(directory),
        "--set",
        listeners,
        *more,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if line.startswith("barnabas is ready"):
                break
        try:
            yield output
        finally:
            process.terminate()
        assert process.wait(30) == 0


def section(output: str, title: str) -> str:
    """The printed lines below a title."""
    return output.partition(f"# {title}")[2].partition("\n")[2].partition("\n\n")[0]


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


def passwords(output: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\w+) +(\S+)$", output, re.MULTILINE))


def as_user(settings: dict[str, str], output: str, user: str) -> dict[str, str]:
    return {**settings, "sasl.username": user, "sasl.password": passwords(output)[user], "log_level": "0"}


def test_printed_settings_work_and_stay_over_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    with demo(directory) as output:
        settings = properties(section(output, "librdkafka"))
        producer = Producer(settings)
        producer.produce("demo", b"from librdkafka")
        assert producer.flush(30) == 0
        python = eval(section(output, "kafka-python"), {"KafkaProducer": KafkaProducer})
        python.send("demo", b"from kafka-python").get(30)
        python.close()
        group = {"group.id": "demo-readers", "auto.offset.reset": "earliest"}
        consumer = Consumer({**as_user(settings, output, "bob"), **group})
        consumer.subscribe(["demo"])
        result: list[bytes] = []
        while len(result) < 2:
            result += [message.value() or b"" for message in consumer.consume(2 - len(result), 1)]
        consumer.close()
        assert sorted(result) == [b"from kafka-python", b"from librdkafka"]
    with demo(directory) as again:
        assert passwords(again) == passwords(output)
        producer = Producer(properties(section(again, "librdkafka")))
        producer.produce("demo", b"later")
        assert producer.flush(30) == 0


def test_settings_are_printed_for_listener_of_their_protocol(tmp_path: Path) -> None:
    plain, sasl, ssl = free_ports(3)
    more = [
        "--set", f"listeners=INSIDE://localhost:{plain},LOGIN://localhost:{sasl},SSL://localhost:{ssl}",
        "--set", "listener.security.protocol.map=INSIDE:PLAINTEXT,LOGIN:SASL_SSL,SSL:SSL",
        "--set", "inter.broker.listener.name=INSIDE",
    ]  # fmt: skip
    with demo(tmp_path / "demo", *more) as output:
        settings = properties(section(output, "librdkafka"))
        assert settings["bootstrap.servers"] == f"localhost:{sasl}"
        assert (
            properties(section(output, "Java with a certificate"))["bootstrap.servers"] == f"localhost:{ssl}"
        )
        assert AdminClient(as_user(settings, output, "admin")).list_topics(timeout=30).brokers


def test_who_has_no_right_or_a_wrong_password_gets_nothing(tmp_path: Path) -> None:
    with demo(tmp_path / "demo") as output:
        settings = properties(section(output, "librdkafka"))
        refused: list[str] = []
        producer = Producer(as_user(settings, output, "bob"))
        producer.produce("demo", b"not allowed", on_delivery=lambda error, _: refused.append(error.name()))
        producer.flush(30)
        assert refused == ["TOPIC_AUTHORIZATION_FAILED"]
        admin = AdminClient(as_user(settings, output, "admin"))
        assert admin.list_topics(timeout=30).brokers
        wrong = AdminClient({**as_user(settings, output, "admin"), "sasl.password": "wrong"})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=3)


def test_it_does_not_go_together_with_other_places_of_settings(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "barnabas",
        "serve",
        "--demo-security",
        str(tmp_path),
        "--listen",
        "localhost:0",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("barnabas: --listen and --demo-security do not go together")
