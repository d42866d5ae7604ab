"""Zigzag variable-length integers."""

import pytest

from barnabas.records import varint
from barnabas.records.errors import InvalidRecordsError

ENCODED = {
    0: "00",
    -1: "01",
    1: "02",
    63: "7e",
    -64: "7f",
    64: "8001",
    -65: "8101",
    8191: "fe7f",
    8192: "808001",
    2**31 - 1: "feffffff0f",
    -(2**31): "ffffffff0f",
    2**31: "8080808010",
    2**63 - 1: "feffffffffffffffff01",
    -(2**63): "ffffffffffffffffff01",
}


@pytest.mark.parametrize(("value", "encoded"), ENCODED.items())
def test_known_encodings(value, encoded):
    raw = bytes.fromhex(encoded)
    assert varint.encode_varint(value) == raw
    zigzag = value << 1 if value >= 0 else -2 * value - 1
    assert varint.read_unsigned(b"?" + raw + b"!", 1, len(raw) + 1, 64) == (zigzag, len(raw) + 1)
    if -(2**31) <= value < 2**31:
        assert varint.read_varint(raw, 0, len(raw)) == (value, len(raw))


def test_small_table_agrees_with_the_long_way():
    for value, encoded in enumerate(varint.SMALL[:-1]):
        assert varint.read_varint(encoded, 0, len(encoded)) == (value, len(encoded))
    assert varint.SMALL[-1] == b"\x01"


@pytest.mark.parametrize("encoded", ["", "80", "8080808080", "808080808001", "8080808010", "ffffffff7f"])
def test_int32_that_is_cut_short_or_too_long(encoded):
    raw = bytes.fromhex(encoded)
    with pytest.raises(InvalidRecordsError):
        varint.read_varint(raw, 0, len(raw))


@pytest.mark.parametrize(
    "encoded", ["", "80" * 9, "80" * 10, "80" * 10 + "01", "80" * 9 + "02", "ff" * 9 + "7f"]
)
def test_int64_that_is_cut_short_or_too_long(encoded):
    raw = bytes.fromhex(encoded)
    with pytest.raises(InvalidRecordsError):
        varint.read_unsigned(raw, 0, len(raw), 64)


def test_reading_stops_at_the_given_end():
    with pytest.raises(InvalidRecordsError):
        varint.read_varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_numbers_beyond_int64_cannot_be_written(value):
    with pytest.raises(OverflowError):
        varint.encode_varint(value)
