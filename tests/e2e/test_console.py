"""The console as it is started: beside a broker, by itself, and not at all."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.testing.running import import_path
from tests.e2e.conftest import ROOT, BrokerProcess, StartBroker
from tests.support.certificates import written
from tests.support.console import LOGIN, PASSWORD

pytestmark = pytest.mark.e2e
SECONDS_MAX = 30


@contextmanager
def running(*arguments: str, python: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a command of barnabas for the length of a block; yields it and the first line that it prints."""
    command = [sys.executable, *python, "-m", "barnabas", *arguments]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield process, process.stdout.readline()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(SECONDS_MAX)
        process.stdout.close()
        process.stderr.close()


def get(url: str, *, tls: ssl.SSLContext | None = None, **headers: str) -> Any:
    with urlopen(Request(url, headers=headers), timeout=SECONDS_MAX, context=tls) as answer:
        return json.loads(answer.read())


def words(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def test_a_broker_serves_its_console_and_says_where() -> None:
    arguments = (
        "serve",
        "--ephemeral",
        "--listen",
        "127.0.0.1:0",
        "--console",
        "127.0.0.1:0",
        "--topic",
        "orders",
    )
    with running(*arguments) as (process, line):
        url = words(line)["console"]
        assert [row["name"] for row in get(f"{url}/api/topics")["rows"]] == ["orders"]
        assert get(f"{url}/api/session")["views"] == ["connections", "log", "metrics", "requests"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0


def test_the_console_finds_a_free_port_by_itself() -> None:
    arguments = ("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--console")
    with running(*arguments) as (_, first), running(*arguments) as (_, second):
        urls = {words(first)["console"], words(second)["console"]}
        assert len(urls) == 2
        for url in urls:
            assert get(f"{url}/api/topics")["total"] == 0


def test_a_broker_without_it_imports_nothing_of_it() -> None:
    arguments = ("serve", "--ephemeral", "--listen", "127.0.0.1:0")
    for more, is_imported in ((("--console", "127.0.0.1:0"), True), ((), False)):
        with running(*arguments, *more, python=("-X", "importtime")) as (process, line):
            assert ("console=" in line) == is_imported
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=SECONDS_MAX)
            assert ("barnabas.console" in errors) == is_imported
            assert "barnabas.console.http" not in errors  # which comes with the first visitor
            assert "h11" not in errors or is_imported


def test_the_console_of_any_cluster(start_broker: StartBroker) -> None:
    broker: BrokerProcess = start_broker()
    arguments = ("console", "--bootstrap", broker.bootstrap, "--listen", "127.0.0.1:0")
    with running(*arguments) as (process, line):
        url = words(line)["console"]
        assert broker.bootstrap in line
        assert get(f"{url}/api/session")["views"] == []
        assert get(f"{url}/api/overview")["cluster"]["brokers"] == 1
        with pytest.raises(HTTPError) as failed:
            get(f"{url}/api/connections")
        assert failed.value.code == 404
        failed.value.close()
        with pytest.raises(HTTPError) as failed:
            get(f"{url}/api/topics", Origin="http://evil.example")
        assert failed.value.code == 403
        failed.value.close()
        broker.stop()
        with pytest.raises(HTTPError) as failed:
            get(f"{url}/api/overview")
        assert failed.value.code == 503
        failed.value.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("console", "--listen", "0.0.0.0:0"), 1, "give a token"),
        (("console", "--listen", "nonsense"), 1, "HOST:PORT"),
        (("console", "--token-file", "/nowhere"), 1, "No such file"),
        (("console", "--bootstrap", "nonsense:"), 2, "is not host:port"),
        (("serve", "--ephemeral", "--console", "0.0.0.0:0", "--listen", "127.0.0.1:0"), 1, "give a token"),
        (("serve", "--console", "--workers", "2", "--data", "DIR"), 2, "barnabas console --bootstrap"),
        (("serve", "--console-token-file", "/nowhere"), 2, "No such file"),
        (("serve", "--console-client-config", "/nowhere"), 2, "No such file"),
        (
            ("serve", "--ephemeral", "--console", "127.0.0.1:0", "--set", "console.sasl.username=a"),
            1,
            "are set together",
        ),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], code: int, text: str
) -> None:
    command = [str(tmp_path) if argument == "DIR" else argument for argument in arguments]
    with running(*command) as (process, _):
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == code, errors
    assert text in errors
    assert "Traceback" not in errors


