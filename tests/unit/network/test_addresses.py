"""Addresses as they are written, and connections to names that have several."""

from __future__ import annotations

import errno
import os

import pytest
import trio

from barnabas.network.dialing import dial
from barnabas.network.transport import host_and_port, is_loopback


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("host:1", ("host", 1)),
        (":65535", ("", 65535)),
        ("[::1]:9092", ("::1", 9092)),
        ("host:0", ("host", 0)),
        ("host", None),
        ("9092", None),
        ("host:", None),
        ("host:x", None),
        ("host:-1", None),
        ("host:65536", None),
        ("host:²", None),
        ("", None),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, pair: tuple[str, int] | None) -> None:
    assert host_and_port(text) == pair


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("128.0.0.1", False),
        ("1270.0.0.1", False),
        ("::", False),
        ("0.0.0.0", False),
        ("", False),
        ("::11", False),
    ],
)
def test_an_address_that_only_this_machine_reaches(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


async def failing(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> OSError:
    """Return what a dial raises of a host with addresses that fail so."""
    failures = [OSError(number, os.strerror(number)) for number in numbers]

    async def open_stream(host: str, port: int) -> trio.SocketStream:
        raise OSError("all attempts to connect failed") from (
            failures[0] if len(failures) == 1 else ExceptionGroup("several", failures)
        )

    monkeypatch.setattr(trio, "open_tcp_stream", open_stream)
    with pytest.raises(OSError) as raised:  # noqa: PT011 (its number is looked at)
        await dial("host", 1)
    return raised.value


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ((errno.ECONNREFUSED,), errno.ECONNREFUSED),
        ((errno.ECONNREFUSED, errno.ECONNREFUSED), errno.ECONNREFUSED),
        ((errno.ECONNREFUSED, errno.EHOSTUNREACH), errno.EHOSTUNREACH),
        ((errno.ENETUNREACH, errno.ECONNREFUSED), errno.ENETUNREACH),
    ],
)
async def test_error_of_several_addresses_is_not_a_plain_refusal(
    numbers: tuple[int, ...], told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = await failing(monkeypatch, *numbers)
    assert error.errno == told
    assert isinstance(error, ConnectionRefusedError) is (told == errno.ECONNREFUSED)
