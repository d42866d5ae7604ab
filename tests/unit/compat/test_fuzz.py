"""The fuzzer of what comes before a login: it finds what a broker must not do, and nothing where all is well."""

import random
import struct

import pytest

from barnabas.wire.errors import EncodeError
from barnabas.wire.generated.metadata import MetadataResponse
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateResponse
from barnabas.wire.generated.sasl_handshake import SaslHandshakeResponse
from barnabas.wire.headers import encode_response
from compat.fuzz import pure
from compat.fuzz.held import Held, is_rotated
from compat.fuzz.session import AUTHENTICATE, HANDSHAKE, METADATA, SECRET_TOPIC, Line, Session
from compat.fuzz.simulated import SimulatedLogins
from compat.fuzz.target import Round
from tests.support.effort import drawing, examples


class Answers(Line):
    """A connection to a broker that answers each request of an API with what is given, and then ends."""

    def __init__(self, by_key) -> None:
        self.by_key = by_key
        self.data = b""
        super().__init__(self.take, self.give, self.stop)

    async def take(self, data: bytes) -> None:
        while len(data) >= 16:
            size, key, version, correlation_id = struct.unpack_from(">ihhi", data)
            response = self.by_key.get(key)
            if response is not None and size > 0:
                self.data += b"".join(map(bytes, encode_response(key, version, correlation_id, response)))
            data = data[4 + max(size, 0) :]

    async def give(self) -> bytes:
        data, self.data = self.data, b""
        return data

    async def stop(self) -> None:
        """Nothing more comes."""


OFFERED = SaslHandshakeResponse(mechanisms=["PLAIN"])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({HANDSHAKE: OFFERED, AUTHENTICATE: SaslAuthenticateResponse(auth_bytes=b"")}, "somebody is let in"),
        ({HANDSHAKE: OFFERED, AUTHENTICATE: SaslAuthenticateResponse(error_code=-1)}, "error -1"),
        ({HANDSHAKE: SaslHandshakeResponse(error_code=35)}, "error 35"),
        ({METADATA: MetadataResponse(cluster_id="c" * 100)}, "answered before a login"),
        (
            {METADATA: MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name=SECRET_TOPIC)])},
            SECRET_TOPIC,
        ),
    ],
)
async def test_a_broker_that_says_too_much_is_found_out(answers, reason):
    result = Round()
    for seed in range(3000):
        try:
            await Session(random.Random(seed), Answers(answers), result, Held(0)).run()
        except* (struct.error, IndexError, TypeError, ValueError, EncodeError):
            pass  # this broker cannot answer in a version that was never published
        if any(reason in finding.text for finding in result.findings):
            break
        result.findings.clear()
    assert any(reason in finding.text for finding in result.findings)


def test_a_broker_says_and_keeps_nothing_before_a_login():
    logins = SimulatedLogins()
    result = logins.run_round(drawing(), examples(1_000))
    assert [*result.findings, *logins.close()] == []
    assert result.inputs >= 1_000


@pytest.mark.parametrize("name", [entry.name for entry in pure.PURE])
def test_functions_that_take_the_bytes_of_strangers(name):
    (target,) = (entry for entry in pure.TARGETS if entry.name == name)
    run_round, close = target.open()
    count = examples(20 if name == "recovery" else 300)
    assert [*run_round(drawing(), count).findings, *close()] == []
    (chosen,) = (entry for entry in pure.PURE if entry.name == name)
    for data in pure.corpus_of(name):
        chosen.check(data)


@pytest.mark.parametrize(
    ("rotation", "is_the_same"), [(0, True), (16, True), (4096, True), (1, False), (15, False)]
)
def test_wrap_token_rotated_by_its_length_is_unchanged(rotation, is_the_same):
    """16 bytes follow the header; the count (RRC) is not signed (RFC 4121, 4.2.5)."""
    wrapped = bytes.fromhex("050404ff000c0000") + bytes(8) + b"what is wrapped."
    damaged = wrapped[:6] + rotation.to_bytes(2, "big") + wrapped[8:]
    assert is_rotated(damaged, wrapped) is is_the_same
    assert not is_rotated(damaged[:-1] + b"!", wrapped)
    assert not is_rotated(damaged + b"!", wrapped)
