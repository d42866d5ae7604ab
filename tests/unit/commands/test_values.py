"""Values as commands read and show them: times, durations, partitions, tables, errors."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    ResponseError,
    UnsupportedVersionError,
)
from barnabas.commands.errors import CommandError, advised, explain, name_of
from barnabas.commands.output import Output, Table, cell, date_text
from barnabas.commands.parsing import duration_ms, key_value, moment_ms, topic_partition, unescaped
from barnabas.commands.session import confirm
from barnabas.commands.tokens import principal

# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (key_value, "a=b", ("a", "b")),
        (key_value, " a = b=c ", ("a", "b=c")),
        (key_value, "a=", ("a", "")),
        (topic_partition, "a", ("a", None)),
        (topic_partition, "a:0", ("a", 0)),
        (topic_partition, "a:12", ("a", 12)),
        (topic_partition, "a:b:1", ("a:b", 1)),
        (duration_ms, "100ms", 100),
        (duration_ms, "90s", 90_000),
        (duration_ms, "5m", 300_000),
        (duration_ms, "2h", 7_200_000),
        (duration_ms, "7d", 604_800_000),
        (duration_ms, "1.5s", 1500),
        (duration_ms, "1.001s", 1001),
        (duration_ms, "0s", 0),
        (moment_ms, "0", 0),
        (moment_ms, "1700000000123", 1_700_000_000_123),
        (moment_ms, "1970-01-01T00:00:01.5", 1500),
        (moment_ms, "1970-01-01T02:00:00+02:00", 0),
        (moment_ms, "1970-01-02", 86_400_000),
        (principal, "User:ann", ("User", "ann")),
        (principal, "User:a:b", ("User", "a:b")),
    ],
)
def test_a_value_is_read(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


def test_a_time_is_read_as_it_is_shown_to_the_millisecond() -> None:
    for time_ms in range(1_000, 2_000):
        assert moment_ms(date_text(time_ms)) == time_ms


def test_a_time_ago_is_counted_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_000_000.5)
    assert moment_ms("-2h") == 1_000_000_500 - 7_200_000
    assert moment_ms("-1ms") == 1_000_000_499


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


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("a", 5, "5"), ("a", 0, "0"), ("a", False, "no"), ("seen_at_ms", True, "yes"), ("seen_at_ms", "x", "x"),
        ("at_ms", 5, "5"), ("a", {}, "-"), ("a", {"k": 1, "l": True}, "k=1,l=yes"), ("a", frozenset((7,)), "7"),
        ("a", [None, "ä"], "-,ä"), ("a", "", ""), ("a", "ä\u200b", "ä\\u200b"), ("a", 1.5, "1.5"),
    ],
)  # fmt: skip
def test_values_are_shown_to_people(name: str, value: object, text: str) -> None:
    assert cell(name, value) == text


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
        "NAME  SIZE  BIG  SEEN",
        "a        1  -    -",
        "bcd   1000  yes  1970-01-01T00:00:00.000+00:00",
    ]
    output.show(ROWS, [], title="None")
    output.show(ROWS, [{"name": "a", "size": "x"}, {"name": "b", "size": 1}])
    assert capsys.readouterr().out.splitlines() == [
        "", "None", "no some rows", "",
        "NAME  SIZE  BIG  SEEN", "a     x       -  -", "b     1       -  -",
    ]  # fmt: skip
    assert output.finish() == 0
    assert capsys.readouterr() == ("", "")


def test_facts_are_one_per_line_with_errors_if_any(capsys: pytest.CaptureFixture[str]) -> None:
    facts = Table("facts", {"a": "", "longest_name": "", "error": ""}, is_single=True)
    output = Output(as_json=False)
    output.show(facts, [{"a": 1}])
    assert output.finish() == 0
    output.show(facts, [{"a": 1, "error": "E"}])
    assert capsys.readouterr().out.splitlines() == [
        "A             1", "LONGEST-NAME  -", "", "A             1", "LONGEST-NAME  -", "ERROR         E",
    ]  # fmt: skip
    assert output.finish() == 1


# --- errors --------------------------------------------------------------------------------------------------------


def lost(text: str, *raised_from: BaseException) -> ConnectionLostError:
    error = ConnectionLostError(text)
    last: BaseException = error
    for entry in raised_from:
        last.__cause__ = entry
        last = entry
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


def test_first_advice_for_an_error_is_shown() -> None:
    assert advised("A_CODE: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND") == (
        "A_CODE: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND; stop its members first, "
        "or remove them with `barnabas groups remove-members`"
    )
    assert advised("none") == "none"
    assert name_of(ResponseError(68, "asking")) == "NON_EMPTY_GROUP"
    assert name_of(ResponseError(68, "asking", "two of them")) == "NON_EMPTY_GROUP: two of them"
    assert name_of(ResponseError(9999, "asking")) == "error 9999"
    assert name_of(ClientError("away")) == "away"


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
    output = capsys.readouterr()
    assert "delete all?" in output.err
    assert "delete all" not in output.out
