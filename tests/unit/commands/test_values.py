"""Values as commands read and show them: times, durations, partitions, tables, errors."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable

import pytest

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    ResponseError,
    UnsupportedVersionError,
)
from barnabas.commands.errors import CommandError, explain
from barnabas.commands.output import Output, Table, cell, date_text
from barnabas.commands.parsing import unescaped
from barnabas.commands.session import confirm

# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("\\n\\t\\r\\0\\\\", b"\n\t\r\0\\"),
        ("\\x1f\\xFF\\x4a", b"\x1f\xffJ"),
        ("ä\\ä", "ä\\ä".encode()),
        ("\\q\\x4\\", b"\\q\\x4\\"),
        ("\\\\n", b"\\n"),
        ("a\udcffb", b"a\xffb"),
        ("", b""),
    ],
)
def test_an_argument_is_bytes_in_which_escapes_stand_for_others(text: str, data: bytes) -> None:
    assert unescaped(text) == data


# --- showing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (-1, "-"),
        (0, "1970-01-01T00:00:00.000+00:00"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123+00:00"),
        (1_700_000_000_000_000, "1700000000000000"),
        ((1 << 63) - 1, str((1 << 63) - 1)),
    ],
)
def test_a_time_that_no_calendar_has_is_shown_as_it_is(time_ms: int, text: str) -> None:
    assert date_text(time_ms) == cell("seen_at_ms", time_ms) == text


ROWS = Table(
    "some_rows",
    {"name": "", "size": "", "is_big": "", "seen_at_ms": "", "id": "", "error": ""},
    json_only=("id",),
)


def test_numbers_stand_to_the_right_times_and_texts_to_the_left(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.show(
        ROWS,
        [{"name": "a", "size": 1}, {"name": "bcd", "size": 1000, "is_big": True, "seen_at_ms": 0, "id": 7}],
    )
    assert capsys.readouterr().out.splitlines() == [
        "NAME      SIZE  BIG    SEEN",
        "a            1  -      -",
        "bcd       1000  yes    1970-01-01T00:00:00.000+00:00",
    ]
    output.show(ROWS, [], title="None")
    output.show(ROWS, [{"name": "a", "size": "x"}, {"name": "b", "size": 1}])
    assert capsys.readouterr().out.splitlines() == [
        "", "None", "no some rows", "",
        "NAME    SIZE      BIG  SEEN", "a       x           -  -", "b       1           -  -",
    ]  # fmt: skip
    assert output.finish() == 0
    assert capsys.readouterr() == ("", "")


# --- errors --------------------------------------------------------------------------------------------------------


def lost(text: str, *raised_from: BaseException) -> ConnectionLostError:
    error = ConnectionLostError(text)
    last: BaseException = error
    for one in raised_from:
        last.__cause__ = one
        last = one
    return error


def refused_certificate() -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError()
    error.verify_message = "self-signed certificate"
    return error


def tls_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "[SSL] wrong")
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            lost("h:1: no", OSError("all failed"), ConnectionRefusedError()),
            "nothing listens on h:1: start a broker with `barnabas serve`, or give --bootstrap HOST:PORT",
        ),
        (lost("h:1: no", socket.gaierror(-2, "unknown")), "the name of h:1 does not resolve (unknown): check --bootstrap"),
        (
            lost("[::1]:1: no", refused_certificate()),
            "[::1]:1: its certificate is refused: self-signed certificate; give --ca FILE, or its right name",
        ),
        (
            lost("h:1: no", tls_error("WRONG_VERSION_NUMBER")),
            "h:1 does not speak TLS as we do (wrong version number): leave out --tls if it is plaintext",
        ),
        (
            lost("h:1: no", ssl.SSLEOFError()),
            "h:1 does not speak TLS as we do (it ends the connection): leave out --tls if it is plaintext",
        ),
        (
            lost("h:1: the broker closed the connection"),
            "h:1 closed the connection: it may want TLS (--tls) or a login (--user); `barnabas doctor h:1` finds out",
        ),
        (
            lost("h:1: no connection in 5 s", OSError("slow")),
            "h:1 does not answer: no connection in 5 s; check the address and firewalls",
        ),
        (lost("h:1: nonsense", ValueError("x")), "h:1: nonsense"),
        (AuthenticationError("h:1 says no"), "h:1 says no; check --user, the password and --mechanism"),
        (
            UnsupportedVersionError("h:1 lacks it"),
            "h:1 lacks it: the broker is too old for this, or does not have it",
        ),
        (
            ResponseError(3, "asking"),
            "asking: UNKNOWN_TOPIC_OR_PARTITION; `barnabas topics list` shows what there is",
        ),
        (ResponseError(29, "asking", "not you"), "asking: TOPIC_AUTHORIZATION_FAILED (not you)"),
        (CommandError("NON_EMPTY_GROUP"), "NON_EMPTY_GROUP"),
        (ClientError("whatever"), "whatever"),
    ],
)  # fmt: skip
def test_an_error_is_explained_with_what_helps(error: Exception, text: str) -> None:
    assert explain(error) == text


# --- questions and names -------------------------------------------------------------------------------------------


def test_what_destroys_is_done_only_with_consent(
    at_terminal: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    confirm("delete all", yes=True)
    with pytest.raises(CommandError, match=r"^delete all: standard input is no terminal"):
        confirm("delete all", yes=False)
    for answer in ("n\n", "\n"):
        at_terminal(answer)
        with pytest.raises(CommandError, match=r"^nothing was changed$"):
            confirm("delete all", yes=False)
    at_terminal("y\n")
    confirm("delete all", yes=False)
    said = capsys.readouterr()
    assert "delete all?" in said.err
    assert "delete all" not in said.out
