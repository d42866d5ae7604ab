"""Apache Kafka and Barnabas with the same settings: an authorizer, anonymous clients, and logins with PLAIN.

The rule: both read the same lines; only ports, directories and what KRaft needs are different.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from compat.kafka import RealKafka, free_port, release
from compat.kafka.broker import COMMON_SETTINGS
from compat.kit.sides import NEWEST, PASSWORD, Side, barnabas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
AUTHORIZERS = {
    "kraft": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "zookeeper": "kafka.security.authorizer.AclAuthorizer",
}
ADMIN = "admin"
USERS = ("alice", "bob")


def settings(mode: str, port: int, sasl_port: int, controller_port: int = 0) -> dict[str, str]:
    """Return the settings of a broker with anonymous clients at `port`, and users at `sasl_port`.

    With a `controller_port` it is a Kafka in KRaft mode.
    """
    users = "".join(f' user_{name}="{PASSWORD}"' for name in (ADMIN, *USERS))
    jaas = f'{MODULE} required username="{ADMIN}" password="{PASSWORD}"{users};'
    addresses = f"PLAINTEXT://127.0.0.1:{port},USERS://127.0.0.1:{sasl_port}"
    lines = {
        "authorizer.class.name": AUTHORIZERS[mode],
        "super.users": f"User:{ADMIN}",
        "listeners": addresses,
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.users.plain.sasl.jaas.config": jaas,
    }
    if mode == "zookeeper" or controller_port:
        lines |= {"inter.broker.listener.name": "USERS", "sasl.mechanism.inter.broker.protocol": "PLAIN"}
    if controller_port:
        lines["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        lines["listener.security.protocol.map"] += ",CONTROLLER:SASL_PLAINTEXT"
        lines |= {
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas,
        }
    return lines


@contextmanager
def both(
    version: str, mode: str = "kraft", more: Mapping[str, str] | None = None
) -> Iterator[tuple[Side, Side]]:
    """(Apache Kafka, Barnabas), running, without any ACLs; `more` are settings of both. Raises KafkaError, StartError."""
    # So that defaults of topics, and what is served, are those of the same release.
    name = release(version).name
    followed = {} if name == NEWEST else {"kafka.version": name}
    with (
        kafka_alone(version, mode, more) as kafka,
        barnabas_alone(mode, {**(more or {}), **followed}) as ours,
    ):
        yield kafka, ours


@contextmanager
def kafka_alone(version: str, mode: str = "kraft", more: Mapping[str, str] | None = None) -> Iterator[Side]:
    """Apache Kafka, running. Raises KafkaError."""
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        data = Path(name)
        port, sasl_port, controller_port = free_port(), free_port(), 0
        if mode == "kraft":
            controller_port = free_port()
            (data / "controller.port").write_text(str(controller_port))
        lines = {**settings(mode, port, sasl_port, controller_port), **(more or {})}
        with RealKafka(version, port, data=data, settings=lines, mode=mode) as kafka:
            yield Side("Kafka", kafka.port, sasl_port)


@contextmanager
def barnabas_alone(mode: str = "kraft", more: Mapping[str, str] | None = None) -> Iterator[Side]:
    """Barnabas, running, with the authorizer that Kafka has in this mode. Raises StartError."""
    with tempfile.TemporaryDirectory(prefix="compare-") as name:
        directory = Path(name)
        port, sasl_port, properties = free_port(), free_port(), directory / "server.properties"
        lines = {
            **COMMON_SETTINGS,
            "broker.id": "1",
            "log.dirs": str(directory / "barnabas"),
            **settings("kraft", port, sasl_port),
            "authorizer.class.name": AUTHORIZERS[mode],
            **(more or {}),
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        with barnabas(properties):
            yield Side("Barnabas", port, sasl_port)
