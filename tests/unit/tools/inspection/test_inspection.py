"""Frames, messages, records and logins made readable."""

from __future__ import annotations

import base64
import json
import random

import pytest

from barnabas.records.building import encode_batch
from barnabas.records.compression import Codec
from barnabas.records.legacy import encode_message_set
from barnabas.records.record import Record
from barnabas.tools.inspection import frames, sasl
from barnabas.tools.inspection.errors import code_name, error_codes, has_errors
from barnabas.tools.inspection.messages import MASK, as_json
from barnabas.tools.inspection.records import RecordsView, count
from barnabas.wire import registry
from barnabas.wire.generated.alter_configs import AlterConfigsRequest
from barnabas.wire.generated.api_versions import ApiVersionsResponse
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.produce import ProduceResponse
from barnabas.wire.headers import encode_request, encode_response
from tests.support.messages import all_messages, random_message


def _joined(chunks: list[object]) -> bytes:
    return b"".join(bytes(chunk) for chunk in chunks)  # type: ignore[call-overload]


@pytest.mark.parametrize("key", registry.keys())
def test_every_version_of_every_message_is_decoded_and_shown(key: int) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    name = registry.name_of(key)
    for kind, read in (("Request", None), ("Response", key)):
        definition = all_messages()[f"{name}{kind}"]
        codec = registry.request_codec(key) if read is None else registry.response_codec(key)
        for version in range(codec.min_version, codec.max_version + 1):
            message = random_message(definition, version, rng)
            if read is None:
                frame = _joined(encode_request(key, version, 7, "client", message))[4:]
                request = frames.read_request(frame)
                assert request.problem == ""
                assert (request.api, request.version) == (name, version)
                shown = request.message
            else:
                frame = _joined(encode_response(key, version, 7, message))[4:]
                response = frames.read_response(frame, key, version)
                assert response.problem == "", (name, version)
                shown = response.message
                assert all(error.code for error in error_codes(shown))
            json.dumps(as_json(shown, records=RecordsView()))


def test_frames_that_are_not_decoded_say_why() -> None:
    assert "no request header" in frames.read_request(b"\0").problem
    assert frames.read_request(bytes.fromhex("7fff 0000 00000001 ffff")).problem == "unknown API key 32767"
    assert "v99 is unknown" in frames.read_request(bytes.fromhex("0003 0063 00000001 ffff 00")).problem
    assert "Metadata v0" in frames.read_request(bytes.fromhex("0003 0000 00000001 ffff 00000005")).problem
    assert "too few" in frames.read_response(b"\0\0", 3, 0).problem
    assert frames.read_response(b"\0\0\0\1\0", 3, 0).problem


def test_refused_api_versions_response_is_read_in_version_0() -> None:
    answer = _joined(encode_response(18, 0, 5, ApiVersionsResponse(error_code=35)))[4:]
    response = frames.read_response(answer, 18, 4)
    assert response.message.error_code == 35
    assert response.version == 0


def test_errors_are_found_wherever_they_stand() -> None:
    part = ProduceResponse.PartitionProduceResponse
    answer = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name="orders", partition_responses=[part(index=0), part(index=3, error_code=6)]
            )
        ]
    )
    assert has_errors(answer)
    (error,) = error_codes(answer)
    assert error == (6, "responses[0].partition_responses[1].error_code", "orders-3")
    assert code_name(6) == "NOT_LEADER_OR_FOLLOWER"
    assert error_codes(MetadataResponse()) == []


def test_sensitive_settings_are_masked() -> None:
    entry = AlterConfigsRequest.AlterConfigsResource
    pair = AlterConfigsRequest.AlterableConfig
    request = AlterConfigsRequest(
        resources=[
            entry(
                4,
                "0",
                [pair("listener.name.x.ssl.keystore.password", "hunter2"), pair("log.retention.ms", "7")],
            )
        ]
    )
    configs = as_json(request)["resources"][0]["configs"]
    assert [config["value"] for config in configs] == [MASK, "7"]


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_compression_are_shown(codec: Codec) -> None:
    records = [Record(n, 1000 + n, b"k%d" % n, b"\xff\xfe" if n else b"v", [("h", b"x")]) for n in range(2)]
    data = encode_batch(records, codec=codec)
    (batch,) = RecordsView()(data)
    assert batch["compression"] == codec.name.lower()
    assert batch["records"][0]["key"] == "k0"
    assert batch["records"][0]["value"] == "v"
    assert batch["records"][0]["headers"] == [{"key": "h", "value": "x"}]
    assert batch["records"][1]["value"] == {"hex": "fffe"}
    assert RecordsView(as_hex=True)(data)[0]["records"][0]["key"] == {"hex": b"k0".hex()}
    result = count(bytes(data) * 2)
    assert (result.batches, result.records) == (2, 4)


@pytest.mark.parametrize("magic", [0, 1])
def test_records_of_old_formats_are_shown(magic: int) -> None:
    data = encode_message_set([Record(3, 5, b"k", b"v")], magic=magic)
    (message,) = RecordsView()(data)
    assert message["magic"] == magic
    assert message["records"][0]["value"] == "v"


def test_damaged_records_are_shown_up_to_the_damage() -> None:
    data = bytearray(encode_batch([Record(0, 0, None, b"value")]))
    cut = RecordsView()(bytes(data) + bytes(data[:30]))
    assert "cut_short" in cut[1]
    data[17] ^= 1
    assert RecordsView()(bytes(data))[0]["problem"] == "the checksum is wrong"
    assert "problem" in RecordsView()(b"\xff" * 100)[0]


def test_large_values_are_cut() -> None:
    data = encode_batch([Record(0, 0, None, b"x" * 5000)])
    value = RecordsView(value_bytes_max=10)(data)[0]["records"][0]["value"]
    assert value == "xxxxxxxxxx... (5000 bytes)"


class TestLogins:
    def test_plain_shows_the_user_and_masks_the_password(self) -> None:
        shown = sasl.describe("PLAIN", b"\0alice\0hunter2", from_client=True)
        assert shown["user"] == "alice"
        assert "hunter2" not in json.dumps(shown)

    def test_scram_shows_the_user_and_masks_proofs(self) -> None:
        first = sasl.describe("SCRAM-SHA-256", b"n,,n=al=2Cice,r=nonce,tokenauth=true", from_client=True)
        assert (first["user"], first["nonce"], first["tokenauth"]) == ("al,ice", MASK, "true")
        final = sasl.describe("SCRAM-SHA-256", b"c=biws,r=nonce,p=cHJvb2Y=", from_client=True)
        assert final["proof"] == MASK
        assert sasl.describe("SCRAM-SHA-256", b"e=unknown-user", from_client=False)["error"] == "unknown-user"

    def test_bearer_tokens_show_claims_and_mask_the_token(self) -> None:
        claims = base64.urlsafe_b64encode(b'{"sub": "svc", "jti": "id"}').decode().rstrip("=")
        token = f"n,,\x01auth=Bearer aaa.{claims}.sig\x01logicalCluster=lkc\x01\x01".encode()
        shown = sasl.describe("OAUTHBEARER", token, from_client=True)
        assert shown["sub"] == "svc"
        assert shown["extensions"] == {"logicalCluster": "lkc"}
        assert ".sig" not in json.dumps(shown)

    def test_kerberos_is_opaque(self) -> None:
        shown = sasl.describe(None, b"\x60\x82secret", from_client=True)
        assert shown == {"mechanism": "GSSAPI", "bytes": 8, "token": "opaque"}
