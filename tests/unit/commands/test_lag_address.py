"""Addresses on which the lag is served."""

from __future__ import annotations

import click
import pytest

from barnabas.commands.lag import _address


@pytest.mark.parametrize("text", ["9308", "h", "h:", "h:x", "h:65536", "h:-1", ""])
def test_what_has_no_port_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not HOST:PORT"):
        _address(text)
