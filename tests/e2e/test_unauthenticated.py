"""Whatever is sent before a login: nothing of the broker is told, it lives on, and a user with a password is let in."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.create_topics import CreateTopicsRequest
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.headers import encode_request
from tests.support.certificates import written
from tests.support.effort import EFFORT, drawing
from tests.support.raw_client import RawClient

from .conftest import BrokerProcess, _start

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

COUNT = 400 * EFFORT
SECRET = "very-secret-topic"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
SCRAM_FIRST = b"n,,n=alice,r=abcdef"
CLIENT_HELLO = bytes.fromhex("16030100050100000100")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    directory = tmp_path_factory.mktemp("unauthenticated")
    files = written(directory / "certificates")
    settings = (
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256", "connection.failed.authentication.delay.ms=0",
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.broker}", "ssl.client.auth=required",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={files.authority}",
    )  # fmt: skip
    started = {}
    for protocol in ("SASL_PLAINTEXT", "SSL"):
        jaas = f"listener.name.{protocol.lower()}.plain.sasl.jaas.config={JAAS}"
        started[protocol] = _start(directory / protocol, *settings, jaas, listen=f"{protocol}://127.0.0.1:0")
    yield started
    for broker in started.values():
        assert broker.stop() == 0
        assert "Traceback" not in broker.said()
        assert "internal error" not in broker.said()


def logged_in(broker: BrokerProcess) -> RawClient:
    client = RawClient(broker.bootstrap)
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert client.ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1).error_code == 0
    return client


def frames(rng: random.Random) -> list[bytes]:
    """Requests of a login, some out of turn, some damaged."""
    token = rng.choice(
        (b"\0alice\0wrong", b"\0\0", SCRAM_FIRST, b"c=biws,r=abcdef,p=AAAA", rng.randbytes(40), b"\x01")
    )
    choices = (
        (18, rng.randrange(5), ApiVersionsRequest(client_software_name="a", client_software_version="1")),
        (
            17,
            rng.randrange(2),
            SaslHandshakeRequest(mechanism=rng.choice(("PLAIN", "SCRAM-SHA-256", "GSSAPI", ""))),
        ),
        (36, rng.randrange(3), SaslAuthenticateRequest(auth_bytes=token)),
        (3, 1, MetadataRequest(topics=None)),
    )
    result = []
    for _ in range(rng.randrange(1, 5)):
        key, version, request = choices[rng.choice((0, 1, 1, 2, 2, 2, 3))]
        data = bytearray(b"".join(map(bytes, encode_request(key, version, 7, "x", request))))  # type: ignore[arg-type]
        damage = rng.randrange(6)
        if damage == 0:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif damage == 1:
            data = data[: rng.randrange(len(data))]
        elif damage == 2:
            data = bytearray(struct.pack(">i", len(token)) + token)
        result.append(bytes(data))
    return result


def answers(bootstrap: str, messages: list[bytes]) -> bytes:
    """Send all, and return what comes back until the broker closes or all is said."""
    host, _, port = bootstrap.rpartition(":")
    data = b""
    with socket.create_connection((host, int(port)), 20) as sock:
        try:
            for message in messages:
                sock.sendall(message)
            sock.shutdown(socket.SHUT_WR)
            while part := sock.recv(65536):
                data += part
        except TimeoutError:
            raise
        except OSError:  # closed by the broker
            pass
    return data


def test_logins_out_of_turn_and_damaged_tell_nothing(brokers: dict[str, BrokerProcess]) -> None:
    broker = brokers["SASL_PLAINTEXT"]
    topic = CreateTopicsRequest.CreatableTopic(name=SECRET, num_partitions=1, replication_factor=1)
    with logged_in(broker) as client:
        assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=9000), 4).topics[0].error_code == 0
        assert client.ask(MetadataRequest(topics=None), 1).topics[0].name == SECRET
    rng = drawing()
    for _ in range(COUNT):
        assert SECRET.encode() not in answers(broker.bootstrap, frames(rng))
    with logged_in(broker) as client:
        assert client.ask(MetadataRequest(topics=None), 1).topics


def test_what_is_no_tls_gets_no_answer_but_an_alert(brokers: dict[str, BrokerProcess]) -> None:
    rng = drawing()
    for _ in range(COUNT // 4):
        data = bytearray(CLIENT_HELLO + rng.randbytes(rng.randrange(200)))
        if rng.randrange(2):
            data = bytearray(b"\x16\x03\x01" + struct.pack(">H", rng.randrange(2**14)) + rng.randbytes(300))
        answer = answers(brokers["SSL"].bootstrap, [bytes(data), *(frames(rng) if rng.randrange(2) else ())])
        assert answer[:1] in (b"", b"\x15"), answer


def test_half_a_handshake_is_closed_in_time(tmp_path: Path) -> None:
    files = written(tmp_path / "certificates")
    broker = _start(
        tmp_path / "data", "ssl.keystore.type=PEM", f"ssl.keystore.location={files.broker}",
        "authentication.timeout.ms=100", listen="SSL://127.0.0.1:0",
    )  # fmt: skip
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as sock:
        sock.sendall(b"\x16\x03\x01")
        assert sock.recv(1) == b""
    assert broker.stop() == 0
