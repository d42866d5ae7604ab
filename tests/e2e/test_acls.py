"""ACLs with stock clients: a user may do what the ACLs say, which admin clients make, list and delete."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from .conftest import StartBroker

pytestmark = [pytest.mark.e2e, pytest.mark.filterwarnings("ignore")]

PASSWORD = "secret"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required " + " ".join(
    f'user_{name}="{PASSWORD}"' for name in ("admin", "alice", "bob")
)
SETTINGS = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin",
    "sasl.enabled.mechanisms=PLAIN",
    f"listener.name.sasl_plaintext.plain.sasl.jaas.config={JAAS};",
    "group.initial.rebalance.delay.ms=0",
)
SECONDS = 20
ANY_ACL = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def login(bootstrap: str, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
    }


def allow(operation: AclOperation, kind: ResourceType, prefix: str) -> AclBinding:
    return AclBinding(
        kind, prefix, ResourcePatternType.PREFIXED, "User:alice", "*", operation, AclPermissionType.ALLOW
    )


ALICES = [
    allow(AclOperation.READ, ResourceType.TOPIC, "team-a-"),
    allow(AclOperation.WRITE, ResourceType.TOPIC, "team-a-"),
    allow(AclOperation.READ, ResourceType.GROUP, "team-a-"),
]


def outcome(who: dict[str, str], topic: str) -> KafkaError | None:
    """The error in the delivery report of one record."""
    reports: list[KafkaError | None] = []
    producer = Producer({**who, "enable.idempotence": True, "message.timeout.ms": 5000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: reports.append(error))
    assert producer.flush(SECONDS) == 0
    return reports[0]


def read(who: dict[str, str], group: str, topic: str) -> bytes | KafkaError:
    consumer = Consumer({**who, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(SECONDS)
    consumer.close()
    assert message is not None
    error = message.error()
    return error if error is not None else message.value()


def test_users_may_what_acls_say(start_broker: StartBroker) -> None:
    broker = start_broker(*SETTINGS, listen="SASL_PLAINTEXT://127.0.0.1:0")
    address = broker.bootstrap.rpartition("/")[2]
    admin = AdminClient(login(address, "admin"))
    for future in admin.create_topics([NewTopic("team-a-in", 1, 1), NewTopic("team-b-in", 1, 1)]).values():
        future.result(SECONDS)
    for future in admin.create_acls(ALICES).values():
        future.result(SECONDS)
    assert set(admin.describe_acls(ANY_ACL).result(SECONDS)) == set(ALICES)

    alice, bob = login(address, "alice"), login(address, "bob")
    assert outcome(alice, "team-a-in") is None
    assert read(alice, "team-a-group", "team-a-in") == b"v"
    assert set(AdminClient(alice).list_topics(timeout=SECONDS).topics) == {"team-a-in"}
    assert AdminClient(bob).list_topics(timeout=SECONDS).topics == {}
    for who, topic in ((alice, "team-b-in"), (bob, "team-a-in")):
        refused = outcome(who, topic)
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert read(alice, "team-b-group", "team-a-in").code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    no_admin = AdminClient(alice)
    with pytest.raises(KafkaException) as refusal:
        no_admin.create_acls(ALICES[:1])[ALICES[0]].result(SECONDS)
    assert refusal.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED

    (deleted,) = admin.delete_acls([ANY_ACL]).values()
    assert set(deleted.result(SECONDS)) == set(ALICES)
    refused = outcome(alice, "team-a-in")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "Principal = User:bob is Denied operation = " in broker.said()
