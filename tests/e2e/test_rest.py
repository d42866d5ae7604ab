"""The REST API as processes serve it: users and ACLs, TLS, in front of any Kafka, and what a start without it costs."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas.testing.running import import_path

pytestmark = pytest.mark.e2e

V2, AVRO = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.avro.v2+json"


@contextmanager
def running(*arguments: str) -> Iterator[dict[str, str]]:
    """Run a command of ours for the length of a block; gives the words of its ready line."""
    environment = {**os.environ, "PYTHONPATH": import_path()}
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if " ready: " in line)
            yield dict(word.split("=", 1) for word in line.split() if "=" in word)
        finally:
            process.terminate()
        assert process.wait(30) == 0


class Client:
    """A client that logs in as a user; without a name it does not."""

    def __init__(
        self, url: str, user: str = "", password: str = "", tls: ssl.SSLContext | None = None
    ) -> None:
        self.url = url
        self._tls = tls
        self._headers = {"Content-Type": "application/json"}
        if user:
            self._headers["Authorization"] = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    def ask(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        headers = {**self._headers, **({"Content-Type": content_type} if content_type else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._tls) as answer:
                content = answer.read()
                return answer.status, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def code(self, *request: Any) -> tuple[int, int]:
        """Return status and code of an error."""
        status, value = self.ask(*request)
        return status, value["error_code"]

    def produce(self, topic: str) -> tuple[int, Any]:
        """Send a record."""
        return self.ask("POST", f"/topics/{topic}", {"records": [{"value": 1}]}, V2)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """Clients of the users of a broker with security, and a REST API that speaks TLS."""
    directory = tmp_path_factory.mktemp("secured") / "demo"
    with running(
        "serve", "--demo-security", str(directory), "--http", "localhost:0", "--registry", "localhost:0",
        "--set", "listeners=SASL_SSL://localhost:0,SSL://localhost:0",
        "--set", f"http.ssl.certificate.location={directory / 'tls' / 'broker.pem'}",
    ) as words:  # fmt: skip
        tls = ssl.create_default_context(cafile=str(directory / "tls" / "ca.crt"))
        url = f"https://localhost:{words['http'].rpartition(':')[2]}"
        passwords = json.loads((directory / "users.json").read_text())
        clients = {user: Client(url, user, password, tls) for user, password in passwords.items()}
        yield {**clients, "": Client(url, tls=tls), "wrong": Client(url, "alice", "wrong", tls)}


def test_users_do_what_acls_let_them(secured: dict[str, Client]) -> None:
    admin, alice, bob = secured["admin"], secured["alice"], secured["bob"]
    assert [secured[user].code("GET", "/topics") for user in ("", "wrong")] == [(401, 40101)] * 2
    cluster = f"/v3/clusters/{admin.ask('GET', '/v3/clusters')[1]['data'][0]['cluster_id']}"
    for topic in ("demo-words", "secret"):
        assert admin.ask("POST", f"{cluster}/topics", {"topic_name": topic})[0] == 201
    assert admin.produce("secret")[0] == alice.produce("demo-words")[0] == 200
    assert (bob.produce("demo-words")[0], bob.produce("demo-words")[1]["offsets"][0]["error_code"]) == (
        403,
        40301,
    )
    assert [user.ask("GET", "/topics")[1] for user in (alice, bob)] == [["demo-words"]] * 2
    assert (
        alice.code("GET", "/topics/secret")
        == bob.code("DELETE", f"{cluster}/topics/demo-words")
        == (403, 40301)
    )
    assert bob.code("GET", f"{cluster}/acls") == (403, 40301)
    acl = {
        "resource_type": "TOPIC", "resource_name": "secret", "pattern_type": "LITERAL", "principal": "User:bob",
        "host": "*", "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    assert admin.ask("POST", f"{cluster}/acls", acl) == (201, None)
    assert admin.ask("POST", f"{cluster}/acls:batch", {"data": [{**acl, "operation": "DESCRIBE"}]}) == (
        204,
        None,
    )
    listed = admin.ask("GET", f"{cluster}/acls?resource_type=topic&resource_name=secret")[1]["data"]
    assert [row["operation"] for row in listed] == ["DESCRIBE", "READ"]
    assert listed[1].items() >= acl.items()
    assert bob.ask("GET", "/topics/secret/partitions/0/messages?count=5")[1][0]["offset"] == 0
    chosen = "resource_type=TOPIC&resource_name=secret&pattern_type=LITERAL&operation=ANY&permission=ANY"
    assert len(admin.ask("DELETE", f"{cluster}/acls?{chosen}")[1]["data"]) == 2
    schema = {"records": [{"value": "x"}], "value_schema": '"string"'}
    assert alice.ask("POST", "/topics/demo-words", schema, AVRO)[0] == 200
    assert bob.code("POST", "/topics/demo-words", schema, AVRO) == (403, 40301)


def test_http_serves_any_kafka_with_a_registry() -> None:
    with running("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0") as broker:
        bootstrap = broker["bootstrap.servers"]
        options = ("--bootstrap", bootstrap, "--registry", broker["registry"], "--listen", "127.0.0.1:0")
        with running("http", *options) as words:
            client = Client(words["http"])
            assert client.produce("t")[1]["offsets"][0]["offset"] == 0
            schema = {"records": [{"value": "x"}], "value_schema": '"string"'}
            assert (
                client.ask("POST", "/topics/a", schema, "application/vnd.kafka.avro.v2+json")[1][
                    "value_schema_id"
                ]
                == 1
            )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"), "have users log in"),
        (("serve", "--ephemeral", "--listen", "127.0.0.1:0", "--http", "nowhere"), "HOST:PORT"),
        (("serve", "--workers", "2", "--http"), "barnabas http"),
        (("http", "--bootstrap", "127.0.0.1:1", "--listen", "0.0.0.0:0"), "have users log in"),
        (("http", "--bootstrap", "127.0.0.1:1", "--registry", "ftp://x"), "http"),
    ],
)
def test_what_cannot_be_served_safely_is_refused(
    arguments: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path(), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_a_start_without_it_imports_nothing_of_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": import_path(), "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "barnabas", "serve", "--ephemeral", "--listen", "127.0.0.1:0"]
    log = tmp_path / "imports"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as process,
    ):
        assert process.stdout is not None
        assert " ready: " in process.stdout.readline()
        process.terminate()
    imported = {line.rpartition("|")[2].strip() for line in log.read_text().splitlines() if "|" in line}
    assert "barnabas.broker.app" in imported
    assert not {
        name
        for name in imported
        if name.startswith(("barnabas.rest", "barnabas.registry", "barnabas.sandbox", "h11"))
    }
