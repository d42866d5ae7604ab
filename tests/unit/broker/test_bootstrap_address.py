"""Address of a broker as a client on the same machine is told it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import beside
from barnabas.broker.startup import bootstrap_of
from barnabas.config.loading import BrokerConfig


@pytest.mark.parametrize(
    ("hosts", "told"),
    [
        (["127.0.0.1"], "127.0.0.1:9092"),  # only that: localhost may be ::1 for a client
        (["::1"], "[::1]:9092"),
        (["127.0.0.1", "::1"], "localhost:9092"),
        (["127.0.0.1", "192.0.2.1"], "127.0.0.1:9092"),
        (["192.0.2.1", "127.0.0.1"], "192.0.2.1:9092"),
        (["192.0.2.1"], "192.0.2.1:9092"),
        (["0.0.0.0"], "localhost:9092"),
        (["::"], "localhost:9092"),
    ],
)
def test_client_gets_a_name_only_if_all_its_addresses_are_local(hosts: list[str], told: str) -> None:
    listener: Any = SimpleNamespace(addresses=[(host, 9092) for host in hosts], port=9092)
    assert bootstrap_of(listener) == told


@pytest.mark.parametrize(
    ("settings", "has_logins"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, False),
        (
            {"listeners": "PLAINTEXT://:9092", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"},
            True,
        ),
        ({"listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093"}, True),
        ({"listeners": "SSL://:9092"}, False),
    ],
)  # fmt: skip
def test_registry_users_log_in_where_acls_or_a_listener_ask(
    settings: dict[str, str], has_logins: bool
) -> None:
    assert beside.has_logins(BrokerConfig(settings)) is has_logins
