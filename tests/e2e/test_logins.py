"""Logins of stock clients and of bytes: which get in, what the others are told, and that nothing else is answered."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from barnabas.wire.generated.api_versions import ApiVersionsRequest
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from tests.support.raw_client import RawClient

from .conftest import BrokerProcess, _start

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

PREFIX = "listener.name.sasl_plaintext"
SETTINGS = (
    "sasl.enabled.mechanisms=PLAIN",
    f"{PREFIX}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="wonder land" user_bob="builder";',
    f"{PREFIX}.plain.connections.max.reauth.ms=600000",
    "connection.failed.authentication.delay.ms=20",
)
RIGHT, WRONG = b"\0alice\0wonder land", b"\0alice\0wrong"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("logins") / "data"
    process = _start(data, *SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0")
    yield process
    assert process.stop() == 0
    assert "Traceback" not in process.said()
    assert "wonder land" not in process.said()


def librdkafka(broker: BrokerProcess, password: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": "alice", "sasl.password": password,
    }  # fmt: skip


def kafka_python(broker: BrokerProcess, password: str) -> dict[str, object]:
    return {
        "bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice", "sasl_plain_password": password,
    }  # fmt: skip


def test_librdkafka_logs_in_produces_and_reads(broker: BrokerProcess) -> None:
    producer = Producer(librdkafka(broker, "wonder land"))
    producer.produce("by-librdkafka", b"hello")
    assert producer.flush(20) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**librdkafka(broker, "wonder land"), **group})
    consumer.subscribe(["by-librdkafka"])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()


def test_librdkafka_is_told_of_a_wrong_password(broker: BrokerProcess) -> None:
    errors: list[KafkaError] = []
    options = librdkafka(broker, "wrong")
    producer = Producer({**options, "error_cb": errors.append, "log_level": 0})
    while not errors:
        producer.poll(0.1)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "Authentication failed: Invalid username or password" in errors[0].str()


def test_kafka_python_logs_in_produces_and_reads(broker: BrokerProcess) -> None:
    producer = KafkaProducer(**kafka_python(broker, "wonder land"))
    producer.send("by-kafka-python", b"hello").get(20)
    producer.close()
    consumer = KafkaConsumer(**kafka_python(broker, "wonder land"))
    consumer.assign([TopicPartition("by-kafka-python", 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"hello"
    consumer.close()


def test_librdkafka_logs_in_with_a_signed_token(tmp_path: Path) -> None:
    key = ECKey.generate_key("P-256", {"kid": "k"})
    (tmp_path / "jwks.json").write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    broker = _start(
        tmp_path / "data",
        "sasl.enabled.mechanisms=OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url=file://{tmp_path / 'jwks.json'}",
        "sasl.oauthbearer.expected.audience=kafka",
        "sasl.oauthbearer.allow.unverified.issuer=true",
        listen="SASL_PLAINTEXT://127.0.0.1:0",
    )

    def options(audience: str) -> dict[str, object]:
        def give(_: str) -> tuple[str, float]:
            expires = time.time() + 300
            claims = {"sub": "alice", "aud": audience, "exp": int(expires), "iat": int(expires) - 300}
            return jwt.encode({"alg": "ES256", "kid": "k"}, claims, key), expires

        return {
            "bootstrap.servers": broker.bootstrap, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER", "oauth_cb": give, "log_level": 0,
        }  # fmt: skip

    try:
        producer = Producer(options("kafka"))
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        errors: list[KafkaError] = []
        wrong = Producer({**options("other"), "error_cb": errors.append})
        while not errors:
            wrong.poll(0.1)
        assert errors[0].code() == KafkaError._AUTHENTICATION
    finally:
        assert broker.stop() == 0
    assert "a token is for another audience" in broker.said()


def test_a_login_that_has_expired_closes_the_connection(tmp_path: Path) -> None:
    settings = [*SETTINGS, f"{PREFIX}.plain.connections.max.reauth.ms=300"]
    broker = _start(tmp_path / "data", *settings, listen="SASL_PLAINTEXT://127.0.0.1:0")
    try:
        with RawClient(broker.bootstrap) as client:
            hello(client)
            assert client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1).session_lifetime_ms == 300
            answered = 0
            while client.ask(MetadataRequest(topics=[]), 1) is not None:
                answered += 1
            assert answered
    finally:
        assert broker.stop() == 0
    assert "the login has expired" in broker.said()


# --- bytes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap) as client:
        yield client


def hello(client: RawClient, version: int = 1, mechanism: str = "PLAIN") -> ErrorCode:
    return ErrorCode(client.ask(SaslHandshakeRequest(mechanism=mechanism), version).error_code)


def test_a_login_in_requests_tells_how_long_it_lasts(client: RawClient) -> None:
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert hello(client) == ErrorCode.NONE
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 2)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 600_000)
    assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_a_login_in_bare_tokens(client: RawClient) -> None:
    assert hello(client, 0) == ErrorCode.NONE
    client.send_frame(RIGHT)
    assert client.frame() == b""
    assert client.ask(MetadataRequest(topics=[]), 1).brokers


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_wrong_password_is_answered_and_the_connection_closed(client: RawClient, version: int) -> None:
    hello(client)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=WRONG), version)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert client.is_closed()


def test_a_wrong_bare_token_is_not_answered(client: RawClient) -> None:
    hello(client, 0)
    client.send_frame(WRONG)
    assert client.is_closed()


def test_unknown_mechanism_is_answered_with_the_offered_ones(client: RawClient) -> None:
    answer = client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == ["PLAIN"]
    assert client.is_closed()


def test_a_request_before_the_login_closes_the_connection(client: RawClient) -> None:
    assert client.ask(MetadataRequest(topics=[]), 1) is None


def test_a_request_instead_of_a_token_is_refused(client: RawClient) -> None:
    hello(client)
    answer = client.ask(ApiVersionsRequest(), 0)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed()


def test_a_token_before_the_handshake_closes_the_connection(client: RawClient) -> None:
    assert client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 2) is None


def test_versions_are_answered_once(client: RawClient) -> None:
    assert client.ask(ApiVersionsRequest(), 0).error_code == 0
    assert client.ask(ApiVersionsRequest(), 0) is None


def test_a_large_frame_before_the_login_closes_the_connection(client: RawClient) -> None:
    client.socket.sendall((524289).to_bytes(4, "big") + b"\0\x12\0\0")
    assert client.is_closed()


def test_what_is_no_request_closes_the_connection(client: RawClient) -> None:
    client.send_frame(b"\x60\x82\x01\x01 a token of Kerberos")
    assert client.is_closed()


def test_a_client_logs_in_again_and_stays_who_it_is(client: RawClient) -> None:
    for _ in range(2):
        assert hello(client) == ErrorCode.NONE
        assert client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1).session_lifetime_ms == 600_000
    # Sooner than a second after the second time: the handshake is that of a client that has logged in.
    assert hello(client) == ErrorCode.ILLEGAL_SASL_STATE
    late = client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1)
    assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(MetadataRequest(topics=[]), 1).brokers


def test_a_client_cannot_become_somebody_else(client: RawClient) -> None:
    hello(client)
    client.ask(SaslAuthenticateRequest(auth_bytes=RIGHT), 1)
    hello(client)
    answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0builder"), 1)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in answer.error_message
    assert client.is_closed()
