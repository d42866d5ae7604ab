"""A registry that is somebody else's, with TLS and passwords: asked by commands, by the console and by the pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from barnabas.testing.running import import_path
from barnabas_pipeline.errors import IncompleteError, UsageError
from barnabas_pipeline.formats import registry as registries
from barnabas_pipeline.simulate.avro import AvroValues
from barnabas_pipeline.simulate.model import KINDS

pytestmark = pytest.mark.e2e

ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}'


@contextmanager
def started(*arguments: str, config: Path | None = None) -> Iterator[dict[str, str]]:
    """Run a command until the end of the block; yields the words of its ready line."""
    environment = {**os.environ, "PYTHONPATH": import_path(), "XDG_CONFIG_HOME": str(config or "/nowhere")}
    command = [sys.executable, "-m", "barnabas", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if " ready" in line)
            yield dict(word.split("=", 1) for word in line.split() if "=" in word)
        finally:
            process.terminate()
        assert process.wait(20) == 0


class Elsewhere:
    """The registry of a secured broker, and beside it a broker that knows nothing of either."""

    def __init__(self, url: str, directory: Path, bootstrap: str) -> None:
        self.url = url
        self.ca = str(directory / "tls" / "ca.crt")
        self.password = json.loads((directory / "users.json").read_text())["admin"]
        self.bootstrap = bootstrap

    def run(self, *arguments: str, config: Path | None = None) -> tuple[int, str, str]:
        """Run a command: exit code, standard output, standard error."""
        environment = {
            **os.environ,
            "PYTHONPATH": import_path(),
            "XDG_CONFIG_HOME": str(config or "/nowhere"),
        }
        environment |= {"BARNABAS_BOOTSTRAP": self.bootstrap}
        done = subprocess.run(
            [sys.executable, "-m", "barnabas", *arguments],
            capture_output=True, text=True, env=environment, timeout=60, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    directory = tmp_path_factory.mktemp("elsewhere") / "demo"
    secured = (
        "serve", "--demo-security", str(directory), "--registry", "localhost:0",
        "--set", "listeners=SASL_SSL://localhost:0,SSL://localhost:0",
        "--set", f"registry.ssl.certificate.location={directory / 'tls' / 'broker.pem'}",
    )  # fmt: skip
    with started(*secured) as words, started("serve", "--ephemeral", "--listen", "localhost:0") as plain:
        url = f"https://localhost:{words['registry'].rpartition(':')[2]}"
        yield Elsewhere(url, directory, plain["bootstrap.servers"])


@pytest.fixture(scope="module")
def profile(elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that names the registry; its directory."""
    directory = tmp_path_factory.mktemp("config")
    file = directory / "barnabas" / "profiles.toml"
    file.parent.mkdir()
    file.touch(0o600)
    lines = [
        'default = "here"', "[here]", f'schema.registry.url = "{elsewhere.url}"',
        f'schema.registry.ssl.ca.location = "{elsewhere.ca}"',
        f'schema.registry.basic.auth.user.info = "admin:{elsewhere.password}"',
    ]  # fmt: skip
    file.write_text("\n".join(lines))
    return directory


