"""Frames, messages, record batches and tokens of logins as they are shown: each field, each limit, each thing masked."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.control import encode_end_marker
from barnabas.records.record import Record
from barnabas.tools.inspection import sasl
from barnabas.tools.inspection.errors import FoundError, code_name, error_codes, has_errors
from barnabas.tools.inspection.frames import (
    Request,
    api_name,
    looks_like_request,
    read_header,
    read_request,
    read_response,
)
from barnabas.tools.inspection.messages import UnreadRecords, as_json, is_secret_setting
from barnabas.tools.inspection.plain_records import bytes_of, plain, plain_headers
from barnabas.tools.inspection.records import RecordsView, count
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.generated.describe_configs import DescribeConfigsResponse
from barnabas.wire.generated.fetch import FetchRequest, FetchResponse
from barnabas.wire.generated.heartbeat import HeartbeatResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.generated.offset_commit import OffsetCommitResponse
from barnabas.wire.generated.produce import ProduceRequest
from barnabas.wire.headers import encode_request, encode_response
from barnabas.wire.regions import FileRegion

KEY, VERSION, NUMBER = 3, 8, 77


def asked(key: int = KEY, version: int = VERSION, message: Any = None) -> bytes:
    found = MetadataRequest() if message is None else message
    return b"".join(bytes(one) for one in encode_request(key, version, NUMBER, "app", found))[4:]  # type: ignore[arg-type]


def answered(key: int, version: int, message: Any) -> bytes:
    return b"".join(bytes(one) for one in encode_response(key, version, NUMBER, message))[4:]  # type: ignore[arg-type]


# --- frames ---------------------------------------------------------------------------------------------------------


def test_a_request_is_read_as_far_as_it_goes() -> None:
    frame = asked()
    whole = read_request(frame)
    assert (whole.size, whole.api_key, whole.api, whole.version, whole.correlation_id, whole.client_id) == (
        len(frame), KEY, "Metadata", VERSION, NUMBER, "app",
    )  # fmt: skip
    assert (whole.message, whole.problem, frame[whole.body_position :]) == (MetadataRequest(), "", frame[13:])
    head = read_header(frame[:13])
    assert (head.message, head.problem, head.correlation_id, head.body_position) == (None, "", NUMBER, 13)
    for short in (b"", frame[:9]):
        broken = read_request(short)
        assert broken.problem.startswith("no request header: ")
        assert (broken.api_key, broken.api, broken.version, broken.message) == (-1, "?", -1, None)
    cut = read_request(frame[:-1])
    assert (cut.api, cut.message, cut.problem.startswith("Metadata v8: ")) == ("Metadata", None, True)


@pytest.mark.parametrize(
    ("key", "version", "problem"),
    [
        (30_000, 0, "unknown API key 30000"),
        (3, 99, "Metadata v99 is unknown: v0 to v13 are decoded"),
        (3, -1, "Metadata v-1 is unknown: v0 to v13 are decoded"),
    ],
)
def test_what_is_not_known_is_said(key: int, version: int, problem: str) -> None:
    head = (
        key.to_bytes(2, "big", signed=True)
        + version.to_bytes(2, "big", signed=True)
        + b"\0\0\0\5\xff\xff\0\0"
    )
    found = read_request(head)
    assert (found.problem, found.correlation_id, found.message) == (problem, 5, None)
    if key < 1000:
        assert read_response(b"\0\0\0\5\0\0", key, version).problem == problem
    assert api_name(key) == ("API key 30000" if key > 1000 else "Metadata")


def test_only_produce_without_acks_is_not_answered() -> None:
    for message, is_answered in (
        (ProduceRequest(acks=0), False),
        (ProduceRequest(acks=1), True),
        (None, True),
    ):
        assert Request(1, 0, message=message).is_answered is is_answered
    assert Request(1, 3, message=SimpleNamespace(acks=0)).is_answered


def test_an_answer_is_read_in_the_version_that_it_was_asked_in() -> None:
    frame = answered(KEY, VERSION, MetadataResponse(cluster_id="c"))
    found = read_response(frame, KEY, VERSION)
    assert (found.size, found.correlation_id, found.version, found.problem) == (
        len(frame),
        NUMBER,
        VERSION,
        "",
    )
    assert found.message.cluster_id == "c"
    cut = read_response(frame[:-1], KEY, VERSION)
    assert (cut.message, cut.correlation_id, cut.problem.startswith("Metadata v8: ")) == (None, NUMBER, True)
    for size in range(4):
        assert (
            read_response(frame[:size], KEY, VERSION).problem
            == f"{size} bytes are too few for a correlation id"
        )
    assert read_response(frame, 30_000, 0).problem == "unknown API key 30000"


def test_a_refused_version_of_api_versions_is_read_in_version_0() -> None:
    refused = answered(
        18, 0, ApiVersionsResponse(error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(18, 0, 4)])
    )
    for version in (3, 4, 99):
        found = read_response(refused, 18, version)
        assert (found.version, found.problem, found.message.error_code) == (0, "", 35)
    usual = answered(18, 3, ApiVersionsResponse())
    assert (read_response(usual, 18, 3).version, read_response(usual, 18, 3).problem) == (3, "")
    own = answered(18, 3, ApiVersionsResponse(error_code=35))
    assert (
        read_response(own, 18, 3).message.error_code,
        read_response(b"\0\0\0\1\0\x23", 18, 99).message,
    ) == (35, None)


@pytest.mark.parametrize(
    ("frame", "size", "is_so"),
    [
        (asked(), None, True),
        (asked()[:10], None, False),  # a client id of three bytes that are not there
        (asked()[:10], 13, True),
        (asked()[:10], 12, False),
        (asked()[:8] + b"\xff\xff", 10, True),
        (asked()[:8] + b"\xff\xfe", 10, False),
        (b"\x75\x30" + asked()[2:], None, False),
        (b"\0\3\xff\xff" + asked()[4:], None, False),
        (b"\0\3\0\x15" + asked()[4:], None, True),
        (b"\0\3\0\x16" + asked()[4:], None, False),
        (b"\0\7\0\0\0\0\0\1", None, True),  # ControlledShutdown v0 has no client id
        (b"\0\7\0\1\0\0\0\1", None, False),
        (b"\0\3\0\0\0\0\0\1", None, False),
        (b"\0\7\0\0\0\0\0\1", 9, True),
        (b"\0\7\0\0\0\0\0", None, False),
        (asked(), 7, False),
    ],
)
def test_what_can_be_the_header_of_a_request(frame: bytes, size: int | None, is_so: bool) -> None:
    assert looks_like_request(frame, len(frame) if size is None else size) is is_so


# --- messages -------------------------------------------------------------------------------------------------------


def test_secrets_are_masked_by_the_name_of_the_field_or_of_the_setting() -> None:
    setting = AlterConfigsRequest.AlterableConfig
    names = [
        "ssl.key.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "client.secret",
        "credentials",
        "retention.ms",
        "",
    ]
    settings = [setting(name, "v") for name in names] + [
        setting("ssl.key.password", None),
        setting("ssl.key.password", ""),
    ]
    resource = AlterConfigsRequest.AlterConfigsResource(2, "t", settings)
    shown = as_json(AlterConfigsRequest([resource]))["resources"][0]["configs"]
    assert [one["value"] for one in shown] == ["***"] * 5 + ["v", "v", None, ""]
    assert [one["name"] for one in shown] == [one.name for one in settings]
    described = DescribeConfigsResponse.DescribeConfigsResourceResult(
        "ssl.key.password", "v", config_source=5, is_sensitive=True
    )
    found = as_json(described)
    assert (found["value"], found["config_source"], found["is_sensitive"]) == ("***", 5, True)
    assert not is_secret_setting(None)


def test_values_are_shown_by_their_kind() -> None:
    topic = MetadataResponse.MetadataResponseTopic(
        name="x" * 1001, topic_id=b"i" * 16, unknown_tagged_fields={5: b"abc"}
    )
    shown = as_json(MetadataResponse(topics=[topic], cluster_id=None))
    assert (shown["cluster_id"], shown["throttle_time_ms"], "unknown_tagged_fields" in shown) == (
        None,
        0,
        False,
    )
    one = shown["topics"][0]
    assert (one["name"], one["topic_id"]) == ("x" * 1000, "aWlpaWlpaWlpaWlpaWlpaQ")
    assert one["unknown_tagged_fields"] == {"5": {"bytes": 3}}
    for records, size in (
        (b"abc", 3),
        (memoryview(b"abcd"), 4),
        (UnreadRecords(5), 5),
        (FileRegion(0, 9, 6, None), 6),
        (None, None),
    ):
        part = FetchResponse.PartitionData(records=records)  # type: ignore[arg-type]
        message = FetchResponse(responses=[FetchResponse.FetchableTopicResponse("t", partitions=[part])])
        for view, expected in (
            (None, {"bytes": size} if size else None),
            (lambda data: f"seen {len(data)}", f"seen {size}" if size else None),
        ):
            shown = as_json(message, records=view)  # type: ignore[arg-type]
            assert shown["responses"][0]["partitions"][0]["records"] == expected


def test_entries_are_shown_up_to_a_number_in_all() -> None:
    topics = [
        FetchRequest.FetchTopic(topic=f"t{n}", partitions=[FetchRequest.FetchPartition(p) for p in range(2)])
        for n in range(3)
    ]

    def shapes(entries_max: int) -> list[Any]:
        shown = as_json(FetchRequest(topics=topics), entries_max=entries_max)["topics"]
        return [one if one == "..." else len([p for p in one["partitions"] if p != "..."]) for one in shown]

    assert [shapes(number) for number in (0, 1, 2, 3, 4, 9)] == [
        ["..."],
        [0, "..."],
        [1, "..."],
        [2, "..."],
        [2, 0, "..."],
        [2, 2, 2],
    ]


# --- errors ---------------------------------------------------------------------------------------------------------


def committed(*codes: int) -> OffsetCommitResponse:
    part, topic = (
        OffsetCommitResponse.OffsetCommitResponsePartition,
        OffsetCommitResponse.OffsetCommitResponseTopic,
    )
    return OffsetCommitResponse(
        topics=[topic("t", partitions=[part(5 + n, code) for n, code in enumerate(codes)])]
    )


def test_errors_are_found_where_they_stand_up_to_a_number() -> None:
    assert not has_errors(committed(0, 0))
    assert not has_errors(MetadataRequest())
    assert has_errors(committed(0, 3))
    assert error_codes(committed(0, 0)) == error_codes(None) == []
    found = error_codes(committed(3, 0, 6))
    assert found == [
        FoundError(3, "topics[0].partitions[0].error_code", "t-5"),
        FoundError(6, "topics[0].partitions[2].error_code", "t-7"),
    ]
    assert error_codes(committed(3, 0, 6), most=1) == found[:1]
    assert error_codes(HeartbeatResponse(error_code=27)) == [FoundError(27, "error_code", "")]
    topic = MetadataResponse.MetadataResponseTopic(3, None, b"i" * 16)
    named = error_codes(MetadataResponse(topics=[topic]), lambda one: f"topic {one[:1]!r}")
    assert named == [FoundError(3, "topics[0].error_code", "topic b'i'")]
    assert [code_name(code) for code in (3, 9999)] == ["UNKNOWN_TOPIC_OR_PARTITION", "error code 9999"]


# --- records --------------------------------------------------------------------------------------------------------


def batch(*values: bytes | None, base: int = 0, **more: Any) -> bytes:
    records = [Record(base + n, 1000 + n, b"k", value) for n, value in enumerate(values)]
    return encode_batch(records, base_offset=base, **more)


def test_the_header_of_a_batch_is_shown_with_what_applies_to_it() -> None:
    plain_one, packed = (
        batch(b"a", b"b", base=7),
        batch(b"c", codec=Codec.GZIP, producer_id=0, producer_epoch=3, base_sequence=4),
    )
    first, second = RecordsView()(plain_one + packed)
    assert first.pop("records") == [
        {"offset": 7, "timestamp": 1000, "key": "k", "value": "a"},
        {"offset": 8, "timestamp": 1001, "key": "k", "value": "b"},
    ]
    assert first == {
        "base_offset": 7,
        "magic": 2,
        "compression": "none",
        "bytes": len(plain_one),
        "last_offset": 8,
        "leader_epoch": first["leader_epoch"],
        "count": 2,
        "transactional": False,
        "control": False,
        "timestamp_type": "CREATE_TIME",
    }
    assert (
        second["compression"],
        second["producer_id"],
        second["producer_epoch"],
        second["base_sequence"],
    ) == ("gzip", 0, 3, 4)


def test_records_are_shown_up_to_a_number_and_bytes_up_to_a_size() -> None:
    data = batch(b"0", b"1", b"2") + batch(b"3", base=3) + batch(b"4", base=4)

    def values(records_max: int) -> Any:
        found = RecordsView(records_max, 5)(data)
        return [[one["value"] for one in each["records"]] if "records" in each else each for each in found]

    rest, last = len(batch(b"3") + batch(b"4")), len(batch(b"4"))
    assert values(9) == values(5) == [["0", "1", "2"], ["3"], ["4"]]
    assert values(4) == [["0", "1", "2"], ["3"], {"not_shown": f"{last} bytes: 4 records are shown"}]
    assert values(3) == [["0", "1", "2"], {"not_shown": f"{rest} bytes: 3 records are shown"}]
    assert values(2) == [["0", "1"], {"not_shown": f"{rest} bytes: 2 records are shown"}]
    assert RecordsView(9, 5)(batch(b"123456"))[0]["records"][0]["value"] == "12345... (6 bytes)"
    assert RecordsView(9, 5)(batch(b"12345"))[0]["records"][0]["value"] == "12345"


@pytest.mark.parametrize(
    ("data", "most", "shown"),
    [
        (None, 9, None),
        (b"", 9, ""),
        ("ä\r\n\t".encode(), 9, "ä\r\n\t"),
        (b"\xff\x01", 9, {"hex": "ff01"}),
        (b"a\x1b", 9, {"hex": "611b"}),
        ("aä".encode(), 2, "a... (3 bytes)"),
        ("a😀".encode(), 4, "a... (5 bytes)"),
        (b"a\xffbcdefgh", 6, {"hex": "61ff62636465... (9 bytes)"}),
        (b"abc\xff", 9, {"hex": "616263ff"}),
    ],
)
def test_bytes_are_text_where_they_are_printable(data: bytes | None, most: int, shown: Any) -> None:
    assert RecordsView(value_bytes_max=most).text(data) == shown
    if data:
        as_hex = RecordsView(value_bytes_max=most, as_hex=True).text(data)["hex"]
        assert as_hex.startswith(data[:most].hex())
        assert ("..." in as_hex) is (len(data) > most)


def test_what_is_broken_is_said_where_it_stands() -> None:
    good = batch(b"a")
    wrong = bytearray(batch(b"b"))
    wrong[-3] ^= 1
    found = RecordsView()(good + bytes(wrong))
    assert ["problem" in one for one in found] == [False, True]
    assert RecordsView()(good + good[:-1])[1] == {
        "cut_short": f"{len(good) - 1} bytes of a batch that is not whole"
    }
    odd = bytearray(good)
    odd[16] = 9  # a format that there is not
    (_, problem) = RecordsView()(good + bytes(odd))
    assert (problem["bytes"], bool(problem["problem"])) == (len(good), True)
    for data in (UnreadRecords(7), FileRegion(0, 0, 7, None)):
        assert RecordsView()(data) == {"bytes": 7}


def test_headers_and_markers_of_transactions_are_shown() -> None:
    record = Record(0, 5, None, None, [("h", b"1"), ("h", None)])
    (shown,) = RecordsView()(encode_batch([record]))
    assert shown["records"] == [
        {
            "offset": 0,
            "timestamp": 5,
            "key": None,
            "value": None,
            "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
        }
    ]
    for is_commit, name in ((True, "COMMIT"), (False, "ABORT")):
        marker = encode_end_marker(
            commit=is_commit, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp_ms=9
        )
        (shown,) = RecordsView()(bytes(marker))
        assert (shown["control"], shown["transactional"], shown["producer_id"]) == (True, True, 5)
        assert shown["records"] == [{"offset": 0, "timestamp": 9, "control": name}]


def test_batches_are_counted_without_looking_into_them() -> None:
    data = batch(b"0", b"1") + batch(b"2", base=2, codec=Codec.LZ4)
    found = count(data)
    assert (found.batches, found.records, found.size, found.codecs) == (2, 3, len(data), {0, 3})
    broken = count(data + b"\0" * 70)
    assert (broken.batches, broken.records, broken.size) == (2, 3, len(data) + 70)
    assert (count(None).size, count(None).batches) == (0, 0)
    assert (count(UnreadRecords(9)).size, count(UnreadRecords(9)).records) == (9, 0)


def test_plain_values_come_back_as_the_same_bytes() -> None:
    for data in (None, b"", "ä".encode(), b"\xff\x00"):
        assert bytes_of(plain(data)) == data
    assert bytes_of({"base64": "/w==", "more": 1}) == b'{"base64":"/w==","more":1}'
    assert [bytes_of(one) for one in (5, [1, "ä"], {"a": None}, True)] == [
        b"5",
        '[1,"ä"]'.encode(),
        b'{"a":null}',
        b"true",
    ]
    for wrong in ("_w==", "x", 5, None):
        with pytest.raises(ValueError, match="is not base64"):
            bytes_of({"base64": wrong})
    assert plain_headers([("h", b"1"), ("h", None)]) == [{"h": "1"}, {"h": None}]


# --- tokens ---------------------------------------------------------------------------------------------------------

CLAIMS = {"sub": "ann", "iss": "i", "jti": "hidden", "exp": 5}


def signed(claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature"


@pytest.mark.parametrize(
    ("mechanism", "token", "from_client", "shown"),
    [
        ("PLAIN", b"", True, {"token": "empty"}),
        ("PLAIN", b"\0ann\0secret", True, {"user": "ann", "password": "***"}),
        ("plain", b"bob\0ann\0secret", True, {"authorization_id": "bob", "user": "ann", "password": "***"}),
        ("PLAIN", b"ann\0secret", True, {"problem": "not of the form [authorization id] NUL user NUL password"}),
        ("PLAIN", b"ok", False, {}),
        ("SCRAM-SHA-256", b"n,,n=a=2Cb=3D,r=nonce", True, {"user": "a,b=", "nonce": "***"}),
        ("SCRAM-SHA-512", b"n,a=bob,n=ann,r=1,tokenauth=true", True,
         {"authorization_id": "bob", "user": "ann", "nonce": "***", "tokenauth": "true"}),
        ("SCRAM-SHA-256", b"y,,n=ann,r=1", True, {"user": "ann", "nonce": "***"}),
        ("SCRAM-SHA-256", b"p=tls,,n=ann,r=1", True, {"user": "ann", "nonce": "***"}),
        ("SCRAM-SHA-256", b"r=1,s=2,i=4096", False, {"nonce": "***", "salt": "***", "iterations": "4096"}),
        ("SCRAM-SHA-256", b"c=1,r=2,p=3", True, {"channel_binding": "***", "nonce": "***", "proof": "***"}),
        ("SCRAM-SHA-256", b"v=1", False, {"server_signature": "***"}),
        ("SCRAM-SHA-256", b"e=other-error", False, {"error": "other-error"}),
        ("SCRAM-SHA-256", b"nonsense", True, {"problem": "not of the form name=value,..."}),
        ("SCRAM-SHA-256", b"\xff", True, {"problem": "not UTF-8"}),
        ("OAUTHBEARER", b"\x01", True, {"token": "the client acknowledges the failure"}),
        ("OAUTHBEARER", f"n,,\x01auth=Bearer {signed(CLAIMS)}\x01x=y\x01\x01".encode(), True,
         {"scheme": "Bearer", "token": "***", "sub": "ann", "iss": "i", "exp": 5, "extensions": {"x": "y"}}),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer opaque\x01\x01", True, {"scheme": "Bearer", "token": "***"}),
        ("OAUTHBEARER", f"n,,\x01auth=Bearer {signed([1])}\x01\x01".encode(), True, {"scheme": "Bearer", "token": "***"}),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer a.%%%.c\x01\x01", True, {"scheme": "Bearer", "token": "***"}),
        ("OAUTHBEARER", b'{"status":"invalid_token"}', False, {"answer": {"status": "invalid_token"}}),
        ("OAUTHBEARER", b"nonsense", False, {"problem": "an answer that is no JSON"}),
        ("GSSAPI", b"abc", True, {"token": "opaque"}),
        ("OTHER", b"abc", True, {}),
    ],
)  # fmt: skip
def test_a_token_says_who_logs_in_and_keeps_its_secrets(
    mechanism: str, token: bytes, from_client: bool, shown: Any
) -> None:
    found = sasl.describe(mechanism, token, from_client=from_client)
    assert found == {"mechanism": mechanism, "bytes": len(token), **shown}


def test_a_token_without_a_known_mechanism_is_told_by_its_beginning() -> None:
    assert sasl.describe(None, b"\x60abc", from_client=True) == {
        "mechanism": "GSSAPI",
        "bytes": 4,
        "token": "opaque",
    }
    assert sasl.describe(None, b"abc", from_client=True) == {"mechanism": "unknown", "bytes": 3}
    assert sasl.describe("OTHER", b"\x60", from_client=True)["mechanism"] == "GSSAPI"


def test_the_user_of_a_token_is_its_user_or_its_subject() -> None:
    found = [
        sasl.user_of(one)
        for one in ({"user": "a", "sub": "b"}, {"sub": "b"}, {"user": 5, "sub": "b"}, {"iss": "c"})
    ]
    assert found == ["a", "b", "b", None]


def test_a_request_of_api_versions_has_its_software() -> None:
    assert read_request(asked(18, 3, ApiVersionsRequest("lib", "1"))).message == ApiVersionsRequest(
        "lib", "1"
    )
