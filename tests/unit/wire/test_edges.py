"""The edges of the encoding: the first and last value of each length, and one byte too few in each place."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.wire import primitives, registry
from barnabas.wire.codec import decode_prefix, decode_versioned, encode_versioned, record_type_id
from barnabas.wire.errors import DecodeError, EncodeError, TooManyEntriesError, UnknownVersionError
from barnabas.wire.extent import entries_of, has_more_entries
from barnabas.wire.framing import (
    MESSAGE_BYTES_MAX,
    api_key_of,
    check_frame_size,
    check_message_size,
)
from barnabas.wire.generated.data import consumer_protocol_subscription
from barnabas.wire.generated.fetch import FetchRequest
from barnabas.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.headers import (
    decode_response,
    encode_into,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    response_start,
)
from barnabas.wire.regions import FileRegion

# --- varints ------------------------------------------------------------------------------------------------------

UVARINTS = {
    0: "00", 1: "01", 127: "7f", 128: "8001", 16_383: "ff7f", 16_384: "808001", (1 << 21) - 1: "ffff7f",
    1 << 21: "80808001", (1 << 28) - 1: "ffffff7f", 1 << 28: "8080808001", (1 << 31) - 1: "ffffffff07",
}  # fmt: skip


@pytest.mark.parametrize(("value", "encoded"), UVARINTS.items())
@pytest.mark.parametrize("before", [b"", b"xyz"])
def test_known_varints(value: int, encoded: str, before: bytes) -> None:
    raw = bytes.fromhex(encoded)
    assert primitives.encode_uvarint(value) == raw
    data = before + raw + b"\x01"
    assert primitives.read_uvarint(data, len(before), len(data), "f") == (value, len(before) + len(raw))
    for end in range(len(raw)):
        with pytest.raises(DecodeError, match=f"needs more than the {end} bytes that are left"):
            primitives.read_uvarint(data, len(before), len(before) + end, "f")
    if value < 128:
        assert primitives.UVARINT[value] == raw


@pytest.mark.parametrize("encoded", ["8080808008", "ffffffff0f", "808080808000", "ffffffffff01"])
def test_varints_of_more_than_31_bits_are_refused(encoded: str) -> None:
    data = bytes.fromhex(encoded) + b"\0" * 5
    with pytest.raises(DecodeError, match="more than 31 bits"):
        primitives.read_uvarint(data, 0, len(data), "f")


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


def tags(text: str, end: int | None = None, **options: Any) -> Any:
    data = b"?" + bytes.fromhex(text) + b"rest"
    return primitives.read_tags(data, 1, len(data) - 4 if end is None else end, "S", **options)


def test_tagged_fields_are_found_where_they_are() -> None:
    assert tags("00") == ([], 2)
    assert tags("01 00 00") == ([(0, 4, 4)], 4)
    assert tags("02 05 02 aabb 09 01 cc") == ([(5, 4, 6), (9, 8, 9)], 9)
    data = bytes.fromhex("02 05 02 aabb 09 00")
    assert primitives.read_unknown_tags(data, 0, len(data), "S") == ({5: b"\xaa\xbb", 9: b""}, 7)
    assert primitives.read_unknown_tags(b"\0", 0, 1, "S") == (None, 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("02 05 00", "2 tagged fields do not fit into the 2 bytes"),
        ("01 05 02 aa", "tag 5 of 2 bytes goes beyond the 1 that are left"),
        ("02 05 00 05 00", "tag 5 comes after tag 5"),
        ("02 05 00 04 00", "tag 4 comes after tag 5"),
        ("01 80", "needs more|do not fit"),
        ("", "needs more than the 0"),
    ],
)
def test_tagged_fields_that_cannot_be_are_refused(text: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        tags(text)


def test_tagged_fields_count_as_entries() -> None:
    assert len(tags("02 05 00 06 00", left=2)[0]) == 2
    with pytest.raises(TooManyEntriesError):
        tags("02 05 00 06 00", left=1)


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


@pytest.mark.parametrize(("size", "is_fine"), [(-1, False), (0, True), (100, True), (101, False)])
@pytest.mark.parametrize("before", [b"", b"ab"])
def test_the_size_of_a_frame(size: int, is_fine: bool, before: bytes) -> None:
    data = before + struct.pack(">i", size)
    if is_fine:
        assert check_frame_size(data, len(before), 100) == size
    else:
        with pytest.raises(DecodeError, match=f"is {size}, outside of 0 to 100"):
            check_frame_size(data, len(before), 100)


@pytest.mark.parametrize("start", [b"PUT ", b"HEAD", b"OPTI", b"GET ", b"POST"])
def test_requests_of_http_are_named(start: bytes) -> None:
    with pytest.raises(DecodeError, match="looks like an HTTP request"):
        check_frame_size(start)


@pytest.mark.parametrize(
    ("key", "over", "is_fine"), [(0, 1, True), (1, 0, True), (1, 1, False), (-1, 1, False)]
)
def test_only_records_may_be_very_large(key: int, over: int, is_fine: bool) -> None:
    frame = struct.pack(">h", key)
    if is_fine:
        check_message_size(frame, MESSAGE_BYTES_MAX + over)
    else:
        with pytest.raises(DecodeError, match=f"for API key {key}"):
            check_message_size(frame, MESSAGE_BYTES_MAX + over)


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


@pytest.mark.parametrize(("length", "is_fine"), [(0x7FFF, True), (0x8000, False)])
def test_a_client_id_is_as_long_as_its_length_can_say(length: int, is_fine: bool) -> None:
    request = HeartbeatRequest(group_id="g", member_id="m")
    if is_fine:
        frame = b"".join(encode_request(12, 4, 1, "x" * length, request))[4:]  # type: ignore[arg-type]
        assert parse_request_header(frame).client_id == "x" * length
    else:
        with pytest.raises(EncodeError, match=f"client id takes {length} bytes"):
            encode_request(12, 4, 1, "x" * length, request)


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


def test_the_size_before_a_response_is_that_of_all_that_follows_it() -> None:
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


def test_bytes_after_what_a_version_has_are_refused_but_in_a_prefix() -> None:
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
