"""A message has the header of its API and version, and frames are whole."""

import pytest

from barnabas.wire import registry
from barnabas.wire.errors import DecodeError, EncodeError
from barnabas.wire.generated import headers as generated
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.controlled_shutdown import ControlledShutdownRequest
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.heartbeat import HeartbeatResponse
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.headers import (
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
    parse_response_header,
    response_header_version,
)
from barnabas.wire.regions import FileRegion


def whole(chunks):
    """The frame without its size field, which must be right."""
    data = b"".join(chunks)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def test_api_versions_response_header_has_no_tagged_fields():
    for version in range(6):
        assert response_header_version(API_VERSIONS, version) == 0


def test_the_first_controlled_shutdown_has_no_client_id():
    frame = whole(
        encode_request(CONTROLLED_SHUTDOWN, 0, 9, "ignored", ControlledShutdownRequest(broker_id=5))
    )
    assert frame == bytes.fromhex("0007 0000 00000009 00000005")
    header = parse_request_header(frame)
    assert (header.client_id, header.body_position, header.correlation_id) == (None, 8, 9)


@pytest.mark.parametrize("key", registry.keys())
def test_flexible_versions_have_flexible_headers(key):
    info = registry.info(key)
    for version in range(info.request_min_version, info.request_max_version + 1):
        flexible = info.flexible_from is not None and version >= info.flexible_from
        if (key, version) != (
            CONTROLLED_SHUTDOWN,
            0,
        ):  # client id of null; with tagged fields, of which there are none
            header = b"\0\0\0\0\0\0\0\0\xff\xff" + b"\0" * flexible
            header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + header[4:]
            assert parse_request_header(header).body_position == len(header)
        if key != API_VERSIONS:
            assert response_header_version(key, version) == (1 if flexible else 0)


def test_sasl_handshake_is_never_flexible():
    assert response_header_version(17, 1) == 0


@pytest.mark.parametrize("client_id", [None, "", "a", "é" * 200])
@pytest.mark.parametrize(("version", "header_version"), [(8, 1), (9, 2)])
def test_the_client_id_keeps_its_two_byte_length(client_id, version, header_version):
    message = MetadataRequest(topics=None)
    frame = whole(encode_request(3, version, -7, client_id, message))
    expected = generated.RequestHeader(
        request_api_key=3, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    start = generated.REQUEST_HEADER.encode_bytes(expected, header_version)
    assert frame.startswith(start)
    header = parse_request_header(b"xx" + frame, 2)
    assert (header.api_key, header.api_version, header.correlation_id) == (3, version, -7)
    assert (header.client_id, header.body_position) == (client_id, len(start) + 2)
    assert header.unknown_tagged_fields is None


def test_tagged_fields_of_a_request_header_are_kept():
    frame = bytes.fromhex("0003 0009 00000001 ffff 01 05 02 aabb") + b"body"
    header = parse_request_header(frame)
    assert header.unknown_tagged_fields == {5: b"\xaa\xbb"}
    assert frame[header.body_position :] == b"body"


@pytest.mark.parametrize(
    "frame",
    ["", "0003", "00030009000000", "0003000900000001", "0003000900000001 0005 61", "0003000900000001 ffff"],
)
def test_a_request_header_that_is_cut_short_is_an_error(frame):
    with pytest.raises(DecodeError):
        parse_request_header(bytes.fromhex(frame))


def test_the_header_of_an_unknown_api_can_still_be_read():
    header = parse_request_header(bytes.fromhex("7fff 0003 00000001 0001 61 00"))
    assert (header.api_key, header.client_id, header.body_position) == (0x7FFF, "a", 11)


def test_a_response_comes_back_with_its_correlation_id():
    response = ApiVersionsResponse(api_keys=[ApiVersionsResponse.ApiVersion(api_key=1, max_version=3)])
    for key, version, message in [
        (18, 0, response),
        (18, 4, response),
        (12, 0, HeartbeatResponse(error_code=27)),
        (12, 4, HeartbeatResponse(error_code=27)),
    ]:
        frame = whole(encode_response(key, version, 42, message))
        assert decode_response(frame, key, version) == (42, message)


def test_unknown_api_versions_version_is_answered_in_version_0():
    response = ApiVersionsResponse(
        error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)]
    )
    assert whole(encode_response(18, 0, 1, response)) == bytes.fromhex(
        "00000001 0023 00000001 0012 0000 0004"
    )


def test_the_first_request_of_librdkafka_is_understood():
    frame = bytes.fromhex("0012 0003 00000001 0007") + b"rdkafka" + b"\0"
    frame += b"\x17confluent-kafka-python" + b"\x112.3.0-librdkafka" + b"\0"
    header = parse_request_header(frame)
    body = registry.request_codec(18).decode_whole(frame, 3, header.body_position)
    assert header.client_id == "rdkafka"
    assert body == ApiVersionsRequest(
        client_software_name="confluent-kafka-python", client_software_version="2.3.0-librdkafka"
    )


def test_tags_can_be_put_into_a_response_header():
    frame = whole(encode_response(12, 4, 1, HeartbeatResponse(), header_tags={3: b"x"}))
    assert frame.startswith(bytes.fromhex("00000001 01 03 01 78"))
    assert parse_response_header(frame, 12, 4) == (1, 8)
    # A version without tagged fields in the header stays as it is.
    assert whole(encode_response(12, 0, 1, HeartbeatResponse(), header_tags={3: b"x"})) == bytes.fromhex(
        "00000001 0000"
    )


def test_file_regions_and_large_records_stay_own_chunks():
    region = FileRegion(fd=3, position=0, size=1000, owner=None)
    large = bytes(100_000)
    partitions = [
        FetchResponse.PartitionData(partition_index=n, records=records)
        for n, records in enumerate([region, b"small", large, None])
    ]
    response = FetchResponse(
        responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)]
    )
    chunks = encode_response(1, 11, 1, response)
    assert [type(chunk) for chunk in chunks] == [bytes, FileRegion, bytes, bytes, bytes]
    assert chunks[1] is region
    assert chunks[3] is large
    assert int.from_bytes(chunks[0][:4], "big") == sum(map(len, chunks)) - 4


def test_a_client_id_has_a_greatest_length():
    with pytest.raises(EncodeError, match="client id"):
        encode_request(3, 1, 1, "x" * 40_000, MetadataRequest())
