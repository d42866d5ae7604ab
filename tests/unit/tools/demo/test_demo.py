"""A broker of a demonstration: users, their logins, and what they may do; and the settings that clients are given."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.client import (
    ClientError,
    ClientSettings,
    ConsumerSettings,
    ProducerSettings,
    open_client,
    open_consumer,
    open_producer,
)
from barnabas.client.admin import Admin
from barnabas.client.settings import SaslCredentials
from barnabas.config.loading import BrokerConfig
from barnabas.errors import StorageError
from barnabas.log.disk import OsDisk
from barnabas.log.ownership import Ownership
from barnabas.tools.demo import clients
from barnabas.tools.demo.security import USERS, Demo, prepare
from tests.support.brokers import serving

LISTENERS = {"listeners": "SASL_SSL://localhost:0,SSL://localhost:0"}


@asynccontextmanager
async def shown(directory: Path) -> AsyncIterator[tuple[Demo, str, str]]:
    """Run the broker of a demonstration; yields the files, and its addresses for passwords and for certificates."""
    demo = await trio.to_thread.run_sync(prepare, directory)
    async with serving(BrokerConfig({**demo.settings, **LISTENERS})) as broker:
        sasl, tls = (f"localhost:{listener.port}" for listener in broker.listeners)
        yield demo, sasl, tls


def by_password(demo: Demo, user: str, password: str = "") -> ClientSettings:
    tls = ssl.create_default_context(cafile=str(demo.authority))
    sasl = SaslCredentials("SCRAM-SHA-512", user, password or demo.passwords[user])
    return ClientSettings(tls=tls, sasl=sasl, retries=0)


def by_certificate(demo: Demo, user: str) -> ClientSettings:
    tls = ssl.create_default_context(cafile=str(demo.authority))
    tls.load_cert_chain(demo.key_store(user))
    return ClientSettings(tls=tls, retries=0)


async def produced(address: str, settings: ClientSettings, topic: str) -> None:
    async with open_producer(
        address, ProducerSettings(creates_topics=True, max_block_ms=3_000), client_settings=settings
    ) as producer:
        await producer.send_and_wait(topic, b"x")


async def consumed(address: str, settings: ClientSettings, group: str) -> bytes | None:
    chosen = ConsumerSettings(group_id=group, offset_reset="earliest")
    async with open_consumer(address, "demo-t", settings=chosen, client_settings=settings) as consumer:
        with trio.fail_after(20):
            return (await consumer.receive()).value


async def test_each_demo_user_may_do_exactly_what_the_page_says(tmp_path: Path) -> None:
    async with shown(tmp_path) as (demo, sasl, tls):
        alice, bob, admin = (by_password(demo, user) for user in ("alice", "bob", "admin"))
        await produced(sasl, alice, "demo-t")
        assert await consumed(sasl, bob, "demo-readers") == b"x"
        assert await consumed(tls, by_certificate(demo, "bob"), "demo-others") == b"x"
        for address, settings, topic in ((sasl, alice, "other"), (sasl, bob, "demo-t")):
            with pytest.raises(ClientError, match="AUTHORIZATION_FAILED"):
                await produced(address, settings, topic)
        with pytest.raises(ClientError, match="AUTHORIZATION_FAILED"):
            await consumed(sasl, bob, "readers")
        await produced(sasl, admin, "other")
        async with open_client(tls, by_certificate(demo, "broker")) as client:
            assert {*await Admin(client).topics()} >= {"demo-t", "other"}
        with pytest.raises(ClientError, match="invalid credentials with SASL mechanism SCRAM-SHA-512"):
            await produced(sasl, by_password(demo, "alice", "guess"), "demo-t")


def test_what_was_made_is_used_again_also_what_was_changed(tmp_path: Path) -> None:
    first = prepare(tmp_path / "demo")
    assert set(first.passwords) == set(USERS)
    assert len({*first.passwords.values()}) == len(USERS)
    assert all(password.startswith(f"{user}-") for user, password in first.passwords.items())
    records = (tmp_path / "demo" / "data" / "bootstrap.checkpoint").read_bytes()
    assert prepare(tmp_path / "demo") == first
    assert (tmp_path / "demo" / "data" / "bootstrap.checkpoint").read_bytes() == records
    changed = {**first.passwords, "alice": "mine"}
    (tmp_path / "demo" / "users.json").write_text(json.dumps(changed))
    assert prepare(tmp_path / "demo").passwords == changed
    for name in ("users.json", "token.key", "tls/alice.pem"):
        assert (tmp_path / "demo" / name).stat().st_mode & 0o077 == 0, "nobody else reads it"
    other = prepare(tmp_path / "other")
    assert other.passwords != first.passwords
    assert other.settings["delegation.token.secret.key"] != first.settings["delegation.token.secret.key"]


def test_a_directory_that_a_broker_uses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    used = Ownership(OsDisk(), None)
    used.take(str(tmp_path / "data"))
    try:
        with pytest.raises(StorageError, match=str(tmp_path / "data")):
            prepare(tmp_path)
    finally:
        used.release()
    prepare(tmp_path)


@pytest.mark.parametrize(("sasl", "tls"), [("h:1", "h:2"), ("h:1", ""), ("", "h:2"), ("", "")])
def test_clients_get_settings_for_existing_listeners(tmp_path: Path, sasl: str, tls: str) -> None:
    passwords = dict(zip(USERS, ("root", "pass-word", "secret"), strict=True))
    demo = Demo(tmp_path, passwords, {})
    text = clients.instructions(demo, sasl, tls)
    for user, password in passwords.items():
        assert f"  {user:6} {password}\n" in text
    ways = [f"SCRAM-SHA-512 at {sasl}"] * bool(sasl) + [f"certificates at {tls}"] * bool(tls)
    assert f"({', '.join(ways) or 'no listener asks for them'}):" in text
    for title, user, _ in clients.CLIENTS:
        assert (f"# {title}\n" in text) == bool(sasl)
        assert user in USERS
    assert ("# Java with a certificate\n" in text) == bool(tls)
    assert text.endswith(f"Everything is in {tmp_path}; a second start uses it again.\n")


def test_settings_name_the_user_the_password_and_the_files(tmp_path: Path) -> None:
    demo = Demo(tmp_path, {"bob": "s3-cret"}, {})

    def properties(text: str) -> dict[str, str]:
        return dict(line.split("=", 1) for line in text.splitlines())

    assert properties(clients.librdkafka(demo, "bob", "h:1")) == {
        "bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob", "sasl.password": "s3-cret", "ssl.ca.location": str(demo.authority),
    }  # fmt: skip
    pem = str(tmp_path / "tls" / "bob.pem")
    assert properties(clients.librdkafka_with_certificate(demo, "bob", "h:1")) == {
        "bootstrap.servers": "h:1", "security.protocol": "SSL", "ssl.ca.location": str(demo.authority),
        "ssl.certificate.location": pem, "ssl.key.location": pem,
    }  # fmt: skip
    result = properties(clients.java_with_certificate(demo, "bob", "h:1"))
    assert (result["ssl.keystore.location"], result["ssl.truststore.location"]) == (pem, str(demo.authority))
    of_java = properties(clients.java(demo, "bob", "h:1"))
    asked: dict[str, str] = {}

    class Reader:
        """Stands in for Spark's reader: the lines are Python as they are."""

        readStream = property(lambda self: self)  # noqa: N815 - Spark's name

        def format(self, name: str) -> Any:
            assert name == "kafka"
            return self

        def option(self, name: str, value: str) -> Any:
            asked[name] = value
            return self

        def load(self) -> None:
            asked["loaded"] = "yes"

    eval(clients.spark(demo, "bob", "h:1"), {"spark": Reader()})
    assert {name: asked.pop(f"kafka.{name}") for name in of_java} == of_java
    assert asked == {
        "startingOffsets": "earliest",
        "subscribe": "demo",
        "kafka.group.id": "demo",
        "loaded": "yes",
    }
    for write in (clients.kafka_python, clients.franz_go, clients.kafkajs):
        for part in ("h:1", "bob", "s3-cret", str(demo.authority)):
            assert part in write(demo, "bob", "h:1")
