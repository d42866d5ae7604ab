"""Frames, messages, record batches and tokens of logins as they are shown: each field, each limit, each thing masked."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.record import Record
from barnabas.tools.inspection import sasl
from barnabas.tools.inspection.frames import looks_like_request
from barnabas.tools.inspection.messages import UnreadRecords, as_json
from barnabas.tools.inspection.plain_records import bytes_of, plain, plain_headers
from barnabas.tools.inspection.records import RecordsView, count
from barnabas.wire.generated.fetch import FetchResponse
from barnabas.wire.generated.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.headers import encode_request
from barnabas.wire.regions import FileRegion

KEY, VERSION, NUMBER = 3, 8, 77


def asked(key: int = KEY, version: int = VERSION, message: Any = None) -> bytes:
    result = MetadataRequest() if message is None else message
    return b"".join(bytes(c) for c in encode_request(key, version, NUMBER, "app", result))[4:]  # type: ignore[arg-type]


# --- frames ---------------------------------------------------------------------------------------------------------


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
    entry = shown["topics"][0]
    assert (entry["name"], entry["topic_id"]) == ("x" * 1000, "aWlpaWlpaWlpaWlpaWlpaQ")
    assert entry["unknown_tagged_fields"] == {"5": {"bytes": 3}}
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
        result = RecordsView(records_max, 5)(data)
        return [[row["value"] for row in each["records"]] if "records" in each else each for each in result]

    rest, last = len(batch(b"3") + batch(b"4")), len(batch(b"4"))
    assert values(9) == values(5) == [["0", "1", "2"], ["3"], ["4"]]
    assert values(4) == [["0", "1", "2"], ["3"], {"not_shown": f"{last} bytes: 4 records are shown"}]
    assert values(3) == [["0", "1", "2"], {"not_shown": f"{rest} bytes: 3 records are shown"}]
    assert values(2) == [["0", "1"], {"not_shown": f"{rest} bytes: 2 records are shown"}]
    assert RecordsView(9, 5)(batch(b"123456"))[0]["records"][0]["value"] == "12345... (6 bytes)"
    assert RecordsView(9, 5)(batch(b"12345"))[0]["records"][0]["value"] == "12345"


def test_batches_are_counted_without_looking_into_them() -> None:
    data = batch(b"0", b"1") + batch(b"2", base=2, codec=Codec.LZ4)
    result = count(data)
    assert (result.batches, result.records, result.size, result.codecs) == (2, 3, len(data), {0, 3})
    broken = count(data + b"\0" * 70)
    assert (broken.batches, broken.records, broken.size) == (2, 3, len(data) + 70)
    assert (count(None).size, count(None).batches) == (0, 0)
    assert (count(UnreadRecords(9)).size, count(UnreadRecords(9)).records) == (9, 0)


def test_plain_values_come_back_as_the_same_bytes() -> None:
    for data in (None, b"", "ä".encode(), b"\xff\x00"):
        assert bytes_of(plain(data)) == data
    assert bytes_of({"base64": "/w==", "more": 1}) == b'{"base64":"/w==","more":1}'
    assert [bytes_of(value) for value in (5, [1, "ä"], {"a": None}, True)] == [
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
    result = sasl.describe(mechanism, token, from_client=from_client)
    assert result == {"mechanism": mechanism, "bytes": len(token), **shown}
