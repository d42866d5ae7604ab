"""Logins with Kerberos, by tickets of a real key distribution centre: which users get in, and what the others are told."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from barnabas.client.gssapi import gssapi
from barnabas.network.kerberos import Login, Tickets
from barnabas.testing.running import import_path
from barnabas.wire.generated.errors import ErrorCode
from barnabas.wire.generated.metadata import MetadataRequest
from barnabas.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.generated.sasl_handshake import SaslHandshakeRequest
from compat.security.kdc import NAME, Realm
from tests.support.kerberos import realm_or_skip
from tests.support.raw_client import RawClient

from .conftest import PROGRAM, ROOT, BrokerProcess, StartBroker, _start

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

SERVICE = "kafka/localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
PREFIX = "listener.name.sasl_plaintext"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    with realm_or_skip(tmp_path_factory.mktemp("realm")) as created:
        yield created


def jaas(realm: Realm, *principals: str) -> str:
    keytab = realm.keytab(*principals)
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principals[0]}@{NAME}";'


def settings(realm: Realm) -> tuple[str, ...]:
    return (
        "sasl.enabled.mechanisms=GSSAPI,PLAIN",
        "sasl.kerberos.service.name=kafka",
        f"{PREFIX}.gssapi.sasl.jaas.config={jaas(realm, SERVICE)}",
        f"{PREFIX}.gssapi.connections.max.reauth.ms=600000",
        f"{PREFIX}.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_a=b;",
        "sasl.kerberos.principal.to.local.rules=RULE:[2:$1-of-$2](job-of-.*),RULE:[1:$1](.*)s/^nobody$/a@b/,DEFAULT",
        "connection.failed.authentication.delay.ms=20",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:alice;User:job-of-night",
    )


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("kerberos") / "data"
    process = _start(data, *settings(realm), listen="SASL_PLAINTEXT://localhost:0")
    yield process
    assert process.stop() == 0
    assert "Traceback" not in process.said()


def tickets(realm: Realm, principal: str = "alice", service: str = "kafka") -> Tickets:
    return Tickets(Login(service, f"{principal}@{NAME}", str(realm.keytab(principal))))


def log_in(client: RawClient, tickets: Tickets) -> list[tuple[int, str | None]]:
    """Go through a login; returns code and text of each answer."""
    assert client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == ErrorCode.NONE
    messages = gssapi(tickets, "localhost")
    answers: list[tuple[int, str | None]] = []
    data: bytes | None = next(messages)
    while data is not None:
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
        answers.append((answer.error_code, answer.error_message))
        if answer.error_code:
            break
        try:
            data = messages.send(bytes(answer.auth_bytes))
        except StopIteration:
            data = None
    return answers


def may_act_on_cluster(client: RawClient) -> bool:
    answer = client.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8)
    return answer is not None and answer.cluster_authorized_operations != 0


def test_kafka_python_logs_in_produces_and_reads(broker: BrokerProcess, realm: Realm) -> None:
    options = {
        "bootstrap_servers": broker.bootstrap, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka", "sasl_kerberos_domain_name": "localhost",
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", str(realm.tickets("alice")))
        producer = KafkaProducer(**options)
        producer.send("by-kafka-python", b"hello").get(20)
        producer.close()
        consumer = KafkaConsumer(**options)
        consumer.assign([TopicPartition("by-kafka-python", 0)])
        consumer.seek_to_beginning()
        assert next(consumer).value == b"hello"
        consumer.close()


@pytest.mark.parametrize(("principal", "may"), [("alice", True), ("bob", False), ("job/night", True)])
def test_a_principal_becomes_a_user_by_the_rules(
    broker: BrokerProcess, realm: Realm, principal: str, may: bool
) -> None:
    with RawClient(broker.bootstrap) as client:
        assert log_in(client, tickets(realm, principal))[-1] == (0, "")
        assert may_act_on_cluster(client) is may


def test_bare_tokens_work_after_handshake_0_and_without_any(broker: BrokerProcess, realm: Realm) -> None:
    for has_handshake in (True, False):
        with RawClient(broker.bootstrap) as client:
            if has_handshake:
                assert client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 0).error_code == ErrorCode.NONE
            messages = gssapi(tickets(realm), "localhost")
            data = next(messages)
            for _ in range(2):
                client.send_frame(data)
                answer = client.frame()
                assert answer is not None
                data = messages.send(answer)
            client.send_frame(data)
            assert may_act_on_cluster(client)


def test_a_ticket_for_another_service_lets_nobody_in(broker: BrokerProcess, realm: Realm) -> None:
    realm.keytab("http/localhost")
    with RawClient(broker.bootstrap) as client:
        answers = log_in(client, tickets(realm, "alice", "http"))
        output = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
        assert answers == [(ErrorCode.SASL_AUTHENTICATION_FAILED, output)]
        assert client.is_closed()
    assert "sasl.kerberos.service.name" in broker.said()


def test_replayed_ticket_closes_connection_without_response(broker: BrokerProcess, realm: Realm) -> None:
    token = next(gssapi(tickets(realm), "localhost"))
    for is_first in (True, False):
        with RawClient(broker.bootstrap) as client:
            client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
            answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert (answer is not None) is is_first
    assert "eplay" in broker.said()


def test_a_principal_whose_name_is_not_simple_is_not_let_in(broker: BrokerProcess, realm: Realm) -> None:
    with RawClient(broker.bootstrap) as client:
        assert log_in(client, tickets(realm, "nobody"))[-1][0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
    assert "no simple name" in broker.said()


def test_a_login_is_renewed_by_the_same_principal_only(broker: BrokerProcess, realm: Realm) -> None:
    for principal, code in (("alice", ErrorCode.NONE), ("bob", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        with RawClient(broker.bootstrap) as client:
            log_in(client, tickets(realm))
            assert log_in(client, tickets(realm, principal))[-1][0] == code
            assert may_act_on_cluster(client) is (principal == "alice")


def test_a_new_keytab_is_used_without_a_restart(start_broker: StartBroker, realm: Realm) -> None:
    service = "rolling/localhost"
    lines = [line.replace(jaas(realm, SERVICE), jaas(realm, service)) for line in settings(realm)]
    broker = start_broker(*lines, listen="SASL_PLAINTEXT://localhost:0")
    realm.change_key(service)
    codes = []
    for _ in range(2):
        with RawClient(broker.bootstrap) as client:
            codes.append(log_in(client, tickets(realm, "alice", "rolling"))[-1][0])
        realm.keytab(service)
    assert codes == [ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.NONE]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"keyTab": "/none"}, "keytab /none"),
        ({"principal": f"other@{NAME}"}, f"principal 'other@{NAME}'"),
        ({"useKeyTab": "false"}, "required useKeyTab=true storeKey=true"),
        ({"serviceName": "http"}, "serviceName=http"),
    ],
)
def test_a_key_that_is_not_there_stops_the_start(
    realm: Realm, tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    options = {
        "useKeyTab": "true", "storeKey": "true", "keyTab": f'"{realm.keytab(SERVICE)}"', "principal": f'"{SERVICE}@{NAME}"',
        **{name: f'"{value}"' for name, value in changed.items()},
    }  # fmt: skip
    module = f"{MODULE} required {' '.join(f'{name}={value}' for name, value in options.items())};"
    lines = [
        f"{PREFIX}.gssapi.sasl.jaas.config={module}" if ".gssapi.sasl.jaas" in line else line
        for line in settings(realm)
    ]
    command = [
        *PROGRAM,
        "serve",
        "--listen",
        "SASL_PLAINTEXT://localhost:0",
        "--data",
        str(tmp_path / "data"),
    ]
    for line in lines:
        command += ["--set", line]
    environment = {**os.environ, "PYTHONPATH": import_path(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_brokers_log_in_to_each_other(
    start_broker: StartBroker, zookeeper: str, realm: Realm, tmp_path: Path
) -> None:
    common = (
        *(line for line in settings(realm) if not line.startswith(("authorizer", "super.users"))),
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:kafka",
        f"zookeeper.connect={zookeeper}", "security.inter.broker.protocol=SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol=GSSAPI", "controlled.shutdown.enable=false",
        "default.replication.factor=2", "min.insync.replicas=2", "offsets.topic.num.partitions=1",
    )  # fmt: skip
    brokers = [
        start_broker(
            *common, f"broker.id={number}", data=tmp_path / str(number), listen="SASL_PLAINTEXT://localhost:0"
        )
        for number in (1, 2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KRB5CCNAME", str(realm.tickets(SERVICE)))
        producer = KafkaProducer(
            bootstrap_servers=[broker.bootstrap for broker in brokers], security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka", sasl_kerberos_domain_name="localhost", acks="all",
        )  # fmt: skip
        sent = [producer.send("copied", b"%d" % number) for number in range(100)]
        assert {future.get(30).partition for future in sent}
        producer.close()
    for broker in brokers:
        assert broker.stop() == 0
        assert "Traceback" not in broker.said()
