"""Two brokers that reach each other with TLS and a login, as User:admin, while no other user may act on the cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from tests.support.certificates import Files, written

from .conftest import StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

PREFIX = "listener.name.sasl_ssl"
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="admin" password="secret" user_admin="secret";'
)


PLAIN = ("sasl.mechanism.inter.broker.protocol=PLAIN", "sasl.enabled.mechanisms=PLAIN")


def with_tokens(directory: Path) -> tuple[str, ...]:
    """Write a token of admin, and the key that it is signed with; return the settings of brokers that use it."""
    key = ECKey.generate_key("P-256", {"kid": "k"})
    (directory / "jwks.json").write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    now_s = int(time.time())
    claims = {"sub": "admin", "iat": now_s, "exp": now_s + 3600, "iss": "tests", "aud": "kafka"}
    (directory / "token").write_text(jwt.encode({"alg": "ES256", "kid": "k"}, claims, key))
    return (
        "sasl.mechanism.inter.broker.protocol=OAUTHBEARER",
        "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER",
        f"sasl.oauthbearer.jwks.endpoint.url=file://{directory}/jwks.json",
        "sasl.oauthbearer.expected.issuer=tests",
        "sasl.oauthbearer.expected.audience=kafka",
        f"sasl.oauthbearer.token.endpoint.url=file://{directory}/token",
        f"{PREFIX}.oauthbearer.connections.max.reauth.ms=1500",
    )


def settings(files: Files, zookeeper: str, number: int) -> tuple[str, ...]:
    return (
        f"zookeeper.connect={zookeeper}", f"broker.id={number}",
        "security.inter.broker.protocol=SASL_SSL",
        f"{PREFIX}.plain.sasl.jaas.config={JAAS}",
        "ssl.keystore.type=PEM", f"ssl.keystore.location={files.broker}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={files.authority}",
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "super.users=User:admin",
        "controlled.shutdown.enable=false",
        "default.replication.factor=2", "min.insync.replicas=2", "offsets.topic.num.partitions=1",
        "offsets.topic.replication.factor=2", "group.initial.rebalance.delay.ms=0",
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_brokers_replicate_with_tls_and_logins(
    start_broker: StartBroker, zookeeper: str, tmp_path: Path, mechanism: str
) -> None:
    """Those with tokens are renewed on their connections: none is closed since its login has expired."""
    files = written(tmp_path / "certificates")
    own = with_tokens(tmp_path) if mechanism == "OAUTHBEARER" else PLAIN
    brokers = [
        start_broker(
            *settings(files, zookeeper, number),
            *own,
            data=tmp_path / str(number),
            listen="SASL_SSL://127.0.0.1:0",
        )
        for number in (1, 2)
    ]
    client = {
        "bootstrap.servers": ",".join(broker.bootstrap for broker in brokers), "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(files.authority), "sasl.mechanism": "PLAIN", "sasl.username": "admin",
        "sasl.password": "secret",
    }  # fmt: skip
    admin = AdminClient(client)
    admin.create_topics([NewTopic("copied", 4, 2)])["copied"].result(30)
    producer = Producer({**client, "acks": "all"})
    failures: list[object] = []
    for number in range(400):
        producer.produce(
            "copied", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert not failures
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["copied"])
    result: set[bytes] = set()
    while len(result) < 400:
        result |= {message.value() or b"" for message in consumer.consume(400, 1)}
    consumer.close()
    for broker in brokers:
        assert broker.stop() == 0
        assert "Traceback" not in broker.said()
        assert "the login has expired" not in broker.said()
