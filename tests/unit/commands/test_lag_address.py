"""Addresses on which the lag is served."""

from __future__ import annotations

import click
import pytest

from barnabas.commands.lag import _address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (":9308", ("0.0.0.0", 9308)),
        ("h:0", ("h", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("[]:1", ("0.0.0.0", 1)),
    ],
)
def test_an_address_to_listen_on_has_a_port_and_may_have_a_host(text: str, address: tuple[str, int]) -> None:
    assert _address(text) == address


@pytest.mark.parametrize("text", ["9308", "h", "h:", "h:x", "h:65536", "h:-1", ""])
def test_what_has_no_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not HOST:PORT"):
        _address(text)
