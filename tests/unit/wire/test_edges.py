"""The edges of the encoding: the first and last value of each length, and one byte too few in each place."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.wire import primitives, registry
from barnabas.wire.codec import decode_prefix, decode_versioned, encode_versioned, record_type_id
from barnabas.wire.errors import DecodeError, EncodeError, TooManyEntriesError, UnknownVersionError
from barnabas.wire.extent import entries_of, has_more_entries
from barnabas.wire.framing import api_key_of
from barnabas.wire.generated.data import consumer_protocol_subscription
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.heartbeat import HeartbeatResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.headers import (
    decode_response,
    encode_into,
    encode_response,
    parse_request_header,
    parse_response_header,
    response_start,
)
from barnabas.wire.regions import FileRegion

# --- varints ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 1 << 31])
def test_numbers_that_no_varint_holds_are_not_written(value: int) -> None:
    with pytest.raises(EncodeError, match=str(value)):
        primitives.encode_uvarint(value)


@pytest.mark.parametrize(("length", "is_fine"), [(0, True), (0x7FFF, True), (0x8000, False)])
def test_a_compact_string_is_as_long_as_any(length: int, is_fine: bool) -> None:
    raw = primitives.encode_uvarint(length + 1)
    if is_fine:
        assert primitives.encode_string_length(length + 1) == raw
        assert primitives.string_length(raw, 0, len(raw), "f") == (length + 1, len(raw))
    else:
        with pytest.raises(EncodeError, match=f"takes {length} bytes"):
            primitives.encode_string_length(length + 1)
        with pytest.raises(DecodeError, match=f"string of {length} bytes"):
            primitives.string_length(raw, 0, len(raw), "f")


# --- tagged fields ------------------------------------------------------------------------------------------------


def test_known_and_unknown_tagged_fields_are_written_in_order() -> None:
    out: list[Any] = []
    primitives.write_tags(out, [(1, b"a"), (7, b"b")], {200: b"", 3: b"cc"})
    assert b"".join(out) == bytes.fromhex("04 01 01 61 03 02 6363 07 01 62 c801 00")
    out = []
    primitives.write_tags(out, [], None)
    assert out == [b"\0"]
    with pytest.raises(EncodeError, match=r"\[7\]"):
        primitives.write_tags([], [(1, b""), (7, b"")], {7: b"", 9: b""})
    with pytest.raises(EncodeError, match="tagged field"):
        primitives.join([b"x", FileRegion(0, 0, 1, None)])
    assert primitives.join([b"x", b"y"]) == b"xy"


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 66, 1_000])
def test_layouts_of_arrays_are_kept_only_for_short_ones(count: int) -> None:
    kept = primitives.ArrayStructs("i")
    assert kept[count].size == 4 * count
    assert (count in kept) is (count <= 64)
    assert primitives.ArrayStructs("16s")[count].size == 16 * count


# --- frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "key"),
    [(b"", -1), (b"\0", -1), (b"\0\0", 0), (b"\0\x12rest", 18), (b"\x7f\xff", 32_767), (b"\x80\0", -32_768),
     (b"\xff\xff", -1), (b"\x01\x02", 258)],
)  # fmt: skip
def test_the_key_of_a_frame(frame: bytes, key: int) -> None:
    assert api_key_of(frame) == key


# --- headers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "version"), [(12, 3), (12, 4), (7, 1), (7, 0)])
def test_a_request_header_is_whole_or_refused(key: int, version: int) -> None:
    frame = struct.pack(">hhi", key, version, 77)
    if (key, version) != (7, 0):
        frame += b"\0\3abc"
    if (key, version) == (12, 4):
        frame += b"\0"
    header = parse_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.body_position) == (
        key,
        version,
        77,
        len(frame),
    )
    assert header.client_id == (None if key == 7 and not version else "abc")
    for end in range(len(frame)):
        with pytest.raises(DecodeError):
            parse_request_header(frame[:end])
    after = parse_request_header(b"??" + frame + b"body", 2)
    assert after.body_position == len(frame) + 2


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_header_is_whole_or_refused(version: int) -> None:
    frame = b"".join(encode_response(12, version, 9, HeartbeatResponse(error_code=27)))[4:]  # type: ignore[arg-type]
    body = 5 if version == 4 else 4
    assert parse_response_header(b"?" + frame, 12, version, 1) == (9, body + 1)
    for end in range(body):
        with pytest.raises(DecodeError):
            parse_response_header(frame[:end], 12, version)
    assert decode_response(frame, 12, version)[1].error_code == 27
    with pytest.raises(DecodeError, match="left over"):
        decode_response(frame + b"x", 12, version)


def test_response_size_counts_all_that_follows() -> None:
    out: list[Any] = []
    encode_into(out, 12, 4, 9, HeartbeatResponse(), {5: b"tag"})
    data = b"".join(out)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert response_start(len(data) - 8, 9) == data[:8]


# --- messages and entries -----------------------------------------------------------------------------------------


def test_versions_that_are_not_there_are_named() -> None:
    codec = registry.request_codec(1)
    for version in (-1, codec.max_version + 1):
        with pytest.raises(DecodeError, match=f"no version {version}"):
            codec.decode(b"", 0, version)
        with pytest.raises(UnknownVersionError, match=f"no version {version}"):
            codec.encode(FetchRequest(), version)
    for version in (codec.min_version, codec.max_version):
        assert codec.decode_whole(codec.encode_bytes(FetchRequest(), version), version) == FetchRequest()
    assert (codec.is_flexible(11), codec.is_flexible(12), registry.request_codec(17).is_flexible(1)) == (
        False, True, False,
    )  # fmt: skip


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_what_is_too_short_for_its_number_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="too short for a version"):
        decode_versioned(consumer_protocol_subscription.CODEC, data)
    with pytest.raises(DecodeError, match="too short for a version"):
        decode_prefix(consumer_protocol_subscription.CODEC, data, version=0)
    with pytest.raises(DecodeError, match="too short for a type"):
        record_type_id(data)
    assert record_type_id(b"\xff\xfe") == -2


def test_trailing_bytes_are_refused_unless_a_prefix_is_read() -> None:
    codec = consumer_protocol_subscription.CODEC
    message = codec.message(topics=["a", "b"])
    data = encode_versioned(codec, message, codec.max_version)
    newer = struct.pack(">h", codec.max_version + 1) + data[2:]
    for raw in (data, data + b"x", newer + b"more"):
        assert decode_prefix(codec, raw, entries_max=2) == message
        with pytest.raises(TooManyEntriesError):
            decode_prefix(codec, raw, entries_max=1)
    with pytest.raises(DecodeError, match="left over"):
        decode_versioned(codec, data + b"x")


def test_entries_are_counted_wherever_they_are() -> None:
    nodes = MetadataResponse.MetadataResponsePartition(
        replica_nodes=[1, 2], isr_nodes=[1], offline_replicas=[]
    )
    empty = MetadataResponse.MetadataResponsePartition()
    topics = [
        MetadataResponse.MetadataResponseTopic(name="t", partitions=[nodes, empty]),
        MetadataResponse.MetadataResponseTopic(name="u"),
    ]
    response = MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker()], topics=topics)
    assert entries_of(response) == 1 + 2 + 2 + 3
    assert [has_more_entries(response, most) for most in (7, 8)] == [True, False]
    assert entries_of(HeartbeatResponse()) == 0
    assert not has_more_entries(HeartbeatResponse(), 0)
    assert not has_more_entries(MetadataRequest(topics=None), 0)
