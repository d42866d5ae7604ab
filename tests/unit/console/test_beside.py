"""A console in the process of its broker: its address, the registry it reads by, the lines it shows; its command."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner

from barnabas.broker.registry_beside import RegistryBeside
from barnabas.broker.startup import StartupError
from barnabas.config.loading import BrokerConfig
from barnabas.console.beside import ConsoleBeside
from barnabas.console.command import COMMAND
from barnabas.registry.client import RegistryClient
from barnabas.registry.errors import RegistryError
from barnabas.registry.schemas import Schema
from tests.support.brokers import serving
from tests.support.console import Visitor
from tests.support.registries import standin
from tests.support.secured import SECURED


@asynccontextmanager
async def beside(directory: Path, **settings: str) -> AsyncIterator[tuple[Visitor, str]]:
    """Run a broker with its console and its registry; yields a visitor of the one and the URL of the other."""
    async with running(directory, {name.replace("_", "."): text for name, text in settings.items()}) as pair:
        await pair[0].begin()
        yield pair


@asynccontextmanager
async def running(directory: Path, settings: dict[str, str]) -> AsyncIterator[tuple[Visitor, str]]:
    """Run them; the visitor has not logged in yet."""
    values = {
        "log.dirs": str(directory), "listeners": "PLAINTEXT://127.0.0.1:0", "console.listener": "127.0.0.1:0",
        "registry.listener": "127.0.0.1:0", **settings,
    }  # fmt: skip
    config = BrokerConfig(values)
    registry = RegistryBeside(config)
    assert registry.begin() == f" registry={registry.url}"
    console = ConsoleBeside(config, None, registry)
    url = console.begin().removeprefix(" console=")
    async with serving(config) as broker, trio.open_nursery() as nursery:
        registry.attach(broker)
        console.attach(broker)
        await nursery.start(registry.run)
        await nursery.start(console.run)
        yield Visitor(url), registry.url
        nursery.cancel_scope.cancel()


async def test_reads_use_the_registry_beside_unless_another_is_given(tmp_path: Path) -> None:
    async with beside(tmp_path / "one") as (visitor, url):
        await RegistryClient(url).register("mine-value", Schema("AVRO", '"int"'))
        assert [row["name"] for row in (await visitor.get("/api/subjects"))["rows"]] == ["mine-value"]
        async with beside(tmp_path / "two", console_registry_url=url) as (other, own):
            await RegistryClient(own).register("theirs-value", Schema("AVRO", '"int"'))
            assert [row["name"] for row in (await other.get("/api/subjects"))["rows"]] == ["mine-value"]
        assert (await visitor.get("/api/session"))["registry"]


READ_ORDERS = {
    "resource_type": "topic", "resource_name": "orders", "pattern_type": "literal", "principal": "User:ann",
    "host": "*", "operation": "read", "permission": "allow",
}  # fmt: skip


async def test_visitor_is_the_brokers_user_at_its_own_registry(tmp_path: Path) -> None:
    async with running(tmp_path, SECURED) as (visitor, url):
        await visitor.begin(user="admin", password="admin-secret")
        for subject in ("orders-value", "private-value"):
            await visitor.do("POST", f"/api/subjects/{subject}", {"schema": '"int"'})
        await visitor.do("POST", "/api/acls", READ_ORDERS)
        assert (await visitor.get("/api/subjects"))["total"] == 2
        await visitor.begin(user="ann", password="ann-secret")
        assert [row["name"] for row in (await visitor.get("/api/subjects"))["rows"]] == ["orders-value"]
        assert (await visitor.ask("GET", "/api/subjects/private-value")).status == 403
        with pytest.raises(RegistryError, match="requires a login"):
            await RegistryClient(url).subjects()


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ({}, b""),
        ({"basic.auth.user.info": "op:x"}, b"Basic b3A6eA=="),
        ({"bearer.auth.token": "t0k"}, b"Bearer t0k"),
    ],
)
async def test_no_password_of_a_visitor_goes_to_a_registry_of_others(
    tmp_path: Path, login: dict[str, str], told: bytes
) -> None:
    async with standin({"/subjects": []}) as other:
        settings = {f"console.registry.{name}": text for name, text in {**login, "url": other.url}.items()}
        async with running(tmp_path, SECURED | settings) as (visitor, _):
            for user in ("admin", "ann"):
                await visitor.begin(user=user, password=f"{user}-secret")
                assert (await visitor.get("/api/subjects"))["total"] == 0
                for method, path, body in (
                    ("GET", "/api/subjects/s", None),
                    ("POST", "/api/subjects/s", {"schema": '"int"'}),
                    ("POST", "/api/subjects/s", {"schema": '"int"', "check": True}),
                    ("DELETE", "/api/subjects/s", {"confirm": "s"}),
                    ("POST", "/api/topics/t/records", {"records": [{"value": "{}"}], "value_schema": 7}),
                ):
                    assert (await visitor.ask(method, path, body)).status == 404, path
        assert len(other.heads) == 12
        for head in other.heads:
            assert b"".join(re.findall(rb"(?mi)^authorization: ([^\r]*)", head)) == told
            assert not re.search(b"secret|YW5uO|YWRtaW46", head), "neither user of the broker's"


async def test_described_settings_contain_no_user() -> None:
    values = {"console.listener": "127.0.0.1:0", "console.registry.url": "https://ann:s3cret@registry"}
    with pytest.raises(StartupError, match=r"console\.registry\.basic\.auth\.user\.info") as error:
        ConsoleBeside(BrokerConfig(values), None, None).begin()
    assert "s3cret" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--login", "PLAIN", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.username=ann"],
            "no password for 'ann'",
        ),
        (["--bootstrap", "nonsense:"], "is not host:port"),
        (["--token-file", "/nowhere"], "No such file"),
    ],
)
def test_options_that_cannot_be_are_told(arguments: list[str], told: str) -> None:
    result: Any = CliRunner().invoke(COMMAND, arguments)
    assert result.exit_code
    assert told in result.output + str(result.exception)