@pytest.fixture(scope="module")
def orders(elsewhere: Elsewhere, profile: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic with a record by a schema of that registry, produced with the profile."""
    schema = tmp_path_factory.mktemp("schemas") / "order.avsc"
    schema.write_text(ORDER)
    assert elsewhere.run("topics", "create", "orders")[0] == 0
    code, _, error = elsewhere.run(
        "produce", "orders", '{"id": "a1"}', "--value-schema", str(schema), config=profile
    )
    assert code == 0, error
    return "orders"


def test_consume_by_a_profile_and_by_properties(elsewhere: Elsewhere, profile: Path, orders: str) -> None:
    assert elsewhere.run("consume", orders, "-q", config=profile)[:2] == (0, '{"id": "a1"}\n')
    given = (
        "-X", f"schema.registry.ssl.ca.location={elsewhere.ca}",
        "-X", f"schema.registry.basic.auth.user.info=admin:{elsewhere.password}",
    )  # fmt: skip
    assert elsewhere.run("consume", orders, "-q", "--registry", elsewhere.url, *given)[1] == '{"id": "a1"}\n'
    code, shown, _ = elsewhere.run("consume", orders, "-q", "--registry", "", config=profile)
    assert (code, shown != '{"id": "a1"}\n') == (0, True), "none is asked, so the bytes are shown"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "cannot be asked: its certificate is not trusted ("),
        (["-X", "schema.registry.ssl.ca.location={ca}"], "{url} wants a login"),
        (["-X", "schema.registry.ssl.ca.location={ca}", "-X", "schema.registry.basic.auth.user.info=admin:wrong"],
         "{url} refuses the login"),
        (["-X", "schema.registry.ssl.ca.location={ca}", "-X", "schema.registry.bearer.auth.token=x"],
         "{url} refuses the login"),
        (["-X", "schema.registry.ssl.ca.location=/nowhere"], "schema.registry.ssl.ca.location '/nowhere'"),
        (["-X", "schema.registry.ca=x"], "schema.registry.ca is no setting"),
    ],
)  # fmt: skip
def test_consume_says_why_it_is_not_answered(
    elsewhere: Elsewhere, orders: str, given: list[str], message: str
) -> None:
    named = {"ca": elsewhere.ca, "url": elsewhere.url}
    options = [one.format(**named) for one in given]
    code, shown, error = elsewhere.run("consume", orders, "-q", "--registry", elsewhere.url, *options)
    assert (code in (1, 2), shown) == (True, "")
    assert message.format(**named) in error
    assert elsewhere.password not in error


def subjects_at(console: str) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(f"{console}/api/subjects", timeout=30) as answer:
            return answer.status, [row["name"] for row in json.load(answer)["rows"]]
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]


@pytest.mark.usefixtures("orders")
def test_the_console_of_any_cluster(elsewhere: Elsewhere, profile: Path) -> None:
    command = "console", "--bootstrap", elsewhere.bootstrap, "--listen", "127.0.0.1:0"
    with started(*command, config=profile) as words:
        assert subjects_at(words["console"]) == (200, ["orders-value"])
        with urllib.request.urlopen(f"{words['console']}/api/topics/orders/records", timeout=30) as answer:
            (record,) = json.load(answer)["records"]
        assert record["value"]["text"] == '{"id": "a1"}'
    trusted = "-X", f"schema.registry.ssl.ca.location={elsewhere.ca}"
    with started(*command, "--registry", elsewhere.url, *trusted) as words:
        status, said = subjects_at(words["console"])
        assert (status, f"{elsewhere.url} wants a login" in str(said)) == (502, True)
    with started(*command, "--registry", elsewhere.url) as words:
        status, said = subjects_at(words["console"])
        assert (status, "its certificate is not trusted" in str(said)) == (502, True)


@pytest.mark.usefixtures("orders")
def test_the_console_of_a_broker(elsewhere: Elsewhere) -> None:
    command = (
        "serve", "--ephemeral", "--listen", "localhost:0", "--console", "127.0.0.1:0", "--console-registry", elsewhere.url,
        "--set", f"console.registry.ssl.ca.location={elsewhere.ca}",
        "--set", f"console.registry.basic.auth.user.info=admin:{elsewhere.password}",
    )  # fmt: skip
    with started(*command) as words:
        assert subjects_at(words["console"]) == (200, ["orders-value"])
        with urllib.request.urlopen(f"{words['console']}/api/brokers/1/settings", timeout=30) as answer:
            assert elsewhere.password not in answer.read().decode()
    wrong = "serve", "--ephemeral", "--console", "127.0.0.1:0", "--console-registry", "r:1"
    code, _, error = elsewhere.run(*wrong, "--listen", "localhost:0")
    assert (code, "no address of a registry" in error) == (1, True)


@pytest.mark.usefixtures("orders")
def test_the_pipeline(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(**files: str) -> registries.Registry:
        return registries.Registry.at(elsewhere.url, **files)

    monkeypatch.setattr(registries, "TRIES", 1)
    monkeypatch.setenv(registries.USER, "admin")
    monkeypatch.setenv(registries.PASSWORD, elsewhere.password)
    found = one(ca=elsewhere.ca)
    assert json.loads(found.latest("orders-value").schema.text)["name"] == "Order"
    assert elsewhere.password not in repr(found)
    AvroValues(found, "site-", KINDS)
    assert found.latest(f"site-{KINDS[0]}-value").schema.format == "AVRO"
    assert found.to_dict() == {"url": elsewhere.url, "ca": elsewhere.ca}
    with pytest.raises(IncompleteError, match="its certificate is not trusted"):
        one().latest("orders-value")
    monkeypatch.setenv(registries.PASSWORD, "wrong")
    with pytest.raises(IncompleteError, match="refuses the login"):
        one(ca=elsewhere.ca).latest("orders-value")
    monkeypatch.setenv(registries.TOKEN, "t")
    with pytest.raises(UsageError, match="do not go together"):
        one(ca=elsewhere.ca)
    monkeypatch.delenv(registries.USER)
    with pytest.raises(IncompleteError, match="refuses the login"):
        one(ca=elsewhere.ca).latest("orders-value")
    with pytest.raises(UsageError, match=r"ssl\.ca\.location '/nowhere'"):
        one(ca="/nowhere")
