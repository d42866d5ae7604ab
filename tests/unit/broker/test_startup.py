"""Listeners: what is a valid address, and what the error of a bad one says."""

import re
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from barnabas.broker.assembly import assembled
from barnabas.broker.startup import (
    StartupError,
    advertised_endpoints,
    advertised_listeners,
    exposures,
    listen,
    open_listeners,
    parse_endpoint,
)
from barnabas.config.loading import BrokerConfig
from barnabas.environment.real import OsThreads, real_environment
from barnabas.network.sockets import SocketNetwork

NETWORK = SocketNetwork()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://127.0.0.1:9092", ("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", ("PLAINTEXT", "", 0)),
        ("INTERNAL://[::1]:9093", ("INTERNAL", "::1", 9093)),
    ],
)
def test_endpoints_are_parsed(text: str, expected: tuple[str, str, int]) -> None:
    assert parse_endpoint(text) == expected


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:9092", "PLAINTEXT://host", "PLAINTEXT://host:x", "A://h:70000"]
)
def test_a_malformed_endpoint_is_named(text: str) -> None:
    with pytest.raises(StartupError, match="is not of the form"):
        parse_endpoint(text)


def test_a_port_in_use_is_explained() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port} is in use"):
            open_listeners([f"PLAINTEXT://127.0.0.1:{port}"], {}, NETWORK)


def test_an_unknown_host_is_explained() -> None:
    with pytest.raises(StartupError, match="is not known"):
        open_listeners(["PLAINTEXT://no-such-host.invalid:0"], {}, NETWORK)


def test_listeners_need_names_of_their_own_and_a_known_protocol() -> None:
    with pytest.raises(StartupError, match="two listeners are called PLAINTEXT"):
        open_listeners(["PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"], {}, NETWORK)
    with pytest.raises(StartupError, match="TLS is not a security protocol; there are PLAINTEXT, SSL"):
        open_listeners(["OUTSIDE://127.0.0.1:0"], {"OUTSIDE": "TLS"}, NETWORK)


def test_all_addresses_of_a_name_share_one_port() -> None:
    (listener,) = open_listeners(["PLAINTEXT://localhost:0"], {}, NETWORK)
    try:
        assert len({port for _, port in listener.addresses}) == 1
        assert listener.port > 0
    finally:
        listener.close()


def test_a_listener_name_without_a_protocol_names_the_setting() -> None:
    with pytest.raises(StartupError, match=r"add INSIDE:PLAINTEXT to it") as raised:
        open_listeners(["INSIDE://127.0.0.1:0"], {"PLAINTEXT": "PLAINTEXT"}, NETWORK)
    assert "listener.security.protocol.map" in str(raised.value)


def test_a_broker_needs_a_listener_for_clients() -> None:
    with pytest.raises(StartupError, match="no listener for clients"):
        open_listeners([], {}, NETWORK)


def advertised(listeners: str, text: str, **settings: str) -> dict[str, tuple[str, int]]:
    return advertised_listeners(
        BrokerConfig({"listeners": listeners, "advertised.listeners": text, **settings}), NETWORK
    )


def test_advertised_listeners_by_name() -> None:
    assert advertised("A://:1,B://:2", "B://[fe80::1]:9, a://host:0") == {
        "A": ("host", 0),
        "B": ("fe80::1", 9),
    }
    assert advertised_listeners(BrokerConfig(), NETWORK) == {}


def test_an_empty_advertised_host_is_this_machines_name() -> None:
    assert advertised("A://:1", "A://:9") == {"A": (socket.getfqdn(), 9)}


def test_an_advertised_controller_listener_is_left_out() -> None:
    names = {"controller.listener.names": "CONTROLLER"}
    addresses = advertised(
        "PLAINTEXT://:9092,CONTROLLER://:9093", "PLAINTEXT://h:9092,CONTROLLER://h:9093", **names
    )
    assert addresses == {"PLAINTEXT": ("h", 9092)}


def endpoints(**settings: str) -> dict[str, tuple[str, int]]:
    config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
    listeners = open_listeners(config.listeners(), config.listener_security_protocols(), NETWORK)
    try:
        bound = {listener.port: index for index, listener in enumerate(listeners)}
        addresses = advertised_endpoints(config, NETWORK, listeners)
        return {name: (host, bound.get(port, port)) for name, (host, port) in addresses.items()}
    finally:
        for listener in listeners:
            listener.close()


def test_a_host_of_listeners_is_advertised_as_it_is_written() -> None:
    """The port is that which was bound: here the number of the listener."""
    assert endpoints(listeners="PLAINTEXT://localhost:0,SSL://127.0.0.1:0") == {
        "PLAINTEXT": ("localhost", 0),
        "SSL": ("127.0.0.1", 1),
    }


