"""Each message of the page on troubleshooting, as the broker or a stock client gives it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.testing.running import import_path

from .conftest import BrokerProcess, StartBroker

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "troubleshooting.md"
HEADINGS = re.findall(r"^### `(.+)`$", PAGE.read_text(), re.MULTILINE)
ANYTHING = "…"
SECONDS_MAX = 20
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SASL = (
    "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms=PLAIN",
    f'listener.name.plaintext.plain.sasl.jaas.config={JAAS} user_ann="ann-secret";',
)  # fmt: skip


def start(*options: str) -> Callable[..., str]:
    """Make what returns the output of `barnabas serve` with options that keep it from starting."""

    def provoke(*, tmp_path: Path, **_: Any) -> str:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            command = [
                sys.executable,
                "-m",
                "barnabas",
                "serve",
                "--listen",
                f"127.0.0.1:{port}",
                "--ephemeral",
            ]
            command = [*command[:4], *(option.replace("PORT", port) for option in options)]
            environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=environment,
                cwd=tmp_path,
                timeout=SECONDS_MAX,
                check=False,
            )
        assert done.returncode in (1, 2), done.stderr
        return done.stderr

    return provoke


def start_twice(*options: str, before: Sequence[str] = (), topic: str = "") -> Callable[..., str]:
    """Make what returns the output of a broker on the data directory of another one, which runs, or has ended."""

    def provoke(*, start_broker: StartBroker, tmp_path: Path, **_: Any) -> str:
        stored = (f"rsm.config.dir={tmp_path}/store",) if before else ()
        broker = start_broker(*before, *stored, options=("--topic", topic) if topic else ())
        if options or before:
            broker.stop()
        again = start("--listen", "127.0.0.1:0", "--data", str(broker.data), *options)
        return again(tmp_path=tmp_path)

    return provoke


def produce(
    *settings: str, options: Sequence[str] = (), value: bytes = b"x", **client: Any
) -> Callable[..., str]:
    """Make what returns the errors of a producer, and the log of a broker with these settings."""

    def provoke(*, start_broker: StartBroker, **_: Any) -> str:
        broker = start_broker(*settings, options=options)
        texts: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "error_cb": lambda error: texts.append(error.str()),
                "message.timeout.ms": 5_000,
                "log_level": 0,
                **{name.replace("_", "."): setting for name, setting in client.items()},
            }
        )
        producer.produce(
            "orders", value, on_delivery=lambda error, _: texts.append(error.str() if error else "delivered")
        )
        deadline = time.monotonic() + SECONDS_MAX
        while (
            producer.flush(0.2)
            and not any("failed" in text for text in texts)
            and time.monotonic() < deadline
        ):
            if "before authentication" in broker.said():
                break
        producer.purge()
        return "\n".join([*texts, broker.said()])

    return provoke


def create(topic: NewTopic) -> Callable[..., str]:
    """Make what returns the error of creating a topic."""

    def provoke(*, broker: BrokerProcess, **_: Any) -> str:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("troubled", 1, 1)])["troubled"].exception(SECONDS_MAX)
        error = admin.create_topics([topic])[topic.topic].exception(SECONDS_MAX)
        assert isinstance(error, KafkaException)
        return str(error.args[0].str())

    return provoke


def fenced(*, broker: BrokerProcess, **_: Any) -> str:
    """Return the error of a producer after another one has taken over its transactional id."""
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "troubled", "log_level": 0}
    first, second = Producer(settings), Producer(settings)
    first.init_transactions(SECONDS_MAX)
    first.begin_transaction()
    first.produce("troubled-transactions", b"x")
    first.flush(SECONDS_MAX)
    second.init_transactions(SECONDS_MAX)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(SECONDS_MAX)
    return str(raised.value.args[0].str())


def described_by_no_broker(**_: Any) -> str:
    """Return the error of a client that asks an address where nothing listens for metadata."""
    with pytest.raises(KafkaException) as raised:
        AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).list_topics(timeout=0.5)
    return str(raised.value.args[0].str())


def consume(*settings: str, topic: str = "orders", offset: int | None = None) -> Callable[..., str]:
    """Make what returns the error of a consumer that is assigned an offset, or subscribes."""

    def provoke(*, start_broker: StartBroker, **_: Any) -> str:
        broker = start_broker(*settings, options=("--topic", "orders:1"))
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "troubled",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        if offset is None:
            consumer.subscribe([topic])
        else:
            consumer.assign([TopicPartition("orders", 0, offset)])
        deadline = time.monotonic() + SECONDS_MAX
        message = None
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.5)
        consumer.close()
        assert message is not None
        error = message.error()
        assert error is not None
        return str(error.str())

    return provoke


TIERED = ("remote.log.storage.system.enable=true", "remote.log.storage.manager.class.name=directory")
EPHEMERAL = ("--listen", "127.0.0.1:0", "--ephemeral")
PROVOKED: dict[str, Callable[..., str]] = {
    "cannot listen on … port …": start("--listen", "127.0.0.1:PORT", "--ephemeral"),
    "host … is not known": start("--listen", "nosuchhost.invalid:0", "--ephemeral"),
    "another broker is using": start_twice(),
    "it belongs to the broker": start_twice("--set", "node.id=7"),
    "unknown setting": start(*EPHEMERAL, "--set", "num.partition=3"),
    "a whole number": start(*EPHEMERAL, "--set", "num.partitions=three"),
    "remove the setting": start(*EPHEMERAL, "--set", "config.providers=file"),
    "You have to delete all topics": start_twice(before=TIERED, topic="tiered:1:remote.storage.enable=true"),
    "--listen sets listeners": start(*EPHEMERAL, "--set", "listeners=SSL://127.0.0.1:0"),
    "other machines reach the console": start(*EPHEMERAL, "--console", "0.0.0.0:0"),
    "is no release of Apache Kafka": start(*EPHEMERAL, "--as-version", "9.9"),
    "Connect to … failed": produce(bootstrap_servers="127.0.0.1:1"),
    "Failed to resolve": produce(bootstrap_servers="nosuchhost.invalid:9092"),
    "Failed to get metadata": described_by_no_broker,
    "SSL handshake failed": produce(security_protocol="SSL"),
    "mechanism handshake failed": produce(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password="ann-secret"
    ),
    "before authentication": produce(*SASL),
    "Unsupported SASL mechanism": produce(
        *SASL, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_username="ann",
        sasl_password="ann-secret",
    ),
    "Authentication failed": produce(
        *SASL, security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password="wrong"
    ),
    "Broker: Unknown topic": consume("auto.create.topics.enable=false", topic="nosuch"),
    "Broker: Message size too large": produce(value=b"x" * 2_000_000, message_max_bytes=5_000_000),
    "Broker: Topic authorization failed": produce(AUTHORIZER),
    "Broker: Not enough in-sync replicas": produce(
        options=("--fault", "Produce topic=orders -> error=NOT_ENOUGH_REPLICAS"), retries=0
    ),
    "fenced by a newer instance": fenced,
    "requested offset not available": consume(offset=99),
    "on GROUP": consume(AUTHORIZER),
    "replication factor": create(NewTopic("wide", 1, 3)),
    "topic … exists already": create(NewTopic("troubled", 1, 1)),
    "unknown topic setting": create(NewTopic("typed", 1, 1, config={"retention.msx": "1"})),
    "partitions: at least 1": create(NewTopic("none", 0, 1)),
}  # fmt: skip
"""Provocations of the messages, by words that each heading holds."""


def test_each_heading_has_a_provocation() -> None:
    words = {heading: [word for word in PROVOKED if word in heading] for heading in HEADINGS}
    assert {heading: len(matching) for heading, matching in words.items()} == dict.fromkeys(HEADINGS, 1)
    assert len(PROVOKED) == len(HEADINGS) >= 25


@pytest.mark.parametrize("heading", HEADINGS)
def test_message_is_as_its_heading_says(
    heading: str, start_broker: StartBroker, broker: BrokerProcess, tmp_path: Path
) -> None:
    provoke = next(provoke for words, provoke in PROVOKED.items() if words in heading)
    text = provoke(start_broker=start_broker, broker=broker, tmp_path=tmp_path)
    pattern = ".*".join(re.escape(part.strip()) for part in heading.split(ANYTHING))
    assert re.search(pattern, text, re.DOTALL), text
