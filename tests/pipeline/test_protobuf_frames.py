"""Messages of Protobuf behind the id of their schema and their path in it, by both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from barnabas_pipeline.field_types import Field
from barnabas_pipeline.formats.base import RefusedError
from barnabas_pipeline.formats.framing import View, view_of
from barnabas_pipeline.formats.protobuf import ProtobufDecoder
from barnabas_pipeline.log.columns import NotSureError
from barnabas_pipeline.schema import NO_EVENT_TIME, EventSchema
from tests.pipeline.decoding import careful, columns, verdict
from tests.pipeline.test_format_schemas import registered

FILE = """syntax = "proto3"; %s
message First { int64 f = 1; message Inner { int64 f = 1; } message Other { int64 f = 2; } }
message Second { int64 x = 1; message Inner { string f = 1; message Deep { int64 f = 3; } } }"""
SCHEMA = EventSchema("t", NO_EVENT_TIME, (Field("f", "long"),))


def decoder_of(url: str, package: str = "", **more: Any) -> ProtobufDecoder:
    return ProtobufDecoder(SCHEMA, registry=registered(url, FILE % package, form="PROTOBUF"), **more)


def zigzag(*numbers: int) -> bytes:
    """Numbers of one byte each."""
    return bytes(number * 2 if number >= 0 else -2 * number - 1 for number in numbers)


def framed(path: bytes, field: int, value: int) -> bytes:
    return b"\0\0\0\0\1" + path + bytes([field << 3, value])


FIRST, SECOND, INNER = b"\0", zigzag(1, 1), zigzag(2, 0, 0)
GOOD = [
    (FIRST, 1, "First"),
    (zigzag(1, 0), 1, "First"),
    (INNER, 1, "First.Inner"),
    (zigzag(2, 0, 1), 2, "First.Other"),
    (zigzag(3, 1, 0, 0), 3, "Second.Inner.Deep"),
]


@pytest.mark.parametrize("package", ["", "package a.b;"])
@pytest.mark.parametrize(("path", "field", "name"), GOOD)
def test_a_value_is_the_message_that_its_path_leads_to(
    package: str, path: bytes, field: int, name: str
) -> None:
    decoder = decoder_of(f"http://paths{package}", package)
    full = f"a.b.{name}" if package else name
    values: list[bytes | None] = [framed(path, field, n) for n in (5, 7)]
    for each in (decoder, careful(decoder)):
        assert verdict(each, values) == [{"f": n, "_extra": None} for n in (5, 7)]
    assert decoder._decode_fast(columns(values))[1].tolist() == []
    writer = decoder.writer(1, decoder.path_of(values[0][5:])[0])  # type: ignore[index]
    assert writer is not None
    assert writer.name == full
    asked = decoder_of(f"http://paths{package}", package, record=full)
    other = decoder_of(f"http://paths{package}", package, record=name if package else "a.b.First")
    assert verdict(asked, values) == [{"f": n, "_extra": None} for n in (5, 7)]
    assert verdict(other, values) == ["type", "type"]


@pytest.mark.parametrize(
    "path", [zigzag(1, 2), zigzag(1, -1), zigzag(2, 0, 2), zigzag(3, 0, 0, 0), zigzag(2, 2, 0)]
)
def test_a_path_that_leads_nowhere_is_refused(path: bytes) -> None:
    decoder = decoder_of("http://nowhere")
    values: list[bytes | None] = [framed(path, 1, 5), framed(FIRST, 1, 6)]
    for each in (decoder, careful(decoder)):
        assert verdict(each, values) == ["schema_id", {"f": 6, "_extra": None}]


def test_values_of_other_messages_are_read_by_their_path() -> None:
    decoder = decoder_of("http://mixed")
    values: list[bytes | None] = [
        framed(INNER, 1, 5),
        framed(zigzag(2, 0, 1), 2, 6),
        framed(INNER, 1, 7),
        b"\0\0\0\0\1" + INNER[:2],
        b"\0\0\0\0\1",
        framed(FIRST, 1, 8),
        b"\0\0\0\0\1" + INNER,
    ]
    expected = [5, 6, 7, "framing", "framing", 8, 0]
    for each in (decoder, careful(decoder)):
        rows = verdict(each, values)
        assert [row if isinstance(row, str) else row["f"] for row in rows] == expected
    assert decoder._decode_fast(columns(values))[1].tolist() == [1, 3, 4, 5]


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b"\0rest", ((0,), b"rest")),
        (zigzag(1, 3) + b"rest", ((3,), b"rest")),
        (zigzag(2, 3, 0), ((3, 0), b"")),
        (b"\xc8\1" + b"\2" * 100 + b"x", ((1,) * 100, b"x")),
        (b"\xca\1" + b"\2" * 101 + b"x", None),
        (zigzag(-1, 0), None),
        (zigzag(2, 0), None),
        (b"", None),
    ],
)
def test_message_path_has_at_most_a_hundred_numbers(payload: bytes, path: Any) -> None:
    decoder = decoder_of("http://payloads")
    assert ProtobufDecoder(SCHEMA, text=FILE % "").path_of(payload) == ((), payload)
    if path is not None:
        assert decoder.path_of(payload) == path
        return
    with pytest.raises(RefusedError) as raised:
        decoder.path_of(payload)
    assert (raised.value.reason, raised.value.detail) == (
        "framing",
        "the value does not say which message it is",
    )


def test_the_path_of_a_block_is_that_of_its_first_value() -> None:
    decoder = decoder_of("http://blocks")
    values = columns([INNER + b"ab", INNER + b"c", zigzag(2, 0, 1) + b"d", INNER, INNER[:2], FIRST]).value
    path, mine, other = decoder.paths_of(view_of(values))
    assert path == (0, 0)
    assert other.tolist() == [False, False, True, False, True, True]
    rests = [mine.data[low:high] for low, high in zip(mine.start, mine.end, strict=True)]
    assert [rests[n] for n in (0, 1, 3)] == [b"ab", b"c", b""]
    with pytest.raises(NotSureError):
        decoder.paths_of(view_of(columns([b"\4", FIRST]).value))
    nothing = View(b"", np.empty(0, np.int64), np.empty(0, np.int64))
    assert decoder.paths_of(nothing)[0] == ()
    alone = view_of(values)
    assert ProtobufDecoder(SCHEMA, text=FILE % "").paths_of(alone)[:2] == ((), alone)