def test_clients_get_a_checked_name_on_all_interfaces() -> None:
    addresses = endpoints(
        listeners="PLAINTEXT://:0,SSL://0.0.0.0:0,SASL_SSL://:0,SASL_PLAINTEXT://:0,KERBEROS://:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
        "KERBEROS:SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        listener_name_kerberos_sasl_enabled_mechanisms="PLAIN,GSSAPI",
    )
    name = socket.getfqdn()
    assert addresses == {"SSL": (name, 1), "SASL_SSL": (name, 2), "KERBEROS": (name, 4)}


def test_what_is_advertised_comes_before_what_is_listened_on() -> None:
    addresses = endpoints(
        listeners="PLAINTEXT://localhost:0,SSL://localhost:0", advertised_listeners="SSL://broker.example:9"
    )
    assert addresses == {"PLAINTEXT": ("localhost", 0), "SSL": ("broker.example", 9)}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("C://host:1", "names C, and there is no such listener; the listeners are A, B"),
        ("A://host:1,A://host:2", "names A twice"),
        ("A://0.0.0.0:1", "clients cannot connect to 0.0.0.0"),
        ("A://[::]:1", "clients cannot connect to ::"),
        ("host:1", "advertised.listeners 'host:1' is not of the form"),
    ],
)
def test_an_advertised_listener_that_cannot_be_is_explained(text: str, says: str) -> None:
    with pytest.raises(StartupError) as raised:
        advertised("A://:1,B://:2", text)
    assert says in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", ""])
def test_clients_are_refused_until_the_broker_listens(host: str) -> None:
    (listener,) = open_listeners([f"PLAINTEXT://{host}:0"], {}, NETWORK)
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", listener.port))
        listen(listener)
        socket.create_connection(("127.0.0.1", listener.port)).close()
        with pytest.raises(StartupError, match=f"port {listener.port} is in use"):
            open_listeners([f"PLAINTEXT://{host}:{listener.port}"], {}, NETWORK)
    finally:
        listener.close()


def test_second_broker_to_bind_a_port_is_told() -> None:
    (free,) = open_listeners(["PLAINTEXT://127.0.0.1:0"], {}, NETWORK)
    endpoint = f"PLAINTEXT://127.0.0.1:{free.port}"
    free.close()
    (bound,) = open_listeners([endpoint], {}, NETWORK)
    (two,) = open_listeners([endpoint], {}, NETWORK)
    try:
        listen(bound)
        with pytest.raises(StartupError, match=f"port {bound.port} is in use"):
            listen(two)
    finally:
        bound.close()
        two.close()


async def test_clients_are_refused_while_the_data_dir_is_opened(tmp_path) -> None:
    refused = []

    class SlowThreads(OsThreads):
        async def run(self, work, *, limiter=None):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port))
            refused.append(work)
            return await super().run(work, limiter=limiter)

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = BrokerConfig({"log.dirs": str(tmp_path), "listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    environment = real_environment()._replace(threads=SlowThreads())
    async with assembled(config, environment) as broker, trio.open_nursery() as nursery:
        opened = len(refused)
        assert opened
        await nursery.start(broker.serve)
        socket.create_connection(("127.0.0.1", port)).close()
        broker.stop()


def open_on(host: str, *, authenticates: bool) -> Any:
    return SimpleNamespace(
        channel=SimpleNamespace(authenticates=authenticates), addresses=[(host, 9092), ("127.0.0.1", 9092)]
    )


@pytest.mark.parametrize(
    ("host", "authenticates", "has_authorizer", "told"),
    [
        ("10.0.0.1", False, False, ["10.0.0.1:9092, and there is no authentication"]),
        ("10.0.0.1", False, True, ["there is no authentication: .* what the ACLs allow to User:ANONYMOUS"]),
        ("fe80::1", True, False, [r"\[fe80::1\]:9092, and there is no authorizer"]),
        ("10.0.0.1", True, True, []),
        ("127.0.0.2", False, False, []),
        ("::1", True, False, []),
    ],
)
def test_what_other_machines_may_do_without_restriction_is_told(
    host: str, authenticates: bool, has_authorizer: bool, told: list[str]
) -> None:
    lines = list(exposures([open_on(host, authenticates=authenticates)], has_authorizer=has_authorizer))
    assert len(lines) == len(told)
    for line, pattern in zip(lines, told, strict=True):
        assert re.search(pattern, line)
        assert "127.0.0.1" not in line


def test_cluster_advertises_the_given_or_each_listeners_name() -> None:
    listeners = {"listeners": "PLAINTEXT://localhost:0,SSL://:0", "zookeeper_connect": "z:2181"}
    assert endpoints(**listeners) == {"PLAINTEXT": ("localhost", 0), "SSL": (socket.getfqdn(), 1)}
    addresses = endpoints(**listeners, advertised_listeners="SSL://broker.example:9")
    assert addresses == {"SSL": ("broker.example", 9)}