@pytest.mark.filterwarnings("ignore")  # the registry's client leaves its connection to the collector
def test_console_reads_values_by_the_registry_beside_it() -> None:
    arguments = ("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--topic", "views")
    beside = ("--console", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    with running(*arguments, *beside) as (process, line):
        told = words(line)
        client = SchemaRegistryClient({"url": told["registry"]})
        schema = '{"type": "record", "name": "V", "fields": [{"name": "name", "type": "string"}]}'
        serialize = AvroSerializer(client, schema)
        producer = Producer({"bootstrap.servers": told["bootstrap.servers"]})
        value = serialize({"name": "ä"}, SerializationContext("views", MessageField.VALUE))
        producer.produce("views", value)
        assert producer.flush(SECONDS_MAX) == 0
        (record,) = get(f"{told['console']}/api/topics/views/records")["records"]
        assert (record["value"]["form"], json.loads(record["value"]["text"])) == ("AVRO", {"name": "ä"})
        assert [row["name"] for row in get(f"{told['console']}/api/subjects")["rows"]] == ["views-value"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0


def test_the_console_speaks_tls_and_asks_a_registry_that_does(tmp_path: Path) -> None:
    files = written(tmp_path)
    tls = ssl.create_default_context(cafile=str(files.authority))
    tls.check_hostname = False
    settings = [
        part
        for name in ("console", "registry")
        for part in ("--set", f"{name}.ssl.certificate.location={files.broker}")
    ]
    arguments = ("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--topic", "views", *settings)
    with running(*arguments, "--console", "127.0.0.1:0", "--registry", "127.0.0.1:0") as (_, line):
        told = words(line)
        assert told["console"].startswith("https://")
        assert told["registry"].startswith("https://")
        url = told["console"]
        with urlopen(f"{url}/api/session", timeout=SECONDS_MAX, context=tls) as answer:
            cookie, csrf = answer.headers["Set-Cookie"], json.loads(answer.read())["csrf"]
        assert cookie.endswith("; Secure")
        headers = {"Cookie": cookie.partition(";")[0], "X-Console-CSRF": csrf, "Origin": url}
        body = json.dumps({"schema": '"int"'}).encode()
        register = Request(f"{url}/api/subjects/views-value", body, headers)
        with urlopen(register, timeout=SECONDS_MAX, context=tls) as answer:
            assert json.loads(answer.read())["id"] == 1
        assert [row["name"] for row in get(f"{url}/api/subjects", tls=tls)["rows"]] == ["views-value"]
        alone = ("console", "--bootstrap", told["bootstrap.servers"], "--listen", "127.0.0.1:0")
        with running(*alone, "--listen-cert", str(files.broker)) as (_, ready):
            other = words(ready)["console"]
            assert get(f"{other}/api/overview", tls=tls)["cluster"]["brokers"] == 1
            with pytest.raises(OSError, match=r"reset|closed|disconnected|Remote end"):
                get(f"{other}/api/overview".replace("https", "http"))


def test_console_beside_a_broker_keeps_history_by_its_own_login(tmp_path: Path) -> None:
    login = tmp_path / "console.properties"
    login.write_text(f"sasl.mechanism=PLAIN\nsasl.username=operator\nsasl.password={PASSWORD}\n")
    login.chmod(0o600)
    settings = [f"--set={name}={value}" for name, value in LOGIN.items()]
    arguments = ("serve", "--ephemeral", "--console", "127.0.0.1:0", *settings)
    with running(*arguments, "--console-client-config", str(login)) as (_, line):
        url = words(line)["console"]
        ends_at = time.monotonic() + 20
        while time.monotonic() < ends_at:
            logged_in_ms = time.time() * 1000
            if _samples_of_a_new_visitor(url)[0]["at"] < logged_in_ms:
                break
        else:
            raise AssertionError("no sample is older than the visit")


def _samples_of_a_new_visitor(url: str) -> list[dict[str, float]]:
    body = json.dumps({"user": "operator", "password": PASSWORD}).encode()
    headers = {"Content-Type": "application/json", "Origin": url}
    with urlopen(Request(f"{url}/api/session", body, headers), timeout=20) as answer:
        cookie = answer.headers["set-cookie"].partition(";")[0]
    with urlopen(Request(f"{url}/api/history", headers={"Cookie": cookie}), timeout=20) as answer:
        samples: list[dict[str, float]] = json.loads(answer.read())["samples"]
    return samples
