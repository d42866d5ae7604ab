"""A foreign registry, with TLS and passwords: asked by commands and by the console.

The pipeline asks it too: `tests/pipeline/test_registry_elsewhere.py`.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.registry_elsewhere import Elsewhere, registry_elsewhere, started

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    with registry_elsewhere(tmp_path_factory.mktemp("elsewhere") / "demo") as result:
        yield result


@pytest.fixture(scope="module")
def profile(elsewhere: Elsewhere, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile that names the registry; its directory."""
    return elsewhere.profile(tmp_path_factory.mktemp("config"))


@pytest.fixture(scope="module")
def orders(elsewhere: Elsewhere, profile: Path) -> str:
    """A topic with a record by a schema of that registry, produced with the profile."""
    return elsewhere.produce_order(profile)


def test_consume_by_a_profile_and_by_properties(elsewhere: Elsewhere, profile: Path, orders: str) -> None:
    assert elsewhere.run("consume", orders, "-q", config=profile)[:2] == (0, '{"id": "a1"}\n')
    arguments = (
        "-X", f"schema.registry.ssl.ca.location={elsewhere.ca}",
        "-X", f"schema.registry.basic.auth.user.info=admin:{elsewhere.password}",
    )  # fmt: skip
    assert (
        elsewhere.run("consume", orders, "-q", "--registry", elsewhere.url, *arguments)[1] == '{"id": "a1"}\n'
    )
    code, shown, _ = elsewhere.run("consume", orders, "-q", "--registry", "", config=profile)
    assert (code, shown != '{"id": "a1"}\n') == (0, True), "none is asked, so the bytes are shown"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "cannot be reached: its certificate is not trusted ("),
        (["-X", "schema.registry.ssl.ca.location={ca}"], "{url} requires a login"),
        (["-X", "schema.registry.ssl.ca.location={ca}", "-X", "schema.registry.basic.auth.user.info=admin:wrong"],
         "{url} refused the login"),
        (["-X", "schema.registry.ssl.ca.location={ca}", "-X", "schema.registry.bearer.auth.token=x"],
         "{url} refused the login"),
        (["-X", "schema.registry.ssl.ca.location=/nowhere"], "schema.registry.ssl.ca.location '/nowhere'"),
        (["-X", "schema.registry.ca=x"], "schema.registry.ca is not a setting"),
    ],
)  # fmt: skip
def test_consume_says_why_it_is_not_answered(
    elsewhere: Elsewhere, orders: str, words: list[str], message: str
) -> None:
    named = {"ca": elsewhere.ca, "url": elsewhere.url}
    options = [entry.format(**named) for entry in words]
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
        status, output = subjects_at(words["console"])
        assert (status, f"{elsewhere.url} requires a login" in str(output)) == (502, True)
    with started(*command, "--registry", elsewhere.url) as words:
        status, output = subjects_at(words["console"])
        assert (status, "its certificate is not trusted" in str(output)) == (502, True)


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
    assert (code, "not the address of a registry" in error) == (1, True)
