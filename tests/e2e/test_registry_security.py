"""Users of the registry are the broker's, and may do what its ACLs let them do with the subject's topic."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import Reference, Schema
from barnabas.testing.running import import_path

pytestmark = pytest.mark.e2e

MECHANISM = "--set", "sasl.enabled.mechanisms=SCRAM-SHA-512"
UNAUTHORIZED, DENIED = (401, 40101), (403, 40301)


class Secured:
    """A broker with security, and its registry with TLS."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.tls = ssl.create_default_context(cafile=str(directory / "tls" / "ca.crt"))
        self.passwords = json.loads((directory / "users.json").read_text())

    def of(self, user: str, password: str | None = None) -> RegistryClient:
        """Return a client that logs in as a user."""
        return RegistryClient(
            self.url,
            user=user,
            password=self.passwords.get(user, "") if password is None else password,
            tls=self.tls,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured") / "demo"
    command = [
        sys.executable, "-m", "barnabas", "serve", "--demo-security", str(directory), "--registry", "localhost:0",
        "--set", "listeners=SASL_SSL://localhost:0,SSL://localhost:0",
        "--set", f"registry.ssl.certificate.location={directory / 'tls' / 'broker.pem'}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": import_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("barnabas is ready"))
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            assert words["registry"].startswith("https://")
            port = words["registry"].rpartition(":")[2]
            yield Secured(f"https://localhost:{port}", directory)
        finally:
            process.terminate()
        assert process.wait(20) == 0


async def test_users_do_what_acls_let_them(secured: Secured) -> None:
    admin, alice, bob = (secured.of(user) for user in ("admin", "alice", "bob"))
    schema = Schema("AVRO", '"string"')
    assert await alice.register("demo-words-value", schema) == 1  # may write to what begins with demo
    assert await bob.latest("demo-words-value") == await admin.latest("demo-words-value")  # may read it
    assert await admin.register("secret-value", Schema("AVRO", '"long"')) == 2
    assert await bob.subjects() == await alice.subjects() == ["demo-words-value"]
    assert await admin.subjects() == ["demo-words-value", "secret-value"]
    assert [row["id"] for row in await bob.ask("GET", "/schemas")] == [1]
    refused: list[tuple[RegistryClient, str, str, object]] = [
        (bob, "POST", "/subjects/demo-words-value/versions", {"schema": '"int"'}),
        (bob, "GET", "/subjects/secret-value/versions", None),
        (bob, "POST", "/compatibility/subjects/secret-value/versions", {"schema": '"int"'}),
        (alice, "POST", "/subjects/secret-value/versions", {"schema": '"int"'}),
        (alice, "DELETE", "/subjects/demo-words-value", None),
        (alice, "PUT", "/config/demo-words-value", {"compatibility": "NONE"}),
        (alice, "PUT", "/config", {"compatibility": "NONE"}),
        (alice, "PUT", "/mode", {"mode": "READONLY"}),
        (alice, "PUT", "/mode/:.b:", {"mode": "READONLY"}),
        (alice, "POST", "/subjects/a b c/versions".replace(" ", "%20"), {"schema": '"int"'}),
    ]
    for client, method, path, body in refused:
        with pytest.raises(RegistryError) as error:
            await client.ask(method, path, body)
        assert (error.value.status, error.value.code) == DENIED, (method, path)
    with pytest.raises(RegistryError) as hidden:
        await bob.schema(2)
    assert hidden.value.code == 40403
    with pytest.raises(RegistryError) as leading_there:
        await alice.register("demo-x-value", Schema("AVRO", '"int"', (Reference("x", "secret-value", 1),)))
    assert (leading_there.value.status, leading_there.value.code) == DENIED
    assert await admin.ask("PUT", "/config/demo-words-value", {"compatibility": "NONE"})
    assert await admin.ask("DELETE", "/subjects/secret-value") == [1]


async def test_who_is_nobody_learns_nothing(secured: Secured) -> None:
    for client in (
        secured.of(""),
        secured.of("alice", "wrong"),
        secured.of("nobody", "x"),
        secured.of("alice", ""),
    ):
        for path in ("/", "/subjects", "/nowhere"):
            with pytest.raises(RegistryError) as error:
                await client.ask("GET", path)
            assert (error.value.status, error.value.code) == UNAUTHORIZED


async def test_plain_http_is_not_answered_where_tls_is_spoken(secured: Secured) -> None:
    with pytest.raises(RegistryError) as error, trio.fail_after(30):
        await RegistryClient(secured.url.replace("https", "http")).subjects()
    assert error.value.status == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--registry", "0.0.0.0:0"], "could change every schema"),
        (["--registry", "nothing"], "not of the form HOST:PORT"),
        (
            ["--registry", "localhost:0", "--set", "registry.ssl.certificate.location=/nowhere.pem"],
            "certificate of the registry, '/nowhere.pem'",
        ),
        (
            ["--registry", "localhost:0", "--listen", "SASL_PLAINTEXT://localhost:0", *MECHANISM],
            "all listeners require a login",
        ),
        (["--registry", "localhost:0", "--workers", "2"], "--workers: a registry is for one broker"),
    ],
)
def test_a_registry_that_cannot_be_served_ends_the_start(options: list[str], message: str) -> None:
    command = [sys.executable, "-m", "barnabas", "serve", "--ephemeral", *options]
    if "--listen" not in options:
        command += ["--listen", "localhost:0"]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert done.returncode in (1, 2)
    lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_broker_without_a_registry_loads_nothing_of_it() -> None:
    code = (
        "import sys, barnabas.cli\n"
        "import barnabas.broker.process, barnabas.commands.consume, barnabas.commands.produce\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('fastavro', 'jsonschema', 'h11') or "
        "name.startswith('barnabas.registry')])"
    )
    environment = {**os.environ, "PYTHONPATH": import_path()}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "[]\n"
