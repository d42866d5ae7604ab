"""TLS with stock clients: which are trusted, their principals by certificate, and a certificate that is renewed."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaProducer

from tests.support.certificates import Files, authority, signed, written

from .conftest import BrokerProcess, StartBroker, _start

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="builder";'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(tmp_path_factory.mktemp("certificates"))


def broker_settings(files: Files) -> tuple[str, ...]:
    return (
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.broker}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={files.authority}",
        "ssl.client.auth=requested",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:CN=alice,O=Castle;User:bob",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl_ssl.plain.sasl.jaas.config={JAAS}",
    )  # fmt: skip


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, files: Files) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("tls") / "data"
    process = _start(data, *broker_settings(files), listen="SSL://127.0.0.1:0")
    yield process
    assert process.stop() == 0
    assert "Traceback" not in process.said()


def options(broker: BrokerProcess, files: Files, **more: object) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(files.authority),
        "log_level": 0, **{name.replace("_", "."): value for name, value in more.items()},
    }  # fmt: skip


def as_alice(files: Files) -> dict[str, object]:
    return {"ssl_certificate_location": str(files.client), "ssl_key_location": str(files.client_key)}


def test_a_client_with_a_certificate_is_who_it_says(broker: BrokerProcess, files: Files) -> None:
    requested = options(broker, files, **as_alice(files))
    producer = Producer(requested)
    for _ in range(100):
        producer.produce("large", b"x" * 100_000)
    assert producer.flush(30) == 0
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({**requested, **group})
    consumer.subscribe(["large"])
    result: list[bytes] = []
    while len(result) < 100:
        result += [message.value() or b"" for message in consumer.consume(100 - len(result), 1)]
    assert set(result) == {b"x" * 100_000}
    consumer.close()


def test_a_client_without_a_certificate_is_anonymous(broker: BrokerProcess, files: Files) -> None:
    admin = AdminClient(options(broker, files))
    resource = ConfigResource(ResourceType.BROKER, "1")
    with pytest.raises(KafkaException) as refused:
        admin.describe_configs([resource])[resource].result(20)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_kafka_python_shows_its_certificate(broker: BrokerProcess, files: Files) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, security_protocol="SSL", ssl_cafile=str(files.authority),
        ssl_certfile=str(files.client), ssl_keyfile=str(files.client_key),
    )  # fmt: skip
    assert producer.send("by-kafka-python", b"x").get(20).offset == 0
    producer.close()


@pytest.mark.parametrize("host", ["localhost", ""])
def test_unadvertised_listener_has_name_of_its_certificate(
    start_broker: StartBroker, files: Files, tmp_path: Path, host: str
) -> None:
    """The name is that of `listeners`, or of this machine; no address is in the certificate."""
    name = host or socket.getfqdn()
    try:
        socket.getaddrinfo(name, None)
    except socket.gaierror:
        pytest.skip(f"this machine's own name {name!r} cannot be looked up")
    key = tmp_path / "named.pem"
    named = signed({"CN": "broker"}, authority(), host=name, has_address=False)
    key.write_text(named.key_pem + named.pem)
    stores = ("ssl.keystore.type=PEM", f"ssl.keystore.location={key}")
    broker = start_broker(*stores, listen=f"SSL://{host}:0")
    port = broker.bootstrap.rpartition(":")[2]
    producer = Producer(
        {
            "bootstrap.servers": f"{name}:{port}", "security.protocol": "SSL", "ssl.ca.location": str(files.authority),
            "ssl.endpoint.identification.algorithm": "https", "message.timeout.ms": 30_000, "log_level": 0,
        }
    )  # fmt: skip
    producer.produce("named", b"x")
    assert producer.flush(30) == 0
    brokers = (
        AdminClient({"bootstrap.servers": f"{name}:{port}", **_tls(files)}).list_topics(timeout=20).brokers
    )
    assert [f"{broker.host}:{broker.port}" for broker in brokers.values()] == [f"{name}:{port}"]


def _tls(files: Files) -> dict[str, object]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(files.authority), "log_level": 0}


def test_a_client_that_does_not_trust_the_broker_says_so(broker: BrokerProcess, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_text(signed({"CN": "Somebody else"}).pem)
    errors: list[KafkaError] = []
    requested = {
        "bootstrap.servers": broker.bootstrap, "security.protocol": "SSL", "ssl.ca.location": str(other),
        "error_cb": errors.append, "log_level": 0,
    }  # fmt: skip
    producer = Producer(requested)
    while not errors:
        producer.poll(0.1)
    # As _SSL or, when the connection has ended by then, as _TRANSPORT.
    assert "certificate verify failed" in errors[0].str()


def test_a_certificate_is_renewed_while_the_broker_runs(
    broker: BrokerProcess, files: Files, tmp_path: Path
) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    admin = AdminClient(options(broker, files, **as_alice(files)))

    def alter(location: Path) -> None:
        entry = ConfigEntry("listener.name.ssl.ssl.keystore.location", str(location))
        entry.incremental_operation = AlterConfigOpType.SET
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(20)

    def shown() -> str:
        return ssl.get_server_certificate((host, int(port)))

    before = shown()
    renewed = signed({"CN": "broker"}, authority())
    new = tmp_path / "renewed.pem"
    new.write_text(renewed.key_pem + renewed.pem)
    alter(new)
    assert shown() == renewed.pem != before
    again = signed({"CN": "broker"}, authority())
    new.write_text(again.key_pem + again.pem)
    assert shown() == renewed.pem
    alter(new)  # to what it was: the file is read again
    assert shown() == again.pem
    with pytest.raises(KafkaException):
        alter(tmp_path / "nowhere")
    for other in (
        signed({"CN": "broker", "O": "Castle"}, authority()),
        signed({"CN": "broker"}, authority(), host="x"),
    ):
        new.write_text(other.key_pem + other.pem)
        with pytest.raises(KafkaException):
            alter(new)
    assert shown() == again.pem


def test_logins_are_encrypted(files: Files, tmp_path: Path) -> None:
    broker = _start(tmp_path / "data", *broker_settings(files), listen="SASL_SSL://127.0.0.1:0")
    try:
        requested = options(
            broker, files, security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="bob"
        )
        producer = Producer({**requested, "sasl.password": "builder"})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0
        errors: list[KafkaError] = []
        wrong = Producer({**requested, "sasl.password": "wrong", "error_cb": errors.append})
        while not errors:
            wrong.poll(0.1)
        assert errors[0].code() == KafkaError._AUTHENTICATION
    finally:
        assert broker.stop() == 0
