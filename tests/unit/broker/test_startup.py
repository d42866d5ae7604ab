"""Listeners: what is a valid address, and what the person who gave a bad one is told."""

import socket

import pytest

from barnabas.broker.startup import StartupError, open_listeners, parse_endpoint


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
            open_listeners([f"PLAINTEXT://127.0.0.1:{port}"], {})


def test_an_unknown_host_is_explained() -> None:
    with pytest.raises(StartupError, match="is not known"):
        open_listeners(["PLAINTEXT://no-such-host.invalid:0"], {})


def test_listeners_need_names_of_their_own_and_a_served_protocol() -> None:
    with pytest.raises(StartupError, match="two listeners are called PLAINTEXT"):
        open_listeners(["PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"], {})
    with pytest.raises(StartupError, match="uses SSL"):
        open_listeners(["OUTSIDE://127.0.0.1:0"], {"OUTSIDE": "SSL"})


def test_all_addresses_of_a_name_share_one_port() -> None:
    (listener,) = open_listeners(["PLAINTEXT://localhost:0"], {})
    try:
        assert len({port for _, port in listener.addresses}) == 1
        assert listener.port > 0
    finally:
        listener.close()
