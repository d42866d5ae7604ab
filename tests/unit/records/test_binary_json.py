"""MessagePack and CBOR as JSON: recognized, read by choice, or refused; with bytes of stock libraries."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import cbor2
import msgpack
import pytest

from barnabas.records.binary_json import BinaryFormatError, read, recognize

ORDER = {"total": 63.33, "customer": "ann", "lines": [{"id": 1, "ok": True, "note": None}]}
MOMENT = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("value", "msgpack_json", "cbor_json"),
    [
        (ORDER, ORDER, ORDER),
        ([{"a": 2**63}], [{"a": 2**63}], [{"a": 2**63}]),
        ({"b": b"\x00\xff"}, {"b": "AP8"}, {"b": "AP8"}),
        ({"n": float("nan"), "i": float("-inf")}, {"n": "NaN", "i": "-Infinity"}, {"n": "NaN", "i": "-Infinity"}),
        ({"inner": {1: "x", None: "y"}}, {"inner": {"1": "x", "null": "y"}}, {"inner": {"1": "x", "null": "y"}}),
        ({"t": MOMENT}, {"t": "2026-03-01T12:00:00+00:00"}, {"t": "2026-03-01T12:00:00+00:00"}),
        ({"e": msgpack.ExtType(5, b"q")}, {"e": {"ext": 5, "data": "cQ"}}, None),
        ({"d": Decimal("1.50"), "s": {2}, "u": cbor2.undefined}, None, {"d": "1.50", "s": [2], "u": None}),
        ({"x": cbor2.CBORTag(999, [1]), "v": cbor2.CBORSimpleValue(99)}, None,
         {"x": {"tag": 999, "value": [1]}, "v": {"simple": 99}}),
    ],
)  # fmt: skip
def test_value_is_recognized_as_its_json(value: Any, msgpack_json: Any, cbor_json: Any) -> None:
    if msgpack_json is not None:
        form, text = recognize(msgpack.packb(value, datetime=True)) or ("", "null")
        assert (form, json.loads(text)) == ("msgpack", msgpack_json)
    if cbor_json is not None:
        form, text = recognize(cbor2.dumps(value)) or ("", "null")
        assert (form, json.loads(text)) == ("cbor", cbor_json)


@pytest.mark.parametrize(
    ("data", "form", "expected"),
    [
        (b"\x05", "msgpack", "5"),
        (b"\x92\x01\x02", "msgpack", "[1, 2]"),
        (b"\x81\xa1a\x01x", "msgpack", "it is not MessagePack"),
        (b"\x82\xa1a\x01\xa1a\x02", "msgpack", "two of its keys are 'a'"),
        (b"\x91" * 200 + b"\x01", "msgpack", "more than 100 levels"),
        (b"\xdd\xff\xff\xff\xff\x01", "msgpack", "it is not MessagePack"),
        (b"\xdd\x00\x03\x0d\x41" + b"\x01" * 200_001, "msgpack", "more than 200000 values"),
        (b"\xd9\xd9\xf7\xa1\x61a\x01", "cbor", '{"a": 1}'),
        (b"\xa1\xf6\xf7", "cbor", '{"null": null}'),
        (b"\xa2\x61a\x01\x61a\x02", "cbor", "it is not CBOR"),
        (b"\xa1\x61a\x01x", "cbor", "1 bytes follow the value"),
        (b"\x81" * 200 + b"\x01", "cbor", "it is not CBOR: maximum"),
        (b"\x9b\x7f" + b"\xff" * 7, "cbor", "it is not CBOR"),
        (b"\xd8\x1c\x81\xd8\x1d\x00", "cbor", '{"tag": 28, "value": [{"tag": 29, "value": 0}]}'),
        (b"\xc5\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01", "cbor", '{"tag": 5, "value": [9223372036854775807, 1]}'),
        (b"\xc2\x59\x20\x00" + b"\xff" * 8192, "cbor", "Exceeds the limit"),
        (b"\xd8\x23\x61(", "cbor", '{"tag": 35, "value": "("}'),
    ],
)  # fmt: skip
def test_chosen_form_is_read_or_refused(data: bytes, form: str, expected: str) -> None:
    try:
        text = read(data, form)
    except BinaryFormatError as error:
        text = str(error)
    assert text == expected or (expected[0] not in "{[" and expected in text)


def test_numbers_and_noise_are_not_recognized() -> None:
    plain = [b"", b"\x81", b"\x92\x01\x02", b"\x80", b"\xa0", b"plain", "\u0641".encode(), b"\x00\x00\x00\x00\x01x",
             (-5).to_bytes(4, "big", signed=True), b"\x81\x01\x02"]  # fmt: skip
    assert [recognize(data) for data in plain] == [None] * len(plain)
    noise = random.Random(7)
    payloads = [bytes((0x80 + number % 96,)) + noise.randbytes(number % 24) for number in range(20_000)]
    assert sum(recognize(data) is not None for data in payloads) < 5
