"""Small parts of the tap: descriptions of interfaces, what a capture has overwritten, answers in a few words."""

from __future__ import annotations

import struct

import pytest

from barnabas.tools.tap.capture_reading import CaptureError, _interface
from barnabas.tools.tap.masking import FILLER
from barnabas.tools.tap.recording import _has_overwritten
from barnabas.wire.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest as Scram


def option(order: str, code: int, value: bytes) -> bytes:
    return struct.pack(order + "HH", code, len(value)) + value + bytes(-len(value) % 4)


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_interface_says_how_its_times_are_counted(order: str) -> None:
    head = struct.pack(order + "HHI", 1, 0, 65_535)
    assert _interface(order, head) == (1, 65_535, 1_000_000, 0)
    options = (
        option(order, 2, b"eth0")
        + option(order, 9, b"\x09")
        + option(order, 14, struct.pack(order + "q", -5))
    )
    assert _interface(order, head + options) == (1, 65_535, 1_000_000_000, -5)
    assert _interface(order, head + option(order, 9, b"\x8a")) == (1, 65_535, 1024, 0)
    ended = option(order, 0, b"") + option(order, 9, b"\x09")
    assert _interface(order, head + ended) == (1, 65_535, 1_000_000, 0)
    with pytest.raises(CaptureError, match="cut short"):
        _interface(order, head[:-1])


@pytest.mark.parametrize(
    ("salt", "password", "is_overwritten"),
    [
        (FILLER * 16, b"p", True),
        (b"s", FILLER * 64, True),
        (b"s", b"p", False),
        (b"*s", b"p*", False),
        (b"", b"", False),
    ],
)
def test_secrets_that_were_overwritten_are_known_by_their_filler(
    salt: bytes, password: bytes, is_overwritten: bool
) -> None:
    upsertion = Scram.ScramCredentialUpsertion("ann", 1, 4096, salt, password)
    plain = Scram.ScramCredentialUpsertion("****", 1, 4096, b"s", b"p")
    assert _has_overwritten(Scram(upsertions=[plain, upsertion])) is is_overwritten
